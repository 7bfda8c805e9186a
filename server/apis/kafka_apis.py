"""KafkaApis: dispatches requests to handlers, has rights checked, makes answers of exceptions; each in one place."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from struct import Struct
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from ...protocol.apis import ApiKey
from ...protocol.codec import encode_response, request_decoder
from ...protocol.errors import ErrorCode, KafkaError, ProtocolError
from ...protocol.headers import decode_request_header, response_header_version
from ...protocol.produce_entries import AllAppended, read_produce
from ..runtime.room_logger import room_logger
from .error_answers import error_answer
from .request_context import RequestContext
from .rights import Authorizer, Rights
from .services import Services, bind
from .table import SERVED

if TYPE_CHECKING:
    from ...protocol.headers import RequestHeader
    from ..network.connection import Connection

logger = room_logger("apis")

_api_at = Struct(">i").unpack_from  # key and version as one number
_head = Struct(">ii").pack
_flexible_head = Struct(">iix").pack  # and no tagged fields
_API_SIZE = 4


@dataclass(slots=True)
class Route:
    """How one version of one API is read, handled and answered."""

    read: Callable[[memoryview, int, int], tuple[RequestHeader, Any]]
    handle: Callable[[RequestContext, Any], Any]
    respond: Callable[[RequestContext, Any], None]
    in_turn: bool = False
    """Its requests wait for their turn."""


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
        authorizer: Authorizer | None = None,
    ) -> None:
        """Without an authorizer everybody may do everything, as in Kafka."""
        self._services = services
        self._quotas = services.quotas
        self._loop = loop
        self._routes: dict[int, Route] = {}
        """By what a frame begins with."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = services.turns
        self._authorizer = authorizer
        self._rights = Rights(authorizer, services.metadata) if authorizer is not None else None
        self.failures = 0
        """Requests that failed inside the broker."""

    def handle(
        self, connection: Connection, buffer: memoryview, start: int, end: int, *, is_turn: bool = False
    ) -> None:
        """Handle the frame at [start, end); answers now or later, or closes the connection.

        Raises ProtocolError for bytes that are no request this broker serves: Kafka's answer is a closed connection.
        """
        route = self._routes.get(_api_at(buffer, start)[0]) if end - start >= _API_SIZE else None
        if route is None:
            route = self._route(buffer, start, end)
        if route.in_turn and not is_turn:
            frame = memoryview(bytes(buffer[start:end]))  # the buffer is the connection's and not to be kept
            self._turns.add(partial(self._handle_in_turn, connection, frame))
            return
        header, request = route.read(buffer, start, end)
        run, respond, charge = route.handle, route.respond, None
        if self._quotas.enforced:
            charge = self._quotas.charge(connection.session.principal.name, header.client_id, end - start)
            run, respond = charge.timing(run), charge.settling(respond)
        if self._rights is not None and request is not None:
            run, respond = self._rights.guarding(run), self._rights.completing(respond)
        context = RequestContext(header, connection, respond, charge, self._authorizer)
        try:
            answer = run(context, request)
        except KafkaError as error:
            self._fail(context, request, error)
        except Exception:  # noqa: BLE001 - the boundary: whatever a handler raises becomes an answer
            self._fail(context, request, None)
        else:
            if answer is None:
                return
            if isinstance(answer, CoroutineType):
                task = self._loop.create_task(self._finish(context, request, answer))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            else:
                respond(context, answer)

    def _handle_in_turn(self, connection: Connection, frame: memoryview) -> None:
        try:
            self.handle(connection, frame, 0, len(frame), is_turn=True)
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
            api = SERVED[key]
        except (ValueError, KeyError):
            raise ProtocolError(f"API key {api_key} is not served") from None
        handle = importlib.import_module(f".handlers.{api.handler}", __package__).handle
        handle = bind(handle, self._services)
        if api.lowest <= version <= api.highest:
            route = Route(_reader(key, version), handle, self._responder(key, version), api.in_turn)
            self._routes[_api_at(buffer, start)[0]] = route
            return route
        if key is ApiKey.API_VERSIONS:
            # Not even the body's layout is known: the handler answers in version 0, with error 35. Not kept, since
            # there are many such versions.
            return Route(lambda *_: (header, None), handle, self._responder(key, 0))
        raise ProtocolError(f"API key {api_key} has no version {version}")

    async def _finish(self, context: RequestContext, request: Any, answer: Coroutine[Any, Any, Any]) -> None:
        try:
            response = await answer
        except KafkaError as error:
            self._fail(context, request, error)
        except Exception:  # noqa: BLE001 - the boundary: whatever a handler raises becomes an answer
            self._fail(context, request, None)
        else:
            if response is not None:
                context.respond(response)

    def _responder(self, key: ApiKey, version: int) -> Callable[[RequestContext, Any], None]:
        """What encodes and sends the answers of one version of one API; None means that the request wants no answer."""
        flexible = response_header_version(key, version)
        head, head_size = (_flexible_head, 9) if flexible else (_head, 8)

        def respond(context: RequestContext, response: Any) -> None:
            connection: Any = context.channel
            if response is None:
                connection.skip()
                return
            try:
                if type(response) is AllAppended:
                    frame = response.frame(version, context.correlation_id)
                    connection.send([frame], len(frame))
                    return
                parts = encode_response(response, version)
            except ProtocolError:
                # The broker's own fault, not the client's: its request was understood.
                self.failures += 1
                logger.exception("API key %d version %d: the response cannot be encoded", key, version)
                context.close()
                return
            size = head_size + (len(parts[0]) if len(parts) == 1 else sum(map(len, parts)))
            parts.insert(0, head(size - 4, context.correlation_id))
            connection.send(parts, size)

        return respond

    def _fail(self, context: RequestContext, request: Any, error: KafkaError | None) -> None:
        """Answer a request that failed as a whole; where there is no answer, the connection is closed."""
        if error is None:
            self.failures += 1
            logger.exception("API key %d version %d failed", context.api_key, context.api_version)
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker failed to handle the request")
        context.refusals = ()  # the error is for all of it
        response = error_answer(ApiKey(context.api_key), context.api_version, request, error)
        if response is None:
            context.close()
        else:
            context.respond(response)
