"""Listening sockets, the connections that came in on them, and the limits they live under."""

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

from ...protocol.frames import BufferPool, FrameReader
from ...protocol.room_logger import room_logger
from ..config.keys.validators import ConfigError
from ..config.listeners import is_this_machine
from ..quotas.managers import CreationRate
from ..quotas.rates import QuotaWindow
from ..runtime.log_limit import LimitedLog
from ..runtime.turns import COMPARED_CONNECTIONS, CONNECTIONS
from ..security.authentication import SaslAuthentication
from ..security.door import OPEN, Door
from .answer_box import AnswerBox
from .connection import Connection, Handle
from .file_sender import limit_send_buffer
from .handshake_line import HandshakeLine
from .receive_grants import ReceiveGrants
from .sasl_gate import SaslGate
from .strangers import Strangers
from .tls_acceptor import TlsAcceptor

if TYPE_CHECKING:
    from ...protocol.errors import ProtocolError
    from ..config.broker_config import BrokerConfig
    from ..config.listeners import ListenerConfig
    from ..quotas.managers import ConnectionQuota
    from ..runtime.ports import Work
    from ..security.tls_listener import TlsListener

logger = room_logger("network")

RECEIVE_BYTES = (1 << 20) + (1 << 14)
"""A receive buffer: room for a batch of the default `max.message.bytes` and the request around it."""
SPARE_BUFFERS = 16
SMALL_FRAME_BYTES = 8 << 20
"""No request but Produce has a reason to be larger."""
HALF_RECEIVED_BYTES = 256 << 20
"""Large frames that are arriving, all together, where `queued.max.request.bytes` says nothing (`ReceiveGrants`)."""
FRAME_SECONDS = 30.0
"""A frame that has begun to arrive must be complete within this time."""
SILENT_SECONDS = 3.0
"""A client that sends nothing of its large frame for this time, while others wait to send theirs, is cut off."""
STALL_SECONDS = 30.0
"""A client that takes next to nothing of its answers for this time is cut off."""
RESERVED_FILES = 128
"""File handles that are kept for logs and the metadata store when clients use up all others."""
LOCAL_CONNECTIONS = 4
"""So many connections from the broker's own machine are let in whatever the limits say: an operator can undo any of
them.
"""
LONGEST_PAUSE_SECONDS = 60.0
"""For so long at most a connection beyond the creation rate is not read."""
NO_LIMIT = 2**31 - 1
LAST_ANSWERS_SECONDS = 1.0
"""How long a stop waits for clients to take their last answers."""
SWEEP_SECONDS = 1.0
NOBODY = "refused a connection from %s: its certificate has expired, or no rule names its owner"
ROOM = "max.connections are open, and another broker comes"
NO_DOORS: Mapping[str, Door] = MappingProxyType({})


class SocketServer:
    """Accepts, counts, paces and closes connections (Kafka's SocketServer and ConnectionQuotas). Loop-thread only."""

    def __init__(
        self,
        config: BrokerConfig,
        handle: Handle,
        loop: asyncio.AbstractEventLoop,
        machine_name: str,
        *,
        open_files: Callable[[], int | None] = lambda: None,
        connection_quota: ConnectionQuota | None = None,
        doors: Mapping[str, Door] = NO_DOORS,
        work: Work | None = None,
    ) -> None:
        """`open_files` says how many files and sockets the process may have open; None: nobody knows.

        `connection_quota` says whose new connections have to wait, `doors` what listeners ask for before they serve.
        `work` computes handshakes, and has to be there for a listener with TLS.
        """
        self.loop = loop
        self.answers = AnswerBox(loop)
        self.listeners: list[ListenerConfig] = []
        """The bound listeners, with the ports they really have."""
        self.protocol_errors = 0
        """Connections closed because of bytes that are no request."""
        self._config = config
        self._handle = handle
        self._gate = SaslGate(handle, loop)
        self._doors = doors
        self.handshakes = HandshakeLine(work) if work is not None else None
        """Steps that wait for the lane; None where no listener has TLS."""
        self._strangers = Strangers(loop.time)
        self._machine_name = machine_name
        self._acceptors: list[TlsAcceptor] = []
        self._creation_rates: dict[str, CreationRate] = {}
        """By listener; under the empty name that of all listeners together."""
        self._servers: list[asyncio.Server] = []
        self._connections: dict[Connection, None] = {}
        self._by_host: Counter[str] = Counter()
        self._by_listener: Counter[str] = Counter()
        self._local = 0
        self._pool = BufferPool(RECEIVE_BYTES, SPARE_BUFFERS)
        queued = config.queued_max_request_bytes
        self.grants = ReceiveGrants(queued if queued > 0 else HALF_RECEIVED_BYTES, self._pool.run_short)
        self._sweeper: asyncio.Handle | None = None
        self._protected = _protected_listener(config)
        self._closing = False
        self._all_gone: asyncio.Future[None] | None = None
        """Done when the last connection of a broker that stops is gone."""
        self._open_files = open_files
        self._connection_quota = connection_quota
        self._refusals = LimitedLog(logger, loop.time)
        self._errors = LimitedLog(logger, loop.time)

    @property
    def connections_by_listener(self) -> dict[str, int]:
        """How many connections are open, by the name of the listener."""
        return {listener.name: self._by_listener[listener.name] for listener in self.listeners}

    async def bind(self) -> list[ListenerConfig]:
        """Bind every listener, reading nothing yet; returns them with the real ports in place of 0.

        Raises OSError when an address cannot be bound.
        """
        for listener in self._config.listeners:
            # The factory needs the bound port, which is known only after binding: hence the one-element cell.
            cell: list[ListenerConfig] = [listener]
            server = await self.loop.create_server(
                lambda cell=cell: self._connection(cell[0]),
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
            tls = self._doors.get(listener.name, OPEN).tls
            if tls is None:
                self._servers.append(server)
            else:
                self._acceptors.append(self._acceptor(server, tls, cell[0]))
        return self.listeners

    async def start(self) -> None:
        """Begin to accept."""
        for server in self._servers:
            await server.start_serving()
        for acceptor in self._acceptors:
            acceptor.start()
        self._sweeper = self.loop.call_later(SWEEP_SECONDS, self._sweep)

    async def stop_accepting(self) -> None:
        """Close the listening sockets; connections get their answers, but no further request is looked at."""
        self._closing = True
        for server in self._servers:
            server.close()
        for acceptor in self._acceptors:
            acceptor.stop()
        for connection in self._connections:
            connection.freeze()

    async def close(self) -> None:
        """Close the listening sockets and, once it has taken its answers or had time to, every connection."""
        await self.stop_accepting()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self._connections):
            connection.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_ANSWERS_SECONDS):
                while self._connections:
                    self._all_gone = self.loop.create_future()
                    await self._all_gone
        for connection in list(self._connections):
            connection.abort()
        await self._gate.close()
        for acceptor in self._acceptors:
            await acceptor.closed()
        for server in self._servers:
            await server.wait_closed()

    def abort(self) -> None:
        """Break every connection, as the end of a process does."""
        self._closing = True
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.abort()

    # -- what connections call -------------------------------------------------------------------------------------

    def admit(self, connection: Connection) -> bool:
        """Count a new connection in, or refuse it by the limits of the configuration or the quota of its address."""
        host, name = connection.session.client_host, connection.session.listener.name
        tls = self._doors.get(name, OPEN).tls
        if tls is not None:
            principal = tls.principal(connection.certificate)
            if principal is None:
                self._refusals.write(logging.WARNING, NOBODY, host)
                return False
            connection.session.principal = principal
        refusal = self._refusal(connection.fileno(), host, name, is_local=connection.is_local)
        if refusal is not None:
            self._refusals.write(logging.WARNING, *refusal)
            return False
        wait = self._connection_quota.wait(host, self.loop.time()) if self._connection_quota is not None else 0.0
        pause = self._pause(name)
        if self._is_operator(is_local=connection.is_local):
            wait = pause = 0.0
        if name == self._protected and len(self._connections) >= self._config.max_connections:
            self._make_room()
        self._connections[connection] = None
        self._by_host[host] += 1
        self._by_listener[name] += 1
        self._local += connection.is_local
        if wait > 0:
            # Closed at once it would be back at once (KIP-612).
            connection.freeze()
            self.loop.call_later(wait, connection.abort)
            return True
        authentication = connection.session.authentication
        if authentication is not None:
            # Not before: a connection whose TLS handshake fails is forgotten by nobody, and would hold itself.
            authentication.admitted = partial(self._is_known, connection)
            self._strangers.add(connection)
        if pause > 0:
            connection.mute(min(pause, LONGEST_PAUSE_SECONDS))
        return True

    def _is_operator(self, *, is_local: bool) -> bool:
        """Whether a new connection may be that of somebody who has to undo a limit."""
        return is_local and self._local < LOCAL_CONNECTIONS

    def _pause(self, listener: str) -> float:
        """Seconds for which a new connection is not read, by `max.connection.creation.rate`."""
        now, config = self.loop.time(), self._config
        pause = 0.0
        of_all = NO_LIMIT if listener == self._protected else config.max_connection_creation_rate
        for name, limit in (("", of_all), (listener, config.creation_rate(listener))):
            if limit is not None and limit < NO_LIMIT:
                rate = self._creation_rates.get(name)
                if rate is None:
                    window = QuotaWindow(config.quota_window_num, config.quota_window_size_seconds)
                    rate = self._creation_rates[name] = CreationRate(window)
                pause = max(pause, rate.wait(limit, now))
        return pause

    def _refusal(self, descriptor: int, host: str, listener: str, *, is_local: bool) -> tuple[Any, ...] | None:
        """Why a new connection is refused, as arguments for the log; None if it is not."""
        config = self._config
        open_files = self._open_files()
        # The lowest free number is given to a new socket, so that its number tells how many are in use.
        if open_files is not None and descriptor >= max(open_files - RESERVED_FILES, open_files // 2):
            return "refused a connection from %s: too many open files", host
        if self._closing:
            return "refused a connection from %s: the broker is about to stop", host
        if self._is_operator(is_local=is_local):
            return None
        if listener != self._protected and len(self._connections) >= config.max_connections:
            return "refused a connection from %s: max.connections=%d", host, config.max_connections
        of_listener = config.listener_connections_allowed(listener)
        if self._by_listener[listener] >= of_listener:
            return "refused a connection to listener %s: max.connections=%d", listener, of_listener
        of_host = config.connections_allowed(host)
        if of_host is not None and self._by_host[host] >= of_host:
            return "refused a connection from %s: max.connections.per.ip=%d", host, of_host
        return None

    def _make_room(self) -> None:
        """Close the connection for a broker's that has been idle longest on other listeners, of the oldest there."""
        others = (
            one
            for one in self._connections
            if one.session.listener.name != self._protected and (not one.is_local or self._local > LOCAL_CONNECTIONS)
        )
        oldest = min(islice(others, COMPARED_CONNECTIONS), key=lambda one: one.last_active, default=None)
        if oldest is not None:
            self._refusals.write(logging.WARNING, "closed the connection from %s: %s", oldest.session.client_host, ROOM)
            oldest.abort()

    def forget(self, connection: Connection) -> None:
        self.grants.release(connection)
        self._strangers.forget(connection)
        if connection.session.authentication is not None:
            connection.session.authentication.give_up()
        if self._connections.pop(connection, self) is None:
            if self._all_gone is not None and not self._connections and not self._all_gone.done():
                self._all_gone.set_result(None)
            self._local -= connection.is_local
            self._by_listener[connection.session.listener.name] -= 1
            self._by_host[connection.session.client_host] -= 1
            if not self._by_host[connection.session.client_host]:
                del self._by_host[connection.session.client_host]

    def protocol_error(self, connection: Connection, error: ProtocolError) -> None:
        """A client sent bytes that are no legal request; its connection is being closed."""
        self.protocol_errors += 1
        self._errors.write(logging.INFO, "closed the connection from %s: %s", connection.session.client_host, error)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _acceptor(self, server: asyncio.Server, tls: TlsListener, listener: ListenerConfig) -> TlsAcceptor:
        assert self.handshakes is not None, "a listener with TLS"
        return TlsAcceptor(
            server,
            lambda: tls.context,
            lambda: self._connection(listener),
            self.loop,
            backlog=self._config.socket_listen_backlog_size,
            is_welcome=partial(self._is_welcome, listener.name),
            line=self.handshakes,
        )

    def _is_welcome(self, listener: str, host: str, own: str, descriptor: int) -> bool:
        """Whether a handshake may begin; when it is done the connection is looked at once more."""
        refusal = self._refusal(descriptor, host, listener, is_local=is_this_machine(host, own))
        if refusal is not None:
            self._refusals.write(logging.WARNING, *refusal)
        return refusal is None

    def _connection(self, listener: ListenerConfig) -> Connection:
        sasl = self._doors.get(listener.name, OPEN).sasl
        reader = FrameReader(self._pool, max_size=0, max_other_size=0)
        if sasl is None:
            connection = Connection(self, listener, self._handle, reader)
            self._lift(connection)
            return connection
        reader.max_size = reader.max_other_size = self._config.sasl_server_max_receive_size
        connection = Connection(self, listener, self._gate.handle, reader)
        connection.session.authentication = SaslAuthentication(sasl, self.loop.time)
        return connection

    def _lift(self, connection: Connection) -> None:
        """The client is admitted: from now on its frames may be as large as any."""
        most = self._config.socket_request_max_bytes
        connection.allow_frames(most, min(SMALL_FRAME_BYTES, most))

    def _is_known(self, connection: Connection) -> None:
        self._strangers.forget(connection)
        self._lift(connection)

    def _sweep(self) -> None:
        """Look at all connections, a portion in each of the loop's next turns."""
        for stranger in self._strangers.overdue():
            logger.debug("closed the connection from %s: it did not authenticate", stranger.session.client_host)
            stranger.abort()
        self._sweep_on(iter(list(self._connections)))

    def _sweep_on(self, connections: Iterator[Connection]) -> None:
        portion = list(islice(connections, CONNECTIONS))
        for connection in portion:
            if connection in self._connections:
                self._end_if_overdue(connection)
        if len(portion) == CONNECTIONS:
            self._sweeper = self.loop.call_soon(self._sweep_on, connections)
        else:
            self._sweeper = self.loop.call_later(SWEEP_SECONDS, self._sweep)

    def _end_if_overdue(self, connection: Connection) -> None:
        """Close what has been idle too long, sends a frame too slowly, or does not take its answers."""
        now, host = self.loop.time(), connection.session.client_host
        idle_ms = self._config.connections_max_idle_ms
        is_idle = 0 <= idle_ms < (now - connection.last_active) * 1000
        # Who takes an answer is not idle, however long that lasts.
        if is_idle and connection.write_stalled is None:
            logger.debug("closed an idle connection from %s", host)
        elif connection.receiving_for(now) > FRAME_SECONDS:
            logger.info("closed the connection from %s: a request takes too long to arrive", host)
        elif self.grants.is_wasted_on(connection) and connection.last_active < now - SILENT_SECONDS:
            logger.info("closed the connection from %s: others wait for the memory that it holds", host)
        elif connection.stalled_for(now) > STALL_SECONDS:
            logger.info("closed the connection from %s: it does not take its answers", host)
        else:
            return
        connection.abort()


def _protected_listener(config: BrokerConfig) -> str | None:
    """The listener where clients cannot keep other brokers out by their number: one that is there for brokers."""
    try:
        return config.inter_broker_listener.name if len(config.listeners) > 1 else None
    except ConfigError:
        return None
