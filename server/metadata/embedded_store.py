"""The metadata store of a broker that needs nobody else: a tree in memory, each write journaled in SQLite.

Layout: table `nodes` has one row per node (path, data, counters, owner), table `counters` the last zxid and session id.
Who writes: one broker, which holds the database exclusively as long as it runs. A write is one SQLite transaction; with
`synchronous=FULL` on a write-ahead log it is on disk before anybody sees it or is answered, with NORMAL a power loss
may take the newest ones. What a crash can leave: all of a transaction or nothing of it. Recovery: SQLite's own; the
rows are read once, at open, where ephemeral nodes of the sessions that died are removed. All reads are answered from
memory.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence

from ...storage.reserve import Reserve
from ..runtime.ports import Work
from .metadata_store import (
    ANY_VERSION,
    Create,
    Delete,
    Operation,
    OperationResult,
    SessionState,
    SetData,
    Stat,
    StoreUnavailableError,
    Watch,
)
from .node_tree import Node, NodeTree, Transaction

IN_MEMORY = ":memory:"
LANE = "metadata"

SCHEMA = """
CREATE TABLE IF NOT EXISTS nodes (
    path TEXT PRIMARY KEY,
    data BLOB NOT NULL,
    version INTEGER NOT NULL,
    created_children INTEGER NOT NULL,
    czxid INTEGER NOT NULL,
    mzxid INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    modified_ms INTEGER NOT NULL,
    owner INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""


class Journal:
    """The SQLite file under a tree."""

    def __init__(self, path: str, *, durable: bool, reserve: Reserve | None = None) -> None:
        """`reserve` is on the same disk, and is drawn on when that is full."""
        self._reserve = reserve
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0)
        # Exclusive: a second broker on the same file is refused, and no shared-memory file is needed.
        self._connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
        self._connection.executescript(SCHEMA)

    def load(self, now_ms: Callable[[], int]) -> NodeTree:
        """Reads the whole tree."""
        counters = dict(self._connection.execute("SELECT name, value FROM counters"))
        rows = self._connection.execute("SELECT * FROM nodes")
        nodes = ((path, Node(*fields)) for path, *fields in rows)
        return NodeTree(now_ms, nodes, counters.get("zxid", 0), counters.get("session", 0))

    def write(self, transaction: Transaction, session: int) -> None:
        """Stores one transaction, durably if so opened. On an error nothing of it is stored."""
        try:
            self._write(transaction, session)
        except sqlite3.Error as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_FULL or self._reserve is None or not self._reserve.lend():
                raise
            self._write(transaction, session)

    def _write(self, transaction: Transaction, session: int) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            gone = [(path,) for path, node in transaction.changes.items() if node is None]
            kept = [(path, *node) for path, node in transaction.changes.items() if node is not None]
            self._connection.executemany("DELETE FROM nodes WHERE path = ?", gone)
            self._connection.executemany("INSERT OR REPLACE INTO nodes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", kept)
            counters = (("zxid", transaction.zxid), ("session", session))
            self._connection.executemany("INSERT OR REPLACE INTO counters VALUES (?, ?)", counters)
            self._connection.execute("COMMIT")
        except sqlite3.Error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Folds the write-ahead log into the database and lets it go."""
        self._connection.close()


class EmbeddedStore:
    """A session on a tree of this process, journaled or in memory only. Implements `MetadataStore`.

    With `work` the journal is written on a lane of its own, so that a slow disk does not hold up the loop; without it
    the journal is written in place. Writes take effect one after another in the order they were asked for.
    """

    def __init__(self, tree: NodeTree, journal: Journal | None = None, work: Work | None = None) -> None:
        self._tree = tree
        self._journal = journal
        self._work = work if journal is not None else None
        self._turn = asyncio.Lock()
        self._turns: set[asyncio.Task[list[OperationResult]]] = set()
        self._state = SessionState.CONNECTED
        self._listeners: list[Callable[[SessionState], None]] = []
        self._session_id = tree.open_session()

    @classmethod
    def open(
        cls,
        path: str,
        *,
        now_ms: Callable[[], int],
        work: Work | None = None,
        durable: bool = True,
        reserve: Reserve | None = None,
    ) -> EmbeddedStore:
        """Opens the database at `path`, made if missing; `IN_MEMORY` keeps nothing.

        `durable=False` leaves it to the operating system when writes reach the disk; their order is kept. `reserve` is
        for a disk that is full.
        Raises StoreUnavailableError if the file cannot be used or another broker holds it.
        """
        if path == IN_MEMORY:
            return cls(NodeTree(now_ms))
        journal = None
        try:
            journal = Journal(path, durable=durable, reserve=reserve)
            tree = journal.load(now_ms)
            store = cls(tree, journal, work)
            leftovers = tree.plan_end_of_unknown_sessions()
            # Written even when nothing is left over: it takes the exclusive lock and keeps the session ids growing.
            journal.write(leftovers, store.session_id)
            tree.apply(leftovers)
        except sqlite3.Error as error:
            if journal is not None:
                journal.close()
            raise StoreUnavailableError(f"{path}: {error}") from error
        return store

    @property
    def session_id(self) -> int:
        """Owner of the ephemeral nodes made here."""
        return self._session_id

    @property
    def state(self) -> SessionState:
        """CONNECTED until closed."""
        return self._state

    def on_state_change(self, listener: Callable[[SessionState], None]) -> None:
        """Has the end of the session told to `listener`."""
        self._listeners.append(listener)

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        """Makes a node and returns its path."""
        result = (await self.multi([Create(path, data, ephemeral, sequential)]))[0]
        assert isinstance(result, str)
        return result

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """Returns a node's data and stat."""
        return self._tree.get(path, self._session_id, watch)

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """Returns data and stat of each node, None for those that are not there."""
        return [self._tree.find(path, self._session_id) for path in paths]

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Replaces a node's data."""
        result = (await self.multi([SetData(path, data, version)]))[0]
        assert isinstance(result, Stat)
        return result

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Removes a node."""
        await self.multi([Delete(path, version)])

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Returns a node's stat or None."""
        return self._tree.exists(path, self._session_id, watch)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Returns the sorted names of a node's children."""
        return self._tree.children(path, self._session_id, watch)

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """Applies all operations or none."""
        if self._work is None:
            return await self._take_turn(operations)
        # A write that has begun is finished even if nobody waits for it any more: the tree must not fall behind the
        # journal.
        turn = asyncio.create_task(self._take_turn(operations))
        self._turns.add(turn)
        turn.add_done_callback(self._turns.discard)
        try:
            return await asyncio.shield(turn)
        finally:
            # An error of the task leads back to this frame: a circle that only the garbage collector would find.
            del turn

    async def close(self) -> None:
        """Ends the session, removes its ephemeral nodes and lets the database go."""
        async with self._turn:
            if self._state is SessionState.EXPIRED:
                return
            try:
                ephemerals = self._tree.plan_end_of(self._session_id)
                if ephemerals.changes:
                    await self._commit(ephemerals)
            finally:
                self._tree.end_session(self._session_id)
                self._state = SessionState.EXPIRED
                if self._journal is not None:
                    self._journal.close()
        for listener in self._listeners:
            listener(self._state)

    async def _take_turn(self, operations: Sequence[Operation]) -> list[OperationResult]:
        async with self._turn:
            transaction = self._tree.plan(operations, self._session_id)
            if transaction.changes:
                await self._commit(transaction)
            return transaction.results

    async def _commit(self, transaction: Transaction) -> None:
        """First on disk, then in memory: what a reader has seen survives."""
        journal = self._journal
        if journal is not None:
            try:
                if self._work is None:
                    journal.write(transaction, self._session_id)
                else:
                    await self._work.run(LANE, lambda: journal.write(transaction, self._session_id))
            except sqlite3.Error as error:
                raise StoreUnavailableError(f"{next(iter(transaction.changes))}: {error}") from error
        self._tree.apply(transaction)
