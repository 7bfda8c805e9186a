"""Connectivity of a cluster's brokers: paused brokers and cut links.

Brokers identify themselves by their ids to each other, as in Kafka; a client with such an id would be treated as that
broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from .exchange import Exchange, kept, settled

if TYPE_CHECKING:
    from ..protocol.apis import ApiKey
    from ..server.apis.interceptors import Interceptor
    from ..server.apis.request_context import Handle, RequestContext, Respond


class Links:
    """Paused brokers and cut links of a cluster. Runs on the event loop."""

    def __init__(self) -> None:
        self._cuts: set[frozenset[str]] = set()
        self._hanging: dict[str, asyncio.Event] = {}
        """The events by broker, set when the broker resumes."""
        self._answers: dict[str, list[Callable[[], None]]] = {}
        """Responses of paused brokers, which have not been sent."""

    def interceptor(self, broker_id: int) -> Interceptor:
        """Intercept all requests to a broker, and its responses (`KafkaApis.add_interceptor`)."""
        return partial(self._around, str(broker_id))

    def cut(self, one: int, other: int) -> None:
        """Drop all requests between two brokers, and the pending responses."""
        self._cuts.add(frozenset((str(one), str(other))))

    def heal(self, one: int, other: int) -> None:
        """Let them reconnect at the next attempt."""
        self._cuts.discard(frozenset((str(one), str(other))))

    def pause(self, broker_id: int) -> None:
        """Pause a broker: it accepts connections and requests without handling them, and sends none."""
        self._hanging[str(broker_id)] = asyncio.Event()
        self._answers[str(broker_id)] = []

    def resume(self, broker_id: int) -> None:
        """Resume a broker, which handles the pending requests."""
        going = self._hanging.pop(str(broker_id), None)
        if going is not None:
            going.set()
            for send in self._answers.pop(str(broker_id)):
                send()

    def are_cut(self, one: int, other: int) -> bool:
        """Return whether two brokers cannot reach each other because of `cut`."""
        return frozenset((str(one), str(other))) in self._cuts

    def is_paused(self, broker_id: int) -> bool:
        """Return whether a broker is paused."""
        return str(broker_id) in self._hanging

    def _around(
        self, broker: str, key: ApiKey, version: int, handle: Handle, respond: Respond
    ) -> tuple[Handle, Respond]:
        def come(context: RequestContext, request: Any) -> Any:
            if not self._reaches(context.client_id, broker):
                context.close()
                return None
            if broker in self._hanging:
                return self._wait(broker, Exchange(key, context, kept(request), handle))
            return handle(context, request)

        def go(context: RequestContext, response: Any) -> None:
            if broker in self._hanging:
                self._answers[broker].append(partial(go, context, response))
            elif self._reaches(context.client_id, broker):
                respond(context, response)
            else:
                context.close()

        return come, go

    def _reaches(self, client: str | None, broker: str) -> bool:
        return client is None or (client not in self._hanging and frozenset((client, broker)) not in self._cuts)

    async def _wait(self, broker: str, exchange: Exchange) -> Any:
        while (going := self._hanging.get(broker)) is not None:
            await going.wait()
        return await settled(exchange.handle())
