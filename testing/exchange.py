"""The effects of faults on one request. Runs on the event loop.

Each effect receives its parameters and an `Exchange`, and has the result of a handler: a response, an awaitable of
one, or None if the response is sent later or never.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import ceil
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from ..protocol.apis import ApiKey
from ..protocol.errors import KafkaError
from ..protocol.produce_entries import ProduceEntries
from ..protocol.schema import fields_of
from ..server.apis.error_responses import error_response

if TYPE_CHECKING:
    from ..server.apis.request_context import Handle, RequestContext, Respond, ResponseWrapper


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request before its handler."""

    api: ApiKey
    context: RequestContext
    request: Any
    handler: Handle

    def handle(self) -> Any:
        """Handle the request normally."""
        return self.handler(self.context, self.request)

    def answered_through(self, change: ResponseWrapper) -> Any:
        """Handle the request normally, with a change of the response."""
        return self.context.handle_and_wrap_response(self.handler, self.request, change)


def kept(request: Any) -> Any:
    """Return a copy of the request to keep: produced records are in a buffer that is reused."""
    if not isinstance(request, ProduceEntries):
        return request
    entries = [(topic, index, memoryview(bytearray(batch))) for topic, index, batch in request.entries]
    return ProduceEntries(request.transactional_id, request.acks, request.timeout_ms, list(request.keys), entries)


def answer_error(error: KafkaError, handled: bool, exchange: Exchange) -> Any:
    """Return an error instead of the response."""
    if not handled:
        raise KafkaError(error.code, error.message)

    def lie(respond: Respond, context: RequestContext, response: Any) -> None:
        if response is None:
            respond(context, None)
            return
        refused = error_response(exchange.api, context.api_version, exchange.request, error)
        if refused is None:
            context.close()
        else:
            respond(context, refused)

    return exchange.answered_through(lie)


def disconnect(handled: bool, exchange: Exchange) -> Any:
    """Close the connection instead of a response."""
    if handled:
        return exchange.answered_through(lambda _, context, __: context.close())
    exchange.context.close()
    return None


def keep_silent(handled: bool, exchange: Exchange) -> Any:
    """Never respond; later requests of the connection are not read either, as responses are sent in order."""
    return exchange.answered_through(lambda *_: None) if handled else None


def answer_late(seconds: float, exchange: Exchange) -> Any:
    """Handle the request immediately, and send the response later."""
    loop = asyncio.get_running_loop()

    def later(respond: Respond, context: RequestContext, response: Any) -> None:
        loop.call_later(_at_least(seconds), respond, context, response)

    return exchange.answered_through(later)


def late(seconds: float, way: Callable[[Exchange], Any], exchange: Exchange) -> Any:
    """Apply an effect later."""
    return _later(seconds, way, replace(exchange, request=kept(exchange.request)))


async def _later(seconds: float, way: Callable[[Exchange], Any], exchange: Exchange) -> Any:
    await asyncio.sleep(_at_least(seconds))
    return await settled(way(exchange))


def _at_least(seconds: float) -> float:
    """Return the time to sleep: uvloop counts whole milliseconds, and is up to one too early."""
    return (ceil(seconds * 1000) + 1) / 1000


async def settled(answer: Any) -> Any:
    """Return the response of an effect, None if it is sent separately; for callers that have waited."""
    if isinstance(answer, CoroutineType):
        return await answer
    return answer


def throttle(seconds: float, exchange: Exchange) -> Any:
    """Return the response with a throttle time, and mute the connection for that time."""

    def slow_down(respond: Respond, context: RequestContext, response: Any) -> None:
        if hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = int(seconds * 1000)
        context.mute(seconds)
        respond(context, response)

    return exchange.answered_through(slow_down)


def answer_from(function: Callable[[Any], Any], exchange: Exchange) -> Any:
    """Return the result of a function, if it is not None."""
    answer = function(exchange.request)
    return exchange.handle() if answer is None else answer


def change(function: Callable[[Any, Any], Any], exchange: Exchange) -> Any:
    """Return the response changed by a function."""
    return exchange.answered_through(
        lambda respond, context, response: respond(context, function(exchange.request, _apart(response)))
    )


def _apart(value: Any) -> Any:
    """Copy messages and lists: the broker caches parts of responses."""
    if isinstance(value, list):
        return [_apart(one) for one in value]
    if not hasattr(type(value), "__wire_fields__"):
        return value
    copied = copy.copy(value)
    for field in fields_of(type(value)):
        setattr(copied, field.name, _apart(getattr(value, field.name)))
    return copied


def narrow(served: Mapping[ApiKey, tuple[int, int]], exchange: Exchange) -> Any:
    """Return ApiVersions with fewer versions of some APIs, or without them."""

    def fewer(_: Any, response: Any) -> Any:
        for row in response.api_keys:
            least, most = served.get(row.api_key, (row.min_version, row.max_version))
            row.min_version, row.max_version = max(row.min_version, least), min(row.max_version, most)
        response.api_keys = [row for row in response.api_keys if row.max_version >= row.min_version]
        return response

    return change(fewer, exchange)
