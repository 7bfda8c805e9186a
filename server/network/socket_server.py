"""The listening sockets, their connections, and the limits of connections."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ...common.room_logger import room_logger
from ...protocol.frames import BufferPool, FrameReader
from ...protocol.sasl_server import FIRST_REQUEST_BYTES, LARGEST_MESSAGE_BYTES, REQUEST_HEAD_BYTES
from ..config.keys.validators import ConfigError
from ..config.listeners import is_this_machine
from ..quotas.client_quota_manager import ListenerConnectionRate
from ..quotas.rates import QuotaWindow
from ..runtime.log_limit import LimitedLog
from ..runtime.loop_sharing import raise_error
from ..runtime.memory_budget import memory_budget
from ..runtime.write_queue import WriteQueue
from ..security.listener_security import PLAINTEXT, ListenerSecurity
from ..security.sasl_server_authenticator import SaslServerAuthenticator
from .admission import UnauthenticatedConnections
from .connection import Connection, Handle
from .memory_pool import MemoryPool
from .output import ResponseBatcher, limit_send_buffer
from .request_turn import HandleTogether, RequestTurn
from .sasl import Refuse, SaslRequestFilter
from .tls import HandshakeQueue, TlsAcceptor

if TYPE_CHECKING:
    from ...protocol.errors import ProtocolError
    from ..config.broker_config import BrokerConfig
    from ..config.listeners import ListenerConfig
    from ..quotas.client_quota_manager import ConnectionRateQuotaManager
    from ..runtime.ports import Work
    from ..security.tls_listener import TlsListener

logger = room_logger("network")

MAX_COMPARED_CONNECTIONS = 1000
"""Connections whose idle times are compared to make room for another broker: a fifth of a millisecond."""
CHECKED_CONNECTIONS_PER_TURN = 100
"""Connections that are checked for idleness and stalls; each is checked once per `CHECK_SECONDS`."""

RECEIVE_BYTES = (1 << 20) + (1 << 14)
"""A receive buffer: room for a batch of the default `max.message.bytes` and the request around it."""
SPARE_BUFFERS = 16
SMALL_FRAME_BYTES = 8 << 20
"""The largest size of requests other than Produce."""
HALF_RECEIVED_BYTES = 256 << 20
"""The size of the `MemoryPool` where `queued.max.request.bytes` is not set."""
RELEASE_AFTER = 100
"""The number of closed connections after which free memory is returned to the operating system."""
FRAME_SECONDS = 30.0
"""A frame that has begun to arrive must be complete within this time."""
SILENT_SECONDS = 3.0
"""A client that sends no byte of its large frame for this time, while others wait for memory, is disconnected."""
STALL_SECONDS = 30.0
"""A client that takes few bytes of its responses for this time is disconnected (`STALL_BYTES`)."""
RESERVED_FILES = 128
"""Descriptors that are kept for logs and the metadata store when clients use all others."""
LOCAL_CONNECTIONS = 4
"""Connections from the broker's own machine that no limit refuses, so that an operator can change any limit."""
MAX_CREATION_PAUSE_SECONDS = 60.0
"""A connection beyond the creation rate is not read for this time at most."""
NO_LIMIT = 2**31 - 1
LAST_RESPONSES_SECONDS = 1.0
"""A stop waits this long for clients to take their last responses."""
CHECK_SECONDS = 1.0
MEMORY_LANE = "memory"
NO_PRINCIPAL = "refused a connection from %s: its certificate has expired, or no rule names its owner"
MADE_ROOM = "max.connections are open, and another broker connects"
PLAINTEXT_LISTENERS: Mapping[str, ListenerSecurity] = MappingProxyType({})


class SocketServer:
    """The connections of all listeners: Kafka's SocketServer and ConnectionQuotas.

    It accepts, counts, limits and closes connections. Owned by the broker and used on the loop's thread only.
    """

    def __init__(
        self,
        config: BrokerConfig,
        handle: Handle,
        loop: asyncio.AbstractEventLoop,
        machine_name: str,
        *,
        open_files: Callable[[], int | None] = lambda: None,
        connection_quota: ConnectionRateQuotaManager | None = None,
        listener_security: Mapping[str, ListenerSecurity] = PLAINTEXT_LISTENERS,
        work: Work | None = None,
        refuse: Refuse | None = None,
        memory_limit: int | None = None,
        allocate: Callable[[int], Any] | None = None,
        release_memory: Callable[[], object] | None = None,
        handle_together: HandleTogether | None = None,
        write_queue: WriteQueue | None = None,
        on_throttled: Callable[[float], None] = lambda _: None,
    ) -> None:
        """`open_files` returns the limit of open files and sockets of the process, None without one.

        `connection_quota` delays new connections, `listener_security` holds the requirements of listeners by name.
        A listener with TLS requires `work`, which computes handshakes; a listener with SASL requires `refuse`, which
        answers a request with an error. `memory_limit` is the limit of the process in bytes, None without one.
        `allocate` returns memory for a large frame, `release_memory` returns free memory to the operating system.
        `handle_together` handles requests of several connections. Requests that append wait in `write_queue`.
        `on_throttled` is called with the seconds for which a new connection is delayed by a quota.
        """
        self.loop = loop
        self.response_batcher = ResponseBatcher(loop)
        self.write_queue = WriteQueue(loop) if write_queue is None else write_queue
        self.listeners: list[ListenerConfig] = []
        """The bound listeners, with their real ports."""
        self.protocol_errors = 0
        """Connections closed because of bytes that are not a request."""
        self._config = config
        self._handle = handle
        self._sasl_filter = SaslRequestFilter(handle, refuse, loop) if refuse is not None else None
        self._listener_security = listener_security
        self.handshakes = HandshakeQueue(work) if work is not None else None
        """Steps of TLS handshakes that wait for their lane."""
        self._unauthenticated = UnauthenticatedConnections(loop.time)
        self._machine_name = machine_name
        self._acceptors: list[TlsAcceptor] = []
        self._creation_rates: dict[str, ListenerConnectionRate] = {}
        """The rates by listener; the empty name has the rate of all listeners together."""
        self._servers: list[asyncio.Server] = []
        self._connections: dict[Connection, None] = {}
        self._by_host: Counter[str] = Counter()
        self._by_listener: Counter[str] = Counter()
        self._local = 0
        self._pool = BufferPool(RECEIVE_BYTES, SPARE_BUFFERS, allocate)
        self._request_turn = (
            None
            if handle_together is None
            else RequestTurn(self._pool, loop, self.response_batcher, handle_together, self.write_queue)
        )
        queued = config.queued_max_request_bytes
        if queued <= 0:
            queued = memory_budget(HALF_RECEIVED_BYTES, memory_limit)
        self.memory_pool = MemoryPool(queued, self._pool.run_short)
        self._release_memory = release_memory
        self._work = work
        self._peak_connections = 0
        """The largest number of connections since memory was released."""
        self._checker: asyncio.Handle | None = None
        self._protected_listener = _protected_listener(config)
        self._closing = False
        self._all_closed: asyncio.Future[None] | None = None
        """Done when the last connection of a stopping broker is closed."""
        self._open_files = open_files
        self._connection_quota = connection_quota
        self._on_throttled = on_throttled
        self._refusals = LimitedLog(logger, loop.time)
        self._errors = LimitedLog(logger, loop.time)

    @property
    def connections_by_listener(self) -> dict[str, int]:
        """The number of open connections by listener name."""
        return {listener.name: self._by_listener[listener.name] for listener in self.listeners}

    async def bind(self) -> list[ListenerConfig]:
        """Bind every listener without accepting, and return them with their real ports in place of 0.

        Raises OSError when an address cannot be bound.
        """
        for listener in self._config.listeners:
            # The factory needs the bound port, which is known only after binding: hence the one-element cell.
            cell: list[ListenerConfig] = [listener]
            server = await self.loop.create_server(
                lambda cell=cell: self._create_connection(cell[0]),
                listener.host or None,
                listener.port,
                backlog=self._config.socket_listen_backlog_size,
                start_serving=False,
            )
            for stream in server.sockets:
                limit_send_buffer(stream, self._config.socket_send_buffer_bytes)
            port = server.sockets[0].getsockname()[1]
            cell[0] = listener.bound(port, self._machine_name)
            self.listeners.append(cell[0])
            tls = self._listener_security.get(listener.name, PLAINTEXT).tls
            if tls is None:
                self._servers.append(server)
            else:
                self._acceptors.append(self._acceptor(server, tls, cell[0]))
        return self.listeners

    def enlarge_send_buffer(self, stream: Any, size: int) -> None:
        """Set the send buffer of a connection to a larger size than `socket.send.buffer.bytes`, unless that is -1."""
        if 0 < self._config.socket_send_buffer_bytes < size:
            limit_send_buffer(stream, size)

    async def start(self) -> None:
        """Begin to accept connections."""
        for server in self._servers:
            await server.start_serving()
        for acceptor in self._acceptors:
            acceptor.start()
        self._checker = self.loop.call_later(CHECK_SECONDS, self._check_connections)

    async def stop_accepting(self) -> None:
        """Close the listening sockets. Connections get the responses to current requests and handle no further ones."""
        self._closing = True
        for server in self._servers:
            server.close()
        for acceptor in self._acceptors:
            acceptor.stop()
        for connection in self._connections:
            connection.freeze()

    async def close(self) -> None:
        """Close the listening sockets, and every connection when its client has taken its responses or had time to."""
        await self.stop_accepting()
        if self._checker is not None:
            self._checker.cancel()
        for connection in list(self._connections):
            connection.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_RESPONSES_SECONDS):
                while self._connections:
                    self._all_closed = self.loop.create_future()
                    await self._all_closed
        for connection in list(self._connections):
            connection.abort()
        if self._sasl_filter is not None:
            await self._sasl_filter.close()
        for acceptor in self._acceptors:
            await acceptor.wait_closed()
        for server in self._servers:
            await server.wait_closed()

    def abort(self) -> None:
        """Close every connection without its responses, as the end of a process does."""
        self._closing = True
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.abort()

    # -- called by connections -------------------------------------------------------------------------------------

    def admit(self, connection: Connection) -> bool:
        """Add a new connection, or return False to refuse it by the limits of the configuration.

        A connection beyond the quota of its address is added, not read, and closed later (KIP-612).
        """
        host, name = connection.session.client_host, connection.session.listener.name
        tls = self._listener_security.get(name, PLAINTEXT).tls
        if tls is not None:
            principal = tls.principal(connection.certificate)
            if principal is None:
                tls.count_failure()
                self._refusals.write(logging.WARNING, NO_PRINCIPAL, host)
                return False
            connection.session.principal = principal
        refusal = self._refusal_reason(connection.fileno(), host, name, is_local=connection.is_local)
        if refusal is not None:
            self._refusals.write(logging.WARNING, *refusal)
            return False
        wait = self._connection_quota.wait(host, self.loop.time()) if self._connection_quota is not None else 0.0
        pause = self._creation_pause(name)
        if self._is_operator(is_local=connection.is_local):
            wait = pause = 0.0
        if name == self._protected_listener and len(self._connections) >= self._config.max_connections:
            self._make_room()
        self._connections[connection] = None
        self._by_host[host] += 1
        self._by_listener[name] += 1
        self._local += connection.is_local
        if max(wait, pause) > 0:
            self._on_throttled(max(wait, pause))
        if wait > 0:
            # A client that is disconnected immediately connects again immediately (KIP-612).
            connection.freeze()
            self.loop.call_later(wait, connection.abort)
            return True
        authentication = connection.session.authentication
        if authentication is not None:
            # Not earlier: `remove` is not called for a connection whose TLS handshake fails, and these callbacks would
            # keep it in memory.
            authentication.on_authenticated = partial(self._on_authenticated, connection)
            authentication.on_mechanism_chosen = partial(self._allow_sasl_messages, connection)
            self._unauthenticated.add(connection)
        if pause > 0:
            connection.mute(min(pause, MAX_CREATION_PAUSE_SECONDS))
        return True

    def _is_operator(self, *, is_local: bool) -> bool:
        """Return whether a new connection may be that of an operator who has to change a limit."""
        return is_local and self._local < LOCAL_CONNECTIONS

    def _creation_pause(self, listener: str) -> float:
        """Return the seconds for which a new connection is not read (`max.connection.creation.rate`)."""
        now, config = self.loop.time(), self._config
        pause = 0.0
        of_all = NO_LIMIT if listener == self._protected_listener else config.max_connection_creation_rate
        for name, limit in (("", of_all), (listener, config.creation_rate(listener))):
            if limit is not None and limit < NO_LIMIT:
                rate = self._creation_rates.get(name)
                if rate is None:
                    window = QuotaWindow(config.quota_window_num, config.quota_window_size_seconds)
                    rate = self._creation_rates[name] = ListenerConnectionRate(window)
                pause = max(pause, rate.wait(limit, now))
        return pause

    def _refusal_reason(self, descriptor: int, host: str, listener: str, *, is_local: bool) -> tuple[Any, ...] | None:
        """Return why a new connection is refused, as arguments for the log; None if it is accepted."""
        config = self._config
        open_files = self._open_files()
        # A new socket gets the lowest free descriptor: its number shows how many are in use.
        if open_files is not None and descriptor >= max(open_files - RESERVED_FILES, open_files // 2):
            return "refused a connection from %s: too many open files", host
        if self._closing:
            return "refused a connection from %s: the broker is about to stop", host
        if self._is_operator(is_local=is_local):
            return None
        if listener != self._protected_listener and len(self._connections) >= config.max_connections:
            return "refused a connection from %s: max.connections=%d", host, config.max_connections
        of_listener = config.listener_connections_allowed(listener)
        if self._by_listener[listener] >= of_listener:
            return "refused a connection to listener %s: max.connections=%d", listener, of_listener
        of_host = config.connections_allowed(host)
        if of_host is not None and self._by_host[host] >= of_host:
            return "refused a connection from %s: max.connections.per.ip=%d", host, of_host
        return None

    def _make_room(self) -> None:
        """Close the longest idle of the oldest connections on other listeners, so that another broker can connect."""
        others = (
            other
            for other in self._connections
            if other.session.listener.name != self._protected_listener
            and (not other.is_local or self._local > LOCAL_CONNECTIONS)
        )
        oldest = min(islice(others, MAX_COMPARED_CONNECTIONS), key=lambda other: other.last_active, default=None)
        if oldest is not None:
            self._refusals.write(
                logging.WARNING, "closed the connection from %s: %s", oldest.session.client_host, MADE_ROOM
            )
            oldest.abort()

    def remove(self, connection: Connection) -> None:
        """Remove a closed connection, and release its memory."""
        self.memory_pool.release(connection)
        self._unauthenticated.remove(connection)
        if connection.session.authentication is not None:
            connection.session.authentication.cancel()
        if self._connections.pop(connection, self) is None:
            if self._all_closed is not None and not self._connections and not self._all_closed.done():
                self._all_closed.set_result(None)
            self._local -= connection.is_local
            self._by_listener[connection.session.listener.name] -= 1
            self._by_host[connection.session.client_host] -= 1
            if not self._by_host[connection.session.client_host]:
                del self._by_host[connection.session.client_host]

    def log_protocol_error(self, connection: Connection, error: ProtocolError) -> None:
        """Count and log a connection that is closed because of bytes that are not a legal request."""
        self.protocol_errors += 1
        self._errors.write(logging.INFO, "closed the connection from %s: %s", connection.session.client_host, error)

    def log_out_of_memory(self, connection: Connection, what: str) -> None:
        """Log that a connection is closed for lack of memory."""
        self._errors.write(logging.ERROR, "closed the connection from %s: %s", connection.session.client_host, what)

    # -- private ---------------------------------------------------------------------------------------------------

    def _acceptor(self, server: asyncio.Server, tls: TlsListener, listener: ListenerConfig) -> TlsAcceptor:
        assert self.handshakes is not None, "a listener with TLS"
        return TlsAcceptor(
            server,
            lambda: tls.context,
            lambda: self._create_connection(listener),
            self.loop,
            backlog=self._config.socket_listen_backlog_size,
            may_connect=partial(self._may_connect, listener.name),
            queue=self.handshakes,
            on_failed=tls.count_failure,
        )

    def _may_connect(self, listener: str, host: str, own: str, descriptor: int) -> bool:
        """Return whether a TLS handshake may begin; `admit` checks the limits again after it."""
        refusal = self._refusal_reason(descriptor, host, listener, is_local=is_this_machine(host, own))
        if refusal is not None:
            self._refusals.write(logging.WARNING, *refusal)
        return refusal is None

    def _create_connection(self, listener: ListenerConfig) -> Connection:
        sasl = self._listener_security.get(listener.name, PLAINTEXT).sasl
        reader = FrameReader(self._pool, max_size=0, max_other_size=0)
        if sasl is None:
            connection = Connection(self, listener, self._handle, reader, self._request_turn)
            self._allow_large_frames(connection)
            return connection
        assert self._sasl_filter is not None, "a listener with SASL"
        reader.max_size = reader.max_other_size = self._max_unauthenticated_bytes(FIRST_REQUEST_BYTES)
        connection = Connection(self, listener, self._sasl_filter.handle, reader)
        connection.session.authentication = SaslServerAuthenticator(sasl, self.loop.time)
        return connection

    def _allow_sasl_messages(self, connection: Connection, mechanism: str) -> None:
        """Accept requests of the size that the mechanism needs from a client that is not authenticated yet."""
        most = self._max_unauthenticated_bytes(LARGEST_MESSAGE_BYTES[mechanism] + REQUEST_HEAD_BYTES)
        connection.set_max_frame_sizes(most, most)

    def _max_unauthenticated_bytes(self, needed: int) -> int:
        return min(needed, self._config.sasl_server_max_receive_size)

    def _allow_large_frames(self, connection: Connection) -> None:
        """Accept frames of the configured sizes."""
        most = self._config.socket_request_max_bytes
        connection.set_max_frame_sizes(most, min(SMALL_FRAME_BYTES, most))

    def _on_authenticated(self, connection: Connection) -> None:
        self._unauthenticated.remove(connection)
        self._allow_large_frames(connection)
        connection.join_turns(self._request_turn)

    def _check_connections(self) -> None:
        """Check all connections, `CHECKED_CONNECTIONS_PER_TURN` in each of the loop's next turns."""
        for overdue in self._unauthenticated.take_overdue():
            logger.debug("closed the connection from %s: it did not authenticate", overdue.session.client_host)
            overdue.abort()
        count = len(self._connections)
        self._peak_connections = max(self._peak_connections, count)
        if self._peak_connections - count >= RELEASE_AFTER and self._release_memory is not None:
            # The C library keeps free blocks below blocks in use: 600 closed connections leave 20 MB.
            self._peak_connections = count
            self._pool.drop_spares()
            if self._work is not None:
                self._work.submit(MEMORY_LANE, self._release_memory, raise_error)
        self._check_next(iter(list(self._connections)))

    def _check_next(self, connections: Iterator[Connection]) -> None:
        portion = list(islice(connections, CHECKED_CONNECTIONS_PER_TURN))
        for connection in portion:
            if connection in self._connections:
                self._close_if_overdue(connection)
        if len(portion) == CHECKED_CONNECTIONS_PER_TURN:
            self._checker = self.loop.call_soon(self._check_next, connections)
        else:
            self._checker = self.loop.call_later(CHECK_SECONDS, self._check_connections)

    def _close_if_overdue(self, connection: Connection) -> None:
        """Close a connection that is idle too long, sends a frame too slowly, or does not take its responses."""
        now, host = self.loop.time(), connection.session.client_host
        idle_ms = self._config.connections_max_idle_ms
        is_idle = 0 <= idle_ms < (now - connection.last_active) * 1000
        # A client that takes a long response slowly is not idle, and neither is a client whose request waits for the
        # disk.
        if is_idle and connection.write_stalled is None and not connection.is_waiting_to_write:
            logger.debug("closed an idle connection from %s", host)
        elif connection.receiving_for(now) > FRAME_SECONDS:
            logger.info("closed the connection from %s: the request was not complete in time", host)
        elif (
            connection.receiving_for(now) > 0  # handling a request may take longer
            and connection.last_active < now - SILENT_SECONDS
            and self.memory_pool.is_blocked_by(connection)
        ):
            logger.info(
                "closed the connection from %s: its incomplete request used memory that other connections need", host
            )
        elif connection.stalled_for(now) > STALL_SECONDS:
            logger.info("closed the connection from %s: the client did not receive its responses in time", host)
        else:
            return
        connection.abort()


def _protected_listener(config: BrokerConfig) -> str | None:
    """Return the listener of other brokers, on which `max.connections` does not refuse them; None without one."""
    try:
        return config.inter_broker_listener.name if len(config.listeners) > 1 else None
    except ConfigError:
        return None
