"""Kafka's TransactionState and TransactionMetadata: the state of a transactional id and the steps between states.

`TransactionState` and `TransactionMetadata` are values, without I/O or time. `TransactionEntry` is the mutable entry
of a transactional id in its coordinator, with the requests that wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from enum import IntEnum
from typing import Any, NamedTuple

from ....protocol.errors import ErrorCode
from ....protocol.record import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ....protocol.topic_partition import TopicPartitionKey


class TransactionState(IntEnum):
    """The state of a transactional id; the values are stored in `__transaction_state`."""

    EMPTY = 0
    """No transaction has begun with this producer id and epoch."""
    ONGOING = 1
    PREPARE_COMMIT = 2
    """The commit is decided and durable; markers are being written."""
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    """All markers are written."""
    COMPLETE_ABORT = 5
    DEAD = 6
    """The id is being deleted: it has expired."""
    PREPARE_EPOCH_FENCE = 7
    """Kafka's step between ONGOING and PREPARE_ABORT, which is never in the log; in Barnabas only a filter value."""

    @property
    def label(self) -> str:
        """The name of the state in responses."""
        return LABELS[self]


_S = TransactionState

LABELS = {
    _S.EMPTY: "Empty",
    _S.ONGOING: "Ongoing",
    _S.PREPARE_COMMIT: "PrepareCommit",
    _S.PREPARE_ABORT: "PrepareAbort",
    _S.COMPLETE_COMMIT: "CompleteCommit",
    _S.COMPLETE_ABORT: "CompleteAbort",
    _S.DEAD: "Dead",
    _S.PREPARE_EPOCH_FENCE: "PrepareEpochFence",
}

AT_REST = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
"""The states without an open transaction, in which a transaction may begin and the id may expire."""

ENDING = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})

TRANSITIONS: dict[TransactionState, frozenset[TransactionState]] = {
    _S.EMPTY: frozenset({_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, _S.DEAD}),
    _S.ONGOING: frozenset({_S.ONGOING, _S.PREPARE_COMMIT, _S.PREPARE_ABORT}),
    _S.PREPARE_COMMIT: frozenset({_S.COMPLETE_COMMIT}),
    _S.PREPARE_ABORT: frozenset({_S.COMPLETE_ABORT}),
    _S.COMPLETE_COMMIT: frozenset({_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, _S.DEAD}),
    _S.COMPLETE_ABORT: frozenset({_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, _S.DEAD}),
    _S.DEAD: frozenset(),
    _S.PREPARE_EPOCH_FENCE: frozenset(),
}
"""The valid next states by state. An abort without a transaction exists in transaction version 2 only (KIP-890)."""

COMPLETED = {_S.PREPARE_COMMIT: _S.COMPLETE_COMMIT, _S.PREPARE_ABORT: _S.COMPLETE_ABORT}
"""The states after all markers are written."""

LAST_EPOCH = 2**15 - 1
"""The last epoch, which no client receives: it remains for fencing."""
NO_TIME = -1
TV_0, TV_2 = 0, 2
"""Transaction versions of clients, as in records: Kafka's coordinator writes 0 for clients of version 1, too.

In version 2 each transaction has its own epoch (KIP-890).
"""


class TransactionMetadata(NamedTuple):
    """A present or next state of a transactional id (Kafka: TransactionMetadata and TxnTransitMetadata).

    The `prepare` methods return the next state; `TransactionEntry.complete_transition_to` sets it when it is durable.
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    update_ms: int
    start_ms: int = NO_TIME
    partitions: frozenset[TopicPartitionKey] = frozenset()
    """The partitions in the transaction; while markers are written, the partitions without a marker."""
    last_epoch: int = NO_PRODUCER_EPOCH
    """The last epoch of the same producer, whose requests may be repetitions."""
    previous_id: int = NO_PRODUCER_ID
    """The producer id before the last transition; nearly always the same."""
    next_id: int = NO_PRODUCER_ID
    """The producer id after the end of the transaction if the present id has no epoch left."""
    client_version: int = TV_0

    @property
    def is_exhausted(self) -> bool:
        """Whether no epoch is left for the client."""
        return is_exhausted(self.producer_epoch)

    @property
    def timeout_at_ms(self) -> int | None:
        """The time at which the open transaction times out; None without one or without a timeout (KIP-939)."""
        if self.state is not TransactionState.ONGOING or self.timeout_ms == 2**31 - 1:
            return None
        return self.start_ms + self.timeout_ms

    def prepare_increment_producer_epoch(
        self, timeout_ms: int, expected_epoch: int | None, now_ms: int
    ) -> TransactionMetadata | ErrorCode:
        """Return the state after InitProducerId, or PRODUCER_FENCED for an old `expected_epoch` (KIP-360)."""
        epoch, last = self.producer_epoch + 1, NO_PRODUCER_EPOCH
        if expected_epoch is not None:
            if expected_epoch == self.producer_epoch or self.producer_epoch == NO_PRODUCER_EPOCH:
                last = self.producer_epoch
            elif expected_epoch == self.last_epoch:
                epoch, last = self.producer_epoch, self.last_epoch  # the producer has not received the response
            else:
                return ErrorCode.PRODUCER_FENCED
        return self._prepare_empty(now_ms, producer_epoch=epoch, last_epoch=last, timeout_ms=timeout_ms)

    def prepare_producer_id_rotation(
        self, producer_id: int, timeout_ms: int, now_ms: int, *, keep_last: bool
    ) -> TransactionMetadata:
        """Return the state with a new producer id: the present id has no epoch left."""
        last = self.producer_epoch if keep_last else NO_PRODUCER_EPOCH
        return self._prepare_empty(
            now_ms, producer_id=producer_id, producer_epoch=0, last_epoch=last, timeout_ms=timeout_ms
        )

    def _prepare_empty(self, now_ms: int, **changes: Any) -> TransactionMetadata:
        state = TransactionState.EMPTY
        assert state in TRANSITIONS[self.state], f"{self.state.name} -> {state.name}"
        return self._replace(
            state=state,
            update_ms=now_ms,
            start_ms=NO_TIME,
            partitions=frozenset(),
            previous_id=self.producer_id,
            **changes,
        )

    def prepare_add_partitions(
        self, added: frozenset[TopicPartitionKey], client_version: int, now_ms: int
    ) -> TransactionMetadata:
        """Return the state with more partitions; the first ones begin a transaction."""
        state = TransactionState.ONGOING
        assert state in TRANSITIONS[self.state], f"{self.state.name} -> {state.name}"
        return TransactionMetadata(  # see `prepare_abort_or_commit`
            self.producer_id,
            self.producer_epoch,
            self.timeout_ms,
            state,
            now_ms,
            now_ms if self.state in AT_REST else self.start_ms,
            self.partitions | added,
            self.last_epoch,
            self.producer_id,
            self.next_id,
            client_version,
        )

    def prepare_abort_or_commit(
        self, state: TransactionState, client_version: int, next_id: int, now_ms: int
    ) -> TransactionMetadata:
        """Return PREPARE_COMMIT or PREPARE_ABORT."""
        assert state in TRANSITIONS[self.state], f"{self.state.name} -> {state.name}"
        is_v2 = client_version >= TV_2
        # Each transaction waits for its steps: keyword arguments take twice as long, and `_replace` three times.
        return TransactionMetadata(
            self.producer_id,
            self._fencing_epoch if is_v2 else self.producer_epoch,
            self.timeout_ms,
            state,
            now_ms,
            now_ms if self.state in AT_REST else self.start_ms,
            self.partitions,
            self.producer_epoch if is_v2 else self.last_epoch,
            self.producer_id,
            next_id,
            client_version,
        )

    @property
    def _fencing_epoch(self) -> int:
        """The next epoch; after `LAST_EPOCH`, which no client has, the same."""
        return min(self.producer_epoch + 1, LAST_EPOCH)

    def prepare_fence_producer_epoch(self, client_version: int, next_id: int, now_ms: int) -> TransactionMetadata:
        """Return PREPARE_ABORT with an epoch that fences the producer.

        In version 2 the producer may continue, with the new epoch or with `next_id`.
        """
        changed = self
        if client_version < TV_2:
            changed = self._replace(producer_epoch=self._fencing_epoch, last_epoch=NO_PRODUCER_EPOCH)
        return changed.prepare_abort_or_commit(TransactionState.PREPARE_ABORT, client_version, next_id, now_ms)

    def prepare_complete(self, now_ms: int) -> TransactionMetadata:
        """Return the state after all markers are written."""
        is_other = self.client_version >= TV_2 and self.next_id != NO_PRODUCER_ID
        return TransactionMetadata(  # see `prepare_abort_or_commit`
            self.next_id if is_other else self.producer_id,
            0 if is_other else self.producer_epoch,
            self.timeout_ms,
            COMPLETED[self.state],
            now_ms,
            self.start_ms,
            frozenset(),
            self.last_epoch,
            self.producer_id,
            NO_PRODUCER_ID,
            self.client_version,
        )


def is_exhausted(epoch: int) -> bool:
    """Return whether no later epoch is left for a client."""
    return epoch >= LAST_EPOCH - 1


class TransactionEntry:
    """The durable state of a transactional id, and the requests that wait for it.

    Owned by the `TransactionStateManager` and used on the loop's thread only. The state changes only by
    `complete_transition_to`.
    """

    __slots__ = ("_waiting", "has_pending_transition", "is_unloaded", "metadata", "open_since", "transactional_id")

    def __init__(self, transactional_id: str, metadata: TransactionMetadata, loop_time: float) -> None:
        self.transactional_id = transactional_id
        self.metadata = metadata
        self.open_since = loop_time
        """Loop time at which this broker has loaded or begun the open transaction."""
        self.is_unloaded = False
        """Whether this broker does not coordinate the id any more."""
        self.has_pending_transition = False
        """Whether a record of the id is being appended (Kafka: pendingTransitionInProgress)."""
        self._waiting: dict[Callable[[], None], None] = {}

    @property
    def is_busy(self) -> bool:
        """Whether a decision is not durable yet, or its markers are not written: requests cannot be decided."""
        return self.has_pending_transition or self.metadata.state in ENDING

    def complete_transition_to(self, new: TransactionMetadata, loop_time: float) -> None:
        """Set the state that is durable now (Kafka: completeTransitionTo)."""
        known = self.metadata
        assert new.state in TRANSITIONS[known.state], f"{known.state.name} -> {new.state.name}"
        assert new.producer_id != known.producer_id or new.producer_epoch >= known.producer_epoch, (
            f"{self.transactional_id}: the epoch falls from {known.producer_epoch} to {new.producer_epoch}"
        )
        if known.state in AT_REST:
            self.open_since = loop_time
        self.metadata = new

    def remove_partitions(self, topic_partitions: AbstractSet[TopicPartitionKey]) -> None:
        """Remove partitions that have a marker now, in memory only: after a crash their markers are repeated."""
        known = self.metadata
        assert known.state in ENDING, f"{self.transactional_id}: {known.state.name} has no markers"
        self.metadata = known._replace(partitions=known.partitions - topic_partitions)

    def is_timed_out(self, now_ms: int, loop_time: float) -> bool:
        """Return whether the open transaction has timed out, by the wall clock or by the monotonic clock."""
        known = self.metadata
        deadline = known.timeout_at_ms
        # The wall clock may have been set back since the transaction began.
        return deadline is not None and (deadline < now_ms or self.open_since + known.timeout_ms / 1000 < loop_time)

    def add_waiter(self, work: Callable[[], None]) -> None:
        """Call `work` when the id is not busy any more."""
        self._waiting[work] = None

    def remove_waiter(self, work: Callable[[], None]) -> bool:
        """Cancel `add_waiter`; return whether `work` was still waiting."""
        was_waiting = work in self._waiting
        self._waiting.pop(work, None)
        return was_waiting

    def notify_waiters(self) -> None:
        """Call the waiting functions if the id is not busy."""
        if self._waiting and (self.is_unloaded or not self.is_busy):
            waiting, self._waiting = self._waiting, {}
            for work in waiting:
                work()
