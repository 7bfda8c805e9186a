"""The metadata tree as a pure state machine: plans of writes, sessions and watches, no I/O.

A write happens in two steps, so that it can be made durable in between: `plan` checks the operations against the tree
and returns a `Transaction` without changing the tree, `apply` makes it visible and fires the watches.
Several transactions may be planned, each upon the previous ones, and made durable together; they are applied in the
order of their plans, all of them, or none after `abandon_plans`.
Invariant: every node but the root has a parent, and `_children[path]` holds exactly the names of its children.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

from ...common.steps import run_to_end
from ...protocol.zookeeper.constants import Perms
from ...protocol.zookeeper.records import Acl, Id
from ..runtime.loop_sharing import Steps
from .metadata_store import (
    ANY_VERSION,
    ROOT,
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
    SessionExpiredError,
    SetData,
    Stat,
    StoreError,
    Watch,
    WatchEvent,
    check_path,
)
from .tree_acls import OPEN_ACL, NoAuthError, allows, checked_acl
from .watch_manager import WatchKind, WatchManager

OPERATIONS_PER_STEP = 40
"""Operations that are checked before the loop serves others: some tenths of a millisecond."""
EPHEMERAL_NODES_PER_TRANSACTION = 1000
"""Ephemeral nodes of an ended session that are deleted in one transaction."""


class Node(NamedTuple):
    """One value of the tree with everything that must be kept of it; the row that a journal stores."""

    data: bytes | None
    version: int
    created_children: int
    """Children ever created: the next sequential child's number."""
    czxid: int
    mzxid: int
    created_ms: int
    modified_ms: int
    owner: int
    """Session of an ephemeral node, 0 for a lasting one."""
    children_zxid: int
    """Place of the last creation or deletion of a child; that of the node's own creation at first (pzxid)."""
    acl_version: int = 0
    acl: tuple[Acl, ...] = OPEN_ACL


class RemoteSession(NamedTuple):
    """A session that outlives the connection, and the process, that it was begun with."""

    password: bytes
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class ProtectedCreate(Create):
    """Make a node with ACLs; without data, it has ZooKeeper's null, which is not the same as nothing."""

    acl: tuple[Acl, ...] = OPEN_ACL
    has_data: bool = True


@dataclass(frozen=True, slots=True)
class SetNull:
    """Replace a node's data by ZooKeeper's null if its version is the expected one."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class SetAcl:
    """Replace a node's ACLs if their version is the expected one."""

    path: str
    acl: tuple[Acl, ...]
    version: int = ANY_VERSION


TreeOperation = Operation | SetNull | SetAcl


class Outcome(NamedTuple):
    """The node of an operation afterwards; None if it does not exist any more."""

    path: str
    node: Node | None
    children_count: int


class PlannedEvent(NamedTuple):
    """An event, and the ACL of its node."""

    event: WatchEvent
    acl: tuple[Acl, ...]


@dataclass(slots=True)
class Transaction:
    """Checked operations, ready to be stored and applied. `changes` maps a path to its new node, None if deleted."""

    zxid: int
    last_session: int
    """The newest session's id at the time."""
    changes: dict[str, Node | None] = field(default_factory=dict)
    sessions: dict[int, RemoteSession | None] = field(default_factory=dict)
    """Remote sessions that begin, and None for sessions that end."""
    results: list[Outcome] = field(default_factory=list)
    events: list[PlannedEvent] = field(default_factory=list)
    child_counts: dict[str, int] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to store: it then has no place in the order of writes either."""
        return not self.changes and not self.sessions


@dataclass(frozen=True, slots=True)
class LocalWatch:
    """A watch of this process, which may read everything."""

    watch: Watch

    def process(self, event: WatchEvent, _: Sequence[Acl]) -> None:
        """Pass the event on."""
        self.watch(event)


def parent_of(path: str) -> str:
    """Return the parent's path of any path but the root."""
    return path[: path.rindex("/")] or ROOT


class DataTree:
    """All nodes of one store, with the sessions and watches upon them."""

    def __init__(
        self,
        now_ms: Callable[[], int],
        nodes: Iterable[tuple[str, Node]] = (),
        zxid: int = 0,
        last_session: int = 0,
        sessions: Mapping[int, RemoteSession] | None = None,
    ) -> None:
        self._now_ms = now_ms
        self._nodes: dict[str, Node] = {ROOT: Node(b"", 0, 0, 0, 0, 0, 0, 0, 0)}
        self._children: dict[str, set[str]] = {ROOT: set()}
        self._ephemerals: dict[int, set[str]] = {}
        self._sessions: dict[int, RemoteSession | None] = dict(sessions or {})
        self._last_session = last_session
        self._planned = Transaction(zxid, last_session)
        """All that was planned and not applied yet, as if it were one transaction."""
        self.zxid = zxid
        self.watches = WatchManager()
        for path, node in nodes:
            self._put(path, node)

    # Sessions

    def open_session(self) -> int:
        """Begin a session of this process and return its id; ids grow, and are never used again."""
        self._last_session += 1
        self._sessions[self._last_session] = None
        return self._last_session

    @property
    def remote_sessions(self) -> dict[int, RemoteSession]:
        """The sessions that outlive this process."""
        return {number: session for number, session in self._sessions.items() if session is not None}

    def remote_session(self, number: int) -> RemoteSession | None:
        """Return the session with an id, if it exists and belongs to another process."""
        return self._sessions.get(number)

    def ephemerals_of(self, session: int) -> AbstractSet[str]:
        """Paths of the nodes that end with a session."""
        return self._ephemerals.get(session, frozenset())

    @property
    def ephemeral_count(self) -> int:
        """Nodes that end with a session."""
        return sum(map(len, self._ephemerals.values()))

    def plan_session(self, session: RemoteSession) -> Transaction:
        """Plan the beginning of a remote session, the only one in `sessions`."""
        self._last_session += 1
        transaction = self._begin()
        transaction.sessions[self._last_session] = session
        return self._planned_as(transaction)

    def plan_end_of(self, session: int) -> Transaction:
        """Plan the end of a session and the deletion of some of its ephemeral nodes; empty when all are deleted.

        A transaction deletes at most `EPHEMERAL_NODES_PER_TRANSACTION`. The first of these transactions ends the
        session: if the broker stops before the last, its start deletes the nodes of sessions that do not exist.
        """
        owned = {path for path in self.ephemerals_of(session) if path not in self._planned.changes}
        owned |= {path for path, node in self._planned.changes.items() if node is not None and node.owner == session}
        some = sorted(owned, reverse=True)[:EPHEMERAL_NODES_PER_TRANSACTION]
        transaction = run_to_end(self._check([Delete(path) for path in some], session, None))
        if self._planned.sessions.get(session, self._sessions.get(session)) is not None:
            transaction.sessions[session] = None
        return self._planned_as(transaction)

    def plan_end_of_unknown_sessions(self, *, keep_remote: bool = True) -> Transaction:
        """Plan the removal of ephemeral nodes whose session is not alive, for example of a killed process.

        Without `keep_remote` no session of another process is.
        """
        alive = {number for number, session in self._sessions.items() if session is None or keep_remote}
        stale = [path for owner, paths in self._ephemerals.items() if owner not in alive for path in paths]
        transaction = run_to_end(self._check([Delete(path) for path in sorted(stale, reverse=True)], 0, None))
        transaction.sessions |= {number: None for number in self._sessions if number not in alive}
        return self._planned_as(transaction)

    def end_session(self, session: int) -> None:
        """Forget a session and its watches; its nodes are removed by `plan_end_of`."""
        self._sessions.pop(session, None)
        self.watches.drop(session)

    # Reading

    @property
    def node_count(self) -> int:
        """Nodes, the root among them."""
        return len(self._nodes)

    def look(self, path: str) -> Node | None:
        return self._nodes.get(path)

    def lasting_nodes(self) -> Transaction:
        """Return all nodes that are not ephemeral, as one transaction that creates them in an empty tree."""
        nodes = {path: node for path, node in self._nodes.items() if not node.owner}
        return Transaction(self.zxid, self._last_session, changes={**nodes})

    def names(self, path: str) -> AbstractSet[str]:
        """Return the names of the children of a node, which the caller must not change. Raises KeyError."""
        return self._children[path]

    def get(self, path: str, session: int, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """Return data and stat. Raises NoNodeError, SessionExpiredError."""
        self._check_session(session, path)
        node = self._nodes.get(path)
        if node is None:
            raise NoNodeError(path)
        self._watch(path, session, watch, WatchKind.DATA)
        return node.data or b"", stat_of(node, len(self._children[path]))

    def find(self, path: str, session: int) -> tuple[bytes, Stat] | None:
        """Return data and stat or None. Raises SessionExpiredError."""
        self._check_session(session, path)
        node = self._nodes.get(path)
        return None if node is None else (node.data or b"", stat_of(node, len(self._children[path])))

    def exists(self, path: str, session: int, watch: Watch | None = None) -> Stat | None:
        """Return the stat or None. Raises SessionExpiredError."""
        self._check_session(session, path)
        self._watch(path, session, watch, WatchKind.DATA)
        node = self._nodes.get(path)
        return None if node is None else stat_of(node, len(self._children[path]))

    def children(self, path: str, session: int, watch: Watch | None = None) -> list[str]:
        """Return the sorted names of the children. Raises NoNodeError, SessionExpiredError."""
        self._check_session(session, path)
        names = self._children.get(path)
        if names is None:
            raise NoNodeError(path)
        self._watch(path, session, watch, WatchKind.CHILDREN)
        return sorted(names)

    def _watch(self, path: str, session: int, watch: Watch | None, kind: int) -> None:
        if watch is not None:
            self.watches.add(path, session, LocalWatch(watch), kind)

    # Writing

    def plan(self, operations: Sequence[TreeOperation], session: int, who: Sequence[Id] | None = None) -> Transaction:
        """Check the operations in order, each against the effects of earlier operations and plans.

        `who` are the proved identities of the session, None for a session without restrictions.
        Raises StoreError, ValueError (an illegal path).
        """
        return run_to_end(self.plan_in_steps(operations, session, who))

    def plan_in_steps(
        self, operations: Sequence[TreeOperation], session: int, who: Sequence[Id] | None = None
    ) -> Steps[Transaction]:
        """Plan as `plan`, `OPERATIONS_PER_STEP` in each step. Until the end, nothing else is planned or applied."""
        for number, operation in enumerate(operations, 1):
            # A sequential node's name may be its number alone.
            is_sequential = isinstance(operation, Create) and operation.sequential
            check_path(f"{operation.path}0" if is_sequential else operation.path)
            self._check_session(session, operation.path)
            if number % (5 * OPERATIONS_PER_STEP) == 0:
                yield
        return self._planned_as((yield from self._check(operations, session, who)))

    def apply(self, transaction: Transaction) -> None:
        """Make a planned transaction visible, then trigger its watches."""
        assert transaction.zxid == self.zxid + 1, "a transaction must follow the state it was planned upon"
        self.zxid = transaction.zxid
        for path, node in transaction.changes.items():
            if node is None:
                self._take(path)
            else:
                self._put(path, node)
        for number, session in transaction.sessions.items():
            if session is None:
                self.end_session(number)
            else:
                self._sessions[number] = session
        if transaction.zxid >= self._planned.zxid:
            self.abandon_plans()
        for event, acl in transaction.events:
            self.watches.fire(event, acl)

    def abandon_plans(self) -> None:
        """Discard the planned transactions that were not applied."""
        self._planned = Transaction(self.zxid, self._last_session)

    def _put(self, path: str, node: Node) -> None:
        old = self._nodes.get(path)
        if old is not None and old.owner != node.owner:
            # Removed and created again in one transaction, by another session.
            self._take(path)
        if path not in self._nodes:
            self._children.setdefault(path, set())
            self._children.setdefault(parent_of(path), set()).add(path[path.rindex("/") + 1 :])
            if node.owner:
                self._ephemerals.setdefault(node.owner, set()).add(path)
        self._nodes[path] = node

    def _take(self, path: str) -> None:
        node = self._nodes.pop(path)
        del self._children[path]
        self._children[parent_of(path)].discard(path[path.rindex("/") + 1 :])
        if node.owner:
            owned = self._ephemerals[node.owner]
            owned.discard(path)
            if not owned:
                del self._ephemerals[node.owner]

    def _begin(self) -> Transaction:
        return Transaction(self._planned.zxid + 1, self._last_session)

    def _planned_as(self, transaction: Transaction) -> Transaction:
        """Make this plan visible to later plans of the round."""
        if not transaction.is_empty:
            planned = self._planned
            planned.zxid = transaction.zxid
            planned.changes |= transaction.changes
            planned.sessions |= transaction.sessions
            planned.child_counts |= transaction.child_counts
        return transaction

    def _check(self, operations: Sequence[TreeOperation], session: int, who: Sequence[Id] | None) -> Steps[Transaction]:
        transaction = self._begin()
        for index, operation in enumerate(operations):
            if index and index % OPERATIONS_PER_STEP == 0:
                yield
            try:
                transaction.results.append(self._check_one(transaction, operation, session, who))
            except StoreError as error:
                error.index = index
                raise
        # A node made and removed within one transaction never was.
        for path in [
            path for path, node in transaction.changes.items() if node is None and not self._existed_before(path)
        ]:
            del transaction.changes[path]
        return transaction

    def _check_one(
        self, transaction: Transaction, operation: TreeOperation, session: int, who: Sequence[Id] | None
    ) -> Outcome:
        match operation:
            case Create():
                return self._plan_create(transaction, operation, session, who)
            case SetData() | SetNull():
                return self._plan_set(transaction, operation, who)
            case SetAcl():
                return self._plan_set_acl(transaction, operation, who)
            case Delete():
                return self._plan_delete(transaction, operation, who)
            case Check():
                node = self._existing(transaction, operation.path)
                _require(operation.path, node, Perms.READ, who)
                _expect(operation.path, operation.version, node.version)
                return Outcome(operation.path, node, self._count_children(transaction, operation.path))

    def _plan_create(
        self, transaction: Transaction, operation: Create, session: int, who: Sequence[Id] | None
    ) -> Outcome:
        acl = OPEN_ACL
        if isinstance(operation, ProtectedCreate):
            acl = checked_acl(operation.path, operation.acl, who or ())
        parent_path = parent_of(operation.path)
        parent = self._look(transaction, parent_path)
        if parent is None:
            raise NoNodeError(operation.path)
        _require(operation.path, parent, Perms.CREATE, who)
        path = f"{operation.path}{parent.created_children:010d}" if operation.sequential else operation.path
        if self._look(transaction, path) is not None:
            raise NodeExistsError(path)
        if parent.owner:
            raise NoChildrenForEphemeralsError(operation.path)
        now_ms, zxid = self._now_ms(), transaction.zxid
        owner = session if operation.ephemeral else 0
        is_null = isinstance(operation, ProtectedCreate) and not operation.has_data
        node = Node(None if is_null else bytes(operation.data), 0, 0, zxid, zxid, now_ms, now_ms, owner, zxid, 0, acl)
        transaction.changes[path] = node
        transaction.changes[parent_path] = parent._replace(
            created_children=parent.created_children + 1, children_zxid=zxid
        )
        transaction.child_counts[parent_path] = self._count_children(transaction, parent_path) + 1
        transaction.child_counts[path] = 0
        transaction.events.append(PlannedEvent(WatchEvent(EventType.CREATED, path), acl))
        transaction.events.append(PlannedEvent(WatchEvent(EventType.CHILDREN, parent_path), parent.acl))
        return Outcome(path, node, 0)

    def _plan_set(self, transaction: Transaction, operation: SetData | SetNull, who: Sequence[Id] | None) -> Outcome:
        path = operation.path
        node = self._existing(transaction, path)
        _require(path, node, Perms.WRITE, who)
        _expect(path, operation.version, node.version)
        node = node._replace(
            data=bytes(operation.data) if isinstance(operation, SetData) else None,
            version=node.version + 1,
            mzxid=transaction.zxid,
            modified_ms=self._now_ms(),
        )
        transaction.changes[path] = node
        transaction.events.append(PlannedEvent(WatchEvent(EventType.CHANGED, path), node.acl))
        return Outcome(path, node, self._count_children(transaction, path))

    def _plan_set_acl(self, transaction: Transaction, operation: SetAcl, who: Sequence[Id] | None) -> Outcome:
        path = operation.path
        node = self._existing(transaction, path)
        _require(path, node, Perms.ADMIN, who)
        acl = checked_acl(path, operation.acl, who or ())
        _expect(path, operation.version, node.acl_version)
        transaction.changes[path] = node = node._replace(acl=acl, acl_version=node.acl_version + 1)
        return Outcome(path, node, self._count_children(transaction, path))

    def _plan_delete(self, transaction: Transaction, operation: Delete, who: Sequence[Id] | None) -> Outcome:
        path = operation.path
        node = self._existing(transaction, path)
        if path == ROOT:
            raise NotEmptyError(path)
        parent_path = parent_of(path)
        parent = self._existing(transaction, parent_path)
        _require(path, parent, Perms.DELETE, who)
        _expect(path, operation.version, node.version)
        if self._count_children(transaction, path):
            raise NotEmptyError(path)
        transaction.changes.pop(path, None)
        transaction.changes[path] = None
        transaction.changes[parent_path] = parent._replace(children_zxid=transaction.zxid)
        transaction.child_counts[parent_path] = self._count_children(transaction, parent_path) - 1
        transaction.events.append(PlannedEvent(WatchEvent(EventType.DELETED, path), node.acl))
        transaction.events.append(PlannedEvent(WatchEvent(EventType.CHILDREN, parent_path), parent.acl))
        return Outcome(path, None, 0)

    def _look(self, transaction: Transaction, path: str) -> Node | None:
        for changes in (transaction.changes, self._planned.changes):
            if path in changes:
                return changes[path]
        return self._nodes.get(path)

    def _existed_before(self, path: str) -> bool:
        """Whether a node was there before the transaction that is being planned."""
        planned = self._planned.changes
        return planned[path] is not None if path in planned else path in self._nodes

    def _existing(self, transaction: Transaction, path: str) -> Node:
        node = self._look(transaction, path)
        if node is None:
            raise NoNodeError(path)
        return node

    def _count_children(self, transaction: Transaction, path: str) -> int:
        for counts in (transaction.child_counts, self._planned.child_counts):
            if path in counts:
                return counts[path]
        return len(self._children[path])

    def _check_session(self, session: int, path: str) -> None:
        if session not in self._sessions or self._planned.sessions.get(session, self) is None:
            raise SessionExpiredError(path)


def _require(path: str, node: Node, perms: Perms, who: Sequence[Id] | None) -> None:
    if who is not None and node.acl is not OPEN_ACL and not allows(node.acl, perms, who):
        raise NoAuthError(path)


def _expect(path: str, expected: int, version: int) -> None:
    if expected not in (ANY_VERSION, version):
        raise BadVersionError(path)


def stat_of(node: Node, children_count: int) -> Stat:
    """Return a node's stat in the form of the port."""
    return Stat(
        czxid=node.czxid,
        mzxid=node.mzxid,
        version=node.version,
        children_version=children_version(node, children_count),
        created_ms=node.created_ms,
        modified_ms=node.modified_ms,
        ephemeral_owner=node.owner,
        children_count=children_count,
    )


def children_version(node: Node, children_count: int) -> int:
    """ZooKeeper counts creations and deletions; deletions are the created ones that are no longer there."""
    return 2 * node.created_children - children_count
