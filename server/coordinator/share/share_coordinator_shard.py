"""The share-partitions of one partition of `__share_group_state` as a state machine (Kafka: ShareCoordinatorShard).

An operation validates a request against the state, and returns its result and the records of its change. `replay`
applies a record of an operation or of the log. This module has no I/O: `ShareCoordinator` appends the records, and
reverts operations whose records could not be appended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple
from uuid import UUID

from ....common.room_logger import room_logger
from ....protocol.errors import ErrorCode
from ....protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from ...runtime.loop_sharing import Steps
from .persister_state_batch_combiner import PersisterStateBatch, combine_state_batches
from .share_coordinator_record_helpers import (
    STATE_BATCH_BYTES,
    CoordinatorRecordType,
    ShareStateRecord,
    new_share_snapshot_record,
    new_share_state_tombstone_record,
    new_share_update_record,
    record_bytes,
)
from .share_group_offset import (
    UNINITIALIZED_DELIVERY_COMPLETE_COUNT,
    UNINITIALIZED_EPOCH,
    UNINITIALIZED_START_OFFSET,
    ShareGroupOffset,
)
from .share_partition_key import SharePartitionKey

logger = room_logger("share")

NEGATIVE_PARTITION_ID = "The partition id cannot be a negative number."
NEGATIVE_LEADER_EPOCH = "The leader epoch cannot be a negative number."
NEGATIVE_STATE_EPOCH = "The state epoch cannot be a negative number."
WRITE_UNINITIALIZED = "Write operation on uninitialized share partition not allowed."
READ_UNINITIALIZED = "Read operation on uninitialized share partition not allowed."
INVALID_STATE_BATCH = "The last offset of a state batch cannot be lower than its first offset."
FENCED_LEADER_EPOCH = "The leader epoch in the request is older than the epoch on the broker."
FENCED_STATE_EPOCH = "The share coordinator rejected the request because the share-group state epoch did not match."
UNKNOWN_TOPIC_OR_PARTITION = "This server does not host this topic-partition."
STATE_TOO_LARGE = "The state of the share-partition does not fit in a record of the share-group state topic."

MAX_EPOCH = (1 << 31) - 1


class SharePartitionEntry(NamedTuple):
    """The state of a share-partition, and values that only its coordinator uses; an operation replaces the entry."""

    offset: ShareGroupOffset
    leader_epoch: int
    """The highest leader epoch of all records; the leader epoch in `offset` is 0 again after an initialization."""
    state_epoch: int
    update_count: int
    """Updates since the last snapshot that was written because of their number."""
    snapshot_offset: int
    """An offset of `__share_group_state` at or before the last snapshot: earlier records are redundant."""


class OperationError(NamedTuple):
    """The error of an operation that was rejected."""

    code: ErrorCode
    message: str | None


class OperationResult(NamedTuple):
    """The state that an operation has read, None if it reads no state, and the records of its change."""

    offset: ShareGroupOffset | None
    records: list[ShareStateRecord]


Outcome = OperationResult | OperationError


class ShareCoordinatorShard:
    """The share-partitions of one partition in one leader epoch. Used on the loop's thread only."""

    def __init__(
        self,
        *,
        has_partition: Callable[[UUID, int], bool],
        updates_per_snapshot: Callable[[], int],
        now_ms: Callable[[], int],
    ) -> None:
        """`has_partition` returns whether a topic has a partition."""
        self._has_partition = has_partition
        self._updates_per_snapshot = updates_per_snapshot
        self._now_ms = now_ms
        self.entries: dict[SharePartitionKey, SharePartitionEntry] = {}
        self._last_tombstone_offset = 0

    # -- operations ----------------------------------------------------------------------------------------------------

    def initialize_state(self, key: SharePartitionKey, data: initialize_share_group_state.PartitionData) -> Outcome:
        """Create the state of a share-partition, or replace it by a new state with another start offset."""
        if key.partition < 0:
            return OperationError(ErrorCode.INVALID_REQUEST, NEGATIVE_PARTITION_ID)
        if data.state_epoch < 0:
            return OperationError(ErrorCode.INVALID_REQUEST, NEGATIVE_STATE_EPOCH)
        entry = self.entries.get(key)
        if entry is not None and entry.state_epoch > data.state_epoch:
            return OperationError(ErrorCode.FENCED_STATE_EPOCH, FENCED_STATE_EPOCH)
        if not self._has_partition(key.topic_id, key.partition):
            return OperationError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_OR_PARTITION)
        now_ms = self._now_ms()
        is_known = data.start_offset != UNINITIALIZED_START_OFFSET
        offset = ShareGroupOffset(
            snapshot_epoch=0 if entry is None else _next_epoch(entry.offset.snapshot_epoch),
            state_epoch=data.state_epoch,
            leader_epoch=UNINITIALIZED_EPOCH,
            start_offset=data.start_offset,
            delivery_complete_count=0 if is_known else UNINITIALIZED_DELIVERY_COMPLETE_COUNT,
            state_batches=[],
            create_timestamp=now_ms,
            write_timestamp=now_ms,
        )
        return OperationResult(None, [new_share_snapshot_record(key, offset)])

    def write_state(
        self,
        key: SharePartitionKey,
        data: write_share_group_state.PartitionData,
        batches: list[PersisterStateBatch],
        max_record_bytes: int,
    ) -> Outcome:
        """Combine a leader's changes with the state. A repeated write changes nothing.

        `batches` are the normalized batches of the request. A write whose state would not fit in a record of
        `max_record_bytes` is rejected, because no snapshot of the state could be written.
        """
        error = self._validate_write(key, data)
        if error is not None:
            return error
        current = self.entries[key].offset
        start_offset, count = max(data.start_offset, current.start_offset), data.delivery_complete_count
        if data.start_offset == current.start_offset:
            count = max(count, current.delivery_complete_count)
        elif data.start_offset < current.start_offset:
            # The write was sent before another write moved the start offset: its count includes records before it.
            count = current.delivery_complete_count
        record = self._record_of_change(key, current.leader_epoch, start_offset, count, batches, max_record_bytes)
        return record if isinstance(record, OperationError) else OperationResult(None, [record])

    def read_state(
        self,
        key: SharePartitionKey,
        data: read_share_group_state.PartitionData,
        max_record_bytes: int,
        *,
        confirm: bool,
    ) -> Outcome:
        """Return the state for the leader of a partition; a record stores a new leader epoch, which fences older ones.

        With `confirm` a record is written in any case: its commit proves that no other broker coordinates the
        share-partition. Kafka responds from memory if the leader epoch has not changed.
        """
        if key.partition < 0:
            return OperationError(ErrorCode.INVALID_REQUEST, NEGATIVE_PARTITION_ID)
        if data.leader_epoch < 0:
            return OperationError(ErrorCode.INVALID_REQUEST, NEGATIVE_LEADER_EPOCH)
        entry = self.entries.get(key)
        if entry is None:
            return OperationError(ErrorCode.INVALID_REQUEST, READ_UNINITIALIZED)
        if entry.leader_epoch > data.leader_epoch:
            return OperationError(ErrorCode.FENCED_LEADER_EPOCH, FENCED_LEADER_EPOCH)
        if not self._has_partition(key.topic_id, key.partition):
            return OperationError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_OR_PARTITION)
        offset = entry.offset
        if entry.leader_epoch == data.leader_epoch and not confirm:
            return OperationResult(offset, [])
        record = self._record_of_change(
            key, data.leader_epoch, offset.start_offset, offset.delivery_complete_count, [], max_record_bytes
        )
        return record if isinstance(record, OperationError) else OperationResult(offset, [record])

    def read_state_summary(self, key: SharePartitionKey, _: read_share_group_state_summary.PartitionData) -> Outcome:
        """Return the state for an administrator; None if the share-partition is not initialized."""
        if key.partition < 0:
            return OperationError(ErrorCode.INVALID_REQUEST, NEGATIVE_PARTITION_ID)
        if not self._has_partition(key.topic_id, key.partition):
            return OperationError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_OR_PARTITION)
        entry = self.entries.get(key)
        return OperationResult(None if entry is None else entry.offset, [])

    def delete_state(self, key: SharePartitionKey, _: delete_share_group_state.PartitionData) -> Outcome:
        """Delete the state of a share-partition, without an error if there is none."""
        if key.partition < 0:
            return OperationError(ErrorCode.INVALID_REQUEST, NEGATIVE_PARTITION_ID)
        if not self._has_partition(key.topic_id, key.partition):
            return OperationError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_OR_PARTITION)
        return OperationResult(None, [new_share_state_tombstone_record(key)] if key in self.entries else [])

    def snapshot_if_cold(self, key: SharePartitionKey, interval_ms: int) -> list[ShareStateRecord]:
        """Write a snapshot that is older than the interval again, so that the records before the copy are redundant."""
        entry, now_ms = self.entries.get(key), self._now_ms()
        if entry is None or now_ms - entry.offset.write_timestamp < interval_ms:
            return []
        offset = entry.offset._replace(snapshot_epoch=_next_epoch(entry.offset.snapshot_epoch), write_timestamp=now_ms)
        return [new_share_snapshot_record(key, offset)]

    def cleanup_share_state(
        self, key: SharePartitionKey, deleted_topic_ids: Collection[UUID]
    ) -> list[ShareStateRecord]:
        """Delete the state of a share-partition if its topic was deleted."""
        if key.topic_id in deleted_topic_ids and key in self.entries:
            return [new_share_state_tombstone_record(key)]
        return []

    def last_redundant_offset(self) -> Steps[int]:
        """Return the offset before which no record is required, with a step for each share-partition.

        The result applies to the state at the first step.
        """
        entries, lowest = list(self.entries.values()), self._last_tombstone_offset
        for number, entry in enumerate(entries):
            if not number or entry.snapshot_offset < lowest:
                lowest = entry.snapshot_offset
            yield
        return lowest

    # -- records -------------------------------------------------------------------------------------------------------

    def replay(self, record: ShareStateRecord, offset: int) -> None:
        """Apply a record that is, or will be, in the log at this offset or a later one."""
        key, change = record.key, record.offset
        entry = self.entries.get(key)
        if change is None:
            self.entries.pop(key, None)
            self._last_tombstone_offset = offset
        elif record.type is CoordinatorRecordType.SHARE_SNAPSHOT:
            self.entries[key] = self._replay_snapshot(entry, change, offset)
        else:
            self.entries[key] = _replay_update(entry, change, offset)

    def _replay_snapshot(
        self, entry: SharePartitionEntry | None, snapshot: ShareGroupOffset, offset: int
    ) -> SharePartitionEntry:
        if entry is None:
            return SharePartitionEntry(snapshot, snapshot.leader_epoch, snapshot.state_epoch, 0, offset)
        is_due = entry.update_count >= self._updates_per_snapshot()
        return SharePartitionEntry(
            snapshot,
            max(entry.leader_epoch, snapshot.leader_epoch),
            max(entry.state_epoch, snapshot.state_epoch),
            0 if is_due else entry.update_count,
            offset,
        )

    # -- validation and records ----------------------------------------------------------------------------------------

    def _validate_write(
        self, key: SharePartitionKey, data: write_share_group_state.PartitionData
    ) -> OperationError | None:
        if key.partition < 0:
            return OperationError(ErrorCode.INVALID_REQUEST, NEGATIVE_PARTITION_ID)
        if data.leader_epoch < 0:
            return OperationError(ErrorCode.INVALID_REQUEST, NEGATIVE_LEADER_EPOCH)
        if data.state_epoch < 0:
            return OperationError(ErrorCode.INVALID_REQUEST, NEGATIVE_STATE_EPOCH)
        entry = self.entries.get(key)
        if entry is None:
            return OperationError(ErrorCode.INVALID_REQUEST, WRITE_UNINITIALIZED)
        if entry.leader_epoch > data.leader_epoch:
            return OperationError(ErrorCode.FENCED_LEADER_EPOCH, FENCED_LEADER_EPOCH)
        if entry.state_epoch > data.state_epoch:
            return OperationError(ErrorCode.FENCED_STATE_EPOCH, FENCED_STATE_EPOCH)
        if not self._has_partition(key.topic_id, key.partition):
            return OperationError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_OR_PARTITION)
        if any(one.last_offset < one.first_offset for one in data.state_batches):
            return OperationError(ErrorCode.INVALID_REQUEST, INVALID_STATE_BATCH)
        return None

    def _record_of_change(
        self,
        key: SharePartitionKey,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        new_batches: list[PersisterStateBatch],
        max_record_bytes: int,
    ) -> ShareStateRecord | OperationError:
        """Return an update, or a snapshot if it is due."""
        entry = self.entries[key]
        current = entry.offset
        most = (max_record_bytes - record_bytes(key, 0)) // STATE_BATCH_BYTES
        is_due = entry.update_count >= self._updates_per_snapshot()
        # A new batch splits at most one existing batch: the state is combined here only if it may be too large.
        if is_due or len(current.state_batches) + 2 * len(new_batches) > most:
            batches = combine_state_batches(current.state_batches, new_batches, start_offset)
            if len(batches) > most:
                return OperationError(ErrorCode.UNKNOWN_SERVER_ERROR, STATE_TOO_LARGE)
        if is_due:
            now_ms = self._now_ms()
            snapshot = ShareGroupOffset(
                snapshot_epoch=_next_epoch(current.snapshot_epoch),
                state_epoch=current.state_epoch,
                leader_epoch=leader_epoch,
                start_offset=start_offset,
                delivery_complete_count=delivery_complete_count,
                state_batches=batches,
                create_timestamp=now_ms,
                write_timestamp=now_ms,
            )
            return new_share_snapshot_record(key, snapshot)
        update = ShareGroupOffset(
            snapshot_epoch=current.snapshot_epoch,
            state_epoch=UNINITIALIZED_EPOCH,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=delivery_complete_count,
            state_batches=combine_state_batches((), new_batches, start_offset),
        )
        return new_share_update_record(key, update)


def _replay_update(entry: SharePartitionEntry | None, update: ShareGroupOffset, offset: int) -> SharePartitionEntry:
    if entry is None:
        # The snapshot before the update was deleted as redundant: a later snapshot or a tombstone follows.
        return SharePartitionEntry(update, update.leader_epoch, UNINITIALIZED_EPOCH, 1, offset)
    current = entry.offset
    start_offset = current.start_offset if update.start_offset == UNINITIALIZED_START_OFFSET else update.start_offset
    merged = current._replace(
        start_offset=start_offset,
        delivery_complete_count=update.delivery_complete_count,
        leader_epoch=current.leader_epoch if update.leader_epoch == -1 else update.leader_epoch,
        state_batches=combine_state_batches(current.state_batches, update.state_batches, start_offset),
    )
    return entry._replace(
        offset=merged, leader_epoch=max(entry.leader_epoch, update.leader_epoch), update_count=entry.update_count + 1
    )


def _next_epoch(snapshot_epoch: int) -> int:
    """Return the next snapshot epoch, 0 after the largest one: snapshot epochs are not compared."""
    return 0 if snapshot_epoch >= MAX_EPOCH else snapshot_epoch + 1
