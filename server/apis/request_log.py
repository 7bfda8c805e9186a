"""Every request and how long its answer took, in the log, while `barnabas.apis` is at DEBUG.

The level may be another at any time, by AlterConfigs of the broker's loggers for one. Requests lead through here only
while it is that low; at any other level they are as quick as if there were no such log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...protocol.room_logger import room_logger

if TYPE_CHECKING:
    from ...protocol.apis import ApiKey
    from .kafka_apis import Handle, KafkaApis, Respond
    from .request_context import RequestContext

logger = room_logger("apis")


class RequestLog:
    """Loop-thread only."""

    def __init__(self, apis: KafkaApis, stopwatch: Callable[[], float]) -> None:
        self._apis = apis
        self._stopwatch = stopwatch
        self._is_on = False

    def follow_level(self) -> None:
        """Begin or end, as the level says now."""
        wanted = logger.isEnabledFor(logging.DEBUG)
        if wanted and not self._is_on:
            self._apis.surround(self._around)
        elif self._is_on and not wanted:
            self._apis.leave_alone(self._around)
        self._is_on = wanted

    def _around(self, key: ApiKey, version: int, handle: Handle, respond: Respond) -> tuple[Handle, Respond]:
        time, name = self._stopwatch, key.name.title().replace("_", "")

        def begin(context: RequestContext, request: Any) -> Any:
            context.began = time()
            return handle(context, request)

        def tell(context: RequestContext, response: Any) -> None:
            respond(context, response)
            logger.debug(
                "%s v%d from %s client.id=%s user=%s correlation.id=%d: %s in %.3f ms",
                name,
                version,
                context.client_host,
                context.client_id,
                context.session.principal.name,
                context.correlation_id,
                "no answer is wanted" if response is None else "answered",
                (time() - context.began) * 1000,
            )

        return begin, tell
