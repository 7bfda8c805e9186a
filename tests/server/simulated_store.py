"""A session with a tree that others share; a test decides what becomes of it: lost contact, lost answers, expiry."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.server.metadata.data_tree import DataTree
from barnabas.server.metadata.metadata_store import (
    Operation,
    OperationResult,
    SessionState,
    StoreUnavailableError,
)
from barnabas.testing.sessions import EndableSession


class SimulatedStore(EndableSession):
    """As a session with ZooKeeper is to the broker that has it."""

    def __init__(self, tree: DataTree) -> None:
        super().__init__(tree)
        self.lose_answers = 0
        """How many of the next writes are done without their answers coming back."""
        self.lose_requests = 0
        """How many of the next writes never arrive."""

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        if self.lose_requests:
            self.lose_requests -= 1
            raise StoreUnavailableError(operations[0].path)
        results = await super().multi(operations)
        if self.lose_answers:
            self.lose_answers -= 1
            raise StoreUnavailableError(operations[0].path)
        return results

    def suspend(self) -> None:
        """Contact is lost; what is asked for is answered all the same, late or by another server."""
        self._enter(SessionState.SUSPENDED)

    def resume(self) -> None:
        """Contact is there again in the same session."""
        self._enter(SessionState.CONNECTED)

    def forget(self) -> None:
        """The session ends for this side alone: the store has not noticed yet that nobody is there."""
        self._session_id = 0
        self._enter(SessionState.EXPIRED)
