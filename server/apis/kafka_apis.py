"""KafkaApis: the dispatch of requests to their handlers, and the error responses for exceptions of handlers."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import CoroutineType, coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from ...common.room_logger import room_logger
from ...protocol.apis import ApiKey
from ...protocol.codec import LARGE_PIECE_BYTES, encode_long_response, encode_response, request_decoder
from ...protocol.errors import ErrorCode, KafkaError, ProtocolError
from ...protocol.headers import API_SIZE, api_at, decode_request_header, key_at, response_front
from ...protocol.joint_fetch import FIRST_VERSION, LAST_VERSION
from ...protocol.produce_entries import CompactProduceResponse, read_produce
from ..metadata.metadata_store import StoreFailedError
from ..runtime.loop_sharing import TurnQueue
from ..runtime.ports import no_collection
from .acl_checks import AclInterceptor
from .error_responses import error_response
from .interceptors import Interceptor, QuotaInterceptor, RequestMeter
from .joint_fetch import JointFetch
from .joint_produce import JointProduce
from .large_requests import LANE, LargeRequest, LargeRequests, RequestAdmission
from .pending_reply import PendingReply
from .request_context import Handle, RequestContext, Respond
from .response_budget import is_large_response
from .services import Services, bind

if TYPE_CHECKING:
    from collections import Counter

    from ...protocol.headers import RequestHeader
    from ..network.connection import Connection
    from ..quotas.quota_managers import QuotaManagers
    from ..security.authorizer import Authorizer
    from .error_counts import ErrorCounts

logger = room_logger("apis")

T = TypeVar("T")

LARGE_REQUEST_BYTES = 1 << 15
"""A larger request is decoded in a lane, and its response is encoded there: each takes up to 0.1 s."""
MAX_FRAME_BYTES = 2**31
CONNECTION_SETUP_APIS = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
"""The first requests of a connection. The loop handles a single one of them per turn, so that other clients are served
while many connect. Their queue is apart from the queue of group members, which may be long.
"""
NEVER_DECODED_IN_LANE = {ApiKey.PRODUCE, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
"""Decoded immediately, in any size: their records and tokens are not copied, and they contain little else."""
CANCELLABLE = {
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.OFFSET_FETCH,
    ApiKey.FIND_COORDINATOR,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.LIST_GROUPS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.STREAMS_GROUP_DESCRIBE,
    ApiKey.LIST_CONFIG_RESOURCES,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ApiKey.METADATA,
}
"""Large requests of these APIs are cancelled when their connection is closed: they change nothing, but for Metadata,
which is not cancelled any more when it creates topics. Requests of other APIs are carried out, as in Kafka."""
NO_LARGER_THAN_REQUEST = {ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN, ApiKey.LEAVE_GROUP}
"""APIs whose response has an item for an item of the request, so that its items need not be counted."""
EAGER = {
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.LEAVE_GROUP,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
}
"""APIs whose coroutine runs without a task until it first waits: most of their responses need no wait, and save the
task and a turn of the event loop. Until then the coroutine must not use `asyncio.timeout`, which needs a task."""


@dataclass(slots=True)
class Route:
    """The functions for the requests of one version of one API."""

    read: Callable[[memoryview, int, int], tuple[RequestHeader, Any]]
    handle: Handle
    respond: Respond
    turn_queue: TurnQueue | None = None
    """The queue in which its requests wait for their turn."""
    max_bytes: int = LARGE_REQUEST_BYTES
    """A larger request is decoded in a lane."""
    is_joinable: bool = False
    """Whether its requests may wait together with equal ones."""


def _reader(key: ApiKey, version: int) -> Callable[[memoryview, int, int], tuple[RequestHeader, Any]]:
    """Return the function that decodes the frame at [start, end) of a buffer. It raises ProtocolError."""
    if key is ApiKey.PRODUCE:
        return partial(read_produce, version)
    decode = request_decoder(key, version)

    def read(buffer: memoryview, start: int, end: int) -> tuple[RequestHeader, Any]:
        header, position = decode_request_header(buffer, start, end)
        return header, decode(buffer, position, end)

    return read


class CachedResponseEncoder:
    """The encoder of one version of ApiVersions: nearly all its responses are equal, so the last encoding is kept.

    A response must not change once it is encoded.
    """

    __slots__ = ("_body", "_last")

    def __init__(self) -> None:
        self._last: Any = None
        self._body = b""

    def encode(self, response: Any, version: int) -> list[Any]:
        """Encode as `encode_response`, or return the last encoding if the last response was equal."""
        if response != self._last:
            self._body = b"".join(encode_response(response, version))
            self._last = response
        return [self._body]


class KafkaApis:
    """Dispatches the requests of all connections of a broker. Used on the event loop's thread only."""

    def __init__(
        self,
        services: Services,
        loop: asyncio.AbstractEventLoop,
        *,
        quotas: QuotaManagers,
        turn_queue: TurnQueue,
        authorizer: Authorizer | None = None,
        memory_limit: int | None = None,
    ) -> None:
        """Requests that thousands of clients may send at the same moment are handled in `turn_queue`. Without an
        authorizer every operation is allowed, as in Kafka. `memory_limit` is that of the process in bytes, if any.
        """
        self._services = services
        self._served = services.served
        self._loop = loop
        self._routes: dict[int, Route] = {}
        """The routes by the API key and version at the start of a frame."""
        self._interceptors: list[Interceptor] = [QuotaInterceptor(quotas)]
        """The interceptors, in the order in which a request passes them."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn_queue = turn_queue
        self._connection_setup_queue = TurnQueue(loop, no_collection)
        self._authorizer = authorizer
        self._work = services.work
        self._large = LargeRequests(services.work, loop, memory_limit)
        is_authorized = None
        if authorizer is not None:
            acls = AclInterceptor(
                authorizer, self._served, services.metadata_cache, services.sliced_work, services.work
            )
            # After the quotas: a request that is denied as a whole is charged like any other.
            self._interceptors.append(acls)
            is_authorized = acls.topic_check(ApiKey.PRODUCE)
        quotas.enforced_listeners.append(self._routes.clear)
        self._failures = 0
        self._quotas = quotas
        self._joint_fetch = JointFetch(services)
        self._joint_produce = JointProduce(services, self._responder, quotas, is_authorized)
        self._joint_interceptors = len(self._interceptors)
        """The number of interceptors whose work `JointProduce` does for its requests."""
        self._error_counts: ErrorCounts | None = None

    @property
    def failures(self) -> int:
        """Requests that failed inside the broker, and partitions of requests."""
        return self._failures + self._services.replica_manager.failures

    def add_interceptor(self, interceptor: Interceptor, *, first: bool = False) -> None:
        """Pass later requests through this interceptor, too.

        It is called after all others, or with `first` before them: it then sees requests that the others refuse.
        """
        self._interceptors.insert(0 if first else len(self._interceptors), interceptor)
        self._routes.clear()

    def remove_interceptor(self, interceptor: Interceptor) -> None:
        """Undo `add_interceptor`."""
        self._interceptors.remove(interceptor)
        self._routes.clear()

    def measure(self, meter: RequestMeter) -> None:
        """Measure later requests, including requests that are handled together."""
        assert self._joint_produce.meter is None, "there is one meter"
        self._joint_produce.meter = meter
        self._joint_interceptors += 1
        self.add_interceptor(meter.intercept, first=True)

    def stop_measuring(self, meter: RequestMeter) -> None:
        """Undo `measure`."""
        self._joint_produce.meter = None
        self._joint_interceptors -= 1
        self.remove_interceptor(meter.intercept)

    def count_errors(self, counts: ErrorCounts) -> None:
        """Count the errors in later responses."""
        self._error_counts = counts
        self._routes.clear()

    def handle(
        self,
        connection: Connection,
        buffer: memoryview,
        start: int,
        end: int,
        *,
        is_turn: bool = False,
        decoded: tuple[RequestHeader, Any] | None = None,
        admission: RequestAdmission | None = None,
    ) -> None:
        """Handle the frame at [start, end); the response is sent now or later, or the connection is closed.

        `decoded` is the request of a frame that was decoded in a lane, with the `admission` of a large request. Raises
        ProtocolError for bytes that are not a request which this broker serves: Kafka closes the connection then.
        """
        size = end - start
        route = self._routes.get(api_at(buffer, start)[0]) if size >= API_SIZE else None
        if route is None:
            route = self._route(buffer, start, end)
        is_large = size > route.max_bytes
        if (is_large and decoded is None) or (route.turn_queue is not None and not is_turn):
            self._handle_later(connection, route, buffer[start:end], decoded, admission)
            return
        if route.is_joinable and self._joint_fetch.handle(connection, route.respond, buffer, start, end):
            return
        header, request = decoded or route.read(buffer, start, end)
        # Positional: Python 3.11 makes a dictionary of the keyword arguments of a class.
        context = RequestContext(header, connection, route.respond, size, self._authorizer, admission, is_large)
        try:
            response = route.handle(context, request)
        except Exception as error:  # noqa: BLE001 - each exception of a handler becomes a response
            self._fail(context, request, error)
        else:
            if isinstance(response, CoroutineType):
                if header.api_key in EAGER:
                    self._resume(context, request, response)
                else:
                    self._run_in_task(context, request, response)
            elif response is not None:
                route.respond(context, response)
            elif context.fetch is not None:
                fetch, context.fetch = context.fetch, None  # it refers to the context
                if route.is_joinable:
                    self._joint_fetch.keep(connection, *fetch, buffer, start, end)
            # None: the exception for Produce, Fetch and the APIs of group members (`docs/adding-an-api.md`). They wait
            # in a purgatory or in their group, and respond in its callback: a task would cost several microseconds.

    def handle_together(
        self,
        connections: Sequence[Connection],
        buffer: memoryview,
        parts: list[tuple[int, int]],
        from_write_queue: bool,
    ) -> Iterator[tuple[int, int, bytes | None]]:
        """Handle requests of several connections together: `JointProduce.handle`. All others are left to `handle`."""
        if len(self._interceptors) > self._joint_interceptors:
            return iter(())
        return self._joint_produce.handle(connections, buffer, parts, from_write_queue)

    def refuse(self, connection: Connection, buffer: memoryview, start: int, end: int, error: KafkaError) -> None:
        """Respond to the frame at [start, end) with `error`, unless the client expects no response.

        Raises ProtocolError for bytes that are not a request which this broker serves.
        """
        route = self._route(buffer, start, end)
        header, request = route.read(buffer, start, end)
        response = error_response(ApiKey(header.api_key), header.api_version, request, error)
        if response is not None:
            route.respond(RequestContext(header, connection, route.respond), response)

    def _resume(self, context: RequestContext, request: Any, work: Coroutine[Any, Any, Any]) -> None:
        """Run the coroutine of a handler to its end or next `await`, without a task while it waits for coordinators.

        The counterpart of a task for a coroutine that waits for `PendingReply` objects only: each reply resumes it
        here. A coroutine that waits for anything else continues in a task.
        """
        try:
            awaited = work.send(None)
        except StopIteration as end:
            if end.value is not None:
                self._respond(context, end.value)
        except Exception as error:  # noqa: BLE001 - each exception of a handler becomes a response
            self._fail(context, request, error)
        else:
            if isinstance(awaited, PendingReply):
                awaited.when_done(partial(self._resume, context, request, work))
            else:
                self._run_in_task(context, request, continued(work, awaited))

    def _run_in_task(self, context: RequestContext, request: Any, work: Coroutine[Any, Any, Any]) -> None:
        task = self._loop.create_task(self._finish(context, request, work))
        self._tasks.add(task)
        task.add_done_callback(partial(self._on_task_done, work))
        if context.admission is not None and context.api_key in CANCELLABLE:
            context.on_disconnect(partial(_cancel, task))

    def _on_task_done(self, work: Coroutine[Any, Any, Any], task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        # A task that is cancelled before its first step does not run `_finish`, which would have awaited the handler.
        work.close()

    def _handle_later(
        self,
        connection: Connection,
        route: Route,
        frame: memoryview,
        decoded: tuple[RequestHeader, Any] | None,
        admission: RequestAdmission | None,
    ) -> None:
        """Handle a large frame after it was decoded in the lane, and another frame in its turn."""
        size = len(frame)
        if isinstance(frame.obj, bytearray):
            # The connections share this buffer.
            frame = memoryview(bytes(frame))
        if decoded is None and size > route.max_bytes:
            connection.keep_request()
            is_cancellable = key_at(frame, 0)[0] in CANCELLABLE
            read = partial(route.read, frame, 0, size)
            done = partial(self._on_decoded, connection, frame)
            self._large.add(LargeRequest(connection, is_cancellable, read, size, done))
        else:
            assert route.turn_queue is not None, "it is not decoded in the lane"
            route.turn_queue.add(partial(self._handle_in_turn, connection, frame, decoded, admission))

    def _on_decoded(
        self,
        connection: Connection,
        frame: memoryview,
        decoded: tuple[RequestHeader, Any] | None,
        error: BaseException | None,
        admission: RequestAdmission | None,
    ) -> None:
        """Handle a large request that was decoded in the lane."""
        if error is None:
            self.handle(connection, frame, 0, len(frame), decoded=decoded, admission=admission)
        elif isinstance(error, ProtocolError):
            connection.refuse(error)
        elif isinstance(error, MemoryError):
            connection.out_of_memory(f"no memory to read a request of {len(frame)} bytes")
        else:
            # Without a response the client would wait until its timeout.
            connection.close()
            raise error

    def _handle_in_turn(
        self,
        connection: Connection,
        frame: memoryview,
        decoded: tuple[RequestHeader, Any] | None,
        admission: RequestAdmission | None,
    ) -> None:
        try:
            self.handle(connection, frame, 0, len(frame), is_turn=True, decoded=decoded, admission=admission)
        except ProtocolError as error:
            connection.refuse(error)

    async def close(self) -> None:
        """Cancel the coroutines of handlers."""
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
            raise ProtocolError(f"API key {api_key} is not supported") from None
        handle: Handle = importlib.import_module(f".handlers.{api.handler}", __package__).handle
        handle = bind(handle, self._services)
        if api.lowest <= version <= api.highest:
            handle, respond = self._intercept(key, version, handle)
            turn_queue = self._turn_queue if api.is_queued else None
            if key in CONNECTION_SETUP_APIS:
                turn_queue = self._connection_setup_queue
            route = Route(_reader(key, version), handle, respond, turn_queue)
            if key in NEVER_DECODED_IN_LANE:
                route.max_bytes = MAX_FRAME_BYTES
            is_watched = self._quotas.enforced or len(self._interceptors) > 1 or self._error_counts is not None
            route.is_joinable = key is ApiKey.FETCH and FIRST_VERSION <= version <= LAST_VERSION and not is_watched
            self._routes[api_at(buffer, start)[0]] = route
            return route
        if key is ApiKey.API_VERSIONS:
            # The layout of the body is unknown: the handler responds in version 0, with error 35. The route is not
            # kept, as a client may send any version number.
            handle, respond = self._intercept(key, 0, handle)
            return Route(lambda *_: (header, None), handle, respond)
        raise ProtocolError(f"API key {api_key} has no version {version}")

    def _intercept(self, key: ApiKey, version: int, handle: Handle) -> tuple[Handle, Respond]:
        respond = self._responder(key, version)
        for interceptor in reversed(self._interceptors):
            handle, respond = interceptor(key, version, handle, respond)
        return handle, respond

    async def _finish(self, context: RequestContext, request: Any, answer: Coroutine[Any, Any, Any]) -> None:
        try:
            response = await answer
        except Exception as error:  # noqa: BLE001 - the boundary: each exception of a handler becomes a response
            self._fail(context, request, error)
        else:
            if response is not None:
                self._respond(context, response)

    def _respond(self, context: RequestContext, response: Any) -> None:
        """Respond after work of several turns. Its response may be large although its request was small."""
        if not context.is_large and context.api_key not in NO_LARGER_THAN_REQUEST:
            context.is_large = is_large_response(response)
        context.respond(response)

    def _responder(self, key: ApiKey, version: int) -> Callable[[RequestContext, Any], None]:
        """Return the function that encodes and sends the responses of one version of one API."""
        front, front_size = response_front(key, version)
        counts = self._error_counts
        find_errors = None if counts is None else counts.finder(key, version)
        encode = CachedResponseEncoder().encode if key is ApiKey.API_VERSIONS else encode_response

        def respond(context: RequestContext, response: Any) -> None:
            connection: Any = context.channel
            if response is None:
                context.release()
                connection.skip()
                return
            try:
                if isinstance(response, CompactProduceResponse):
                    frame = response.frame(version, context.correlation_id)
                    connection.send([frame], len(frame))
                    return
                if context.is_large:
                    self._work.submit(LANE, partial(write_long, response), partial(written, context))
                    return
                if find_errors is not None and (errors := find_errors(response)) is not None:
                    count_errors(errors)
                send(context, encode(response, version))
            except ProtocolError as error:
                unwritable(context, error)

        def write_long(response: Any) -> tuple[list[Any], Counter[int] | None]:
            return encode_long_response(response, version), None if find_errors is None else find_errors(response)

        def written(
            context: RequestContext,
            result: tuple[list[Any], Counter[int] | None] | None,
            error: BaseException | None,
        ) -> None:
            if result is None:
                unwritable(context, error)
                return
            parts, errors = result
            if errors is not None:
                count_errors(errors)
            send(context, parts)

        def count_errors(errors: Counter[int]) -> None:
            if counts is not None:
                counts.update(key, errors)

        def unwritable(context: RequestContext, error: BaseException | None) -> None:
            # An error of the broker: the request was valid.
            self._failures += 1
            logger.error("API key %d version %d: the response cannot be encoded", key, version, exc_info=error)
            context.close()

        def send(context: RequestContext, parts: list[Any]) -> None:
            size = front_size + (len(parts[0]) if len(parts) == 1 else sum(map(len, parts)))
            beginning = front(size - 4, context.correlation_id)
            if parts and len(parts[0]) < LARGE_PIECE_BYTES:
                # One part, and so one system call before the file slice of a fetch response.
                parts[0] = beginning + parts[0]
            else:
                parts.insert(0, beginning)
            connection: Any = context.channel
            connection.send(parts, size)
            if context.admission is not None:
                # The response takes about as much as the request, until its client has read it.
                connection.when_taken(context.release)

        return respond

    def _fail(self, context: RequestContext, request: Any, error: Exception) -> None:
        """Send the error response to a request that failed as a whole."""
        if isinstance(error, MemoryError):
            # An error response with an item for each item of the request takes memory, too.
            context.out_of_memory(str(error))
            return
        if isinstance(error, StoreFailedError):
            logger.warning("API key %d failed, because the metadata store is not available: %r", context.api_key, error)
            error = error.as_answer()
        elif not isinstance(error, KafkaError):
            self._failures += 1
            logger.error("API key %d version %d failed", context.api_key, context.api_version, exc_info=error)
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker failed to handle the request")
        context.denied = ()  # the error is that of all items
        build = partial(error_response, ApiKey(context.api_key), context.api_version, request, error)
        if context.is_large:
            self._work.submit(LANE, build, partial(self._send_error, context))  # it may have an item for each item
        else:
            self._send_error(context, build())

    @staticmethod
    def _send_error(context: RequestContext, response: Any, error: BaseException | None = None) -> None:
        """Send the error response; close the connection if there is none."""
        if response is None:
            context.close()
        else:
            context.respond(response)


async def continued(work: Coroutine[Any, Any, T], awaited: Any) -> T:
    """Await the rest of a coroutine whose first step has run, like a task with `eager_start` in Python 3.12."""
    return await _rest(work, awaited)


@coroutine
def _rest(work: Coroutine[Any, Any, T], awaited: Any) -> Generator[Any, Any, T]:
    try:
        while True:
            try:
                value = yield awaited
            except BaseException as error:  # noqa: BLE001 - thrown into the coroutine, CancelledError for example
                awaited = work.throw(error)
            else:
                awaited = work.send(value)
    except StopIteration as end:
        result: T = end.value
        return result


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
