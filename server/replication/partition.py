"""One replica of one partition as its broker sees it: leader state, in-sync replicas, high watermark, durability.

The high watermark is the smallest log end of the in-sync replicas, and no more than how far the leader's own log
counts: its log end, or where the first *barrier* stands. A barrier is raised by records that are promised to be on the
disk and held until a group fdatasync has covered them: those of acks=-1 (a setting gives Kafka's page-cache behaviour),
and those with which `flush.messages` is reached, whatever their acks. In Kafka a log flushes before it goes on; either
way nobody sees a record before its barrier is gone. What the others have is in `followers.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, NamedTuple

from ...protocol.errors import ErrorCode, KafkaError, ProtocolError
from ...protocol.record import LOG_OVERHEAD
from ...protocol.record_batch import RecordBatch, iter_batches
from ...protocol.special_timestamps import EARLIEST, EARLIEST_LOCAL, LATEST, MAX_TIMESTAMP
from ...protocol.topic_partition import TopicPartition
from ...storage.log_config import NEVER
from ...storage.record_validator import validate_and_assign
from ...storage.validation import Validate, Validation
from .followers import Followers, Peers
from .isr_changes import IsrChange, PartitionStateNow

if TYPE_CHECKING:
    from uuid import UUID

    from ...storage.leader_epochs import EpochEnd
    from ...storage.log import Log
    from ...storage.log_values import FetchData, LogAppendInfo
    from ...storage.record_validator import Origin
    from .partition_listener import PartitionListener
    from .partition_order import PartitionOrder
    from .replica import FollowerFetch, Replica

NO_LEADER_EPOCH = -1
NO_LEADER = -1
UNCHANGED_FOR_CERTAIN = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED)
"""Answers to a change of the in-sync replicas by which it was not made, so that another one may be asked for."""


FetchIsolation = Literal["log end", "high watermark", "transactions committed"]
"""How far a reader may look."""


class FoundOffset(NamedTuple):
    """What a search by time found; -1 for what there is not."""

    offset: int = -1
    timestamp: int = -1
    leader_epoch: int = -1


class Partition:
    """Kafka's Partition. Loop-thread only.

    Invariant: log_start_offset <= last_stable_offset <= high_watermark <= durable end <= log_end_offset.
    """

    __slots__ = (
        "_barriers",
        "_listener",
        "_peers",
        "adding_replicas",
        "followers",
        "in_sync_replicas",
        "is_leader",
        "is_offline",
        "leader",
        "leader_epoch",
        "leader_high_watermark",
        "log",
        "partition_epoch",
        "removing_replicas",
        "replicas",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        log: Log,
        listener: PartitionListener,
        peers: Peers | None = None,
    ) -> None:
        """Without `peers` there is no other broker to hear of."""
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.leader_epoch = NO_LEADER_EPOCH
        self.partition_epoch = 0
        self.replicas: tuple[int, ...] = ()
        self.in_sync_replicas: tuple[int, ...] = ()
        """As the controller has written them."""
        self.adding_replicas: tuple[int, ...] = ()
        self.removing_replicas: tuple[int, ...] = ()
        self.is_leader = False
        self.leader = NO_LEADER
        """The broker that leads, this one or another."""
        self.leader_high_watermark = -1
        """As a follower last heard of it."""
        self.followers: Followers | None = None
        """What a leader of several replicas knows of the others."""
        self.is_offline = False
        """Its log directory has failed."""
        self._listener = listener
        self._peers = peers
        self._barriers: deque[tuple[int, int]] = deque()
        """(first offset, next offset) of the appends that wait for an fdatasync, in log order."""

    # -- roles -----------------------------------------------------------------------------------------------------

    def become_leader(self, order: PartitionOrder) -> None:
        """Lead from the order's epoch on; an equal or older epoch than the present one changes nothing."""
        if order.leader_epoch <= self.leader_epoch:
            return
        # In a term between, of which this broker has not heard, followers may have been cut down to another leader.
        former = self.followers if order.leader_epoch == self.leader_epoch + 1 else None
        self._begin_term(order)
        peers, end = self._peers, self.log.log_end_offset
        if peers is not None:
            self.leader = peers.broker_id
            self.followers = None
            if any(broker_id != peers.broker_id for broker_id in order.replicas):
                self.followers = Followers(peers, order.replicas, order.isr, end, former)
        if not self.is_leader and self._listener.acks_all_on_disk and self.log.recovery_point < end:
            # What it took in as a follower, or in an earlier term, and nobody has waited for.
            self._barriers.append((self.log.recovery_point, end))
            self._listener.flush_wanted(self)
        self.is_leader = True
        self.log.leader_epochs.assign(order.leader_epoch, end)
        self._raise_high_watermark()

    def become_follower(self, order: PartitionOrder) -> bool:
        """Follow a leader, -1 while there is none, from an epoch on; whether that is news, as in `become_leader`."""
        if order.leader_epoch <= self.leader_epoch:
            return False
        self.resign()
        self.leader_high_watermark = -1
        self._begin_term(order)
        self.leader = order.leader
        return True

    def _begin_term(self, order: PartitionOrder) -> None:
        self.leader_epoch = order.leader_epoch
        self.partition_epoch = order.partition_epoch
        self.replicas, self.in_sync_replicas = order.replicas, order.isr
        self.adding_replicas, self.removing_replicas = order.adding_replicas, order.removing_replicas

    def resign(self) -> None:
        """Lead no longer."""
        self.is_leader = False
        self.leader = NO_LEADER
        self.leader_epoch = NO_LEADER_EPOCH
        self.followers = None
        self._barriers.clear()

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
        if acks == -1 and self._lacks_replicas() and not self._has_already(records):
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
                    if self.followers is not None:
                        self._listener.appended(self)
                    return info  # nothing below it is free to count that did not count before
        elif log.needs_flush():
            begun = max(log.recovery_point, self._barriers[-1][1]) if self._barriers else log.recovery_point
            if log.log_end_offset - begun >= log.config.flush_messages:
                self._hold(info)
            self._listener.flush_wanted(self)
        if not self._raise_high_watermark() and self.followers is not None:
            self._listener.appended(self)
        return info

    def _has_already(self, records: memoryview) -> bool:
        """Whether an idempotent producer sends again what is in the log, which it waits for as others do.

        Were it refused, and what follows it taken or not as replicas come and go, it might begin a new epoch, as
        librdkafka does after a gap, and send in that once more what was here all the time.
        """
        with suppress(ProtocolError):
            batch = next(iter_batches(records), None)
            if isinstance(batch, RecordBatch):
                entry = self.log.producer_state.producers.get(batch.header.producer_id)
                return entry is not None and entry.find_duplicate(batch.header) is not None
        return False

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

    def durable_end_offset(self) -> int:
        """How far the leader's own log may count for the high watermark."""
        return self._barriers[0][0] if self._barriers else self.log.log_end_offset

    def flushed(self, up_to_offset: int) -> None:
        """A fdatasync has covered everything below `up_to_offset`."""
        barriers = self._barriers
        while barriers and barriers[0][1] <= up_to_offset:
            barriers.popleft()
        if not self.is_leader:
            self._listener.synced(self)
        elif not self._raise_high_watermark() and self.log.config.flush_messages != NEVER:
            self._listener.progressed(self)

    def _raise_high_watermark(self) -> bool:
        """Let the high watermark follow; it only rises, and not while too few replicas are in sync. Whether it rose."""
        if not self.is_leader or self._lacks_replicas():
            return False
        log, end = self.log, self.durable_end_offset()
        if self.followers is not None:
            end = self.followers.least_end(log.log_end_offset, end)
        if end <= log.high_watermark:
            return False
        log.update_high_watermark(end)
        self._listener.progressed(self)
        return True

    def is_on_all(self, offset: int) -> bool:
        """Whether everybody who may lead next has all below `offset`, however few they are."""
        log, followers, end = self.log, self.followers, self.durable_end_offset()
        if followers is not None:
            end = followers.least_end(log.log_end_offset, end)
        return max(end, log.high_watermark) >= offset

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
        is_due = self.durable_end_offset() < required_offset and self.log.config.flush_messages != NEVER
        return None if is_due else ErrorCode.NONE

    # -- following -------------------------------------------------------------------------------------------------

    def append_records_as_follower(self, records: memoryview) -> int:
        """Append what the leader has sent, the very bytes, from this log's end on; how many bytes were new.

        What a later leader than the one that is followed has written is left out, and so is a batch that is cut off
        at the end. Errors as `Log.append_as_follower`.
        """
        log, size = self.log, 0
        for piece in _pieces(records, log.config.segment_size):
            size += log.append_as_follower(piece, leader_epoch=self.leader_epoch).bytes
        if log.needs_flush():
            self._listener.flush_wanted(self)
        return size

    def batch_it_begins_in(self, records: memoryview) -> int | None:
        """Where the first batch begins if this log is empty and begins inside of it, as the leader's may.

        It needs the whole batch, and so has to begin there.
        """
        log = self.log
        if len(records) <= LOG_OVERHEAD or log.log_start_offset < log.log_end_offset:
            return None
        first = int.from_bytes(records[:8])
        return first if first < log.log_end_offset else None

    def follow_watermarks(self, high_watermark: int, log_start_offset: int) -> None:
        """Take over how far the leader says that all have the log, as far as this one reaches, and where it begins."""
        log = self.log
        self.leader_high_watermark = high_watermark
        high_watermark = min(high_watermark, log.log_end_offset)
        has_risen = high_watermark > log.high_watermark
        if has_risen:
            log.update_high_watermark(high_watermark)
        log.maybe_increment_log_start_offset(min(log_start_offset, log.high_watermark))
        if has_risen:
            self._listener.progressed(self)

    def truncation_offset(self, leader_end: EpochEnd) -> tuple[int, bool]:
        """Down to where this log may be the leader's, and whether that is certain, else the leader is asked again.

        `leader_end` is the largest epoch at the leader that is not above the one this broker asked for, and where it
        ends there (KIP-101, KIP-279). A leader that knows no epochs keeps records of a format without them: what is
        committed is all that is certain then.
        """
        log = self.log
        if leader_end.epoch < 0 or leader_end.end_offset < 0:
            end = log.high_watermark if leader_end.end_offset < 0 else leader_end.end_offset
            return min(end, log.log_end_offset), True
        own = log.leader_epochs.end_offset_for(leader_end.epoch, log.log_end_offset)
        if own.epoch < 0:
            # The leader's epoch is above all of this log, which it therefore has up to its own end.
            return min(leader_end.end_offset, log.log_end_offset), True
        if own.epoch != leader_end.epoch:
            return min(own.end_offset, log.log_end_offset), False
        return min(own.end_offset, leader_end.end_offset, log.log_end_offset), True

    # -- leading followers -----------------------------------------------------------------------------------------

    def follower(self, fetch: FollowerFetch) -> Replica:
        """Who sends a fetch. Raises KafkaError for a broker without a replica, or one that has lived again since."""
        if self.followers is None:
            code = ErrorCode.UNKNOWN_LEADER_EPOCH if fetch.knows_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER
            raise KafkaError(code, f"{self.topic_partition} has no replica elsewhere")
        replica = self.followers.replica(fetch.replica_id, knows_epoch=fetch.knows_epoch)
        replica.check_epoch(fetch.broker_epoch)
        return replica

    def follower_fetched(self, fetch: FollowerFetch) -> Replica:
        """A follower, which is returned, has everything below the offset that it asks for, one of this log's.

        It may become in sync by that, and the high watermark may rise. Raises KafkaError as `follower`.
        """
        replica, followers, peers = self.follower(fetch), self.followers, self._peers
        assert followers is not None
        assert peers is not None
        log = self.log
        before, started = replica.log_end_offset, replica.log_start_offset
        replica.fetched(fetch, log.log_end_offset, peers.now())
        grown = followers.grown_isr(replica, log.high_watermark)
        if grown is not None:
            self._propose(followers, grown)
        if fetch.offset != before or log.high_watermark < fetch.offset:
            # Who kept it back may be gone meanwhile, without having been in sync.
            self._raise_high_watermark()
        if fetch.log_start_offset != started:
            self._listener.low_watermark_raised(self)
        return replica

    def shrink_isr(self) -> None:
        """Ask for those to leave who have not caught up for `replica.lag.time.max.ms`.

        Who kept the high watermark back without being in sync, being about to, may be gone by now.
        """
        followers = self.followers
        if followers is not None and not self.is_offline:
            shrunk = followers.shrunk_isr(self.log.log_end_offset)
            if shrunk is not None:
                self._propose(followers, shrunk)
            self._raise_high_watermark()

    def _propose(self, followers: Followers, isr: tuple[int, ...]) -> None:
        change = IsrChange(
            self.topic_partition,
            self.leader_epoch,
            self.partition_epoch,
            isr,
            followers.broker_epochs(isr),
            topic_id=self.topic_id,
        )
        followers.pending = change
        self._listener.isr_change_wanted(self, change)

    def awaits(self, change: IsrChange) -> bool:
        """Whether nothing has happened since the change was asked for."""
        return self.followers is not None and self.followers.pending is change

    def isr_changed(self, change: IsrChange, now: PartitionStateNow) -> None:
        """What is written down after a change was asked for; an answer that other orders have overtaken is nothing."""
        followers = self.followers
        if (
            followers is None
            or followers.pending is not change
            or now.leader_epoch != self.leader_epoch
            or now.partition_epoch < self.partition_epoch
        ):
            return
        followers.pending = None
        followers.isr = self.in_sync_replicas = now.isr
        self.partition_epoch = now.partition_epoch
        if not self._raise_high_watermark():
            self._listener.progressed(self)

    def isr_change_failed(self, change: IsrChange, error: ErrorCode) -> None:
        """A change was refused; unless it was not made for certain, both sets count until other orders come."""
        if error in UNCHANGED_FOR_CERTAIN and self.followers is not None and self.followers.pending is change:
            self.followers.pending = None
            self._raise_high_watermark()

    @property
    def low_watermark(self) -> int:
        """The lowest offset that any live replica still has."""
        start = self.log.log_start_offset
        return start if self.followers is None else self.followers.low_watermark(start)

    # -- reading ---------------------------------------------------------------------------------------------------

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Fence a client whose idea of the leader epoch differs (KIP-320). -1 asks for no check.

        Raises KafkaError FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH or NOT_LEADER_OR_FOLLOWER.
        """
        self.fence(current_leader_epoch)
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {self.topic_partition}")

    def fence(self, current_leader_epoch: int) -> None:
        """As `check_leader_epoch`, whoever leads."""
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"the leader epoch is {self.leader_epoch}")
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"the leader epoch is {self.leader_epoch}")

    @property
    def log_start_offset(self) -> int:
        """The first offset that there is here."""
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The next offset that is appended, committed or not what is below it."""
        return self.log.log_end_offset

    @property
    def high_watermark(self) -> int:
        """Below it all is committed, as far as this broker knows."""
        return self.log.high_watermark

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
            self._check_bound_is_known(isolation)
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
            self._check_bound_is_known(isolation)
            return FoundOffset()
        return FoundOffset(found.offset, found.timestamp, log.leader_epochs.epoch_for_offset(found.offset))

    def _check_bound_is_known(self, isolation: FetchIsolation) -> None:
        """Raises KafkaError OFFSET_NOT_AVAILABLE while a new leader may not know yet all that consumers have seen."""
        followers = self.followers
        if followers is not None and isolation != "log end" and self.log.high_watermark < followers.epoch_start:
            reason = f"the high watermark {self.log.high_watermark} is below the start of epoch {self.leader_epoch}"
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, reason)

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


def _pieces(records: memoryview, most: int) -> Iterator[memoryview]:
    """Whole batches, so many bytes at a time, or one batch that is larger. Raises KafkaError CORRUPT_MESSAGE."""
    if len(records) <= most:
        yield records
        return
    start = end = 0
    try:
        for batch in iter_batches(records):
            if batch.position + batch.size - start > most and end > start:
                yield records[start:end]
                start = end
            end = batch.position + batch.size
    except ProtocolError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"behind {end} good bytes: {error}") from error
    yield records[start:end]
