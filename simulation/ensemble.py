"""A simulated ZooKeeper: one tree, sessions that expire, and connections that break with responses in flight."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kazoo import exceptions
from kazoo.protocol.states import WatchedEvent, ZnodeStat

from ..server.metadata.data_tree import DataTree, Outcome, Transaction, stat_of
from ..server.metadata.metadata_store import (
    BadVersionError,
    Create,
    EventType,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SessionExpiredError,
    SetData,
    Stat,
    StoreError,
    WatchEvent,
)
from .loop import SimLoop
from .network import SimNetwork
from .node import SimNode

LATENCY = 0.001
HELD_S = 0.05
"""Interval of checks whether a cut link is restored."""
_ERRORS: dict[type[StoreError], type[exceptions.KazooException]] = {
    NoNodeError: exceptions.NoNodeError,
    NodeExistsError: exceptions.NodeExistsError,
    BadVersionError: exceptions.BadVersionError,
    NotEmptyError: exceptions.NotEmptyError,
    NoChildrenForEphemeralsError: exceptions.NoChildrenForEphemeralsError,
    SessionExpiredError: exceptions.SessionExpiredError,
}
_EVENTS = {
    EventType.CREATED: "CREATED",
    EventType.DELETED: "DELETED",
    EventType.CHANGED: "CHANGED",
    EventType.CHILDREN: "CHILD",
}

Watcher = Callable[[WatchedEvent], None]


@dataclass(slots=True)
class ServedSession:
    """A session in the ensemble."""

    timeout: float
    last_heard: float
    connection: EnsembleConnection | None = None


class Ensemble:
    """All servers of the ensemble as one: a write is visible to all clients immediately, and never lost. Times are
    seconds.
    """

    def __init__(self, loop: SimLoop, rng: random.Random, network: SimNetwork, now_ms: Callable[[], int]) -> None:
        self.loop = loop
        self.random = rng
        self.network = network
        self.node = SimNode("zookeeper")
        self.tree = DataTree(now_ms)
        self.sessions: dict[int, ServedSession] = {}
        self.is_down = False
        """No request is answered, and no session expires."""
        self.break_chance = 0.0
        """Probability per request that its connection breaks before its execution, or before its response."""
        self.slow_chance = 0.0
        """Probability per request that it takes up to a second."""
        self.expired = 0
        self.on_write: list[Callable[[Transaction], None]] = []

    # -- sessions --------------------------------------------------------------------------------------------------

    def attach(self, session_id: int, timeout: float, connection: EnsembleConnection) -> int:
        """Start a session (0), or continue one; return 0 if it has expired."""
        if not session_id:
            session_id = self.tree.open_session()
            self.sessions[session_id] = ServedSession(timeout, self.loop.time())
            self._look_later(session_id, timeout)
        session = self.sessions.get(session_id)
        if session is None:
            return 0
        session.connection = connection
        session.last_heard = self.loop.time()
        self.tree.watches.drop(session_id)
        return session_id

    def expire(self, session_id: int) -> None:
        """Expire a session with its nodes."""
        session = self.sessions.pop(session_id, None)
        if session is None:
            return
        self.expired += 1
        self._apply(self.tree.plan_end_of(session_id))
        self.tree.end_session(session_id)
        if session.connection is not None:
            session.connection.break_off()

    def expire_all_of(self, node: SimNode) -> None:
        """Expire all sessions of a machine."""
        for session_id in self.sessions_of(node):
            self.expire(session_id)

    def sessions_of(self, node: SimNode) -> list[int]:
        """Return the sessions of a machine, of all its lives."""
        return [
            number
            for number, session in self.sessions.items()
            if session.connection is not None and session.connection.client is node
        ]

    def go_down(self) -> None:
        """Stop all servers."""
        self.is_down = True
        for session in self.sessions.values():
            if session.connection is not None:
                session.connection.break_off()

    def come_up(self) -> None:
        """Restart the timeout of each session."""
        self.is_down = False
        for session in self.sessions.values():
            session.last_heard = self.loop.time()

    def _look_later(self, session_id: int, delay: float) -> None:
        self.loop.call_in(self.node, delay, self._look, session_id)

    def _look(self, session_id: int) -> None:
        session = self.sessions.get(session_id)
        if session is None:
            return
        left = session.last_heard + session.timeout - self.loop.time()
        if left > 0 or self.is_down:
            self._look_later(session_id, max(left, HELD_S))
        else:
            self.expire(session_id)

    # -- requests ----------------------------------------------------------------------------------------------------

    def commit(self, operations: Sequence[Operation], session_id: int) -> list[Any]:
        """Execute all operations or none, with kazoo's results."""
        try:
            transaction = self.tree.plan(operations, session_id)
        except SessionExpiredError:
            raise
        except StoreError as error:
            rest = len(operations) - error.index - 1
            refusal = translated(error)
            return [
                *(exceptions.RolledBackError() for _ in range(error.index)),
                refusal,
                *(exceptions.RuntimeInconsistency() for _ in range(rest)),
            ]
        self._apply(transaction)
        return list(map(_result, operations, transaction.results))

    def _apply(self, transaction: Transaction) -> None:
        if not transaction.is_empty:
            self.tree.apply(transaction)
            for heed in self.on_write:
                heed(transaction)


class EnsembleConnection:
    """One connection of one session: its messages arrive in order, until it breaks."""

    def __init__(self, ensemble: Ensemble, client: SimNode, broken: Callable[[], None]) -> None:
        self.ensemble = ensemble
        self.client = client
        self.is_broken = False
        self._client_context = client.context
        self._broken = broken
        self._lines: dict[SimNode, deque[tuple[Callable[..., None], tuple[Any, ...]]]] = {
            client: deque(),
            ensemble.node: deque(),
        }
        self._arrives_at = {client: 0.0, ensemble.node: 0.0}

    def send(self, to: SimNode, deliver: Callable[..., None], *arguments: Any, slow: float = 0.0) -> None:
        """Deliver a message to one side, unless the connection breaks before."""
        line = self._lines[to]
        line.append((deliver, arguments))
        self._arrives_at[to] = max(self._arrives_at[to], self.ensemble.loop.time() + slow)
        if len(line) == 1:
            self._pump(to)

    def _pump(self, to: SimNode) -> None:
        line, loop, network = self._lines[to], self.ensemble.loop, self.ensemble.network
        sender = self.client if to is self.ensemble.node else self.ensemble.node
        if self.is_broken:
            return
        if network.is_cut(sender, to):
            loop.call_in(self.ensemble.node, HELD_S, self._pump, to)
            return
        context = self._client_context if to is self.client else to.context
        while line:
            deliver, arguments = line.popleft()
            delay = LATENCY * (0.5 + self.ensemble.random.random())
            self._arrives_at[to] = at = max(self._arrives_at[to] + 1e-9, loop.time() + delay)
            loop.call_at(at, self._deliver, deliver, arguments, context=context)

    def _deliver(self, deliver: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if not self.is_broken:
            deliver(*arguments)

    def break_off(self) -> None:
        """Break the connection: messages in flight are lost; the client is notified soon."""
        if not self.is_broken:
            self.is_broken = True
            self.ensemble.loop.call_later(LATENCY, self._broken, context=self._client_context)


@dataclass(frozen=True, slots=True)
class RemoteWatch:
    """A watch in the ensemble: its event is sent over the connection that set it."""

    connection: EnsembleConnection
    watcher: Watcher
    fired: Callable[[Watcher, WatchedEvent], None]

    def process(self, event: WatchEvent, _: object) -> None:
        told = WatchedEvent(_EVENTS[event.type], "CONNECTED", event.path)
        self.connection.send(self.connection.client, self.fired, self.watcher, told)


def translated(error: StoreError) -> exceptions.KazooException:
    """Return kazoo's exception for an error."""
    return _ERRORS[type(error)]()


def znode_stat(stat: Stat) -> ZnodeStat:
    """Return a node's stat as kazoo's class."""
    return ZnodeStat(
        stat.czxid,
        stat.mzxid,
        stat.created_ms,
        stat.modified_ms,
        stat.version,
        stat.children_version,
        0,
        stat.ephemeral_owner,
        0,
        stat.children_count,
        stat.mzxid,
    )


def _result(operation: Operation, outcome: Outcome) -> Any:
    if isinstance(operation, Create):
        return outcome.path
    if isinstance(operation, SetData):
        assert outcome.node is not None
        return znode_stat(stat_of(outcome.node, outcome.children_count))
    return True
