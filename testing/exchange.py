"""What can happen to one request: the ways of a fault. Loop-thread only.

Each way takes what it needs to know and an `Exchange`, and returns what a handler returns: an answer, something that
will come to one, or None if the answer comes later or never.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import ceil
from types import CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any

from ..protocol.apis import ApiKey
from ..protocol.errors import KafkaError
from ..protocol.produce_entries import ProduceEntries
from ..protocol.schema import fields_of
from ..server.apis.error_answers import error_answer
from ..server.runtime.turns import next_turn

if TYPE_CHECKING:
    from ..server.apis.kafka_apis import Handle, Respond
    from ..server.apis.request_context import Change, RequestContext


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request on its way to its handler."""

    api: ApiKey
    context: RequestContext
    request: Any
    handler: Handle

    def handle(self) -> Any:
        """Go the usual way."""
        return self.handler(self.context, self.request)

    def answered_through(self, change: Change) -> Any:
        """Go the usual way, with an answer that goes through `change`."""
        return self.context.handle_through(self.handler, self.request, change)


def kept(request: Any) -> Any:
    """The request as it can be kept: records that are produced are in a buffer that is soon used again."""
    if not isinstance(request, ProduceEntries):
        return request
    entries = [(topic, index, memoryview(bytearray(batch))) for topic, index, batch in request.entries]
    return ProduceEntries(request.transactional_id, request.acks, request.timeout_ms, list(request.places), entries)


def answer_error(error: KafkaError, handled: bool, exchange: Exchange) -> Any:
    """An error instead of the answer."""
    if not handled:
        raise KafkaError(error.code, error.message)

    def lie(respond: Respond, context: RequestContext, response: Any) -> None:
        if response is None:
            respond(context, None)
            return
        refused = error_answer(exchange.api, context.api_version, exchange.request, error)
        if refused is None:
            context.close()
        else:
            respond(context, refused)

    return exchange.answered_through(lie)


def disconnect(handled: bool, exchange: Exchange) -> Any:
    """The end of the connection instead of the answer."""
    if handled:
        return exchange.answered_through(lambda _, context, __: context.close())
    exchange.context.close()
    return None


def keep_silent(handled: bool, exchange: Exchange) -> Any:
    """No answer; nor are later requests of the connection looked at, as answers come in order."""
    return exchange.answered_through(lambda *_: None) if handled else None


def answer_late(seconds: float, exchange: Exchange) -> Any:
    """What was asked for at once, and the answer later."""
    loop = asyncio.get_running_loop()

    def later(respond: Respond, context: RequestContext, response: Any) -> None:
        loop.call_later(_at_least(seconds), respond, context, response)

    return exchange.answered_through(later)


def late(seconds: float, way: Callable[[Exchange], Any], exchange: Exchange) -> Any:
    """Go some way, later."""
    return _later(seconds, way, replace(exchange, request=kept(exchange.request)))


async def _later(seconds: float, way: Callable[[Exchange], Any], exchange: Exchange) -> Any:
    await asyncio.sleep(_at_least(seconds))
    return await settled(way(exchange))


def _at_least(seconds: float) -> float:
    """How long to wait so that no less goes by: uvloop counts whole milliseconds, and is up to one too early."""
    return (ceil(seconds * 1000) + 1) / 1000


async def settled(answer: Any) -> Any:
    """What a way comes to, None if the answer comes otherwise; for callers that have let time pass."""
    if isinstance(answer, CoroutineType):
        return await answer
    if isinstance(answer, GeneratorType):
        return await _result(answer)
    return answer


async def _result(steps: GeneratorType[Any, Any, Any]) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        await next_turn()


def throttle(seconds: float, exchange: Exchange) -> Any:
    """The answer, with a wish, and deafness for as long."""

    def slow_down(respond: Respond, context: RequestContext, response: Any) -> None:
        if hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = int(seconds * 1000)
        context.mute(seconds)
        respond(context, response)

    return exchange.answered_through(slow_down)


def answer_from(function: Callable[[Any], Any], exchange: Exchange) -> Any:
    """What a function says, if it says anything."""
    answer = function(exchange.request)
    return exchange.handle() if answer is None else answer


def change(function: Callable[[Any, Any], Any], exchange: Exchange) -> Any:
    """What a function makes of the answer."""
    return exchange.answered_through(
        lambda respond, context, response: respond(context, function(exchange.request, _apart(response)))
    )


def _apart(value: Any) -> Any:
    """The same with messages and lists of its own: the broker keeps parts of answers for the next one who asks."""
    if isinstance(value, list):
        return [_apart(one) for one in value]
    if not hasattr(type(value), "__wire_fields__"):
        return value
    copied = copy.copy(value)
    for field in fields_of(type(value)):
        setattr(copied, field.name, _apart(getattr(value, field.name)))
    return copied


def narrow(served: Mapping[ApiKey, tuple[int, int]], exchange: Exchange) -> Any:
    """ApiVersions with fewer versions of some APIs, or without them."""

    def fewer(_: Any, response: Any) -> Any:
        for row in response.api_keys:
            least, most = served.get(row.api_key, (row.min_version, row.max_version))
            row.min_version, row.max_version = max(row.min_version, least), min(row.max_version, most)
        response.api_keys = [row for row in response.api_keys if row.max_version >= row.min_version]
        return response

    return change(fewer, exchange)
