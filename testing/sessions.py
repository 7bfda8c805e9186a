"""A broker's session with the metadata tree of its cluster, which a test can expire."""

from __future__ import annotations

from collections.abc import Sequence

from ..server.metadata.embedded_store import EmbeddedStore
from ..server.metadata.metadata_store import Operation, OperationResult, SessionExpiredError, SessionState


class EndableSession(EmbeddedStore):
    """Replaces a session with ZooKeeper. Runs on the event loop."""

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """Run the operations in the store. Raises SessionExpiredError between two sessions."""
        if self.state is SessionState.EXPIRED and self._session_id == 0:
            raise SessionExpiredError(operations[0].path if operations else "/")
        return await super().multi(operations)

    def expire(self) -> None:
        """Expire the session with its ephemeral nodes and watches. `renew` starts the next."""
        ephemerals = self._tree.plan_end_of(self._session_id)
        if ephemerals.changes:
            self._tree.apply(ephemerals)
        self._tree.end_session(self._session_id)
        self._session_id = 0
        self._enter(SessionState.EXPIRED)

    def renew(self) -> None:
        """Start a new session."""
        self._session_id = self._tree.open_session()
        self._enter(SessionState.CONNECTED)

    def _enter(self, state: SessionState) -> None:
        self._state = state
        for listener in list(self._listeners):
            listener(state)
