"""The metadata tree as a pure state machine: plans of writes, sessions and one-shot watches, no I/O.

A write happens in two steps, so that it can be made durable in between: `plan` checks the operations against the tree
and answers with a `Transaction` (nothing has changed yet), `apply` makes it visible and fires the watches.
Invariant: every node but the root has a parent, and `_children[path]` holds exactly the names of its children.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .metadata_store import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Create,
    Delete,
    EventType,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    OperationResult,
    SessionExpiredError,
    SetData,
    Stat,
    StoreError,
    Watch,
    WatchEvent,
)

ROOT = "/"


class Node(NamedTuple):
    """One value of the tree with everything that must be kept of it; the row that a journal stores."""

    data: bytes
    version: int
    created_children: int
    """Children ever created: the next sequential child's number."""
    czxid: int
    mzxid: int
    created_ms: int
    modified_ms: int
    owner: int
    """Session of an ephemeral node, 0 for a lasting one."""


@dataclass(slots=True)
class Transaction:
    """Checked operations, ready to be stored and applied. `changes` maps a path to its new node, None if deleted."""

    zxid: int
    changes: dict[str, Node | None] = field(default_factory=dict)
    results: list[OperationResult] = field(default_factory=list)
    events: list[WatchEvent] = field(default_factory=list)
    child_counts: dict[str, int] = field(default_factory=dict)


def parent_of(path: str) -> str:
    """Returns the parent's path of any path but the root."""
    return path[: path.rindex("/")] or ROOT


def check_path(path: str) -> None:
    """Raises ValueError unless the path is absolute and each of its parts is a name."""
    if path != ROOT and (not path.startswith("/") or any(part in ("", ".", "..") for part in path[1:].split("/"))):
        raise ValueError(f"not a path of the metadata tree: {path!r}")


class NodeTree:
    """All nodes of one store, with the sessions and watches upon them."""

    def __init__(
        self, now_ms: Callable[[], int], nodes: Iterable[tuple[str, Node]] = (), zxid: int = 0, last_session: int = 0
    ) -> None:
        self._now_ms = now_ms
        self._nodes: dict[str, Node] = {ROOT: Node(b"", 0, 0, 0, 0, 0, 0, 0)}
        self._children: dict[str, set[str]] = {ROOT: set()}
        self._data_watches: dict[str, list[tuple[int, Watch]]] = {}
        self._child_watches: dict[str, list[tuple[int, Watch]]] = {}
        self._sessions: set[int] = set()
        self._last_session = last_session
        self.zxid = zxid
        for path, node in nodes:
            self._nodes[path] = node
            self._children.setdefault(path, set())
            if path != ROOT:
                self._children.setdefault(parent_of(path), set()).add(path[path.rindex("/") + 1 :])

    # Sessions

    def open_session(self) -> int:
        """Begins a session and returns its id; ids grow, and start above those whose nodes are still here."""
        self._last_session += 1
        self._sessions.add(self._last_session)
        return self._last_session

    def plan_end_of(self, session: int) -> Transaction:
        """Plans the removal of every ephemeral node of a session."""
        owned = sorted((path for path, node in self._nodes.items() if node.owner == session), reverse=True)
        return self._plan([Delete(path) for path in owned], session)

    def plan_end_of_unknown_sessions(self) -> Transaction:
        """Plans the removal of ephemeral nodes whose session is not alive: what a killed process left behind."""
        stale = [path for path, node in self._nodes.items() if node.owner and node.owner not in self._sessions]
        return self._plan([Delete(path) for path in sorted(stale, reverse=True)], 0)

    def end_session(self, session: int) -> None:
        """Forgets a session and its watches; its nodes are removed by `plan_end_of`."""
        self._sessions.discard(session)
        for watches in (self._data_watches, self._child_watches):
            for path in list(watches):
                watches[path] = [entry for entry in watches[path] if entry[0] != session]
                if not watches[path]:
                    del watches[path]

    # Reading

    def get(self, path: str, session: int, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """Returns data and stat. Raises NoNodeError, SessionExpiredError."""
        self._check_session(session, path)
        node = self._nodes.get(path)
        if node is None:
            raise NoNodeError(path)
        if watch is not None:
            self._data_watches.setdefault(path, []).append((session, watch))
        return node.data, self._stat(path, node)

    def find(self, path: str, session: int) -> tuple[bytes, Stat] | None:
        """Returns data and stat or None. Raises SessionExpiredError."""
        self._check_session(session, path)
        node = self._nodes.get(path)
        return None if node is None else (node.data, self._stat(path, node))

    def exists(self, path: str, session: int, watch: Watch | None = None) -> Stat | None:
        """Returns the stat or None. Raises SessionExpiredError."""
        self._check_session(session, path)
        if watch is not None:
            self._data_watches.setdefault(path, []).append((session, watch))
        node = self._nodes.get(path)
        return None if node is None else self._stat(path, node)

    def children(self, path: str, session: int, watch: Watch | None = None) -> list[str]:
        """Returns the sorted names of the children. Raises NoNodeError, SessionExpiredError."""
        self._check_session(session, path)
        names = self._children.get(path)
        if names is None:
            raise NoNodeError(path)
        if watch is not None:
            self._child_watches.setdefault(path, []).append((session, watch))
        return sorted(names)

    # Writing

    def plan(self, operations: Sequence[Operation], session: int) -> Transaction:
        """Checks the operations in order, each seeing the ones before it, and changes nothing."""
        for operation in operations:
            check_path(operation.path)
            self._check_session(session, operation.path)
        return self._plan(operations, session)

    def apply(self, transaction: Transaction) -> None:
        """Makes a planned transaction visible, then fires the watches it concerns."""
        assert transaction.zxid == self.zxid + 1, "a transaction must follow the state it was planned upon"
        self.zxid = transaction.zxid
        for path, node in transaction.changes.items():
            if node is None:
                del self._nodes[path], self._children[path]
                self._children[parent_of(path)].discard(path[path.rindex("/") + 1 :])
            else:
                if path not in self._nodes:
                    self._children[path] = set()
                    self._children[parent_of(path)].add(path[path.rindex("/") + 1 :])
                self._nodes[path] = node
        for event in transaction.events:
            self._fire(event)

    def _plan(self, operations: Sequence[Operation], session: int) -> Transaction:
        transaction = Transaction(self.zxid + 1)
        for index, operation in enumerate(operations):
            try:
                transaction.results.append(self._plan_one(transaction, operation, session))
            except StoreError as error:
                error.index = index
                raise
        # A node made and removed within one transaction never was.
        for path in [path for path, node in transaction.changes.items() if node is None and path not in self._nodes]:
            del transaction.changes[path]
        return transaction

    def _plan_one(self, transaction: Transaction, operation: Operation, session: int) -> OperationResult:
        match operation:
            case Create():
                return self._plan_create(transaction, operation, session)
            case SetData():
                return self._plan_set(transaction, operation)
            case Delete():
                self._plan_delete(transaction, operation)
            case Check():
                self._expect(transaction, operation.path, operation.version)
        return None

    def _plan_create(self, transaction: Transaction, operation: Create, session: int) -> str:
        parent_path = parent_of(operation.path)
        parent = self._look(transaction, parent_path)
        if parent is None:
            raise NoNodeError(operation.path)
        if parent.owner:
            raise NoChildrenForEphemeralsError(operation.path)
        path = f"{operation.path}{parent.created_children:010d}" if operation.sequential else operation.path
        if self._look(transaction, path) is not None:
            raise NodeExistsError(path)
        now_ms = self._now_ms()
        owner = session if operation.ephemeral else 0
        zxid = transaction.zxid
        transaction.changes[path] = Node(bytes(operation.data), 0, 0, zxid, zxid, now_ms, now_ms, owner)
        transaction.changes[parent_path] = parent._replace(created_children=parent.created_children + 1)
        transaction.child_counts[parent_path] = self._count_children(transaction, parent_path) + 1
        transaction.child_counts[path] = 0
        transaction.events.append(WatchEvent(EventType.CREATED, path))
        transaction.events.append(WatchEvent(EventType.CHILDREN, parent_path))
        return path

    def _plan_set(self, transaction: Transaction, operation: SetData) -> Stat:
        node = self._expect(transaction, operation.path, operation.version)
        node = node._replace(
            data=bytes(operation.data), version=node.version + 1, mzxid=transaction.zxid, modified_ms=self._now_ms()
        )
        transaction.changes[operation.path] = node
        transaction.events.append(WatchEvent(EventType.CHANGED, operation.path))
        return _stat_of(node, self._count_children(transaction, operation.path))

    def _plan_delete(self, transaction: Transaction, operation: Delete) -> None:
        self._expect(transaction, operation.path, operation.version)
        if operation.path == ROOT or self._count_children(transaction, operation.path):
            raise NotEmptyError(operation.path)
        parent_path = parent_of(operation.path)
        transaction.changes.pop(operation.path, None)
        transaction.changes[operation.path] = None
        transaction.child_counts[parent_path] = self._count_children(transaction, parent_path) - 1
        transaction.events.append(WatchEvent(EventType.DELETED, operation.path))
        transaction.events.append(WatchEvent(EventType.CHILDREN, parent_path))

    def _look(self, transaction: Transaction, path: str) -> Node | None:
        if path in transaction.changes:
            return transaction.changes[path]
        return self._nodes.get(path)

    def _expect(self, transaction: Transaction, path: str, version: int) -> Node:
        node = self._look(transaction, path)
        if node is None:
            raise NoNodeError(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersionError(path)
        return node

    def _count_children(self, transaction: Transaction, path: str) -> int:
        count = transaction.child_counts.get(path)
        return len(self._children[path]) if count is None else count

    def _stat(self, path: str, node: Node) -> Stat:
        return _stat_of(node, len(self._children[path]))

    def _check_session(self, session: int, path: str) -> None:
        if session not in self._sessions:
            raise SessionExpiredError(path)

    def _fire(self, event: WatchEvent) -> None:
        watches: list[tuple[int, Watch]] = []
        if event.type is not EventType.CHILDREN:
            watches += self._data_watches.pop(event.path, ())
        if event.type in (EventType.CHILDREN, EventType.DELETED):
            watches += self._child_watches.pop(event.path, ())
        for _, watch in watches:
            watch(event)


def _stat_of(node: Node, children_count: int) -> Stat:
    return Stat(
        czxid=node.czxid,
        mzxid=node.mzxid,
        version=node.version,
        # ZooKeeper counts creations and deletions; deletions are the created ones that are no longer there.
        children_version=2 * node.created_children - children_count,
        created_ms=node.created_ms,
        modified_ms=node.modified_ms,
        ephemeral_owner=node.owner,
        children_count=children_count,
    )
