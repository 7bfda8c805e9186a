"""What a coordinator knows of a transactional id. Values and the steps from one to the next; no I/O, no time."""

from __future__ import annotations

from typing import Any, NamedTuple

from ....protocol.errors import ErrorCode
from ....protocol.record import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from .states import AT_REST, COMPLETED, TRANSITIONS, TransactionState

Place = tuple[str, int]
"""Topic and partition."""

LAST_EPOCH = 2**15 - 1
"""Never given to a client, so that there is always one left to fence it with."""
NO_TIME = -1
V1, V2 = 0, 2
"""Versions of the protocol as clients speak it. With 2 every transaction has an epoch of its own (KIP-890)."""


class TransactionMetadata(NamedTuple):
    """The state of a transactional id as it is, or will be, in the log (Kafka's TransactionMetadata)."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    update_ms: int
    start_ms: int = NO_TIME
    partitions: frozenset[Place] = frozenset()
    """Those that take part; while markers are written, those that wait for one."""
    last_epoch: int = NO_PRODUCER_EPOCH
    """The epoch before this one, if it was the same producer that had it: its requests may be repetitions."""
    previous_id: int = NO_PRODUCER_ID
    """The producer id before the last step; the same one nearly always."""
    next_id: int = NO_PRODUCER_ID
    """The producer id once the transaction is complete, when the epochs of this one are used up."""
    client_version: int = V1

    @property
    def is_exhausted(self) -> bool:
        """Whether the last epoch that a client may have is reached."""
        return is_exhausted(self.producer_epoch)

    @property
    def is_timed_out_at(self) -> int | None:
        """When the open transaction is over, in ms; None if there is none, or it may take for ever (KIP-939)."""
        if self.state is not TransactionState.ONGOING or self.timeout_ms == 2**31 - 1:
            return None
        return self.start_ms + self.timeout_ms

    def _check(self, state: TransactionState) -> None:
        """A way that the table does not know is a bug."""
        assert state in TRANSITIONS[self.state], f"{self.state.name} -> {state.name}"

    def _step(self, state: TransactionState, now_ms: int, **changes: Any) -> TransactionMetadata:
        """The same with changes, in another state."""
        self._check(state)
        return self._replace(state=state, update_ms=now_ms, previous_id=self.producer_id, **changes)

    def with_next_epoch(
        self, timeout_ms: int, expected_epoch: int | None, now_ms: int
    ) -> TransactionMetadata | ErrorCode:
        """A producer comes, or comes back with the epoch it says it has (KIP-360). PRODUCER_FENCED for an old one."""
        epoch, last = self.producer_epoch + 1, NO_PRODUCER_EPOCH
        if expected_epoch is not None:
            if expected_epoch == self.producer_epoch or self.producer_epoch == NO_PRODUCER_EPOCH:
                last = self.producer_epoch
            elif expected_epoch == self.last_epoch:
                epoch, last = self.producer_epoch, self.last_epoch  # it asks again what it was not answered
            else:
                return ErrorCode.PRODUCER_FENCED
        return self._empty(now_ms, producer_epoch=epoch, last_epoch=last, timeout_ms=timeout_ms)

    def with_new_id(self, producer_id: int, timeout_ms: int, now_ms: int, *, keep_last: bool) -> TransactionMetadata:
        """The epochs are used up: go on under another producer id."""
        last = self.producer_epoch if keep_last else NO_PRODUCER_EPOCH
        return self._empty(now_ms, producer_id=producer_id, producer_epoch=0, last_epoch=last, timeout_ms=timeout_ms)

    def _empty(self, now_ms: int, **changes: Any) -> TransactionMetadata:
        return self._step(TransactionState.EMPTY, now_ms, partitions=frozenset(), start_ms=NO_TIME, **changes)

    def with_partitions(self, added: frozenset[Place], client_version: int, now_ms: int) -> TransactionMetadata:
        """More partitions take part; the first ones begin the transaction."""
        return self._step(
            TransactionState.ONGOING,
            now_ms,
            partitions=self.partitions | added,
            start_ms=now_ms if self.state in AT_REST else self.start_ms,
            client_version=client_version,
        )

    def ending(self, state: TransactionState, client_version: int, next_id: int, now_ms: int) -> TransactionMetadata:
        """It is decided how the transaction ends; markers are to be written."""
        self._check(state)
        is_v2 = client_version >= V2
        return TransactionMetadata(  # which takes half as long as `_replace`, and every commit waits for it
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch + 1 if is_v2 else self.producer_epoch,
            timeout_ms=self.timeout_ms,
            state=state,
            update_ms=now_ms,
            start_ms=now_ms if self.state in AT_REST else self.start_ms,
            partitions=self.partitions,
            last_epoch=self.producer_epoch if is_v2 else self.last_epoch,
            previous_id=self.producer_id,
            next_id=next_id,
            client_version=client_version,
        )

    def fenced(self, client_version: int, now_ms: int) -> TransactionMetadata:
        """The open transaction is aborted against its producer, whose epoch is worth nothing from now on."""
        changed = self
        if client_version < V2:
            changed = self._replace(producer_epoch=self.producer_epoch + 1, last_epoch=NO_PRODUCER_EPOCH)
        return changed.ending(TransactionState.PREPARE_ABORT, client_version, NO_PRODUCER_ID, now_ms)

    def completed(self, now_ms: int) -> TransactionMetadata:
        """All markers are written."""
        is_other = self.client_version >= V2 and self.next_id != NO_PRODUCER_ID
        return self._step(
            COMPLETED[self.state],
            now_ms,
            next_id=NO_PRODUCER_ID,
            partitions=frozenset(),
            producer_id=self.next_id if is_other else self.producer_id,
            producer_epoch=0 if is_other else self.producer_epoch,
        )


def is_exhausted(epoch: int) -> bool:
    """Whether there is no epoch after this one that a client may have."""
    return epoch >= LAST_EPOCH - 1
