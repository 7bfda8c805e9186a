"""The part of kazoo's client that `ZooKeeperStore` uses, without threads and sockets: a session with an `Ensemble`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kazoo import exceptions
from kazoo.protocol.states import KazooState, WatchedEvent

from ..server.metadata.metadata_store import Check, Create, Delete, Operation, SetData, StoreError
from ..server.metadata.watch_manager import WatchKind
from .ensemble import Ensemble, EnsembleConnection, RemoteWatch, Watcher, translated, znode_stat
from .node import SimNode

RECONNECT_S = 0.3
"""Maximum delay of the next attempt."""


class KazooAnswer:
    """kazoo's IAsyncResult, as far as it is used."""

    def __init__(self) -> None:
        self.value: Any = None
        self.exception: Exception | None = None
        self._heed: Callable[[KazooAnswer], None] | None = None
        self._is_there = False

    def rawlink(self, heed: Callable[[KazooAnswer], None]) -> None:
        """Register a callback for the result."""
        self._heed = heed
        if self._is_there:
            heed(self)

    def give(self, value: Any, error: Exception | None = None) -> None:
        """Set the result, once."""
        if self._is_there:
            return
        self.value, self.exception, self._is_there = value, error, True
        if self._heed is not None:
            self._heed(self)


@dataclass(slots=True)
class Asked:
    """A request without a result."""

    work: Callable[[int], Any]
    answer: KazooAnswer
    watcher: Watcher | None = None
    watch_path: str = ""
    watch_kind: int = WatchKind.NONE


@dataclass(slots=True)
class SimTransaction:
    """Operations for one commit."""

    client: SimKazoo
    operations: list[Operation] = field(default_factory=list)

    def create(self, path: str, data: bytes, _acl: Any, ephemeral: bool, sequence: bool) -> None:
        self.operations.append(Create(path, data, ephemeral, sequence))

    def set_data(self, path: str, data: bytes, version: int) -> None:
        self.operations.append(SetData(path, data, version))

    def delete(self, path: str, version: int) -> None:
        self.operations.append(Delete(path, version))

    def check(self, path: str, version: int) -> None:
        self.operations.append(Check(path, version))

    def commit_async(self) -> KazooAnswer:
        ensemble, operations = self.client.ensemble, self.operations
        return self.client.ask(Asked(lambda session: ensemble.commit(operations, session), KazooAnswer()))


class SimKazoo:
    """One client of one life of a machine. Its own callbacks end with that life."""

    def __init__(self, ensemble: Ensemble, node: SimNode, timeout: float) -> None:
        self.ensemble = ensemble
        self.connected = False
        self.session_id = 0
        self._node = node
        self._context = node.context
        self._timeout = timeout
        self._listeners: list[Callable[[str], None]] = []
        self._connection: EnsembleConnection | None = None
        self._waiting: list[Asked] = []
        """Requests without a connection."""
        self._in_flight: list[Asked] = []
        self._watchers: list[Watcher] = []
        self._last_heard = 0.0
        self._closed = False

    # -- interface of the store --------------------------------------------------------------------------------------

    @property
    def client_id(self) -> tuple[int, bytes] | None:
        return (self.session_id, b"") if self.session_id else None

    def add_listener(self, listener: Callable[[str], None]) -> None:
        self._listeners.append(listener)

    def start_async(self) -> None:
        self._connect()

    def stop(self) -> None:
        """End the session; without a link it expires."""
        self._closed = True
        ensemble = self.ensemble
        if self.session_id and not ensemble.is_down and not ensemble.network.is_cut(self._node, ensemble.node):
            ensemble.expire(self.session_id)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.is_broken = True

    def get_async(self, path: str, watch: Watcher | None) -> KazooAnswer:
        def work(session: int) -> Any:
            data, stat = self.ensemble.tree.get(path, session)
            return data, znode_stat(stat)

        return self.ask(Asked(work, KazooAnswer(), watch, path, WatchKind.DATA))

    def exists_async(self, path: str, watch: Watcher | None) -> KazooAnswer:
        def work(session: int) -> Any:
            stat = self.ensemble.tree.exists(path, session)
            return None if stat is None else znode_stat(stat)

        return self.ask(Asked(work, KazooAnswer(), watch, path, WatchKind.DATA))

    def get_children_async(self, path: str, watch: Watcher | None) -> KazooAnswer:
        work = lambda session: self.ensemble.tree.children(path, session)  # noqa: E731 - like its neighbours
        return self.ask(Asked(work, KazooAnswer(), watch, path, WatchKind.CHILDREN))

    def transaction(self) -> SimTransaction:
        return SimTransaction(self)

    # -- requests --------------------------------------------------------------------------------------------------

    def ask(self, asked: Asked) -> KazooAnswer:
        """Send it, or let it wait for a connection."""
        if self._closed:
            asked.answer.give(None, exceptions.ConnectionClosedError())
        elif self._connection is None or not self.connected:
            self._waiting.append(asked)
        else:
            self._send(self._connection, asked)
        return asked.answer

    def _send(self, connection: EnsembleConnection, asked: Asked) -> None:
        self._in_flight.append(asked)
        connection.send(self.ensemble.node, self._serve, connection, asked)

    def _serve(self, connection: EnsembleConnection, asked: Asked) -> None:
        """Execute it at the ensemble."""
        ensemble, rng = self.ensemble, self.ensemble.random
        session = ensemble.sessions.get(self.session_id)
        if session is None or session.connection is not connection:
            return
        session.last_heard = ensemble.loop.time()
        breaks = rng.random() < ensemble.break_chance
        if breaks and rng.random() < 0.5:
            connection.break_off()
            return
        value, error = None, None
        try:
            value = asked.work(self.session_id)
        except StoreError as refused:
            error = translated(refused)
        if asked.watcher is not None and error is None:
            watch = RemoteWatch(connection, asked.watcher, self._fired)
            ensemble.tree.watches.add(asked.watch_path, self.session_id, watch, asked.watch_kind)
        if breaks:
            connection.break_off()
            return
        slow = rng.random() if rng.random() < ensemble.slow_chance else 0.0
        connection.send(self._node, self._answered, asked, value, error, slow=slow)

    def _answered(self, asked: Asked, value: Any, error: Exception | None) -> None:
        self._last_heard = self.ensemble.loop.time()
        self._in_flight.remove(asked)
        if asked.watcher is not None and error is None:
            self._watchers.append(asked.watcher)
        asked.answer.give(value, error)

    def _fired(self, watcher: Watcher, event: WatchedEvent) -> None:
        self._last_heard = self.ensemble.loop.time()
        if watcher in self._watchers:
            self._watchers.remove(watcher)
            watcher(event)

    # -- the connection --------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        if self._closed:
            return
        ensemble = self.ensemble
        connection = self._connection = EnsembleConnection(ensemble, self._node, self._lost)
        if ensemble.is_down:
            connection.break_off()
            return
        self._last_heard = ensemble.loop.time()
        connection.send(ensemble.node, self._shake_hands, connection, self.session_id)
        self._later(self._timeout / 3, self._ping, connection)

    def _shake_hands(self, connection: EnsembleConnection, session_id: int) -> None:
        """Connect at the ensemble."""
        if self.ensemble.is_down:
            connection.break_off()
            return
        found = self.ensemble.attach(session_id, self._timeout, connection)
        connection.send(self._node, self._shaken, connection, found)

    def _shaken(self, connection: EnsembleConnection, session_id: int) -> None:
        self._last_heard = self.ensemble.loop.time()
        if not session_id:
            self.session_id = 0
            connection.is_broken = True
            self._tell(KazooState.LOST)
            self._fail(exceptions.SessionExpiredError, self._waiting)
            self._connect()
            return
        self.session_id = session_id
        self.connected = True
        self._tell(KazooState.CONNECTED)
        waiting, self._waiting = self._waiting, []
        for asked in waiting:
            self._send(connection, asked)

    def _ping(self, connection: EnsembleConnection) -> None:
        """Close a connection without messages for two thirds of the session timeout."""
        if connection.is_broken or self._closed:
            return
        if self.ensemble.loop.time() - self._last_heard > self._timeout * 2 / 3:
            connection.break_off()
            return
        if self.connected:
            connection.send(self.ensemble.node, self._pinged, connection)
        self._later(self._timeout / 3, self._ping, connection)

    def _pinged(self, connection: EnsembleConnection) -> None:
        """Process a heartbeat at the ensemble."""
        session = self.ensemble.sessions.get(self.session_id)
        if session is not None and session.connection is connection:
            session.last_heard = self.ensemble.loop.time()
            connection.send(self._node, self._heard)

    def _heard(self) -> None:
        self._last_heard = self.ensemble.loop.time()

    def _lost(self) -> None:
        """Handle the lost connection; the next one determines whether the session has expired."""
        if self._closed:
            return
        was_connected, self.connected = self.connected, False
        in_flight, self._in_flight = self._in_flight, []
        self._fail(exceptions.ConnectionLoss, in_flight)
        if was_connected:
            self._tell(KazooState.SUSPENDED)
            watchers, self._watchers = self._watchers, []
            for watcher in watchers:
                watcher(WatchedEvent("NONE", "CONNECTING", None))
        self._later(RECONNECT_S * self.ensemble.random.random(), self._connect)

    def _tell(self, state: str) -> None:
        for listener in list(self._listeners):
            listener(state)

    def _later(self, delay: float, callback: Callable[..., object], *arguments: Any) -> None:
        self.ensemble.loop.call_later(delay, callback, *arguments, context=self._context)

    @staticmethod
    def _fail(error: type[Exception], asked: list[Asked]) -> None:
        failed, asked[:] = list(asked), []
        for one in failed:
            one.answer.give(None, error())
