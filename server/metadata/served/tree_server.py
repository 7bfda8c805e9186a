"""Serves the embedded tree of one broker to other processes, as if it were a ZooKeeper of one server.

Sessions are kept in the journal with the nodes: a client comes back to its own when the broker has been restarted,
killed or not, within the session's timeout counted from the start. Memory is bounded whatever clients do: connections,
sessions, half-received frames, writes that wait, answers that nobody takes, watches.
Source: ZooKeeperServer and NIOServerCnxnFactory of Apache ZooKeeper 3.8.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ....protocol.room_logger import room_logger
from ....protocol.zookeeper.constants import PASSWORD_SIZE
from ...runtime.log_limit import LimitedLog
from ..node_tree import RemoteSession, Transaction
from .connection import TreeConnection
from .session_clock import TICK_MS, SessionClock, negotiated
from .words import answer

if TYPE_CHECKING:
    from ..write_line import WriteLine

logger = room_logger("metadata")

MOST_CONNECTIONS = 500
FILES_SHARE = 4
"""The most that connections may have of the files that a process may have open."""
MOST_SESSIONS = 10_000
QUEUED_BYTES = 32 << 20
"""Nothing more is read while so many bytes of writes wait for the disk."""
HALF_RECEIVED_BYTES = 32 << 20
"""How much half-received frames may hold together; beyond that the connection with the oldest is cut off."""
FREE_BYTES = 1 << 16
"""A half-received frame up to this size does not count."""
PATIENCE_TICKS = 20
"""How long a connection may be without a session, or leave its answers unread."""


class TreeServer:
    """Loop-thread only. `start` once, `close` once."""

    def __init__(
        self,
        line: WriteLine,
        addresses: Sequence[tuple[str, int]],
        loop: asyncio.AbstractEventLoop,
        *,
        token_bytes: Callable[[int], bytes],
        open_files: Callable[[], int | None] = lambda: None,
    ) -> None:
        """`line` is where the tree's writes stand, `addresses` are hosts and ports to listen at.

        `token_bytes` gives what nobody can guess; `open_files` how many files the process may have open.
        """
        self.line = line
        self.loop = loop
        self.clock = SessionClock()
        self.ticks = 0
        self.connections: dict[TreeConnection, None] = {}
        self.queued_bytes = 0
        self._addresses = addresses
        self._token_bytes = token_bytes
        self._open_files = open_files
        self._servers: list[asyncio.Server] = []
        self._owners: dict[int, TreeConnection] = {}
        """The connection of each session that has one."""
        self._ending: dict[int, None] = {}
        self._arriving: dict[TreeConnection, int] = {}
        """Half-received frames, the oldest first."""
        self._waiting: dict[TreeConnection, None] = {}
        """Connections that wait for room for their writes."""
        self._ticker: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._refusals = LimitedLog(logger, loop.time)

    @property
    def bound(self) -> str:
        """The addresses with the ports that are really bound, as clients of ZooKeeper want them."""
        ports = [server.sockets[0].getsockname()[1] for server in self._servers]
        hosts = [f"[{host}]" if ":" in host else host for host, _ in self._addresses]
        return ",".join(f"{host}:{port}" for host, port in zip(hosts, ports, strict=True))

    async def start(self) -> None:
        """Bind and serve; every session that was kept has its whole timeout from now on. Raises OSError."""
        for number, session in self.line.tree.remote_sessions.items():
            self.clock.begin(number, session.timeout_ms)
        for host, port in self._addresses:
            self._servers.append(await self.loop.create_server(lambda: TreeConnection(self), host or None, port))
        self._ticker = self.loop.call_later(TICK_MS / 1000, self._tick)

    async def close(self) -> None:
        """Stop. Sessions stay in the journal: their clients may come back to them."""
        self._is_closed = True
        if self._ticker is not None:
            self._ticker.cancel()
        for server in self._servers:
            server.close()
        for connection in list(self.connections):
            connection.abort()
        for server in self._servers:
            await server.wait_closed()

    # -- what connections call -------------------------------------------------------------------------------------

    def admit(self, connection: TreeConnection) -> bool:
        """Count a connection in, or refuse it."""
        open_files = self._open_files()
        most = MOST_CONNECTIONS if open_files is None else min(MOST_CONNECTIONS, open_files // FILES_SHARE)
        if len(self.connections) >= most:
            # Whoever has no session yet has the least to lose.
            homeless = next((one for one in self.connections if not one.session), None)
            if homeless is None:
                self.log_refusal("refused a connection from %s: there are %d", connection.host, most)
                return False
            homeless.abort()
            self.connections.pop(homeless)
        self.connections[connection] = None
        return True

    def forget(self, connection: TreeConnection) -> None:
        """A connection is gone."""
        for where in (self.connections, self._arriving, self._waiting):
            where.pop(connection, None)
        if self.is_owner(connection):
            del self._owners[connection.session]

    def is_owner(self, connection: TreeConnection) -> bool:
        """Whether a connection is its session's present one."""
        return self._owners.get(connection.session) is connection

    def has_room(self, connection: TreeConnection) -> bool:
        """Whether a connection may have something handled; if not, it is called when it may."""
        if self.queued_bytes <= QUEUED_BYTES:
            return True
        self._waiting[connection] = None
        return False

    def is_waiting(self, connection: TreeConnection) -> bool:
        """Whether a connection waits for room."""
        return connection in self._waiting

    def went_on(self, connection: TreeConnection) -> None:
        """A write of a connection is done: others that wait may go on."""
        connection.serve_soon()
        while self._waiting and self.queued_bytes <= QUEUED_BYTES:
            waiting = next(iter(self._waiting))
            del self._waiting[waiting]
            waiting.serve_soon()

    def hold(self, connection: TreeConnection) -> None:
        """Note how much of a frame is held, and cut off the oldest if that is too much for all."""
        size = connection.half_received
        if size <= FREE_BYTES:
            self._arriving.pop(connection, None)
            return
        self._arriving[connection] = size
        if sum(self._arriving.values()) > HALF_RECEIVED_BYTES:
            slowest = next(iter(self._arriving))
            self.log_refusal("closed the connection from %s: a request takes too long to arrive", slowest.host)
            del self._arriving[slowest]
            slowest.abort()

    def answer_to(self, word: str) -> str:
        """What a four-letter word is answered."""
        return answer(self, word)

    def log_refusal(self, message: str, *values: object) -> None:
        """Log what clients do wrong, within the limit of the log."""
        self._refusals.write(logging.INFO, message, *values)

    # -- sessions --------------------------------------------------------------------------------------------------

    def known_session(self, number: int) -> RemoteSession | None:
        """A session that a client may come back to."""
        return None if number in self._ending else self.line.tree.remote_session(number)

    def begin_session(self, connection: TreeConnection, timeout_ms: int) -> None:
        """Begin one, and tell the connection when it is stored."""
        if len(self.clock) >= MOST_SESSIONS:
            self.log_refusal("refused a session to %s: there are %d", connection.host, MOST_SESSIONS)
            connection.abort()
            return
        session = RemoteSession(self._token_bytes(PASSWORD_SIZE), negotiated(timeout_ms))
        tree = self.line.tree
        self.line.submit(lambda: tree.plan_session(session), partial(self._begun, connection, session))

    def _begun(self, connection: TreeConnection, session: RemoteSession, outcome: Transaction | BaseException) -> None:
        if not isinstance(outcome, Transaction):
            logger.error("refused a session to %s: %s", connection.host, outcome)
            connection.abort()
            return
        number = next(iter(outcome.sessions))
        self.clock.begin(number, session.timeout_ms)
        if connection in self.connections:
            self._owners[number] = connection
            connection.connected(number, session.timeout_ms, session.password)
            self.went_on(connection)

    def resume_session(self, connection: TreeConnection, number: int, session: RemoteSession, timeout_ms: int) -> None:
        """Give a session to another connection; the one it had is closed."""
        former = self._owners.pop(number, None)
        if former is not None:
            former.abort()
        self.line.tree.watches.drop(number)
        self._owners[number] = connection
        timeout_ms = negotiated(timeout_ms)
        self.clock.begin(number, timeout_ms)
        connection.connected(number, timeout_ms, session.password)

    def end_session(self, number: int, done: Callable[[], None] = lambda: None) -> None:
        """End a session and its ephemeral nodes, a thousand at a time; `done` is called when they are gone."""
        self._ending[number] = None
        self.clock.end(number)
        tree = self.line.tree
        self.line.submit(lambda: tree.plan_end_of(number), partial(self._ended, number, done))

    def _ended(self, number: int, done: Callable[[], None], outcome: Transaction | BaseException) -> None:
        if self._is_closed:
            # It is in the journal, and will expire after the next start.
            return
        if not isinstance(outcome, Transaction):
            logger.error("session %#x cannot be ended yet: %s", number, outcome)
            self.loop.call_later(TICK_MS / 1000, self.end_session, number, done)
        elif self.line.tree.ephemerals_of(number):
            self.end_session(number, done)
        else:
            self._ending.pop(number, None)
            done()

    def _tick(self) -> None:
        self.ticks += 1
        self._ticker = self.loop.call_later(TICK_MS / 1000, self._tick)
        for number in self.clock.tick():
            logger.info("session %#x has expired", number)
            owner = self._owners.get(number)
            if owner is not None:
                owner.abort()
            self.end_session(number)
        for connection in self._overdue():
            self.log_refusal("closed the connection from %s: nothing came of it", connection.host)
            connection.abort()

    def _overdue(self) -> Iterable[TreeConnection]:
        before = self.ticks - PATIENCE_TICKS
        return [
            one
            for one in self.connections
            if (not one.session and one.begun_tick < before)
            or (one.choked_tick is not None and one.choked_tick < before)
        ]
