"""One replica of one partition as its broker sees it: leader state, in-sync replicas, high watermark, durability.

The high watermark is how far the leader's own log counts, as no other replica is heard of: its log end, or where the
first *barrier* stands. A barrier is raised by records that are promised to be on the disk and held until a group
fdatasync has covered them: those of acks=-1 (a setting gives Kafka's page-cache behaviour), and those with which
`flush.messages` is reached, whatever their acks. In Kafka the high watermark is the smallest log end of the in-sync
replicas, and a log flushes before it goes on; either way nobody sees a record before its barrier is gone.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.special_timestamps import EARLIEST, EARLIEST_LOCAL, LATEST, MAX_TIMESTAMP
from ...protocol.topic_partition import TopicPartition
from ...storage.log_config import NEVER
from ...storage.record_validator import validate_and_assign
from ...storage.validation import Validate, Validation

if TYPE_CHECKING:
    from uuid import UUID

    from ...storage.leader_epochs import EpochEnd
    from ...storage.log import Log
    from ...storage.log_values import FetchData, LogAppendInfo
    from ...storage.record_validator import Origin

NO_LEADER_EPOCH = -1


FetchIsolation = Literal["log end", "high watermark", "transactions committed"]
"""How far a reader may look."""


class FoundOffset(NamedTuple):
    """What a search by time found; -1 for what there is not."""

    offset: int = -1
    timestamp: int = -1
    leader_epoch: int = -1


class PartitionListener(Protocol):
    """Whom a partition tells what happens to it."""

    acks_all_on_disk: bool
    """Whether acks=-1 promises the disk."""

    def flush_wanted(self, partition: Partition, *, may_linger: bool = False) -> None:
        """What has been appended so far shall be on disk soon; `Partition.flushed` is to follow."""

    def progressed(self, partition: Partition) -> None:
        """The high watermark has risen, or what is on disk: more can be read, and producers may be answered."""


class Partition:
    """Kafka's Partition. Loop-thread only.

    Invariant: log_start_offset <= last_stable_offset <= high_watermark <= durable end <= log_end_offset.
    """

    __slots__ = (
        "_barriers",
        "_listener",
        "in_sync_replicas",
        "is_leader",
        "is_offline",
        "leader_epoch",
        "log",
        "partition_epoch",
        "replicas",
        "topic_id",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition, topic_id: UUID, log: Log, listener: PartitionListener) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.leader_epoch = NO_LEADER_EPOCH
        self.partition_epoch = 0
        self.replicas: tuple[int, ...] = ()
        self.in_sync_replicas: tuple[int, ...] = ()
        self.is_leader = False
        self.is_offline = False
        """Its log directory has failed."""
        self._listener = listener
        self._barriers: deque[tuple[int, int]] = deque()
        """(first offset, next offset) of the appends that wait for an fdatasync, in log order."""

    # -- roles -----------------------------------------------------------------------------------------------------

    def become_leader(
        self, leader_epoch: int, partition_epoch: int, replicas: tuple[int, ...], in_sync_replicas: tuple[int, ...]
    ) -> None:
        """Lead from `leader_epoch` on; an equal or older epoch than the present one changes nothing."""
        if leader_epoch <= self.leader_epoch:
            return
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.replicas = replicas
        self.in_sync_replicas = in_sync_replicas
        self.is_leader = True
        self.log.leader_epochs.assign(leader_epoch, self.log.log_end_offset)
        self._raise_high_watermark()

    def resign(self) -> None:
        """Lead no longer."""
        self.is_leader = False

    def go_offline(self) -> None:
        """Its log directory has failed."""
        self.is_offline = True

    # -- appending -------------------------------------------------------------------------------------------------

    def append_records_to_leader(
        self,
        records: memoryview,
        acks: int,
        *,
        api_version: int,
        origin: Origin = "client",
        may_linger: bool = False,
        validate: Validate = validate_and_assign,
    ) -> LogAppendInfo:
        """Append what a producer sent, and let waiting operations see it; `may_linger` as in `GroupCommit.request`.

        `validate` as in `Log.append_as_leader`. Raises KafkaError: NOT_ENOUGH_REPLICAS before anything is written,
        and what the log raises; of a client's records HeavyRecordsError, too.
        """
        if acks == -1 and self._lacks_replicas():
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic_partition} has {len(self.in_sync_replicas)} replicas in sync; "
                f"min.insync.replicas is {self.min_in_sync_replicas}",
            )
        log = self.log
        info = log.append_as_leader(
            records,
            leader_epoch=self.leader_epoch,
            origin=origin,
            produce_version=api_version,
            at_once=origin == "client",
            validate=validate,
        )
        if acks == -1 and self._listener.acks_all_on_disk:
            self._hold(info)
            if self._barriers:
                self._listener.flush_wanted(self, may_linger=may_linger)
                if info.last_offset >= 0 and not info.duplicate:
                    return info  # nothing below it is free to count that did not count before
        elif log.needs_flush:
            begun = max(log.recovery_point, self._barriers[-1][1]) if self._barriers else log.recovery_point
            if log.log_end_offset - begun >= log.config.flush_messages:
                self._hold(info)
            self._listener.flush_wanted(self)
        self._raise_high_watermark()
        return info

    def validation(self, records: memoryview, *, api_version: int, now_ms: int) -> Validation:
        """The check of what `append_records_to_leader` found too heavy."""
        return Validation(self.log, records, leader_epoch=self.leader_epoch, produce_version=api_version, now_ms=now_ms)

    def _hold(self, info: LogAppendInfo) -> None:
        """Let nobody see what was appended before it is on disk."""
        if not info.duplicate and info.last_offset >= 0:
            self._barriers.append((info.first_offset, info.last_offset + 1))

    @property
    def min_in_sync_replicas(self) -> int:
        """`min.insync.replicas`, never more than there are replicas: Kafka's effectiveMinIsr."""
        return min(self.log.config.min_insync_replicas, len(self.replicas) or 1)

    def _lacks_replicas(self) -> bool:
        """Whether fewer are in sync than `min.insync.replicas` asks for; never so while all of them are."""
        in_sync = len(self.in_sync_replicas)
        return in_sync < (len(self.replicas) or 1) and in_sync < self.min_in_sync_replicas

    @property
    def durable_end_offset(self) -> int:
        """How far the leader's own log may count for the high watermark."""
        return self._barriers[0][0] if self._barriers else self.log.log_end_offset

    def flushed(self, up_to_offset: int) -> None:
        """A fdatasync has covered everything below `up_to_offset`."""
        barriers = self._barriers
        while barriers and barriers[0][1] <= up_to_offset:
            barriers.popleft()
        if not self._raise_high_watermark() and self.log.config.flush_messages != NEVER:
            self._listener.progressed(self)

    def _raise_high_watermark(self) -> bool:
        """Let the high watermark follow; it only rises, and not while too few replicas are in sync. Whether it rose."""
        if not self.is_leader or self._lacks_replicas():
            return False
        end = self.durable_end_offset
        if end <= self.log.high_watermark:
            return False
        self.log.update_high_watermark(end)
        self._listener.progressed(self)
        return True

    def has_reached(self, required_offset: int) -> ErrorCode | None:
        """What a producer with acks=-1 is to be told: None while it must wait, NONE once everything below
        `required_offset` is committed, else why it never will be as it asked.
        """
        if self.is_offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.log.high_watermark < required_offset:
            return None
        if self._lacks_replicas():
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    def has_flushed(self, required_offset: int) -> ErrorCode | None:
        """What a producer with acks=1 is to be told: None while a flush that `flush.messages` asks for is not over."""
        if self.is_offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        is_due = self.durable_end_offset < required_offset and self.log.config.flush_messages != NEVER
        return None if is_due else ErrorCode.NONE

    # -- reading ---------------------------------------------------------------------------------------------------

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Fence a client whose idea of the leader epoch differs (KIP-320). -1 asks for no check.

        Raises KafkaError FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH or NOT_LEADER_OR_FOLLOWER.
        """
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"the leader epoch is {self.leader_epoch}")
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"the leader epoch is {self.leader_epoch}")
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {self.topic_partition}")

    def read_bound(self, isolation: FetchIsolation) -> int:
        """The exclusive bound of what may be read."""
        if isolation == "high watermark":
            return self.log.high_watermark
        return self.log.last_stable_offset if isolation == "transactions committed" else self.log.log_end_offset

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        min_one_batch: bool,
        isolation: FetchIsolation,
        hard_limit: bool = False,
        lend: bool = False,
    ) -> FetchData:
        """What consumers may read from the batch of `offset` on, as `Log.read` says, whose errors it raises."""
        return self.log.read(
            offset,
            max_bytes,
            max_offset=self.read_bound(isolation),
            min_one_message=min_one_batch,
            hard_limit=hard_limit,
            read_committed=isolation == "transactions committed",
            lend=lend,
        )

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """(largest known epoch at or below `epoch`, its end offset); (-1, -1) if that cannot be said."""
        return self.log.leader_epochs.end_offset_for(epoch, self.log.log_end_offset)

    def divergence(self, last_fetched_epoch: int, fetch_offset: int) -> EpochEnd | None:
        """Where the log of a reader parted from this one, if that was before its fetch offset (KIP-595).

        Raises KafkaError OFFSET_OUT_OF_RANGE.
        """
        end = self.end_offset_for_epoch(last_fetched_epoch)
        if end.epoch < 0 or end.end_offset < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"no epoch up to {last_fetched_epoch} is known")
        return end if end.epoch < last_fetched_epoch or end.end_offset < fetch_offset else None

    def fetch_offset_for_timestamp(self, timestamp: int, isolation: FetchIsolation) -> FoundOffset:
        """The first record that is not older, or what a special timestamp stands for. Raises LogDirFailedError."""
        log = self.log
        if timestamp == LATEST:
            return FoundOffset(self.read_bound(isolation), leader_epoch=self.leader_epoch)
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            start = log.log_start_offset
            return FoundOffset(start, leader_epoch=log.leader_epochs.epoch_for_offset(start))
        found = None
        if timestamp == MAX_TIMESTAMP:
            found = log.max_timestamp_and_offset()
        elif timestamp >= 0:
            found = log.fetch_offset_by_timestamp(timestamp)
        if found is None or found.offset >= self.read_bound(isolation):
            return FoundOffset()
        return FoundOffset(found.offset, found.timestamp, log.leader_epochs.epoch_for_offset(found.offset))

    def legacy_fetch_offsets_for_timestamp(
        self, timestamp: int, isolation: FetchIsolation, max_num_offsets: int
    ) -> list[int]:
        """Segment starts before the timestamp, newest first, by file modification time. Raises LogDirFailedError."""
        bound = self.read_bound(isolation)
        offsets = self.log.legacy_fetch_offsets_before(timestamp, max_num_offsets)
        visible = [offset for offset in offsets if offset < bound]
        return offsets if len(visible) == len(offsets) else [bound, *visible]

    def delete_records(self, offset: int) -> int:
        """Raise the log start offset (-1: to the high watermark); returns the new low watermark.

        It is on disk once `ReplicaManager.keep_log_starts` says so.
        Raises KafkaError: OFFSET_OUT_OF_RANGE beyond the high watermark, POLICY_VIOLATION on a compacted topic.
        """
        if "delete" not in self.log.config.cleanup_policy:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "records of a topic that is only compacted cannot be deleted")
        target = self.log.high_watermark if offset == -1 else offset
        if not 0 <= target <= self.log.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset}; the high watermark is {self.log.high_watermark}"
            )
        self.log.maybe_increment_log_start_offset(target)
        return self.log.log_start_offset
