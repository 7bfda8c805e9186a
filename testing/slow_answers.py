"""Responses that are sent a few bytes at a time. Runs on the event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ..storage.filesystem import FileSlice

if TYPE_CHECKING:
    from ..server.apis.request_context import RequestContext, Respond
    from .exchange import Exchange

DROPS_PER_SECOND = 50


class SlowChannel:
    """A connection that sends a response at a limited rate. All other methods are the connection's."""

    def __init__(self, connection: Any, bytes_per_second: float) -> None:
        self._connection = connection
        self._rate = bytes_per_second
        self._loop = asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def send(self, parts: list[Any], _: int) -> None:
        """`Connection.send` over time; the request counts as being handled until its last byte is sent."""
        answer = b"".join(part.read() if isinstance(part, FileSlice) else bytes(part) for part in parts)
        self._let_out(memoryview(answer), self._loop.time(), 0)

    def _let_out(self, answer: memoryview, began: float, sent: int) -> None:
        due = min(len(answer), int((self._loop.time() - began) * self._rate) + 1)
        if due == len(answer):
            self._connection.send([answer[sent:]], due - sent)
        elif self._connection.send_beginning(bytes(answer[sent:due])):
            wait = max(1 / DROPS_PER_SECOND, 1 / self._rate)
            self._loop.call_later(wait, self._let_out, answer, began, due)


def drip(bytes_per_second: float, exchange: Exchange) -> Any:
    """Send the response slowly."""

    def slowly(respond: Respond, context: RequestContext, response: Any) -> None:
        context.channel = SlowChannel(context.channel, bytes_per_second)
        respond(context, response)

    return exchange.answered_through(slowly)
