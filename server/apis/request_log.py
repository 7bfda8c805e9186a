"""The request log: each request with the time until its response, while the logger `barnabas.apis` is at DEBUG.

IncrementalAlterConfigs of a broker logger changes the level at run time. At other levels the interceptor is removed:
the log then costs nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...common.room_logger import room_logger

if TYPE_CHECKING:
    from ...protocol.apis import ApiKey
    from .kafka_apis import KafkaApis
    from .request_context import Handle, RequestContext, Respond

logger = room_logger("apis")


class RequestLog:
    """The interceptor that logs requests. Used on the event loop's thread only."""

    def __init__(self, apis: KafkaApis, stopwatch: Callable[[], float]) -> None:
        self._apis = apis
        self._stopwatch = stopwatch
        self._is_on = False

    def follow_level(self) -> None:
        """Add or remove the interceptor according to the current level."""
        wanted = logger.isEnabledFor(logging.DEBUG)
        if wanted and not self._is_on:
            self._apis.add_interceptor(self._intercept)
        elif self._is_on and not wanted:
            self._apis.remove_interceptor(self._intercept)
        self._is_on = wanted

    def _intercept(self, key: ApiKey, version: int, handle: Handle, respond: Respond) -> tuple[Handle, Respond]:
        time, name = self._stopwatch, key.name.title().replace("_", "")

        def begin(context: RequestContext, request: Any) -> Any:
            context.began = time()
            return handle(context, request)

        def log_response(context: RequestContext, response: Any) -> None:
            respond(context, response)
            # A request that is refused during authentication has a response, but reaches no handler.
            began = getattr(context, "began", None)
            logger.debug(
                "%s v%d from %s client.id=%s user=%s correlation.id=%d: %s in %.3f ms",
                name,
                version,
                context.client_host,
                context.client_id,
                context.session.principal.name,
                context.correlation_id,
                "no response expected" if response is None else "answered",
                0.0 if began is None else (time() - began) * 1000,
            )

        return begin, log_response
