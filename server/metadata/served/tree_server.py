"""Serves the embedded tree of one broker to other processes, as if it were a ZooKeeper of one server.

Sessions are kept in the journal with the nodes: a client can resume its session after a restart or crash of the broker,
within the session's timeout counted from the start. Memory is bounded for any behaviour of clients: connections,
sessions, partial frames, waiting writes, unread responses, watches.
Source: ZooKeeperServer and NIOServerCnxnFactory of Apache ZooKeeper 3.8.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ....common.room_logger import room_logger
from ....protocol.zookeeper.constants import PASSWORD_SIZE
from ...runtime.log_limit import LimitedLog
from ...runtime.memory_budget import memory_budget
from ..data_tree import RemoteSession, Transaction
from .connection import TreeConnection
from .four_letter_commands import execute_command
from .session_tracker import TICK_MS, SessionTracker, negotiate_session_timeout

if TYPE_CHECKING:
    from ..sync_request_processor import SyncRequestProcessor

logger = room_logger("metadata")

MAX_CONNECTIONS = 500
FILES_SHARE = 4
"""The most that connections may have of the files that a process may have open."""
MAX_SESSIONS, MAX_SESSIONS_PER_HOST = 10_000, 1000
"""The limits for sessions. At the limit, sessions without a connection and without a node are closed."""
QUEUED_BYTES = 32 << 20
"""Reading pauses while this number of bytes of writes waits for the disk."""
HALF_RECEIVED_BYTES = 32 << 20
"""The limit for incomplete frames of all connections; beyond it the connection with the oldest frame is closed."""
ALL_WATCH_BYTES = 256 << 20
"""Memory for the watches of all sessions together."""
FREE_BYTES = 1 << 16
"""A half-received frame up to this size does not count."""
PATIENCE_TICKS = 20
"""The time for which a connection may have no session, or leave its responses unread."""


class TreeServer:
    """The server of the tree. `start` once, `close` once; used on the loop's thread only."""

    def __init__(
        self,
        request_processor: SyncRequestProcessor,
        addresses: Sequence[tuple[str, int]],
        loop: asyncio.AbstractEventLoop,
        *,
        token_bytes: Callable[[int], bytes],
        open_files: Callable[[], int | None] = lambda: None,
        is_trusted: Callable[[tuple[str, int], tuple[str, int]], bool] = lambda peer, own: True,
        memory_limit: int | None = None,
    ) -> None:
        """`request_processor` orders the tree's writes, `addresses` are hosts and ports to listen at.

        `token_bytes` returns secret random bytes; `open_files` is the limit of the process; `is_trusted` decides by
        both addresses of a new connection whether it is served. `memory_limit` is that of the process in bytes, if any.
        """
        self.request_processor = request_processor
        self.loop = loop
        self.clock = SessionTracker()
        self.ticks = 0
        self.connections: dict[TreeConnection, None] = {}
        self.queued_bytes = 0
        self._addresses = addresses
        self._token_bytes = token_bytes
        self._open_files = open_files
        self._is_trusted = is_trusted
        self._memory_limit = memory_limit
        request_processor.tree.watches.max_cost = memory_budget(ALL_WATCH_BYTES, memory_limit)
        self._servers: list[asyncio.Server] = []
        self._owners: dict[int, TreeConnection] = {}
        """The connection of each session that has one."""
        self._hosts: dict[str, dict[int, None]] = {}
        """The sessions that were begun from each address, the oldest first."""
        self._hosts_of: dict[int, str] = {}
        """The address of each of these sessions."""
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
        for number, session in self.request_processor.tree.remote_sessions.items():
            self.clock.begin(number, session.timeout_ms)
        for host, port in self._addresses:
            self._servers.append(await self.loop.create_server(lambda: TreeConnection(self), host or None, port))
        self._ticker = self.loop.call_later(TICK_MS / 1000, self._tick)

    async def close(self) -> None:
        """Stop. Sessions are kept in the journal, so that their clients can resume them."""
        self._is_closed = True
        if self._ticker is not None:
            self._ticker.cancel()
        for server in self._servers:
            server.close()
        for connection in list(self.connections):
            connection.abort()
        for server in self._servers:
            await server.wait_closed()

    # -- called by connections -------------------------------------------------------------------------------------

    def admit(self, connection: TreeConnection, peer: tuple[str, int], own: tuple[str, int]) -> bool:
        """Count a connection between these addresses in, or refuse it."""
        if not self._is_trusted(peer, own):
            self.log_refusal(
                "refused a connection from %s: it belongs to another user of this machine", connection.host
            )
            return False
        open_files = self._open_files()
        most = MAX_CONNECTIONS if open_files is None else min(MAX_CONNECTIONS, open_files // FILES_SHARE)
        if len(self.connections) >= most:
            # A connection without a session is the least costly to close.
            homeless = next((one for one in self.connections if not one.session), None)
            if homeless is None:
                self.log_refusal("refused a connection from %s: there are %d", connection.host, most)
                return False
            homeless.abort()
            self.connections.pop(homeless)
        self.connections[connection] = None
        return True

    def forget(self, connection: TreeConnection) -> None:
        """Remove a closed connection."""
        for where in (self.connections, self._arriving, self._waiting):
            where.pop(connection, None)
        if self.is_owner(connection):
            del self._owners[connection.session]

    def is_owner(self, connection: TreeConnection) -> bool:
        """Whether a connection is its session's present one."""
        return self._owners.get(connection.session) is connection

    def has_room(self, connection: TreeConnection) -> bool:
        """Whether a connection may have something handled; if not, it is called when it may."""
        if self.queued_bytes <= memory_budget(QUEUED_BYTES, self._memory_limit):
            return True
        self._waiting[connection] = None
        return False

    def is_waiting(self, connection: TreeConnection) -> bool:
        """Whether a connection waits for room."""
        return connection in self._waiting

    def continue_waiting(self, connection: TreeConnection) -> None:
        """Let the connections that wait continue after the write of a connection."""
        connection.serve_soon()
        while self._waiting and self.queued_bytes <= memory_budget(QUEUED_BYTES, self._memory_limit):
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
        if sum(self._arriving.values()) > memory_budget(HALF_RECEIVED_BYTES, self._memory_limit):
            slowest = next(iter(self._arriving))
            self.log_refusal("closed the connection from %s: the request was not complete in time", slowest.host)
            del self._arriving[slowest]
            slowest.abort()

    def answer_to(self, word: str) -> str:
        """Return the response to a four-letter word."""
        return execute_command(self, word)

    def log_refusal(self, message: str, *values: object) -> None:
        """Log a client's error, within the limit of the log."""
        self._refusals.write(logging.INFO, message, *values)

    # -- sessions --------------------------------------------------------------------------------------------------

    def known_session(self, number: int) -> RemoteSession | None:
        """Return a session that a client may resume."""
        return None if number in self._ending else self.request_processor.tree.remote_session(number)

    def begin_session(self, connection: TreeConnection, timeout_ms: int) -> None:
        """Begin a session, and notify the connection when it is stored."""
        of_host = self._hosts.setdefault(connection.host, {})
        if len(of_host) >= MAX_SESSIONS_PER_HOST and not self._end_abandoned(of_host):
            self.log_refusal("refused a session to %s: it has %d", connection.host, len(of_host))
            connection.abort()
            return
        if len(self.clock) >= MAX_SESSIONS and not self._end_abandoned(self._hosts_of):
            self.log_refusal("refused a session to %s: there are %d", connection.host, MAX_SESSIONS)
            connection.abort()
            return
        session = RemoteSession(self._token_bytes(PASSWORD_SIZE), negotiate_session_timeout(timeout_ms))
        tree = self.request_processor.tree
        self.request_processor.submit(
            lambda: tree.plan_session(session), partial(self._session_planned, connection, session)
        )

    def _session_planned(
        self, connection: TreeConnection, session: RemoteSession, outcome: Transaction | BaseException
    ) -> None:
        if not isinstance(outcome, Transaction):
            logger.error("refused a session to %s: %s", connection.host, outcome)
            connection.abort()
            return
        number = next(iter(outcome.sessions))
        self.clock.begin(number, session.timeout_ms)
        self._hosts.setdefault(connection.host, {})[number] = None
        self._hosts_of[number] = connection.host
        if connection in self.connections:
            self._owners[number] = connection
            connection.connected(number, session.timeout_ms, session.password)
            self.continue_waiting(connection)

    def _end_abandoned(self, sessions: Iterable[int]) -> bool:
        """End the oldest of these sessions that has neither a connection nor a node; return whether there was one."""
        tree = self.request_processor.tree
        for number in sessions:
            if number not in self._owners and number not in self._ending and not tree.ephemerals_of(number):
                self.end_session(number)
                return True
        return False

    def resume_session(self, connection: TreeConnection, number: int, session: RemoteSession, timeout_ms: int) -> None:
        """Give a session to another connection; the one it had is closed."""
        former = self._owners.pop(number, None)
        if former is not None:
            former.abort()
        self.request_processor.tree.watches.drop(number)
        self._owners[number] = connection
        timeout_ms = negotiate_session_timeout(timeout_ms)
        self.clock.begin(number, timeout_ms)
        connection.connected(number, timeout_ms, session.password)

    def end_session(self, number: int, done: Callable[[], None] = lambda: None) -> None:
        """End a session and its ephemeral nodes, a thousand per step; call `done` after the last step."""
        self._ending[number] = None
        self.clock.end(number)
        host = self._hosts_of.pop(number, None)
        if host is not None:
            del self._hosts[host][number]
            if not self._hosts[host]:
                del self._hosts[host]
        tree = self.request_processor.tree
        self.request_processor.submit(lambda: tree.plan_end_of(number), partial(self._ended, number, done))

    def _ended(self, number: int, done: Callable[[], None], outcome: Transaction | BaseException) -> None:
        if self._is_closed:
            # It is in the journal, and will expire after the next start.
            return
        if not isinstance(outcome, Transaction):
            logger.error("session %#x cannot be ended yet: %s", number, outcome)
            self.loop.call_later(TICK_MS / 1000, self.end_session, number, done)
        elif self.request_processor.tree.ephemerals_of(number):
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
            self.log_refusal("closed the connection from %s: no complete request arrived in time", connection.host)
            connection.abort()

    def _overdue(self) -> Iterable[TreeConnection]:
        before = self.ticks - PATIENCE_TICKS
        return [
            one
            for one in self.connections
            if (not one.session and one.begun_tick < before)
            or (one.choked_tick is not None and one.choked_tick < before)
        ]
