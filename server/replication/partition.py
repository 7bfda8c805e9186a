"""Kafka's Partition: this broker's replica of a partition with its role, ISR, high watermark and durability.

The high watermark is the smallest log end offset of the in-sync replicas. The leader's own log counts up to its log end
offset, or up to its first *barrier*. Records that must be on disk before consumers read them raise a barrier, which is
removed when a group commit (one fdatasync for many appends) has covered them: records of acks=-1, unless
`acks.all.durability` selects Kafka's page-cache behaviour, and records with which `flush.messages` is reached. Kafka
flushes during such an append instead. The state of the other replicas is in `replica.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from ...protocol.errors import ErrorCode, KafkaError, ProtocolError
from ...protocol.record import LOG_OVERHEAD
from ...protocol.record_batch import RecordBatch, iter_batches
from ...protocol.special_timestamps import EARLIEST, EARLIEST_LOCAL, LATEST, MAX_TIMESTAMP
from ...protocol.topic_partition import TopicPartition
from ...storage.errors import InvariantViolationError
from ...storage.joint_append import JointAppend
from ...storage.log_config import NEVER
from ...storage.log_validator import AppendContext, LaneValidation, Validate, validate_messages_and_assign_offsets
from ...storage.log_values import FetchIsolation
from .leader_and_isr import IsrChange, LeaderAndIsr
from .replica import Followers, LeaderContext

if TYPE_CHECKING:
    from uuid import UUID

    from ...storage.leader_epochs import EpochEnd
    from ...storage.log import Log
    from ...storage.log_values import FetchData, LogAppendInfo
    from ..runtime.loop_sharing import Steps
    from .append_request import AppendRequest
    from .leader_and_isr import LeaderAndIsrState
    from .replica import FollowerFetch, Replica
    from .replica_manager import ReplicaManager

NO_LEADER_EPOCH = -1
NO_LEADER = -1
NOT_DONE, DONE = (False, ErrorCode.NONE), (True, ErrorCode.NONE)
ISR_UNCHANGED_ERRORS = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED)
"""Errors after which a change of the ISR was certainly not made, so that the leader may request another change."""

# Module names, because Python 3.11 takes ten times as long to find a member of an enum class.
_LOG_END, _HIGH_WATERMARK, _TXN_COMMITTED = (
    FetchIsolation.LOG_END,
    FetchIsolation.HIGH_WATERMARK,
    FetchIsolation.TXN_COMMITTED,
)


class FoundOffset(NamedTuple):
    """The result of a search by timestamp; -1 for a missing value."""

    offset: int = -1
    timestamp: int = -1
    leader_epoch: int = -1


class Partition:
    """Kafka's Partition. Owned by the ReplicaManager; runs on the event loop.

    Invariants: see `check_invariants`. A violated one takes the partition offline.
    """

    __slots__ = (
        "_barriers",
        "_leader_context",
        "_replica_manager",
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
        replica_manager: ReplicaManager,
        leader_context: LeaderContext | None = None,
    ) -> None:
        """`leader_context` is None on a broker without a cluster."""
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.leader_epoch = NO_LEADER_EPOCH
        self.partition_epoch = 0
        self.replicas: tuple[int, ...] = ()
        self.in_sync_replicas: tuple[int, ...] = ()
        """The ISR as the controller has committed it."""
        self.adding_replicas: tuple[int, ...] = ()
        self.removing_replicas: tuple[int, ...] = ()
        self.is_leader = False
        self.leader = NO_LEADER
        """The id of the leader, which may be this broker."""
        self.leader_high_watermark = -1
        """The leader's high watermark in the last response to this follower."""
        self.followers: Followers | None = None
        """The state of the other replicas, if this broker leads several."""
        self.is_offline = False
        """Whether its log directory or log has failed."""
        self._replica_manager = replica_manager
        self._leader_context = leader_context
        self._barriers: deque[tuple[int, int]] = deque()
        """(first offset, next offset) of the appends that wait for an fdatasync, in log order."""

    # -- roles -----------------------------------------------------------------------------------------------------

    def become_leader(self, partition_state: LeaderAndIsrState) -> None:
        """Lead in the epoch of the request; in the present leader epoch only a newer partition epoch has an effect."""
        if partition_state.leader_epoch <= self.leader_epoch:
            self._update_assignment_and_isr(partition_state)
            return
        # If this broker missed an epoch, followers may have truncated their logs for the leader of that epoch.
        former = self.followers if partition_state.leader_epoch == self.leader_epoch + 1 else None
        self._begin_leader_epoch(partition_state)
        leader_context, end = self._leader_context, self.log.log_end_offset
        if leader_context is not None:
            self.leader = leader_context.broker_id
            self.followers = None
            if any(broker_id != leader_context.broker_id for broker_id in partition_state.replicas):
                self.followers = Followers(leader_context, partition_state.replicas, partition_state.isr, end, former)
        if not self.is_leader and self._replica_manager.acks_all_on_disk and self.log.recovery_point < end:
            # Records from its time as a follower, or from an earlier epoch, whose flush no request waited for.
            self._barriers.append((self.log.recovery_point, end))
            self._replica_manager.group_commit.request(self)
        self.is_leader = True
        self.log.leader_epochs.assign(partition_state.leader_epoch, end)
        self._maybe_increment_leader_hw()

    def become_follower(self, partition_state: LeaderAndIsrState) -> bool:
        """Follow a leader, -1 if there is none; return whether the epoch is newer, as in `become_leader`."""
        if partition_state.leader_epoch <= self.leader_epoch:
            self._update_assignment_and_isr(partition_state)
            return False
        self._begin_leader_epoch(partition_state)
        self._end_role()
        self.leader_high_watermark = -1
        self.leader = partition_state.leader
        return True

    def _update_assignment_and_isr(self, partition_state: LeaderAndIsrState) -> None:
        """Apply a newer partition epoch of the present leader epoch (Kafka's Partition.updateAssignmentAndIsr).

        Only a KRaft controller has them: it does not raise the leader epoch for each change of the replicas or the ISR.
        """
        if partition_state.leader_epoch < self.leader_epoch or partition_state.partition_epoch <= self.partition_epoch:
            return
        self._set_assignment_and_isr(partition_state)
        if not self.is_leader or self._leader_context is None:
            return
        followers, end = self.followers, self.log.log_end_offset
        if followers is not None:
            followers.update(partition_state.replicas, partition_state.isr)
        elif any(broker_id != self._leader_context.broker_id for broker_id in partition_state.replicas):
            self.followers = Followers(self._leader_context, partition_state.replicas, partition_state.isr, end, None)
        if not self._maybe_increment_leader_hw():
            self._replica_manager.try_complete_delayed_requests(self)

    def _begin_leader_epoch(self, partition_state: LeaderAndIsrState) -> None:
        """Begin the leader epoch of a request, as leader or follower."""
        assert partition_state.leader_epoch > self.leader_epoch, (
            f"leader epoch {partition_state.leader_epoch} after {self.leader_epoch}"
        )
        self.leader_epoch = partition_state.leader_epoch
        self._set_assignment_and_isr(partition_state)

    def _set_assignment_and_isr(self, partition_state: LeaderAndIsrState) -> None:
        self.partition_epoch = partition_state.partition_epoch
        self.replicas, self.in_sync_replicas = partition_state.replicas, partition_state.isr
        self.adding_replicas, self.removing_replicas = (
            partition_state.adding_replicas,
            partition_state.removing_replicas,
        )

    def resign(self) -> None:
        """End the current role, and forget its leader epoch."""
        self._end_role()
        self.leader_epoch = NO_LEADER_EPOCH

    def _end_role(self) -> None:
        self.is_leader = False
        self.leader = NO_LEADER
        self.followers = None
        self._barriers.clear()

    def check_invariants(self) -> None:
        """Raise InvariantViolationError if the state of this replica or its log contradicts itself.

        Reads no file. Tests and simulations call it after each change. On a running broker, each new high watermark and
        each ISR that this leader has changed are checked.
        """
        log = self.log
        log.check_invariants()
        self._check_isr()
        ends = [offset for barrier in self._barriers for offset in barrier]
        if ends != sorted(ends) or (ends and ends[-1] > log.log_end_offset):
            raise self._violation(
                f"barriers {list(self._barriers)} are out of order, log end offset {log.log_end_offset}"
            )
        if log.leader_epochs.latest_epoch > self.leader_epoch >= 0:
            raise self._violation(f"leader epoch {self.leader_epoch} below {log.leader_epochs.latest_epoch} in its log")

    def _check_isr(self) -> None:
        # Not for the ISR of a LeaderAndIsr request: Kafka's controller in ZooKeeper clusters removes replicas from the
        # assignment first and from the ISR with the next request (phase B of KafkaController.onPartitionReassignment).
        if self.replicas and not set(self.in_sync_replicas) <= set(self.replicas):
            raise self._violation(
                f"the ISR {self.in_sync_replicas} contains brokers that are not among the replicas {self.replicas}"
            )

    def _violation(self, violation: str) -> InvariantViolationError:
        return InvariantViolationError(self.topic_partition, self.log.directory, violation)

    def go_offline(self) -> None:
        """Stop serving requests, because its log directory or log has failed."""
        self.is_offline = True

    # -- appending -------------------------------------------------------------------------------------------------

    def append_records_to_leader(
        self,
        records: memoryview,
        request: AppendRequest,
        validate: Validate = validate_messages_and_assign_offsets,
    ) -> LogAppendInfo:
        """Append the records of a producer, and complete operations that wait for them.

        `validate` as in `Log.append_as_leader`. Raises KafkaError: NOT_ENOUGH_REPLICAS before anything is written, and
        the errors of the log; HeavyRecordsError as the request's rules say.
        """
        acks = request.acks
        if acks == -1 and self._lacks_replicas() and not self._is_duplicate(records):
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic_partition} has {len(self.in_sync_replicas)} replicas in sync; "
                f"min.insync.replicas is {self.min_in_sync_replicas}",
            )
        log = self.log
        info = log.append_as_leader(
            records, leader_epoch=self.leader_epoch, rules=request.rules, validate=validate, keeps_appended=True
        )
        try:
            self._after_append(info, request)
        finally:
            log.release_appended()  # the buffer of `records` is used again
        return info

    def _after_append(self, info: LogAppendInfo, request: AppendRequest) -> None:
        """Raise the high watermark and complete waiting operations, or request the flush that this requires."""
        log = self.log
        if request.acks == -1 and self._replica_manager.acks_all_on_disk:
            self._add_barrier(info)
            if self._barriers:
                self._replica_manager.group_commit.request(self, may_linger=request.may_linger)
                if info.last_offset >= 0 and not info.duplicate:
                    if self.followers is not None:
                        self._replica_manager.complete_fetches_later(self)
                    # A new append: its own barrier keeps the high watermark where it is. An empty or repeated append
                    # has none, and continues below.
                    return
        elif log.needs_flush():
            begun = max(log.recovery_point, self._barriers[-1][1]) if self._barriers else log.recovery_point
            if log.log_end_offset - begun >= log.config.flush_messages:
                self._add_barrier(info)
            self._replica_manager.group_commit.request(self)
        if not self._maybe_increment_leader_hw() and self.followers is not None:
            self._replica_manager.complete_fetches_later(self)

    def joint_append(self, buffer: memoryview, parts: list[tuple[int, int]], key: bytes, most: int) -> JointAppend:
        """Return the `validate` function of an append of the batches of several requests."""
        log = self.log
        return JointAppend(buffer, parts, key, log.log_start_offset, log.producer_state, most)

    def decides_immediately(self, acks: int) -> bool:
        """Return whether an append is decided before it returns: it waits neither for a disk nor for other replicas."""
        if self.log.config.flush_messages != NEVER:
            return False
        return acks == 1 or (self.followers is None and not self._replica_manager.acks_all_on_disk)

    def _is_duplicate(self, records: memoryview) -> bool:
        """Whether the records repeat an earlier append of an idempotent producer, which waits for it like the first
        time.

        If a repeated batch were refused while later ones are accepted, as replicas leave and join the ISR, the producer
        would find a gap. librdkafka then begins a new epoch and sends the records again, which would duplicate them.
        """
        with suppress(ProtocolError):
            batch = next(iter_batches(records), None)
            if isinstance(batch, RecordBatch):
                entry = self.log.producer_state.producers.get(batch.header.producer_id)
                return entry is not None and entry.find_duplicate(batch.header) is not None
        return False

    def lane_validation(self, records: memoryview, request: AppendRequest, now_ms: int) -> LaneValidation:
        """Return the validation that `append_records_to_leader` found too heavy for the event loop."""
        log = self.log
        context = AppendContext(
            request.rules, log.log_end_offset, now_ms, log.config, self.leader_epoch, log.config.message_magic
        )
        return LaneValidation(records, context)

    def _add_barrier(self, info: LogAppendInfo) -> None:
        """Keep the high watermark below an append until it is on disk."""
        if not info.duplicate and info.last_offset >= 0:
            self._barriers.append((info.first_offset, info.last_offset + 1))

    @property
    def max_message_bytes(self) -> int:
        """The size of the largest batch that the log accepts (`max.message.bytes`)."""
        return self.log.config.max_message_bytes

    @property
    def min_in_sync_replicas(self) -> int:
        """`min.insync.replicas`, limited to the number of replicas: Kafka's effectiveMinIsr."""
        return min(self.log.config.min_insync_replicas, len(self.replicas) or 1)

    def has_late_transaction(self, before_ms: int) -> bool:
        """Return whether the producer of the oldest open transaction has not written since a time, in ms since 1970."""
        return self.log.producer_state.has_late_transaction(before_ms)

    def _lacks_replicas(self) -> bool:
        """Whether the ISR is smaller than `min.insync.replicas`; false if all replicas are in sync."""
        in_sync = len(self.in_sync_replicas)
        return in_sync < (len(self.replicas) or 1) and in_sync < self.min_in_sync_replicas

    def durable_end_offset(self) -> int:
        """Return the offset up to which the leader's own log counts for the high watermark."""
        return self._barriers[0][0] if self._barriers else self.log.log_end_offset

    def on_flushed(self, up_to_offset: int) -> None:
        """Remove the barriers below `up_to_offset`, which a group commit has covered."""
        barriers = self._barriers
        while barriers and barriers[0][1] <= up_to_offset:
            barriers.popleft()
        if not self.is_leader:
            self._replica_manager.on_follower_flushed(self)
        elif not self._maybe_increment_leader_hw() and self.log.config.flush_messages != NEVER:
            self._replica_manager.try_complete_delayed_requests(self)

    def _maybe_increment_leader_hw(self) -> bool:
        """Raise the high watermark unless too few replicas are in sync (Kafka's Partition.maybeIncrementLeaderHW).

        Return whether it rose. It never falls.
        """
        if not self.is_leader or self._lacks_replicas():
            return False
        log, end = self.log, self.durable_end_offset()
        if self.followers is not None:
            end = self.followers.isr_min_log_end_offset(log.log_end_offset, end)
        if end <= log.high_watermark:
            return False
        try:
            log.update_high_watermark(end)
        except InvariantViolationError as error:
            self._replica_manager.log_failed(error)
            return False
        self._replica_manager.try_complete_delayed_requests(self)
        return True

    def is_replicated_to_electable(self, offset: int) -> bool:
        """Whether every replica that may be elected has all records below `offset`, even if the ISR is too small."""
        log, followers, end = self.log, self.followers, self.durable_end_offset()
        if followers is not None:
            end = followers.isr_min_log_end_offset(log.log_end_offset, end)
        return max(end, log.high_watermark) >= offset

    def check_enough_replicas_reach_offset(self, required_offset: int) -> tuple[bool, ErrorCode]:
        """Return whether an acks=-1 append up to `required_offset` is decided, and its error.

        It is decided once the high watermark reaches the offset, or when it never will under this leader.
        """
        if self.is_offline:
            return True, ErrorCode.KAFKA_STORAGE_ERROR
        if not self.is_leader:
            return True, ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.log.high_watermark < required_offset:
            return NOT_DONE
        if self._lacks_replicas():
            return True, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return DONE

    def check_flushed(self, required_offset: int) -> tuple[bool, ErrorCode]:
        """Return whether an acks=1 append is decided, which waits for a flush that `flush.messages` requires."""
        if self.is_offline:
            return True, ErrorCode.KAFKA_STORAGE_ERROR
        is_due = self.durable_end_offset() < required_offset and self.log.config.flush_messages != NEVER
        return NOT_DONE if is_due else DONE

    # -- following -------------------------------------------------------------------------------------------------

    def append_records_as_follower(self, records: memoryview) -> int:
        """Append the leader's records unchanged, and return the number of new bytes.

        Batches of a later leader than the followed one are left out, and so is a batch that is cut off at the end.
        Errors as `Log.append_as_follower`.
        """
        log, size = self.log, 0
        for piece in _pieces(records, log.config.segment_size):
            size += log.append_as_follower(piece, leader_epoch=self.leader_epoch).valid_bytes
        if log.needs_flush():
            self._replica_manager.group_commit.request(self)
        return size

    def first_batch_base_offset(self, records: memoryview) -> int | None:
        """Return the base offset of the first batch if this log is empty and starts inside of it, else None.

        The leader's log start offset may be inside of a batch; the follower's log needs the whole batch.
        """
        log = self.log
        if len(records) <= LOG_OVERHEAD or log.log_start_offset < log.log_end_offset:
            return None
        first = int.from_bytes(records[:8])
        return first if first < log.log_end_offset else None

    def update_watermarks(self, high_watermark: int, log_start_offset: int) -> None:
        """Apply the leader's high watermark, up to this log's end, and its log start offset."""
        log = self.log
        self.leader_high_watermark = high_watermark
        high_watermark = min(high_watermark, log.log_end_offset)
        has_risen = high_watermark > log.high_watermark
        if has_risen:
            log.update_high_watermark(high_watermark)
        log.maybe_increment_log_start_offset(min(log_start_offset, log.high_watermark))
        if has_risen:
            self._replica_manager.try_complete_delayed_requests(self)

    def truncation_offset(self, leader_end: EpochEnd) -> tuple[int, bool]:
        """Return the offset to truncate this log to, and whether that is final; else the leader is queried again.

        `leader_end` is the largest epoch at the leader that is not above the requested epoch, and its end offset there
        (KIP-101, KIP-279). A leader without epochs keeps records of a format without them: only records below the high
        watermark are certain then.

        Examples for a log with epochs 1 from offset 0 and 3 from offset 10, and log end offset 20:

        | `leader_end`     | result         | final | reason                                                   |
        |------------------|----------------|-------|----------------------------------------------------------|
        | epoch 3, end 15  | 15             | yes   | the leader has fewer records of the common epoch 3       |
        | epoch 2, end 12  | 10             | no    | this log has no epoch 2; the next query is for epoch 1   |
        | epoch 0, end 5   | 0              | yes   | all records of this log have later epochs                |
        | epoch 4, end 18  | 18             | yes   | the leader's epoch is above all epochs of this log       |
        | epoch -1, end -1 | high watermark | yes   | the leader has no epochs                                 |
        """
        log = self.log
        if leader_end.epoch < 0 or leader_end.end_offset < 0:
            end = log.high_watermark if leader_end.end_offset < 0 else leader_end.end_offset
            return min(end, log.log_end_offset), True
        own = log.leader_epochs.end_offset_for(leader_end.epoch, log.log_end_offset)
        if own.epoch < 0:
            # The leader's epoch is above all epochs of this log, so the leader has this log up to its own end.
            return min(leader_end.end_offset, log.log_end_offset), True
        if own.epoch != leader_end.epoch:
            return min(own.end_offset, log.log_end_offset), False
        return min(own.end_offset, leader_end.end_offset, log.log_end_offset), True

    # -- leading followers -----------------------------------------------------------------------------------------

    def get_replica(self, fetch: FollowerFetch) -> Replica:
        """Return the follower that sends a fetch. Raises KafkaError for a broker without a replica or of an old broker
        epoch."""
        if self.followers is None:
            code = ErrorCode.UNKNOWN_LEADER_EPOCH if fetch.knows_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER
            raise KafkaError(code, f"{self.topic_partition} has no other replica")
        replica = self.followers.replica(fetch.replica_id, knows_epoch=fetch.knows_epoch)
        replica.check_epoch(fetch.broker_epoch)
        return replica

    def update_follower_fetch_state(self, fetch: FollowerFetch) -> Replica:
        """Update and return the follower that sends a fetch: it has all records below its fetch offset.

        The follower may join the ISR, and the high watermark may rise. Raises KafkaError as `get_replica`.
        """
        replica, followers, leader_context = self.get_replica(fetch), self.followers, self._leader_context
        assert followers is not None
        assert leader_context is not None
        log = self.log
        before, started = replica.log_end_offset, replica.log_start_offset
        replica.update_fetch_state(fetch, log.log_end_offset, leader_context.now())
        grown = followers.expanded_isr(replica, log.high_watermark)
        if grown is not None:
            self._submit_isr_change(followers, grown)
        if fetch.offset != before or log.high_watermark < fetch.offset:
            # A replica outside of the ISR that was about to join, and so counted, may have stopped since.
            self._maybe_increment_leader_hw()
        if fetch.log_start_offset != started:
            self._replica_manager.try_complete_delayed_deletes(self)
        return replica

    def shrink_isr(self) -> None:
        """Request the removal of replicas from the ISR that have not caught up for `replica.lag.time.max.ms`.

        Raises the high watermark, which a stopped replica that was about to join the ISR may have held back.
        """
        followers = self.followers
        if followers is not None and not self.is_offline:
            shrunk = followers.shrunken_isr(self.log.log_end_offset)
            if shrunk is not None:
                self._submit_isr_change(followers, shrunk)
            self._maybe_increment_leader_hw()

    def _submit_isr_change(self, followers: Followers, isr: tuple[int, ...]) -> None:
        change = IsrChange(
            self.topic_partition,
            self.leader_epoch,
            self.partition_epoch,
            isr,
            followers.broker_epochs(isr),
            topic_id=self.topic_id,
        )
        followers.pending = change
        self._replica_manager.submit_isr_change(self, change)

    def is_pending(self, change: IsrChange) -> bool:
        """Whether the change is still the pending one."""
        return self.followers is not None and self.followers.pending is change

    def complete_isr_change(self, change: IsrChange, now: LeaderAndIsr) -> None:
        """Apply the state that the controller has committed for a change, unless a newer LeaderAndIsr has arrived."""
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
        try:
            self._check_isr()
        except InvariantViolationError as error:
            self._replica_manager.log_failed(error)
            return
        if not self._maybe_increment_leader_hw():
            self._replica_manager.try_complete_delayed_requests(self)

    def fail_isr_change(self, change: IsrChange, error: ErrorCode) -> None:
        """Drop a refused change; unless it was certainly not made, both ISRs count until the next LeaderAndIsr."""
        if error in ISR_UNCHANGED_ERRORS and self.followers is not None and self.followers.pending is change:
            self.followers.pending = None
            self._maybe_increment_leader_hw()

    @property
    def low_watermark(self) -> int:
        """The lowest log start offset of the live replicas."""
        start = self.log.log_start_offset
        return start if self.followers is None else self.followers.low_watermark(start)

    # -- reading ---------------------------------------------------------------------------------------------------

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Fence a client whose leader epoch differs (KIP-320); -1 skips the check.

        Raises KafkaError FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH or NOT_LEADER_OR_FOLLOWER.
        """
        self.fence(current_leader_epoch)
        if not self.is_leader:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker is not the leader of {self.topic_partition}"
            )

    def fence(self, current_leader_epoch: int) -> None:
        """Check a leader epoch as `check_leader_epoch`, also on a follower."""
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"the leader epoch is {self.leader_epoch}")
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"the leader epoch is {self.leader_epoch}")

    @property
    def log_start_offset(self) -> int:
        """The first offset of the log."""
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset of the next append."""
        return self.log.log_end_offset

    @property
    def high_watermark(self) -> int:
        """The offset below which all records are committed."""
        return self.log.high_watermark

    def read_bound(self, isolation: FetchIsolation) -> int:
        """Return the exclusive upper bound of reads."""
        if isolation is _HIGH_WATERMARK:
            return self.log.high_watermark
        return self.log.last_stable_offset if isolation is _TXN_COMMITTED else self.log.log_end_offset

    def bytes_between(self, offset: int, bound: int) -> int:
        """Return the bytes of the batches from `offset` up to `bound`: see `Log.bytes_between`, also for errors."""
        return self.log.bytes_between(offset, bound)

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        min_one_batch: bool,
        isolation: FetchIsolation,
        hard_limit: bool = False,
        as_file_slice: bool = False,
    ) -> FetchData:
        """Read from the batch of `offset` on up to the bound of `isolation`: see `Log.read`, also for errors."""
        return self.log.read(
            offset,
            max_bytes,
            max_offset=self.read_bound(isolation),
            min_one_message=min_one_batch,
            hard_limit=hard_limit,
            read_committed=isolation is _TXN_COMMITTED,
            as_file_slice=as_file_slice,
        )

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """Return (largest known epoch at or below `epoch`, its end offset), or (-1, -1) if it is unknown."""
        return self.log.leader_epochs.end_offset_for(epoch, self.log.log_end_offset)

    def find_diverging_epoch(self, last_fetched_epoch: int, fetch_offset: int) -> EpochEnd | None:
        """Return the epoch and offset from which a reader's log differs, if below its fetch offset (KIP-595), else
        None.

        Raises KafkaError OFFSET_OUT_OF_RANGE.
        """
        end = self.end_offset_for_epoch(last_fetched_epoch)
        if end.epoch < 0 or end.end_offset < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"no epoch up to {last_fetched_epoch} is in the log")
        return end if end.epoch < last_fetched_epoch or end.end_offset < fetch_offset else None

    def fetch_offset_for_timestamp(self, timestamp: int, isolation: FetchIsolation) -> Steps[FoundOffset]:
        """Find the first record that is not older, or the offset of a special timestamp. Raises LogDirFailedError."""
        # The greatest timestamp may take as many steps as a segment has batches; everything else takes none.
        log = self.log
        if timestamp == LATEST:
            self._check_bound_is_known(isolation)
            return FoundOffset(self.read_bound(isolation), leader_epoch=self.leader_epoch)
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            start = log.log_start_offset
            return FoundOffset(start, leader_epoch=log.leader_epochs.epoch_for_offset(start))
        found = None
        if timestamp == MAX_TIMESTAMP:
            found = yield from log.find_max_timestamp()
        elif timestamp >= 0:
            found = log.fetch_offset_by_timestamp(timestamp)
        if found is None or found.offset >= self.read_bound(isolation):
            self._check_bound_is_known(isolation)
            return FoundOffset()
        return FoundOffset(found.offset, found.timestamp, log.leader_epochs.epoch_for_offset(found.offset))

    def _check_bound_is_known(self, isolation: FetchIsolation) -> None:
        """Raise KafkaError OFFSET_NOT_AVAILABLE while a new leader's high watermark may be lower than consumers have
        seen."""
        followers = self.followers
        if followers is not None and isolation is not _LOG_END and self.log.high_watermark < followers.epoch_start:
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

        It is on disk once `ReplicaManager.checkpoint_log_start_offsets` has returned.
        Raises KafkaError: OFFSET_OUT_OF_RANGE beyond the high watermark, POLICY_VIOLATION on a compacted topic.
        """
        if self.log.config.compact and not self.log.config.delete:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "records of a topic that is only compacted cannot be deleted")
        target = self.log.high_watermark if offset == -1 else offset
        if not 0 <= target <= self.log.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset}; the high watermark is {self.log.high_watermark}"
            )
        self.log.maybe_increment_log_start_offset(target)
        return self.log.log_start_offset


def _pieces(records: memoryview, most: int) -> Iterator[memoryview]:
    """Yield whole batches, up to `most` bytes together, or one larger batch. Raises KafkaError CORRUPT_MESSAGE."""
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
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"after {end} valid bytes: {error}") from error
    yield records[start:end]
