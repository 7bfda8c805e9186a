"""The metadata store of a broker without an ensemble: a session on a tree in memory, each write journaled in SQLite.

All reads are answered from memory. The rows of the journal are read once, at open, where ephemeral nodes of sessions
that died are removed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from ...storage.reserve import Reserve
from ..runtime.ports import Work
from .data_tree import DataTree, Outcome, stat_of
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
from .sync_request_processor import SyncRequestProcessor
from .tree_journal import Journal

IN_MEMORY = ":memory:"


class EmbeddedStore:
    """A session on a tree of this process, journaled or in memory only. Implements `MetadataStore`.

    Writes take effect one after another, in the order of the calls.
    """

    def __init__(self, tree: DataTree, request_processor: SyncRequestProcessor | None = None) -> None:
        """`request_processor` orders and journals the tree's writes; None: nothing is journaled."""
        self.request_processor = request_processor or SyncRequestProcessor(tree)
        self._tree = tree
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
        lasting: bool = True,
        reserve: Reserve | None = None,
        keep_sessions: bool = False,
    ) -> EmbeddedStore:
        """Open the database at `path`, made if missing; `IN_MEMORY` keeps nothing.

        `durable=False` leaves it to the operating system when writes reach the disk; their order is kept, but not with
        `lasting=False`, for data that need not outlast the machine. `reserve` is for a disk that is full.
        `keep_sessions` keeps the sessions of other processes across a restart, for a tree that is served.
        Raises StoreUnavailableError if the file cannot be used or another broker holds it.
        """
        if path == IN_MEMORY:
            return cls(DataTree(now_ms))
        journal = None
        try:
            journal = Journal(path, durable=durable, lasting=lasting, reserve=reserve)
            tree = journal.load(now_ms)
            store = cls(tree, SyncRequestProcessor(tree, journal, work))
            start = tree.plan_end_of_unknown_sessions(keep_remote=keep_sessions)
            # Written even when nothing is left over: it takes the exclusive lock and keeps the session ids growing.
            journal.write([start])
            tree.apply(start)
        except sqlite3.Error as error:
            if journal is not None:
                journal.close()
            raise StoreUnavailableError(f"{path}: {error}") from error
        return store

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def state(self) -> SessionState:
        """CONNECTED until closed."""
        return self._state

    def on_state_change(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        result = (await self.multi([Create(path, data, ephemeral, sequential)]))[0]
        assert isinstance(result, str)
        return result

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        return self._tree.get(path, self._session_id, watch)

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        return [self._tree.find(path, self._session_id) for path in paths]

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        result = (await self.multi([SetData(path, data, version)]))[0]
        assert isinstance(result, Stat)
        return result

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, version)])

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        return self._tree.exists(path, self._session_id, watch)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return self._tree.children(path, self._session_id, watch)

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """Apply all operations or none."""
        transaction = await self.request_processor.run(lambda: self._tree.plan_in_steps(operations, self._session_id))
        return list(map(_result, operations, transaction.results))

    async def close(self) -> None:
        """End the session, remove its ephemeral nodes and let the database go."""
        if self._state is SessionState.EXPIRED:
            return
        self._state = SessionState.EXPIRED
        try:
            # With very many nodes in several steps.
            while not (await self.request_processor.run(lambda: self._tree.plan_end_of(self._session_id))).is_empty:
                continue
        finally:
            self._tree.end_session(self._session_id)
            await self.request_processor.close()
        for listener in self._listeners:
            listener(self._state)


def _result(operation: Operation, outcome: Outcome) -> OperationResult:
    match operation:
        case Create():
            return outcome.path
        case SetData():
            assert outcome.node is not None
            return stat_of(outcome.node, outcome.children_count)
    return None
