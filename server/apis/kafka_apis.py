"""KafkaApis: one table from API key to handler and versions, and the one place where exceptions become answers.

An API is added by a message file, a handler file and a line in `SERVED`. ApiVersions answers from the same table.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from struct import Struct
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from ...protocol.apis import API_MESSAGES, ApiKey
from ...protocol.codec import encode_response, request_decoder
from ...protocol.errors import ErrorCode, KafkaError, ProtocolError
from ...protocol.headers import decode_request_header, response_header_version
from .request_context import RequestContext
from .services import Services, bind

if TYPE_CHECKING:
    from ...protocol.headers import RequestHeader
    from ..broker_state import BrokerState
    from ..network.connection import Connection

logger = logging.getLogger("barnabas.apis")

SERVED: dict[ApiKey, tuple[str, int, int]] = {
    ApiKey.PRODUCE: ("produce", 0, 13),
    ApiKey.FETCH: ("fetch", 0, 18),
    ApiKey.LIST_OFFSETS: ("list_offsets", 0, 11),
    ApiKey.METADATA: ("metadata", 0, 13),
    ApiKey.OFFSET_COMMIT: ("offset_commit", 0, 10),
    ApiKey.OFFSET_FETCH: ("offset_fetch", 0, 10),
    ApiKey.FIND_COORDINATOR: ("find_coordinator", 0, 6),
    ApiKey.JOIN_GROUP: ("join_group", 0, 9),
    ApiKey.HEARTBEAT: ("heartbeat", 0, 4),
    ApiKey.LEAVE_GROUP: ("leave_group", 0, 5),
    ApiKey.SYNC_GROUP: ("sync_group", 0, 5),
    ApiKey.DESCRIBE_GROUPS: ("describe_groups", 0, 6),
    ApiKey.LIST_GROUPS: ("list_groups", 0, 5),
    ApiKey.API_VERSIONS: ("api_versions", 0, 4),
    ApiKey.CREATE_TOPICS: ("create_topics", 0, 7),
    ApiKey.DELETE_TOPICS: ("delete_topics", 0, 6),
    ApiKey.DELETE_RECORDS: ("delete_records", 0, 2),
    ApiKey.INIT_PRODUCER_ID: ("init_producer_id", 0, 5),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ("offset_for_leader_epoch", 0, 4),
    ApiKey.DESCRIBE_ACLS: ("describe_acls", 0, 3),
    ApiKey.CREATE_ACLS: ("create_acls", 0, 3),
    ApiKey.DELETE_ACLS: ("delete_acls", 0, 3),
    ApiKey.DESCRIBE_CONFIGS: ("describe_configs", 0, 4),
    ApiKey.ALTER_CONFIGS: ("alter_configs", 0, 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: ("alter_replica_log_dirs", 0, 2),
    ApiKey.DESCRIBE_LOG_DIRS: ("describe_log_dirs", 0, 5),
    ApiKey.CREATE_PARTITIONS: ("create_partitions", 0, 3),
    ApiKey.DELETE_GROUPS: ("delete_groups", 0, 2),
    ApiKey.ELECT_LEADERS: ("elect_leaders", 0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ("incremental_alter_configs", 0, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ("alter_partition_reassignments", 0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ("list_partition_reassignments", 0, 0),
    ApiKey.OFFSET_DELETE: ("offset_delete", 0, 0),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: ("describe_client_quotas", 0, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: ("alter_client_quotas", 0, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: ("describe_user_scram_credentials", 0, 0),
    ApiKey.DESCRIBE_CLUSTER: ("describe_cluster", 0, 2),
    ApiKey.DESCRIBE_PRODUCERS: ("describe_producers", 0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: ("describe_transactions", 0, 0),
    ApiKey.LIST_TRANSACTIONS: ("list_transactions", 0, 2),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: ("consumer_group_heartbeat", 0, 1),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ("consumer_group_describe", 0, 1),
    ApiKey.LIST_CONFIG_RESOURCES: ("list_config_resources", 0, 1),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ("describe_topic_partitions", 0, 0),
}
"""API key -> module in `handlers`, lowest and highest version served. Every version in between works in full."""

IN_TURN = frozenset({ApiKey.HEARTBEAT, ApiKey.JOIN_GROUP, ApiKey.LEAVE_GROUP, ApiKey.SYNC_GROUP})
"""What thousands of clients ask for at the same moment, each with up to a tenth of a millisecond's work: one of these
in each turn of the loop, decoding included, and everybody else is served in between."""

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
    decode = request_decoder(key, version)

    def read(buffer: memoryview, start: int, end: int) -> tuple[RequestHeader, Any]:
        header, position = decode_request_header(buffer, start, end)
        return header, decode(buffer, position, end)

    return read


class KafkaApis:
    """Dispatches frames to handlers. Loop-thread only."""

    def __init__(self, services: Services, broker: BrokerState, loop: asyncio.AbstractEventLoop) -> None:
        self._services = services
        self._broker = broker
        self._quotas = broker.quotas
        self._loop = loop
        self._routes: dict[int, Route] = {}
        """By what a frame begins with."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = broker.turns
        self.failures = 0
        """Requests that failed inside the broker."""

    def handle(self, connection: Connection, buffer: memoryview, start: int, end: int) -> None:
        """Handle the frame at [start, end); answers now or later, or closes the connection.

        Raises ProtocolError for bytes that are no request this broker serves: Kafka's answer is a closed connection.
        """
        route = self._routes.get(_api_at(buffer, start)[0]) if end - start >= _API_SIZE else None
        if route is None:
            route = self._route(buffer, start, end)
        if route.in_turn:
            frame = memoryview(bytes(buffer[start:end]))  # the buffer is the connection's and not to be kept
            self._turns.add(partial(self._handle_in_turn, connection, route, frame))
        else:
            self._handle(connection, route, buffer, start, end)

    def _handle_in_turn(self, connection: Connection, route: Route, frame: memoryview) -> None:
        try:
            self._handle(connection, route, frame, 0, len(frame))
        except ProtocolError as error:
            connection.refuse(error)

    def _handle(self, connection: Connection, route: Route, buffer: memoryview, start: int, end: int) -> None:
        header, request = route.read(buffer, start, end)
        run, respond, charge = route.handle, route.respond, None
        if self._quotas.enforced:
            charge = self._quotas.charge(header.client_id, end - start)
            run, respond = charge.timing(run), charge.settling(respond)
        context = RequestContext(header, self._broker, connection, respond, charge)
        try:
            answer = run(context, request)
        except KafkaError as error:
            self._fail(context, error)
        except Exception:  # noqa: BLE001 - the boundary: whatever a handler raises becomes an answer
            self._fail(context, None)
        else:
            if answer is None:
                return
            if isinstance(answer, CoroutineType):
                task = self._loop.create_task(self._finish(context, answer))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            else:
                respond(context, answer)

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
            module, lowest, highest = SERVED[key]
        except (ValueError, KeyError):
            raise ProtocolError(f"API key {api_key} is not served") from None
        handle = importlib.import_module(f".handlers.{module}", __package__).handle
        handle = bind(handle, self._services)
        if lowest <= version <= highest:
            route = Route(_reader(key, version), handle, self._responder(key, version), key in IN_TURN)
            self._routes[_api_at(buffer, start)[0]] = route
            return route
        if key is ApiKey.API_VERSIONS:
            # Not even the body's layout is known: the handler answers in version 0, with error 35. Not kept, since
            # there are many such versions.
            return Route(lambda *_: (header, None), handle, self._responder(key, 0))
        raise ProtocolError(f"API key {api_key} has no version {version}")

    async def _finish(self, context: RequestContext, answer: Coroutine[Any, Any, Any]) -> None:
        try:
            response = await answer
        except KafkaError as error:
            self._fail(context, error)
        except Exception:  # noqa: BLE001 - the boundary: whatever a handler raises becomes an answer
            self._fail(context, None)
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

    def _fail(self, context: RequestContext, error: KafkaError | None) -> None:
        """Answer a request that failed as a whole: with an error code where its response has one for all."""
        if error is None:
            self.failures += 1
            logger.exception("API key %d version %d failed", context.api_key, context.api_version)
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker failed to handle the request")
        response = API_MESSAGES[ApiKey(context.api_key)].response()
        if hasattr(response, "error_code"):
            response.error_code = error.code
            if hasattr(response, "error_message"):
                response.error_message = error.message
            context.respond(response)
        else:
            context.close()
