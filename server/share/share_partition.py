"""Kafka's SharePartition: the delivery state of one partition in one share group (KIP-932).

A state machine without clock and I/O. `DelayedShareFetch` reads the log and calls `acquire` with the batches.
`ManagedSharePartition` writes each `StateUpdate` with the persister and then calls `complete`; after that, the response
to an acknowledgement is sent. Records with an ongoing state transition can be neither acquired nor acknowledged.

The share-partition start offset (SPSO) is the first offset that is not finished. The end offset is the last offset that
a member has acquired. The offsets between both are in flight.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from heapq import heapify, heappop, heappush
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from .in_flight_batch import NO_MEMBER, InFlightBatch, InFlightState, RollbackState, by_first_offset, by_last_offset
from .record_state import AcknowledgementType, AcquireMode, RecordState
from .state_update import DeadLetterCause, StateUpdate

if TYPE_CHECKING:
    from ...storage.transaction_index import AbortedTxn
    from ..coordinator.share.persister_state_batch_combiner import PersisterStateBatch
    from .share_group_settings import ShareGroupSettings

MINIMUM_THROTTLE_RECORDS_DELIVERY_LIMIT = 2
"""Delivery counts up to this value are never throttled."""
HEAP_SLACK = 64
"""The heap of acquisition locks may have as many outdated entries as locks, and this number more."""

_AVAILABLE, _ACQUIRED, _ACKNOWLEDGED = RecordState.AVAILABLE, RecordState.ACQUIRED, RecordState.ACKNOWLEDGED
_ARCHIVING, _ARCHIVED = RecordState.ARCHIVING, RecordState.ARCHIVED
_STATE_OF_TYPE = {
    AcknowledgementType.GAP: _ARCHIVED,
    AcknowledgementType.ACCEPT: _ACKNOWLEDGED,
    AcknowledgementType.RELEASE: _AVAILABLE,
    AcknowledgementType.REJECT: _ARCHIVED,
}


class SharePartitionState(Enum):
    """The states of a share-partition on its leader."""

    EMPTY = auto()
    """Its state has not been read."""
    INITIALIZING = auto()
    """The persister reads its state."""
    ACTIVE = auto()
    FAILED = auto()
    """Its state could not be read."""
    FENCED = auto()
    """This broker does not lead the partition any more, or the state epoch is outdated."""


class FetchedBatch(NamedTuple):
    """The fields of a batch header that the acquisition of its records depends on."""

    base_offset: int
    last_offset: int
    producer_id: int = -1
    is_transactional: bool = False
    is_control: bool = False
    is_abort_marker: bool = False


class AcquiredRecords(NamedTuple):
    """Records that a member has acquired, both offsets inclusive."""

    first_offset: int
    last_offset: int
    delivery_count: int


class ShareAcknowledgementBatch(NamedTuple):
    """Kafka's ShareAcknowledgementBatch: one type for all offsets, or one type per offset."""

    first_offset: int
    last_offset: int
    acknowledge_types: Sequence[int]


class DeadLetters(NamedTuple):
    """Records in the state ARCHIVING, which are to be written to the dead-letter queue and then archived."""

    state: InFlightState
    first_offset: int
    last_offset: int
    delivery_count: int
    cause: DeadLetterCause


class SharePartition:
    """Kafka's SharePartition. Owned by the SharePartitionManager; used on the event loop.

    Invariants (`check_invariants`): batches are disjoint and in order; an acquired record has one owner and a lock; no
    offset in flight is below the start offset; the start offset never falls.
    """

    def __init__(self, group_id: str, name: str, leader_epoch: int, settings: Callable[[], ShareGroupSettings]) -> None:
        """`name` is for messages; `settings` returns the current settings of the group."""
        self.group_id = group_id
        self.name = name
        self.leader_epoch = leader_epoch
        """The leader epoch in which this broker leads the partition. The share coordinator fences older ones."""
        self.state = SharePartitionState.EMPTY
        self.state_epoch = 0
        """The epoch of the persisted state; it increases when an administrator resets the start offset."""
        self.start_offset = 0
        self.end_offset = 0
        self.delivery_complete_count = 0
        """Records from the start offset on that are ACKNOWLEDGED or ARCHIVED (KIP-1226)."""
        self.acquisition_lock_timeouts = 0
        """Records whose acquisition locks have expired."""
        self.redeliveries = 0
        """Records that were acquired again after an earlier delivery."""
        self._settings = settings
        self._batches: list[InFlightBatch] = []
        self._available_from: int | None = None
        """A lower bound of the AVAILABLE offsets in flight; None if there are none."""
        self._locks: list[tuple[float, int, InFlightState]] = []
        """A heap of the acquisition locks by deadline, with outdated entries."""
        self._most_locks = HEAP_SLACK
        """The size of the heap above which its outdated entries are removed."""
        self._lock_number = 0

    def __repr__(self) -> str:
        return f"SharePartition({self.group_id}:{self.name} {self.start_offset}-{self.end_offset} {self._batches})"

    # -- life ------------------------------------------------------------------------------------------------------

    def initialize(
        self, state_epoch: int, start_offset: int, batches: Iterable[PersisterStateBatch]
    ) -> list[DeadLetters]:
        """Take over the persisted state; return the records whose writing to the dead-letter queue did not finish.

        Raises KafkaError UNKNOWN_SERVER_ERROR for batches that contradict each other or the start offset.
        """
        assert self.state in (SharePartitionState.EMPTY, SharePartitionState.INITIALIZING), self.state
        self.state_epoch, self.start_offset = state_epoch, start_offset
        dead_letters: list[DeadLetters] = []
        limit = self._settings().delivery_count_limit
        next_offset = start_offset
        for batch in batches:
            try:
                state = RecordState(batch.delivery_state)
            except ValueError:
                raise self._invalid_state(batch) from None
            if batch.first_offset < next_offset or batch.last_offset < batch.first_offset:
                raise self._invalid_state(batch)
            if batch.first_offset > next_offset:
                # Acquired but never acknowledged under the previous leader, which persists no acquisitions.
                self._add_unread(next_offset, batch.first_offset - 1)
            if state is _ACQUIRED:
                state = _AVAILABLE
            run = InFlightState(batch.first_offset, batch.last_offset, state, batch.delivery_count)
            self._batches.append(InFlightBatch(run))
            if state.is_terminal:
                self.delivery_complete_count += len(run)
            elif state is _ARCHIVING:
                exceeded = batch.delivery_count >= limit
                cause = DeadLetterCause.DELIVERY_COUNT_EXCEEDED if exceeded else DeadLetterCause.CLIENT_REJECT
                dead_letters.append(DeadLetters(run, run.first_offset, run.last_offset, batch.delivery_count, cause))
            next_offset = batch.last_offset + 1
        self.end_offset = self._batches[-1].last_offset if self._batches else start_offset
        self._available_from = start_offset if self._batches else None
        self._advance_start_offset()
        self.state = SharePartitionState.ACTIVE
        return dead_letters

    def _invalid_state(self, batch: PersisterStateBatch) -> KafkaError:
        reason = (
            f"{self.group_id}:{self.name}: invalid persisted state {tuple(batch)} at start offset {self.start_offset}"
        )
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, reason)

    def _add_unread(self, first_offset: int, last_offset: int) -> None:
        self._batches.append(InFlightBatch(InFlightState(first_offset, last_offset, _AVAILABLE, 0), is_unread=True))

    def mark_fenced(self) -> None:
        """End the acquisition of records."""
        self.state = SharePartitionState.FENCED

    @property
    def is_active(self) -> bool:
        return self.state is SharePartitionState.ACTIVE

    # -- offsets ---------------------------------------------------------------------------------------------------

    @property
    def num_in_flight_records(self) -> int:
        """The offsets from the start offset to the end offset, which the record lock limit bounds."""
        return self.end_offset - self.start_offset + 1 if self._batches else 0

    @property
    def num_in_flight_batches(self) -> int:
        return len(self._batches)

    @property
    def next_new_offset(self) -> int:
        """The first offset that has never been acquired."""
        return self.end_offset + 1 if self._batches else self.end_offset

    def next_fetch_offset(self) -> int:
        """Return the first offset that a member may acquire: an AVAILABLE one in flight, or the next new one."""
        if self._available_from is None:
            return self.next_new_offset
        batches = self._batches
        for index in range(bisect_left(batches, self._available_from, key=by_last_offset), len(batches)):
            for state in batches[index].states:
                if state.is_available:
                    self._available_from = state.first_offset
                    return state.first_offset
        self._available_from = None
        return self.next_new_offset

    def _set_available(self, offset: int) -> None:
        if self._available_from is None or offset < self._available_from:
            self._available_from = offset

    def can_acquire_records(self) -> bool:
        """Whether the record lock limit allows an acquisition."""
        if self.next_fetch_offset() != self.next_new_offset or not self._batches:
            return True
        return self.num_in_flight_records < self._settings().partition_max_record_locks

    # -- acquisition -----------------------------------------------------------------------------------------------

    def acquire(
        self,
        member_id: str,
        mode: AcquireMode,
        *,
        batch_size: int,
        max_records: int,
        fetch_offset: int,
        batches: Sequence[FetchedBatch],
        now: float,
        aborted: Sequence[AbortedTxn] = (),
    ) -> list[AcquiredRecords]:
        """Acquire records of `batches`, which were read from `fetch_offset` on, for a member.

        `max_records` may be exceeded up to the end of a batch, except in the mode RECORD_LIMIT. Batches of `aborted`
        transactions are archived instead. `batch_size` is the preferred number of records of an acquired batch. `now`
        is loop time in seconds.
        """
        if not self.is_active or max_records <= 0 or not batches or batches[-1].last_offset < self.start_offset:
            return []
        last_offset = batches[-1].last_offset
        settings = self._settings()
        free = settings.partition_max_record_locks - self.num_in_flight_records
        if free <= 0:
            if fetch_offset > self.end_offset:
                return []
            # The limit is reached, but records in flight have become available.
            last_offset = min(last_offset, self.end_offset)
            free = self.end_offset - fetch_offset + 1
        acquisition = _Acquisition(
            self,
            member_id,
            settings,
            is_record_limit=mode is AcquireMode.RECORD_LIMIT,
            batch_size=max(1, batch_size),
            max_records=min(max_records, free),
            lock_deadline=now + settings.record_lock_duration_ms / 1000,
            batches=batches,
        )
        base_offset = batches[0].base_offset
        self._archive_available(fetch_offset, base_offset - 1)
        acquired = acquisition.run(max(base_offset, self.start_offset), last_offset)
        if aborted:
            acquired = self._archive_aborted(acquired, _aborted_batches(batches, aborted))
        self._advance_start_offset()
        return acquired

    def _overlapping(self, first_offset: int, last_offset: int) -> list[InFlightBatch]:
        """Return the batches that contain at least one of these offsets."""
        batches = self._batches
        begin = bisect_left(batches, first_offset, key=by_last_offset)
        return batches[begin : bisect_left(batches, last_offset + 1, begin, key=by_first_offset)]

    def _insert_batch(self, batch: InFlightBatch) -> None:
        """Add a batch in its place; the start offset moves over offsets without records before the first batch."""
        batches = self._batches
        if not batches:
            assert batch.first_offset >= self.start_offset, f"{batch} below start offset {self.start_offset}"
            self.start_offset = batch.first_offset
        if not batches or batch.first_offset > batches[-1].last_offset:
            batches.append(batch)
        else:
            index = bisect_left(batches, batch.first_offset, key=by_first_offset)
            assert batch.last_offset < batches[index].first_offset, f"{batch} overlaps {batches[index]}"
            batches.insert(index, batch)
        self.end_offset = max(self.end_offset, batch.last_offset)

    def _isolate(
        self, batch: InFlightBatch, state: InFlightState, first_offset: int, last_offset: int
    ) -> InFlightState:
        """Return a run of the batch with exactly the offsets of `state` in this range, which it overlaps."""
        if first_offset > state.first_offset:
            state = self._split(batch, state, first_offset)
        if last_offset < state.last_offset:
            self._split(batch, state, last_offset + 1)
        return state

    def _split(self, batch: InFlightBatch, state: InFlightState, offset: int) -> InFlightState:
        rest = batch.split(state, offset)
        if rest.state is _ACQUIRED:
            self._lock(rest)
        return rest

    def _replace_batch(self, batch: InFlightBatch, pieces: list[InFlightBatch]) -> None:
        """Replace a batch by batches with the same offsets."""
        index = bisect_left(self._batches, batch.first_offset, key=by_first_offset)
        assert self._batches[index] is batch, f"{batch} is not tracked"
        self._batches[index : index + 1] = pieces

    def _lock(self, state: InFlightState) -> None:
        """Enter the acquisition lock of a run into the heap."""
        if len(self._locks) > self._most_locks:
            self._locks = [entry for entry in self._locks if _is_lock(entry[2], entry[0])]
            heapify(self._locks)
            self._most_locks = 2 * len(self._locks) + HEAP_SLACK
        self._lock_number += 1
        heappush(self._locks, (state.lock_deadline, self._lock_number, state))

    def _archive_available(self, first_offset: int, last_offset: int) -> None:
        """Archive the available records in a range of offsets for which the log has no batch any more."""
        if first_offset > last_offset or self._available_from is None:
            return
        for batch in self._overlapping(first_offset, last_offset):
            for state in batch.overlapping(first_offset, last_offset):
                if state.is_available:
                    self._archive_now(self._isolate(batch, state, first_offset, last_offset))
            if batch.is_unread:
                pieces = [InFlightBatch(state, is_unread=state.is_available) for state in batch.states]
                self._replace_batch(batch, pieces)

    def _archive_now(self, state: InFlightState) -> None:
        state.state, state.member_id = _ARCHIVED, NO_MEMBER
        self.delivery_complete_count += len(state)

    def _archive_aborted(
        self, acquired: list[AcquiredRecords], aborted: Sequence[FetchedBatch]
    ) -> list[AcquiredRecords]:
        """Archive the acquired records in batches of aborted transactions; return the other acquired records."""
        kept: list[AcquiredRecords] = []
        index = 0
        for records in acquired:
            first_offset = records.first_offset
            while index < len(aborted) and aborted[index].last_offset < first_offset:
                index += 1
            at = index
            while at < len(aborted) and aborted[at].base_offset <= records.last_offset:
                base_offset = max(aborted[at].base_offset, first_offset)
                last_offset = min(aborted[at].last_offset, records.last_offset)
                if base_offset > first_offset:
                    kept.append(records._replace(first_offset=first_offset, last_offset=base_offset - 1))
                for batch in self._overlapping(base_offset, last_offset):
                    for state in batch.overlapping(base_offset, last_offset):
                        assert state.state is _ACQUIRED, f"{state} was acquired just now"
                        self._archive_now(self._isolate(batch, state, base_offset, last_offset))
                first_offset = last_offset + 1
                at += 1
            if first_offset <= records.last_offset:
                kept.append(records._replace(first_offset=first_offset))
        return kept

    # -- state changes ---------------------------------------------------------------------------------------------

    def acknowledge(self, member_id: str, batches: Iterable[ShareAcknowledgementBatch], now: float) -> StateUpdate:
        """Change the states of acquired records as their owner acknowledges them.

        Raises KafkaError INVALID_RECORD_STATE for records that the member has not acquired, INVALID_REQUEST for invalid
        batches. An error undoes all changes except renewals of locks.
        """
        update = StateUpdate()
        settings = self._settings()
        try:
            for batch in batches:
                self._acknowledge_batch(update, settings, member_id, batch, now)
        except KafkaError:
            self._roll_back(update)
            raise
        return update

    def _acknowledge_batch(
        self,
        update: StateUpdate,
        settings: ShareGroupSettings,
        member_id: str,
        batch: ShareAcknowledgementBatch,
        now: float,
    ) -> None:
        first_offset, last_offset, types = batch
        if not types or not 0 <= min(types) <= max(types) <= AcknowledgementType.RENEW or last_offset < first_offset:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Invalid acknowledgement of {first_offset}-{last_offset}")
        if len(types) > 1 and len(types) != last_offset - first_offset + 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{len(types)} types for {first_offset}-{last_offset}")
        if last_offset < self.start_offset:
            return  # the records are finished: the start offset has passed them
        if not self._batches:
            raise _invalid_record_state("The offsets are not in flight.")
        if last_offset > self.end_offset:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The last offset is past the acquired records.")
        skipped = max(0, self.start_offset - first_offset)
        first_offset += skipped
        if not self._overlapping(first_offset, last_offset):
            raise _invalid_record_state("The offsets are not in flight.")
        if len(types) == 1:
            self._acknowledge_offsets(update, settings, member_id, first_offset, last_offset, types[0], now)
            return
        for kind, equal in groupby(types[skipped:]):
            count = sum(1 for _ in equal)
            self._acknowledge_offsets(update, settings, member_id, first_offset, first_offset + count - 1, kind, now)
            first_offset += count

    def _acknowledge_offsets(
        self,
        update: StateUpdate,
        settings: ShareGroupSettings,
        member_id: str,
        first_offset: int,
        last_offset: int,
        kind: int,
        now: float,
    ) -> None:
        """Acknowledge offsets with one type. Offsets between batches in flight, which have no records, are skipped."""
        cause = None
        target = _STATE_OF_TYPE.get(AcknowledgementType(kind))
        if kind == AcknowledgementType.REJECT and settings.dlq_topic_name:
            target, cause = _ARCHIVING, DeadLetterCause.CLIENT_REJECT
        for batch in self._overlapping(first_offset, last_offset):
            for state in batch.overlapping(first_offset, last_offset):
                if state.state is not _ACQUIRED:
                    raise _invalid_record_state("The records are not acquired.")
                if state.member_id != member_id:
                    raise _invalid_record_state("The member does not own the records.")
                if target is None:
                    if not settings.renew_acknowledge_enable:
                        raise _invalid_record_state("Renewing acquisition locks is not enabled for the group.")
                    state = self._isolate(batch, state, first_offset, last_offset)
                    state.lock_deadline = now + settings.record_lock_duration_ms / 1000
                    self._lock(state)
                else:
                    state = self._isolate(batch, state, first_offset, last_offset)
                    self._start_state_transition(update, settings, state, target, cause)

    def release_acquired_records(self, member_id: str) -> StateUpdate:
        """Make all records that a member has acquired available, or archive them at the delivery count limit."""
        update = StateUpdate()
        settings = self._settings()
        for batch in self._batches:
            for state in batch.states:
                if state.state is _ACQUIRED and state.member_id == member_id:
                    self._start_state_transition(update, settings, state, _AVAILABLE, None)
        return update

    def _start_state_transition(
        self,
        update: StateUpdate,
        settings: ShareGroupSettings,
        state: InFlightState,
        target: RecordState,
        cause: DeadLetterCause | None,
    ) -> None:
        """Change the state of an acquired run, which is rolled back if the persister cannot write it."""
        assert state.state is _ACQUIRED, f"state change of {state}"
        state.rollback_state = RollbackState(state.member_id, state.lock_deadline)
        self._change_state(update, settings, state, target, cause)

    def _change_state(
        self,
        update: StateUpdate,
        settings: ShareGroupSettings,
        state: InFlightState,
        target: RecordState,
        cause: DeadLetterCause | None,
    ) -> None:
        if target is _AVAILABLE and state.delivery_count >= settings.delivery_count_limit:
            target = _ARCHIVING if settings.dlq_topic_name else _ARCHIVED
            cause = DeadLetterCause.DELIVERY_COUNT_EXCEEDED
        state.state, state.member_id = target, NO_MEMBER
        if target.is_terminal:
            self.delivery_complete_count += len(state)
        update.add(state, cause)

    def expire_locks(self, now: float) -> StateUpdate:
        """Release the records whose acquisition locks have expired, without waiting for the persister."""
        update = StateUpdate(is_immediate=True)
        settings = self._settings()
        locks = self._locks
        while locks and locks[0][0] <= now:
            deadline, _, state = heappop(locks)
            if _is_lock(state, deadline):
                self.acquisition_lock_timeouts += len(state)
                self._change_state(update, settings, state, _AVAILABLE, None)
                if state.state is _AVAILABLE:
                    self._set_available(state.first_offset)
        self._advance_start_offset()
        return update

    def next_lock_deadline(self) -> float | None:
        """Return the loop time of the next call of `expire_locks`, None without acquisition locks."""
        locks = self._locks
        while locks and not _is_lock(locks[0][2], locks[0][0]):
            heappop(locks)
        return locks[0][0] if locks else None

    def complete(self, update: StateUpdate, *, is_written: bool) -> list[DeadLetters]:
        """Finish an update after its write, or roll it back; return the records for the dead-letter queue."""
        if not is_written and not update.is_immediate:
            self._roll_back(update)
            return []
        dead_letters: list[DeadLetters] = []
        for state, batch, cause in update.changes:
            # The records of an immediate update may have been acquired and acknowledged again during its write: their
            # rollback state belongs to a later update.
            if not update.is_immediate:
                state.rollback_state = None
            if not state.is_tracked:
                continue
            if state.is_available:
                self._set_available(state.first_offset)
            elif cause is not None and state.state is _ARCHIVING:
                letters = DeadLetters(state, batch.first_offset, batch.last_offset, batch.delivery_count, cause)
                dead_letters.append(letters)
        self._advance_start_offset()
        return dead_letters

    def _roll_back(self, update: StateUpdate) -> None:
        """Return the records of an update to their owners. Locks that expired during the write expire again."""
        for state, _, _ in reversed(update.changes):
            assert state.rollback_state is not None, f"{state} was not changed by this update"
            if state.is_tracked:
                if state.state.is_terminal:
                    self.delivery_complete_count -= len(state)
                state.state = _ACQUIRED
                state.member_id, state.lock_deadline = state.rollback_state
                self._lock(state)
            state.rollback_state = None

    def archive(self, letters: DeadLetters) -> StateUpdate:
        """Archive records after the attempt to write them to the dead-letter queue."""
        update = StateUpdate(is_immediate=True)
        state = letters.state
        if state.is_tracked and state.state is _ARCHIVING:
            self._archive_now(state)
            update.add(state)
            self._advance_start_offset()
        return update

    # -- start offset ----------------------------------------------------------------------------------------------

    def _advance_start_offset(self) -> bool:
        """Move the start offset over finished records; return whether it moved."""
        batches, removed = self._batches, 0
        for batch in batches:
            states = batch.states
            finished = 0
            while finished < len(states) and states[finished].is_finished:
                self._untrack(states[finished])
                finished += 1
            if finished < len(states):
                if finished:
                    del states[:finished]
                break
            removed += 1
        if removed == len(batches):
            if not removed:
                return False
            self.start_offset = self.end_offset = batches[-1].last_offset + 1
            batches.clear()
            self._available_from = None
            assert self.delivery_complete_count == 0, f"{self}: {self.delivery_complete_count} records left"
            return True
        del batches[:removed]
        moved = batches[0].first_offset > self.start_offset
        self.start_offset = max(self.start_offset, batches[0].first_offset)
        return moved

    def _untrack(self, state: InFlightState) -> None:
        state.is_tracked = False
        if state.state.is_terminal:
            self.delivery_complete_count -= len(state)

    def update_cache_and_offsets(self, log_start_offset: int) -> None:
        """Remove the records below a log start offset that retention or DeleteRecords has raised."""
        if log_start_offset <= self.start_offset:
            return
        batches = self._batches
        removed = bisect_left(batches, log_start_offset, key=by_last_offset)
        for batch in batches[:removed]:
            for state in batch.states:
                self._untrack(state)
        del batches[:removed]
        if batches:
            states = batches[0].states
            finished = bisect_left(states, log_start_offset, key=by_last_offset)
            for state in states[:finished]:
                self._untrack(state)
            del states[:finished]
            first = states[0]
            if first.first_offset < log_start_offset:
                if first.state.is_terminal:
                    self.delivery_complete_count -= log_start_offset - first.first_offset
                first.first_offset = log_start_offset
        self.start_offset = log_start_offset
        if not batches:
            self.end_offset = log_start_offset
            self._available_from = None
        self._advance_start_offset()

    # -- checks ----------------------------------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Assert the invariants of the class; the cost grows with the runs in flight. For tests and simulations."""
        previous, complete = self.start_offset - 1, 0
        locked = {id(state) for deadline, _, state in self._locks if _is_lock(state, deadline)}
        for batch in self._batches:
            assert batch.states, f"{self}: an empty batch"
            at = batch.first_offset
            for state in batch.states:
                assert state.is_tracked, f"{self}: {state} is not tracked"
                assert state.first_offset == at <= state.last_offset, f"{self}: a hole in {batch}"
                at = state.last_offset + 1
                is_owned = state.state is _ACQUIRED
                assert is_owned == (state.member_id != NO_MEMBER), f"{self}: {state} of {state.member_id}"
                assert not is_owned or id(state) in locked, f"{self}: {state} has no lock"
                assert state.rollback_state is None or not is_owned, f"{self}: {state} is changing and acquired"
                assert not state.is_available or (
                    self._available_from is not None and self._available_from <= state.first_offset
                ), f"{self}: {state} would not be found"
                complete += len(state) if state.state.is_terminal else 0
            assert batch.first_offset > previous, f"{self}: {batch} overlaps offset {previous}"
            previous = batch.last_offset
        assert complete == self.delivery_complete_count, f"{self}: {self.delivery_complete_count} is not {complete}"
        if self._batches:
            assert self._batches[0].first_offset == self.start_offset, f"{self}: start offset {self.start_offset}"
            assert previous == self.end_offset, f"{self}: end offset {self.end_offset}"
            assert not self._batches[0].states[0].is_finished, f"{self}: the start offset did not move"
        else:
            assert self.start_offset <= self.end_offset, f"{self}: start offset {self.start_offset}"


class _Acquisition:
    """One call of `SharePartition.acquire`."""

    def __init__(
        self,
        partition: SharePartition,
        member_id: str,
        settings: ShareGroupSettings,
        *,
        is_record_limit: bool,
        batch_size: int,
        max_records: int,
        lock_deadline: float,
        batches: Sequence[FetchedBatch],
    ) -> None:
        self._partition = partition
        self._member_id = member_id
        self._settings = settings
        self._is_record_limit = is_record_limit
        self._batch_size = batch_size
        self._left = max_records
        """Records that may still be acquired; negative after a batch that exceeds the limit."""
        self._lock_deadline = lock_deadline
        self._batches = batches
        self._result: list[AcquiredRecords] = []
        limit = settings.delivery_count_limit
        self._throttle_limit = max(MINIMUM_THROTTLE_RECORDS_DELIVERY_LIMIT, (limit + 1) // 2)
        """The delivery count from which records are delivered in smaller portions, because a single record may be the
        cause of the failed deliveries."""

    def run(self, base_offset: int, last_offset: int) -> list[AcquiredRecords]:
        """Acquire available records between these offsets, both inclusive, then new ones."""
        partition = self._partition
        for batch in partition._overlapping(base_offset, last_offset):
            if self._left <= 0:
                return self._result
            if batch.is_unread:
                self._acquire_unread(batch, base_offset, last_offset)
                continue
            is_throttled = self._is_throttled(batch, base_offset, last_offset)
            if is_throttled and self._result:
                return self._result  # throttled records are delivered by a separate fetch
            acquired = self._acquire_batch(batch, base_offset, last_offset, is_throttled=is_throttled)
            if is_throttled and acquired:
                return self._result
        first_new = max(base_offset, partition.next_new_offset)
        if self._left > 0 and first_new <= last_offset:
            self._acquire_new(first_new, last_offset)
        return self._result

    def _is_throttled(self, batch: InFlightBatch, first_offset: int, last_offset: int) -> bool:
        return any(
            state.delivery_count >= self._throttle_limit and state.is_available
            for state in batch.overlapping(first_offset, last_offset)
        )

    def _acquire_batch(self, batch: InFlightBatch, first_offset: int, last_offset: int, *, is_throttled: bool) -> int:
        """Acquire the available records of a batch in flight; return their number."""
        limit = self._settings.delivery_count_limit
        has_last_delivery = limit > MINIMUM_THROTTLE_RECORDS_DELIVERY_LIMIT
        most = self._left if self._is_record_limit else len(batch)
        size, acquired = len(batch), 0
        ranges: list[AcquiredRecords] = []
        for state in batch.overlapping(first_offset, last_offset):
            if not state.is_available:
                continue
            is_last_delivery = has_last_delivery and state.delivery_count == limit - 1
            if is_last_delivery and acquired:
                break  # delivered alone by the next fetch
            if is_throttled and state.delivery_count >= self._throttle_limit:
                portion = max(1, size >> (state.delivery_count - self._throttle_limit + 1))
                most, is_throttled = min(most, portion), False
            if acquired >= most:
                break
            begin = max(first_offset, state.first_offset)
            end = begin if is_last_delivery else min(last_offset, state.last_offset, begin + most - acquired - 1)
            state = self._partition._isolate(batch, state, begin, end)
            self._acquire_state(state)
            acquired += len(state)
            last = ranges[-1] if ranges else None
            if last is not None and last.last_offset + 1 == begin and last.delivery_count == state.delivery_count:
                ranges[-1] = last._replace(last_offset=end)
            else:
                ranges.append(AcquiredRecords(begin, end, state.delivery_count))
            if is_last_delivery:
                break
        self._result += ranges
        self._left -= acquired
        return acquired

    def _acquire_state(self, state: InFlightState) -> None:
        assert state.is_available, f"acquisition of {state}"
        if state.delivery_count:
            self._partition.redeliveries += len(state)
        state.state = _ACQUIRED
        state.delivery_count += 1
        state.member_id, state.lock_deadline = self._member_id, self._lock_deadline
        self._partition._lock(state)

    def _acquire_unread(self, batch: InFlightBatch, first_offset: int, last_offset: int) -> None:
        """Replace the part of an unread batch that the fetch covers by new batches."""
        partition, state = self._partition, batch.states[0]
        begin = max(first_offset, state.first_offset)
        end = self._end_of_acquisition(begin, min(last_offset, state.last_offset))
        pieces: list[InFlightBatch] = []
        for lower, upper in ((state.first_offset, begin - 1), (end + 1, state.last_offset)):
            if lower <= upper:
                pieces.append(InFlightBatch(InFlightState(lower, upper, _AVAILABLE, 0), is_unread=True))
        state.is_tracked = False
        pieces += self._new_batches(begin, end)
        partition._replace_batch(batch, sorted(pieces, key=by_first_offset))

    def _acquire_new(self, first_offset: int, last_offset: int) -> None:
        """Acquire offsets that no member has acquired before."""
        for batch in self._new_batches(first_offset, self._end_of_acquisition(first_offset, last_offset)):
            self._partition._insert_batch(batch)

    def _end_of_acquisition(self, first_offset: int, last_offset: int) -> int:
        """Return the last offset to acquire: the record limit, or if it is soft the end of the batch at the limit."""
        end = first_offset + self._left - 1
        if end >= last_offset:
            return last_offset
        if self._is_record_limit:
            return end
        index = bisect_left(self._batches, end, key=by_last_offset)
        if index < len(self._batches) and self._batches[index].base_offset <= end:
            # Otherwise a batch of a million small records would exceed the limit of record locks by a million.
            most = first_offset + max(self._left, self._settings.partition_max_record_locks) - 1
            end = min(self._batches[index].last_offset, most)
        return min(end, last_offset)

    def _new_batches(self, first_offset: int, last_offset: int) -> list[InFlightBatch]:
        """Return acquired batches for these offsets, cut between batches of the log by the preferred batch size."""
        begins = [first_offset]
        if not self._is_record_limit and last_offset - first_offset + 1 > self._batch_size:
            for batch in self._batches:
                if batch.base_offset > last_offset:
                    break
                if batch.base_offset - begins[-1] >= self._batch_size:
                    begins.append(batch.base_offset)
        made: list[InFlightBatch] = []
        for begin, following in zip(begins, [*begins[1:], last_offset + 1], strict=True):
            state = InFlightState(
                begin,
                following - 1,
                _ACQUIRED,
                1,
                member_id=self._member_id,
                lock_deadline=self._lock_deadline,
            )
            self._partition._lock(state)
            made.append(InFlightBatch(state))
            self._result.append(AcquiredRecords(begin, following - 1, 1))
        self._left -= last_offset - first_offset + 1
        return made


def _is_lock(state: InFlightState, deadline: float) -> bool:
    """Whether an entry of the heap is the current acquisition lock of its run."""
    return state.state is _ACQUIRED and state.is_tracked and state.lock_deadline == deadline


def _invalid_record_state(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD_STATE, reason)


def _aborted_batches(batches: Sequence[FetchedBatch], aborted: Sequence[AbortedTxn]) -> list[FetchedBatch]:
    """Return the batches of aborted transactions, as consumers with `isolation.level=read_committed` find them."""
    upcoming = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
    producers: set[int] = set()
    found: list[FetchedBatch] = []
    for batch in batches:
        if batch.producer_id < 0:
            continue
        while upcoming and upcoming[-1].first_offset <= batch.last_offset:
            producers.add(upcoming.pop().producer_id)
        if batch.is_abort_marker:
            producers.discard(batch.producer_id)
        elif batch.is_transactional and not batch.is_control and batch.producer_id in producers:
            found.append(batch)
    return found
