"""KafkaApis: dispatches requests to handlers, has rights checked, makes answers of exceptions; each in one place."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from types import CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ...protocol.apis import ApiKey
from ...protocol.codec import encode_long_response, encode_response, request_decoder
from ...protocol.errors import ErrorCode, KafkaError, ProtocolError
from ...protocol.headers import API_SIZE, api_at, decode_request_header, response_front
from ...protocol.produce_entries import AllAppended, read_produce
from ...protocol.room_logger import room_logger
from ..metadata.metadata_store import StoreFailedError
from ..runtime.ports import no_collection
from ..runtime.turns import Turns
from .alike_answers import AlikeAnswers
from .answer_budget import holds_much
from .error_answers import error_answer
from .request_context import RequestContext
from .rights import Rights
from .services import Services, bind

if TYPE_CHECKING:
    from ...protocol.headers import RequestHeader
    from ..network.connection import Connection
    from ..quotas.client_quotas import ClientQuotas
    from ..security.authorizer import Authorizer

logger = room_logger("apis")

LARGE_REQUEST_BYTES = 1 << 15
"""A larger request is read beside the loop, and its answer is written there: each takes up to a tenth of a second."""
MOST_FRAME_BYTES = 2**31
AT_THE_DOOR = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
"""What clients ask for that come. Where several do at once, one of them is answered in each turn, and others are served
in between. They do not wait for members of groups: these have a queue of their own.
"""
READ_AT_ONCE = {ApiKey.PRODUCE, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
"""Read at once, however large: their bytes stay where they are, and little else is in them."""
LANE = "requests"
"""The lane that reads large requests and writes the answers to long ones."""


Handle: TypeAlias = Callable[[RequestContext, Any], Any]
"""Answers a request, or returns what will."""
Respond: TypeAlias = Callable[[RequestContext, Any], None]
"""Encodes and sends an answer."""


@dataclass(slots=True, frozen=True)
class Meter:
    """How the requests of one version of one API are measured."""

    begin: Callable[[], bool]
    """Counts one; says whether it is to be handled by `timed`."""
    is_slow: Callable[[], bool]
    """Whether the handler of the one begun last took long."""
    timed: Handle
    beyond: Callable[[RequestContext, Any, Any], None]
    """Looks at one that was slow, or is not answered yet: context, request and what the handler returned."""


@dataclass(slots=True)
class Route:
    """How one version of one API is read, handled and answered."""

    read: Callable[[memoryview, int, int], tuple[RequestHeader, Any]]
    handle: Handle
    respond: Respond
    turns: Turns | None = None
    """Where its requests wait for their turn."""
    most_bytes: int = LARGE_REQUEST_BYTES
    """A larger request is read beside the loop."""
    meter: Meter | None = None


class Around(Protocol):
    """What sees the requests of all APIs before their handlers, and their answers before they are sent."""

    def __call__(self, key: ApiKey, version: int, handle: Handle, respond: Respond) -> tuple[Handle, Respond]:
        """What is to handle and to answer requests of that kind instead of these two."""


def _reader(key: ApiKey, version: int) -> Callable[[memoryview, int, int], tuple[RequestHeader, Any]]:
    """What reads the frames at `[start, end)` of one version of one API. It raises ProtocolError."""
    if key is ApiKey.PRODUCE:
        return partial(read_produce, version)
    decode = request_decoder(key, version)

    def read(buffer: memoryview, start: int, end: int) -> tuple[RequestHeader, Any]:
        header, position = decode_request_header(buffer, start, end)
        return header, decode(buffer, position, end)

    return read


class KafkaApis:
    """Dispatches frames to handlers. Loop-thread only."""

    def __init__(
        self,
        services: Services,
        loop: asyncio.AbstractEventLoop,
        *,
        quotas: ClientQuotas,
        turns: Turns,
        authorizer: Authorizer | None = None,
    ) -> None:
        """What thousands may want at once is done in `turns`. Without an authorizer everybody may do everything, as in
        Kafka.
        """
        self._services = services
        self._served = services.served
        self._quotas = quotas
        self._loop = loop
        self._routes: dict[int, Route] = {}
        """By what a frame begins with."""
        self._around: list[Around] = []
        self._meter: Callable[[ApiKey, int, Handle], Meter] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = turns
        self._door = Turns(loop, no_collection)
        self._authorizer = authorizer
        self._long_work = services.long_work
        self._work = services.work
        self._rights = Rights(authorizer, services.metadata, services.work) if authorizer is not None else None
        self._failures = 0

    @property
    def failures(self) -> int:
        """Requests that failed inside the broker, and partitions of requests."""
        return self._failures + self._services.replica_manager.failures

    def surround(self, around: Around) -> None:
        """Have requests from now on go through this, too; costs nothing where it hands back what it got."""
        self._around.append(around)
        self._routes.clear()

    def leave_alone(self, around: Around) -> None:
        """Undo `surround`."""
        self._around.remove(around)
        self._routes.clear()

    def measure(self, meter: Callable[[ApiKey, int, Handle], Meter] | None) -> None:
        """Have requests from now on measured, each kind by what this makes of its API, version and handler; or not."""
        self._meter = meter
        self._routes.clear()

    def handle(
        self,
        connection: Connection,
        buffer: memoryview,
        start: int,
        end: int,
        *,
        is_turn: bool = False,
        found: tuple[RequestHeader, Any] | None = None,
    ) -> None:
        """Handle the frame at [start, end); answers now or later, or closes the connection.

        `found` is what it holds if it was read before. Raises ProtocolError for bytes that are no request this broker
        serves: Kafka's answer is a closed connection.
        """
        size = end - start
        route = self._routes.get(api_at(buffer, start)[0]) if size >= API_SIZE else None
        if route is None:
            route = self._route(buffer, start, end)
        is_long = size > route.most_bytes
        if (is_long and found is None) or (route.turns is not None and not is_turn):
            self._handle_later(connection, route, memoryview(bytes(buffer[start:end])), found)
            return
        header, request = found or route.read(buffer, start, end)
        run, respond, charge, meter = route.handle, route.respond, None, route.meter
        if meter is not None:
            begin, is_slow = meter.begin, meter.is_slow
            if begin():
                run, meter = meter.timed, None
        if self._quotas.enforced:
            charge = self._quotas.charge(connection.session.principal.name, header.client_id, size)
            run, respond = charge.timing(run), charge.settling(respond)
        if self._rights is not None and request is not None:
            run, respond = self._rights.guarding(run), self._rights.completing(respond)
        context = RequestContext(header, connection, respond, charge, self._authorizer)
        context.is_long = is_long
        try:
            answer = run(context, request)
            if meter is not None and (is_slow() or not context.is_answered):
                meter.beyond(context, request, answer)
        except Exception as error:  # noqa: BLE001 - the boundary: whatever a handler raises becomes an answer
            self._fail(context, request, error)
        else:
            if answer is None:
                return
            if isinstance(answer, GeneratorType | CoroutineType):
                self._go_on(context, request, answer)
            else:
                respond(context, answer)

    def _go_on(self, context: RequestContext, request: Any, work: Any) -> None:
        """Do what a handler has begun."""
        if isinstance(work, GeneratorType):
            self._long_work.run(work, partial(self._came_to, context, request))
            return
        task = self._loop.create_task(self._finish(context, request, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _handle_later(
        self, connection: Connection, route: Route, frame: memoryview, found: tuple[RequestHeader, Any] | None
    ) -> None:
        """Handle a copy of a frame later: a large one when it has been read beside the loop, another when it is its
        turn.
        """
        if found is None and len(frame) > route.most_bytes:
            read = partial(route.read, frame, 0, len(frame))
            self._work.submit(LANE, read, partial(self._was_read, connection, frame))
        else:
            assert route.turns is not None, "it is not read beside the loop"
            route.turns.add(partial(self._handle_in_turn, connection, frame, found))

    def _was_read(
        self,
        connection: Connection,
        frame: memoryview,
        found: tuple[RequestHeader, Any] | None,
        error: BaseException | None,
    ) -> None:
        """A large request has been read beside the loop."""
        if isinstance(error, ProtocolError):
            connection.refuse(error)
        elif error is not None:
            raise error
        else:
            self.handle(connection, frame, 0, len(frame), found=found)

    def _handle_in_turn(
        self, connection: Connection, frame: memoryview, found: tuple[RequestHeader, Any] | None
    ) -> None:
        try:
            self.handle(connection, frame, 0, len(frame), is_turn=True, found=found)
        except ProtocolError as error:
            connection.refuse(error)

    async def close(self) -> None:
        """Give up the requests that are still being worked on."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _route(self, buffer: memoryview, start: int, end: int) -> Route:
        """Load handler and codecs at their first use. Raises ProtocolError for an API or version that is not served."""
        header, _ = decode_request_header(buffer, start, end)
        api_key, version = header.api_key, header.api_version
        try:
            key = ApiKey(api_key)
            api = self._served[key]
        except (ValueError, KeyError):
            raise ProtocolError(f"API key {api_key} is not served") from None
        handle = importlib.import_module(f".handlers.{api.handler}", __package__).handle
        handle = bind(handle, self._services)
        if api.lowest <= version <= api.highest:
            respond = self._responder(key, version)
            for around in self._around:
                handle, respond = around(key, version, handle, respond)
            turns = self._door if key in AT_THE_DOOR else self._turns if api.in_turn else None
            route = Route(_reader(key, version), handle, respond, turns)
            if self._meter is not None:
                route.meter = self._meter(key, version, handle)
            if key in READ_AT_ONCE:
                route.most_bytes = MOST_FRAME_BYTES
            self._routes[api_at(buffer, start)[0]] = route
            return route
        if key is ApiKey.API_VERSIONS:
            # Not even the body's layout is known: the handler answers in version 0, with error 35. Not kept, since
            # there are many such versions.
            return Route(lambda *_: (header, None), handle, self._responder(key, 0))
        raise ProtocolError(f"API key {api_key} has no version {version}")

    async def _finish(self, context: RequestContext, request: Any, answer: Coroutine[Any, Any, Any]) -> None:
        try:
            response = await answer
        except Exception as error:  # noqa: BLE001 - the boundary: whatever a handler raises becomes an answer
            self._fail(context, request, error)
        else:
            if response is not None:
                self._respond(context, response)

    def _came_to(self, context: RequestContext, request: Any, response: Any, error: Exception | None) -> None:
        """Work in turns has ended."""
        if error is not None:
            self._fail(context, request, error)
        elif isinstance(response, GeneratorType | CoroutineType):
            self._go_on(context, request, response)
        elif response is not None:
            self._respond(context, response)

    def _respond(self, context: RequestContext, response: Any) -> None:
        """Answer what took more than one turn, and may hold much whatever its request was like."""
        context.is_long = context.is_long or holds_much(response)
        context.respond(response)

    def _responder(self, key: ApiKey, version: int) -> Callable[[RequestContext, Any], None]:
        """What encodes and sends the answers of one version of one API; None means that the request wants no answer."""
        front, front_size = response_front(key, version)
        encode = AlikeAnswers().encode if key is ApiKey.API_VERSIONS else encode_response

        def respond(context: RequestContext, response: Any) -> None:
            connection: Any = context.channel
            if response is None:
                connection.skip()
                return
            try:
                if isinstance(response, AllAppended):
                    frame = response.frame(version, context.correlation_id)
                    connection.send([frame], len(frame))
                    return
                if context.is_long:
                    write = partial(encode_long_response, response, version)
                    self._work.submit(LANE, write, partial(written, context))
                else:
                    send(context, encode(response, version))
            except ProtocolError as error:
                unwritable(context, error)

        def written(context: RequestContext, parts: list[Any] | None, error: BaseException | None) -> None:
            if parts is None:
                unwritable(context, error)
            else:
                send(context, parts)

        def unwritable(context: RequestContext, error: BaseException | None) -> None:
            # The broker's own fault, not the client's: its request was understood.
            self._failures += 1
            logger.error("API key %d version %d: the response cannot be encoded", key, version, exc_info=error)
            context.close()

        def send(context: RequestContext, parts: list[Any]) -> None:
            size = front_size + (len(parts[0]) if len(parts) == 1 else sum(map(len, parts)))
            parts.insert(0, front(size - 4, context.correlation_id))
            connection: Any = context.channel
            connection.send(parts, size)

        return respond

    def _fail(self, context: RequestContext, request: Any, error: Exception) -> None:
        """Answer a request that failed as a whole; where there is no answer, the connection is closed."""
        if isinstance(error, StoreFailedError):
            logger.warning("API key %d failed for want of the metadata store: %r", context.api_key, error)
            error = error.as_answer()
        elif not isinstance(error, KafkaError):
            self._failures += 1
            logger.error("API key %d version %d failed", context.api_key, context.api_version, exc_info=error)
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker failed to handle the request")
        context.refusals = ()  # the error is for all of it
        tell = partial(error_answer, ApiKey(context.api_key), context.api_version, request, error)
        if context.is_long:
            self._work.submit(LANE, tell, partial(self._tell, context))  # each of its items may have an answer
        else:
            self._tell(context, tell())

    @staticmethod
    def _tell(context: RequestContext, response: Any, error: BaseException | None = None) -> None:
        """A request that failed has its answer; without one, for whatever reason, the connection is closed."""
        if response is None:
            context.close()
        else:
            context.respond(response)
