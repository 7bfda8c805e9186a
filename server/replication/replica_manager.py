"""Kafka's ReplicaManager: the replicas of this broker, and every append and read of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ...common.room_logger import room_logger
from ...protocol.batch_header import TRANSACTIONAL_MASK
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.schema import ZERO_UUID
from ...protocol.topic_partition import TopicPartition
from ...storage.errors import LogDirFailedError, LogFailedError, NoSpaceError
from ...storage.held_logs import AllLogDirsFailedError
from ...storage.log_dir import LOG_START_OFFSET_CHECKPOINT
from ...storage.log_validator import AppendOrigin, HeavyRecordsError
from ..metadata.topic_names import INTERNAL_TOPICS, is_internal
from ..runtime.log_limit import LimitedLog
from ..runtime.loop_sharing import (
    ITEMS_PER_TURN,
    SHORT_SLICE_SECONDS,
    SLICE_SECONDS,
    CountBudget,
    SlicedWork,
    Steps,
    TimeBudget,
    raise_error,
)
from ..runtime.scheduler import BackgroundWork, IsolatedWork
from ..runtime.write_queue import MIN_COUNTED_SECONDS
from .append_request import (
    NO_RECORDS,
    AppendCallback,
    AppendEntry,
    AppendRequest,
    AppendResult,
    SuspendedAppend,
    SuspendedAppends,
)
from .delayed_delete_records import DelayedDeleteRecords
from .delayed_fetch import (
    CONSUMER,
    AwaitedRead,
    DelayedFetch,
    FetchCallback,
    FetchedPartition,
    FetchParams,
    FetchResult,
    LongFetch,
    must_respond,
    share_result,
)
from .delayed_operation import DelayedOperationPurgatory
from .delayed_produce import AwaitedAppend, DelayedProduce
from .described_log_dirs import DescribedLogDir, describe_log_dirs
from .group_commit import GroupCommit
from .partition import NO_LEADER, NO_LEADER_EPOCH, FoundOffset, Partition
from .replica import FollowerFetch
from .verification_guards import ATTRIBUTES_LOW_BYTE, VerificationGuards

if TYPE_CHECKING:
    from ...protocol.messages.fetch import FetchPartition
    from ...storage.filesystem import Sendable
    from ...storage.lane_task import LaneTask
    from ...storage.leader_epochs import EpochEnd
    from ...storage.log_config import LogConfig
    from ...storage.log_manager import LogManager
    from ...storage.log_validator import LaneValidation, Validate
    from ...storage.log_values import FetchIsolation
    from ...storage.producer_state import ProducerStateEntry
    from ..metadata.metadata_cache import MetadataCache
    from ..runtime.ports import Ports
    from ..runtime.write_queue import WriteQueue
    from .isr_change_sender import IsrChangeSender
    from .leader_and_isr import IsrChange, LeaderAndIsrState
    from .replica import LeaderContext
    from .replica_fetcher_manager import ReplicaFetcherManager
    from .replica_selector import RackAwareReplicaSelector
    from .replication_throttle import LeaderThrottle

logger = room_logger("replication")

ROLES_PER_TURN = 16
"""Partitions of this broker that get another role, are stopped, or are deleted, at most."""
READ_PARTITIONS_PER_TURN = 500
"""Partitions of a fetch that are read: a millisecond or two."""
RETENTION_LOGS_PER_TURN = 64
"""Logs whose oldest segments are checked by retention."""
RETENTION_SEGMENTS_PER_TURN = 64
"""Segments of all logs whose files retention renames: each has four files."""
CLIENT = AppendOrigin.CLIENT
"""A module name, because Python 3.11 takes ten times as long to find a member of an enum class."""
FOLLOWER_WAIT_AFTER_ELECTION_MS = 50
"""The longest wait of fetches of followers in the `ELECTION_SECONDS` after this broker was elected, in ms."""
ELECTION_SECONDS = 1.0
"""The time within which followers receive the metadata with the new leaders and add the partitions to their fetches."""
LONGEST_WAIT_MS = 300_000
"""The longest wait of a fetch, even if the client requests more."""
FLUSH_SECONDS = 60.0
"""The time for which `close_active_segment` waits for a flush."""
FLUSH_CHECK_SECONDS = 0.005
MIN_DISK_WAIT_MS = 1000
"""The time for which DeleteRecords waits for the disk, even if the timeout of the request is shorter."""


class ReplicaManager:
    """Kafka's ReplicaManager. Owned by the broker; runs on the event loop, and blocking work on one lane per log
    directory.

    An operation on several partitions returns a result or a KafkaError for each: a fault in one partition, or a failing
    disk, does not affect the others.
    """

    def __init__(
        self,
        *,
        log_manager: LogManager,
        metadata: MetadataCache,
        topic_log_config: Callable[[str], LogConfig],
        ports: Ports,
        sliced_work: SlicedWork,
        write_queue: WriteQueue,
        loop: asyncio.AbstractEventLoop,
        acks_all_on_disk: bool,
        is_verification_needed: Callable[[], bool],
        on_partitions_lost: Callable[[list[TopicPartition]], None],
        on_all_failed: Callable[[], None],
        on_no_space: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`on_no_space` is called with the path of a log directory whenever it has no space for a write."""
        self._log_manager = log_manager
        log_manager.held.on_dir_failure = self._on_offline
        self._metadata = metadata
        self._topic_log_config = topic_log_config
        self._ports = ports
        self._sliced_work = sliced_work
        self.write_queue = write_queue
        """The requests that wait to append while the disk is slow."""
        self._loop = loop
        self.acks_all_on_disk = acks_all_on_disk
        """Whether acks=-1 promises that records are on disk."""
        self._on_partitions_lost = on_partitions_lost
        self._on_all_failed = on_all_failed
        self._on_no_space = on_no_space
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._partitions_by_topic: dict[str, dict[TopicPartition, Partition]] = {}
        self.failures = 0
        """The number of partitions that were not served because of an unexpected exception."""
        self._failure_log = LimitedLog(logger, loop.time)
        """Limited, because one request may fail in the same way in thousands of partitions."""
        self._produce_purgatory = DelayedOperationPurgatory("Produce", loop, sliced_work)
        self._fetch_purgatory = DelayedOperationPurgatory("Fetch", loop, sliced_work, checks_later=True)
        """Where many consumers wait, the producer's response is sent before theirs, as in Kafka."""
        self._delete_records_purgatory = DelayedOperationPurgatory("DeleteRecords", loop, sliced_work)
        self.share_fetch_purgatory = DelayedOperationPurgatory("ShareFetch", loop, sliced_work)
        """Share fetches, by partition and by group and partition."""
        self._purgatories = (
            self._produce_purgatory,
            self._fetch_purgatory,
            self._delete_records_purgatory,
            self.share_fetch_purgatory,
        )
        self.group_commit = GroupCommit(ports, loop, self.log_dir_failed, self.log_failed, on_no_space)
        self._suspended = SuspendedAppends(ports.work, sliced_work, write_queue)
        self._background = BackgroundWork()
        self.verification_guards = VerificationGuards(is_verification_needed)
        self._flush_waiters: dict[Partition, list[tuple[int, asyncio.Future[None]]]] = {}
        """The followers whose fetchers wait for a flush, each with the offsets that must be on disk."""
        self._last_shared_read: tuple[Any, ...] | None = None
        """The state of the log, and the parameters, of the last read for a consumer that has waited. Consumers at the
        end of a log often wait with equal fetches, and one read is sufficient for all of them. `_last_shared_result`
        is its result."""
        self._last_shared_result = FetchedPartition(b"", 0, 0, 0)
        self._appended: dict[TopicPartition, None] = {}
        """Partitions with appends in this turn for which fetches of followers may wait."""
        self._role_change_listeners: list[Callable[[TopicPartition], None]] = []
        self._election_ends = 0.0
        """The loop time until which fetches of followers wait for at most `FOLLOWER_WAIT_AFTER_ELECTION_MS`."""
        # A broker without other brokers has none of these.
        self._leader_context: LeaderContext | None = None
        self._isr_change_sender: IsrChangeSender | None = None
        self._fetchers: ReplicaFetcherManager | None = None
        self._throttle: LeaderThrottle | None = None
        self._selector: RackAwareReplicaSelector | None = None

    def join_cluster(
        self,
        leader_context: LeaderContext,
        isr_change_sender: IsrChangeSender,
        fetchers: ReplicaFetcherManager,
        *,
        throttle: LeaderThrottle,
        selector: RackAwareReplicaSelector | None,
    ) -> None:
        """Set the parts that replicate to and from other brokers, before the first LeaderAndIsr.

        `selector` sends consumers to replicas in their racks, if the broker is configured to.
        """
        self._leader_context = leader_context
        self._isr_change_sender = isr_change_sender
        self._fetchers = fetchers
        self._throttle = throttle
        self._selector = selector

    def loop_time(self) -> float:
        """Return monotonic seconds."""
        return self._loop.time()

    def on_flushed(self, listener: Callable[[float], None] | None) -> None:
        """Call `listener` after each round of flushes with the seconds that it took."""
        self.group_commit.on_flushed = listener

    def on_role_change(self, listener: Callable[[TopicPartition], None]) -> None:
        """Call `listener` whenever the role of a replica changes."""
        self._role_change_listeners.append(listener)

    @property
    def delayed_operations(self) -> dict[str, int]:
        """The number of waiting requests of each kind."""
        return {purgatory.name: len(purgatory) for purgatory in self._purgatories}

    def check_invariants(self) -> None:
        """Check the invariants of all online partitions and of all purgatories; for tests and simulations.

        Raises InvariantViolationError for a partition, AssertionError for a purgatory.
        """
        for partition in self.partitions:
            if not partition.is_offline:
                partition.check_invariants()
        for purgatory in self._purgatories:
            purgatory.check_invariants()

    # -- partitions ------------------------------------------------------------------------------------------------

    @property
    def partitions(self) -> Iterator[Partition]:
        return iter(list(self._partitions.values()))

    def get_partition(self, topic: str, index: int) -> Partition | None:
        """Return this broker's replica in any role."""
        return self._partitions.get((topic, index))

    def get_leader_partition(self, topic: str, index: int) -> Partition:
        """Return the replica that this broker leads.

        Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR.
        """
        partition = self._partitions.get((topic, index))
        if partition is None or not partition.is_leader or partition.is_offline:
            raise self._not_leader_error(topic, index)
        return partition

    def _not_leader_error(self, topic: str, index: int) -> KafkaError:
        """Return the reason why this broker cannot serve a partition."""
        partition = self._partitions.get((topic, index))
        if partition is not None and partition.is_offline:
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory of {topic}-{index} has failed")
        if partition is not None:
            return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {topic}-{index}")
        if self._metadata.partition(TopicPartition(topic, index)) is not None:
            return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{index} has no replica on this broker")
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")

    def _add_partition(self, partition: Partition) -> None:
        name = partition.topic_partition
        self._partitions[name] = partition
        self._partitions_by_topic.setdefault(name.topic, {})[name] = partition

    def _remove_partition(self, name: TopicPartition) -> Partition | None:
        partition = self._partitions.pop(name, None)
        if partition is not None:
            others = self._partitions_by_topic[name.topic]
            del others[name]
            if not others:
                del self._partitions_by_topic[name.topic]
        return partition

    @contextmanager
    def _as_kafka_error(self, topic: str, index: int) -> Iterator[None]:
        """Turn any exception of work on one partition into the KafkaError for it."""
        try:
            yield
        except KafkaError:
            raise
        except Exception as error:
            raise self.partition_error(error, topic, index) from error

    def partition_error(self, error: Exception, topic: str, index: int) -> KafkaError:
        """Return the result for a partition in which reading or writing raised `error`, and log unexpected exceptions.

        The other partitions of the request are served: Kafka's ReplicaManager.appendToLocalLog and readFromLog.
        """
        if isinstance(error, NoSpaceError):
            self._on_no_space(error.directory)
            return KafkaError(error.code, error.message)
        if isinstance(error, KafkaError):
            return error
        if isinstance(error, LogDirFailedError):
            return self._storage_error(error)
        self.failures += 1
        self._failure_log.write(logging.ERROR, "%s-%d could not be served", topic, index, error=error)
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker failed to serve the partition")

    def _storage_error(self, error: LogDirFailedError) -> KafkaError:
        """Take a failed log directory or log offline, and return the error for the client."""
        self.log_failed(error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    # -- roles -----------------------------------------------------------------------------------------------------

    async def prepare_logs(self, topic_ids: Mapping[TopicPartition, UUID]) -> None:
        """Create and sync the directories of new partitions on the lanes of their log directories, for
        `become_leader`."""
        tasks: list[LaneTask] = []
        with suppress(AllLogDirsFailedError):
            named = {name: topic_id for name, topic_id in topic_ids.items() if topic_id.int}  # comparing UUIDs is slow
            tasks = self._log_manager.creation.preparation_tasks(named)
        for task in tasks:
            try:
                await self._ports.work.run(task.lane, task)
            except (OSError, LogDirFailedError) as error:
                # `become_leader` tries each partition again and reports its error.
                logger.warning("new partitions could not be prepared: %s", error)

    @property
    def are_log_dirs_online(self) -> bool:
        """Whether all log directories are online: then a partition without a log has none in another directory."""
        held = self._log_manager.held
        return len(held.online_dirs) == len(held.dirs)

    def new_role_budget(self) -> TimeBudget:
        """Return the budget of work that changes the roles of many partitions: their requests are not urgent."""
        return TimeBudget(self._ports.stopwatch, least=SHORT_SLICE_SECONDS, items=ROLES_PER_TURN)

    def become_leader(self, partition_state: LeaderAndIsrState) -> None:
        """Lead a partition, creating its log where there is none (LeaderAndIsr for a leader).

        Raises KafkaError KAFKA_STORAGE_ERROR if no log directory can hold it, STALE_CONTROLLER_EPOCH for a request
        older than the partition's leader epoch.
        """
        partition = self._get_or_create_partition(partition_state)
        if self._fetchers is not None and partition_state.leader_epoch > partition.leader_epoch:
            self._fetchers.remove_fetcher_for_partition(partition_state.topic_partition)
        partition.become_leader(partition_state)
        self._role_changed(partition)

    def become_follower(self, partition_state: LeaderAndIsrState) -> None:
        """Follow a partition's leader, -1 while there is none (LeaderAndIsr for a follower).

        Raises as `become_leader`.
        """
        partition = self._get_or_create_partition(partition_state)
        if partition.become_follower(partition_state):
            self.verification_guards.remove_partition(partition_state.topic_partition)
            self._role_changed(partition)
            if self._fetchers is not None:
                self._fetchers.add_fetcher_for_partition(partition)

    def on_leaders_elected(self, followers: Iterable[int]) -> None:
        """Respond to the waiting fetches of brokers that follow new leaders on this broker, and shorten the waits of
        their next fetches.

        A follower cannot add partitions to a fetch that waits for records, which takes up to
        `replica.fetch.wait.max.ms`. With Kafka's leaders, requests with acks=-1 wait for its end after each election.
        """
        self._election_ends = self._loop.time() + ELECTION_SECONDS
        for broker_id in followers:
            self._fetch_purgatory.force_complete(broker_id)

    def rebuild_index(self, steps: Steps[None]) -> None:
        """Rebuild a damaged index of a segment in steps, between which other requests are served."""
        self._sliced_work.run(steps, raise_error)

    def _get_or_create_partition(self, partition_state: LeaderAndIsrState) -> Partition:
        """Return the partition of a LeaderAndIsr request, created if this broker has none. Raises KafkaError."""
        name, topic_id = partition_state.topic_partition, partition_state.topic_id
        is_named = topic_id != ZERO_UUID  # else the controller is older than topic ids
        partition = self._partitions.get(name)
        if partition is None:
            config = self._topic_log_config(name.topic)
            try:
                log = self._log_manager.creation.get_or_create_log(
                    name, topic_id=topic_id if is_named else None, config=config, is_new=partition_state.is_new
                )
            except (OSError, LogDirFailedError, AllLogDirsFailedError) as error:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"no log for {name}: {error}") from error
            log.rebuild_indexes_in_steps(self.rebuild_index)
            partition = Partition(name, log.topic_id or topic_id, log, self, self._leader_context)
            self._add_partition(partition)
        elif is_named and partition.topic_id == ZERO_UUID:
            partition.log.assign_topic_id(topic_id)
            partition.topic_id = topic_id
        elif is_named and partition.topic_id != topic_id:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, f"the topic id of {name} is {partition.topic_id}")
        if partition_state.leader_epoch < partition.leader_epoch:
            reason = f"leader epoch {partition_state.leader_epoch} for {name} is older than {partition.leader_epoch}"
            raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH, reason)
        if partition.is_offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory of {name} has failed")
        return partition

    def _role_changed(self, partition: Partition) -> None:
        """Complete requests that wait with an older epoch, and call the listeners for the new role."""
        _complete(self._flush_waiters.pop(partition, ()))
        self.try_complete_delayed_requests(partition)
        self.try_complete_delayed_deletes(partition)
        for listener in self._role_change_listeners:
            listener(partition.topic_partition)

    async def stop_replicas(
        self, topic_partitions: Iterable[TopicPartition], *, delete: bool
    ) -> dict[TopicPartition, ErrorCode]:
        """Stop serving replicas; with `delete` their directories are renamed before this returns (StopReplica).

        The new names are made durable together, by one sync in each log directory.
        """
        results: dict[TopicPartition, ErrorCode] = {}
        renamed: dict[str, tuple[LaneTask, list[TopicPartition]]] = {}
        budget = self.new_role_budget()
        for topic_partition in topic_partitions:
            self._stop_replica(topic_partition)
            results[topic_partition] = ErrorCode.NONE
            if delete:
                try:
                    task = self._log_manager.delete_log(topic_partition)
                    if task is not None:
                        renamed.setdefault(task.lane, (task, []))[1].append(topic_partition)
                except (OSError, AllLogDirsFailedError, KafkaError) as error:
                    logger.warning("%s could not be deleted: %s", topic_partition, error)
                    results[topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
            await budget.step()
        for task, deleted in renamed.values():
            try:
                await self._ports.work.run(task.lane, task)
            except (OSError, LogDirFailedError) as error:
                results |= dict.fromkeys(deleted, ErrorCode.KAFKA_STORAGE_ERROR)
                if isinstance(error, LogDirFailedError):
                    # Without the sync the next start may find the directories under their old names.
                    self._log_manager.held.offline |= dict.fromkeys(deleted, error)
                    self.log_failed(error)
        return results

    def _stop_replica(self, topic_partition: TopicPartition) -> None:
        partition = self._remove_partition(topic_partition)
        if partition is not None:
            if self._fetchers is not None:
                self._fetchers.remove_fetcher_for_partition(topic_partition)
            partition.resign()
            self.group_commit.forget(partition)
            self.verification_guards.remove_partition(topic_partition)
            self._role_changed(partition)

    # -- appending -------------------------------------------------------------------------------------------------

    def append_records(
        self, entries: Iterable[AppendEntry], request: AppendRequest, *, suspended: SuspendedAppend | None = None
    ) -> SuspendedAppend | None:
        """Append to partitions that this broker leads, each succeeding or failing on its own.

        Return the append of the remaining entries, which have been copied; None if there are none.

        Kafka's ReplicaManager.appendRecords. The request's callback gets a result for each entry, in their order. It is
        called before this returns, unless acks are -1 and the disk or other replicas are waited for, or acks are 1 and
        `flush.messages` requires a flush, or the appends take too long for one turn, or a client's records are too
        heavy for the loop's thread. Records of a client are appended to a partition after all that arrived for it
        earlier. `suspended` holds the state of earlier turns. As in Kafka, a missing partition is reported before any
        fault of the request.
        """
        results: list[AppendResult] = []
        awaited: list[AwaitedAppend] = []
        waiting, stopwatch = self._suspended.waiting, self._ports.stopwatch
        validate: Validate = request.validate
        callback = request.callback
        entries, is_client = iter(entries), request.rules.origin is CLIENT
        acks = request.acks
        began = stopwatch()
        if suspended is not None:
            entries, validate = suspended.remaining_entries(), suspended.take_validation()
        for entry in entries:
            topic, index, records = entry
            if (results or waiting) and (
                (results and stopwatch() - began >= SLICE_SECONDS) or (is_client and (topic, index) in waiting)
            ):
                suspended = self._suspend(suspended, entry, entries)
                break
            try:
                partition = self._partitions.get((topic, index))
                if partition is None or not partition.is_leader or partition.is_offline:
                    raise self._not_leader_error(topic, index)
                if is_client:
                    if not -1 <= acks <= 1:
                        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}; expected -1, 0 or 1")
                    self._check_client_records(entry, partition, request)
                info = partition.append_records_to_leader(records, request, validate)
            except HeavyRecordsError:
                suspended = self._suspend(suspended, entry, entries)
                suspended.validation = self._lane_validation(suspended.next_entry, request)
                break
            except Exception as error:  # noqa: BLE001 - a fault in one partition must not affect the others
                # Not in a local: the traceback of the error refers to this frame, which would be a cycle per request.
                last = results[-1] if results else None
                results.append(share_result(last, self.partition_error(error, topic, index)))
            else:
                is_uncommitted = acks and info.last_offset >= partition.log.high_watermark
                if is_uncommitted and (acks == -1 or not partition.check_flushed(info.last_offset + 1)[0]):
                    awaited.append((partition, info.last_offset + 1, len(results)))
                results.append(info)
            validate = request.validate
        # A joint append without valid batches does not count: its requests are then handled one by one.
        if (seconds := stopwatch() - began) >= MIN_COUNTED_SECONDS and any(map(_is_written, results)):
            self.write_queue.add_time(seconds)
        if suspended is not None:
            callback = suspended.add_part(callback)
            if suspended.has_entries:
                self._suspended.resume_later(suspended, partial(self._resume_append, suspended, request))
            else:
                suspended.release_memory()
        if not awaited:
            callback(results)
        else:
            self._await_appends(results, awaited, callback, request)
        return suspended

    def run_in_turn(self, append: Callable[[], None]) -> None:
        """Call a function that appends: immediately, or in its turn while the disk is slow, as in `WriteQueue`."""
        self._suspended.run_in_turn(append)

    def append_jointly(self, topic: str, index: int, request: AppendRequest) -> None:
        """Append the batches of several produce requests, which the request's `JointAppend` finds, with one write.

        As `append_records`, but the callback gets a single result for all batches; it is an error if no batch was
        appended.
        """
        if self._suspended.waiting:
            # A suspended append may have earlier records for this partition, which must be appended first.
            request.callback([KafkaError(ErrorCode.REQUEST_TIMED_OUT, "other appends are suspended")])
        else:
            self.append_records([(topic, index, NO_RECORDS)], request)

    def _check_client_records(self, entry: AppendEntry, partition: Partition, request: AppendRequest) -> None:
        """Raise KafkaError for records that a client may not append, whichever broker leads the partition."""
        topic, _, records = entry
        if topic in INTERNAL_TOPICS and not request.internal_topics_allowed:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is an internal topic")
        if len(records) > ATTRIBUTES_LOW_BYTE and records[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_MASK:
            self.verification_guards.check(partition, records, in_transaction=request.has_transactional_id)

    def _await_appends(
        self,
        results: list[AppendResult],
        awaited: list[AwaitedAppend],
        callback: AppendCallback,
        request: AppendRequest,
    ) -> None:
        """Call back once the awaited appends are decided.

        The append of a single entry was seen to be undecided in this turn, so only several are checked again.
        """
        appends: dict[Hashable, list[AwaitedAppend]]
        if len(awaited) == 1:  # as most
            appends = {awaited[0][0].topic_partition: awaited}
        else:
            appends = {}
            for append in awaited:
                appends.setdefault(append[0].topic_partition, []).append(append)
        waiting = DelayedProduce(appends, request.acks, results, callback)
        if len(results) == 1 or not waiting.try_complete():
            self._produce_purgatory.watch(waiting, appends, request.timeout_ms)

    def _resume_append(self, suspended: SuspendedAppend, request: AppendRequest) -> None:
        self.append_records((), request, suspended=suspended)

    def _suspend(
        self, suspended: SuspendedAppend | None, entry: AppendEntry, entries: Iterator[AppendEntry]
    ) -> SuspendedAppend:
        """Return an append that continues with this entry later."""
        suspended = suspended or SuspendedAppend()
        suspended.keep(entry, entries)
        return suspended

    def _lane_validation(self, entry: AppendEntry, request: AppendRequest) -> LaneValidation | None:
        topic, index, records = entry
        partition = self._partitions.get((topic, index))
        return None if partition is None else partition.lane_validation(records, request, self._ports.now_ms())

    # -- reading ---------------------------------------------------------------------------------------------------

    def fetch_records(
        self, params: FetchParams, callback: FetchCallback, *, on_resume: Callable[[], None] | None = None
    ) -> DelayedFetch | LongFetch | None:
        """Read partitions that this broker leads; `callback` gets a result for each, in order.

        Kafka's ReplicaManager.fetchMessages. Calls back before it returns if there are `min_bytes` or anything else to
        report, unless there are very many partitions. Otherwise returns the waiting fetch, to be cancelled if the
        reader disconnects; after the wait it calls `on_resume` and reads again.
        """
        if len(params.partitions) > READ_PARTITIONS_PER_TURN:
            fetch = LongFetch()

            def answer_or_wait(results: list[FetchResult], total: int) -> None:
                fetch.waiting = self._answer_or_wait(params, callback, on_resume, results, total, fetch=fetch)

            self._read_in_turns(params, answer_or_wait, fetch)
            return fetch
        return self._answer_or_wait(params, callback, on_resume, *self._read(params, params.partitions))

    def _answer_or_wait(
        self,
        params: FetchParams,
        callback: FetchCallback,
        on_resume: Callable[[], None] | None,
        results: list[FetchResult],
        total: int,
        *,
        fetch: LongFetch | None = None,
    ) -> DelayedFetch | None:
        """Call back, or wait until there are `min_bytes`."""
        if params.max_wait_ms <= 0 or total >= params.min_bytes or not params.partitions or must_respond(results):
            callback(results)
            return None
        reads: dict[TopicPartition, AwaitedRead] = {}
        for topic, wanted in params.partitions:
            partition = self._partitions.get((topic, wanted.partition))
            if partition is None:  # deleted since an earlier turn read it
                callback(results)
                return None
            if params.follower != CONSUMER and self._holds_back(partition, params.follower):
                continue  # its records do not complete the fetch
            reads[partition.topic_partition] = AwaitedRead(
                partition,
                wanted.fetch_offset,
                wanted.partition_max_bytes,
                partition.leader_epoch,
                partition.is_leader,
            )

        # Records are not kept in memory while the fetch waits for more.
        former = None if total else results

        def respond() -> None:
            if on_resume is not None:
                on_resume()
            params.has_waited = True
            if fetch is not None:
                self._read_in_turns(params, lambda results, _: callback(results), fetch)
            else:
                callback(self._read(params, params.partitions, former=former)[0])

        waiting = DelayedFetch(reads, min_bytes=params.min_bytes, isolation=params.isolation, respond=respond)
        if not waiting.try_complete():
            keys: list[Hashable] = list(reads)
            wait_ms = min(params.max_wait_ms, LONGEST_WAIT_MS)
            if params.follower != CONSUMER:
                keys.append(params.follower)
                if self._loop.time() < self._election_ends:
                    wait_ms = min(wait_ms, FOLLOWER_WAIT_AFTER_ELECTION_MS)
            self._fetch_purgatory.watch(waiting, keys, wait_ms)
        return waiting

    def _read_in_turns(
        self, params: FetchParams, done: Callable[[list[FetchResult], int], object], fetch: LongFetch
    ) -> None:
        """Call `_read` for very many partitions in several loop turns; end early if the fetch is cancelled."""

        def steps() -> Steps[None]:
            results: list[FetchResult] = []
            total = 0
            for first in range(0, len(params.partitions), READ_PARTITIONS_PER_TURN):
                some, size = self._read(params, params.partitions[first : first + READ_PARTITIONS_PER_TURN], total)
                results += some
                total += size
                yield
                if fetch.is_cancelled:
                    return
            done(results, total)

        self._sliced_work.run(steps(), raise_error)

    def _read(
        self,
        params: FetchParams,
        partitions: Sequence[tuple[str, FetchPartition]],
        before: int = 0,
        former: Sequence[FetchResult] | None = None,
    ) -> tuple[list[FetchResult], int]:
        """Read these partitions in order within the limits, and return the results and their bytes.

        `before` is the number of bytes that earlier turns have read. `former` results of the same request are kept
        where nothing has changed.
        """
        budget, total, whole_batch = max(0, params.max_bytes - before), 0, not params.hard_limit and not before
        # Before all reads: an acknowledged producer's next request is often received already and appended immediately,
        # and this response then has its records, too.
        updated = self._update_follower_fetch_states(params, partitions) if params.follower != CONSUMER else None
        results: list[FetchResult] = []
        for position, (topic, wanted) in enumerate(partitions):
            if former is not None and self._is_unchanged(former[position], topic, wanted, params.isolation):
                results.append(former[position])
                continue
            try:
                found = self._read_partition(
                    topic,
                    wanted,
                    params,
                    min(wanted.partition_max_bytes, budget),
                    whole_batch,
                    is_offset_applied=updated is not None and position in updated,
                )
            except Exception as error:  # noqa: BLE001 - a fault in one partition must not affect the others
                last = results[-1] if results else None
                results.append(share_result(last, self.partition_error(error, topic, wanted.partition)))
                continue
            results.append(found)
            size = len(found.records)
            if size:
                total += size
                budget = max(0, budget - size)
                whole_batch = False
        return results, total

    def read_again(self, params: FetchParams) -> list[FetchResult]:
        """Read the partitions of a fetch that has waited once more, for another request that waited with it."""
        assert params.has_waited, "it has been read for the first request"
        return self._read(params, params.partitions)[0]

    def _is_unchanged(self, found: FetchResult, topic: str, wanted: FetchPartition, isolation: FetchIsolation) -> bool:
        """Whether an empty result is still empty, and its offsets are still the same."""
        partition = self._partitions.get((topic, wanted.partition))
        if isinstance(found, KafkaError) or partition is None or not partition.is_leader or partition.is_offline:
            return False
        log = partition.log
        return (
            wanted.fetch_offset == partition.read_bound(isolation)
            and wanted.current_leader_epoch in (partition.leader_epoch, NO_LEADER_EPOCH)
            and found.high_watermark == log.high_watermark
            and found.log_start_offset == log.log_start_offset
            and found.last_stable_offset == log.last_stable_offset
        )

    def _holds_back(self, partition: Partition, follower: int) -> bool:
        return self._throttle is not None and self._throttle.holds_back(partition, follower)

    def _update_follower_fetch_states(
        self, params: FetchParams, partitions: Sequence[tuple[str, FetchPartition]]
    ) -> set[int]:
        """Update the follower where it has new records, and return the positions of these partitions.

        Their high watermarks may rise, which completes produce requests. `_read_partition` updates the follower in the
        other partitions, which may be thousands, and reports the errors of all.
        """
        updated: set[int] = set()
        if params.has_waited:
            return updated
        get_partition, follower = self._partitions.get, params.follower
        for position, (topic, wanted) in enumerate(partitions):
            partition = get_partition((topic, wanted.partition))
            if partition is None or partition.followers is None:
                continue
            replica, log = partition.followers.replicas.get(follower), partition.log
            if replica is None or replica.log_end_offset == wanted.fetch_offset or partition.is_offline:
                continue
            try:
                partition.check_leader_epoch(wanted.current_leader_epoch)
                if (
                    log.log_start_offset <= wanted.fetch_offset <= log.log_end_offset
                    and _diverging_epoch(partition, wanted) is None
                ):
                    partition.update_follower_fetch_state(follower_fetch(wanted, params))
                    updated.add(position)
            except Exception:  # noqa: BLE001, S112 - `_read_partition` finds and reports the same error
                continue
        return updated

    def _read_partition(
        self,
        topic: str,
        wanted: FetchPartition,
        params: FetchParams,
        max_bytes: int,
        whole_batch: bool,
        *,
        is_offset_applied: bool,
    ) -> FetchedPartition:
        """Read one partition. `is_offset_applied`: the follower's offset is applied already. Raises KafkaError for the
        partition's result."""
        partition = self._partitions.get((topic, wanted.partition))
        if partition is None or not partition.is_leader or partition.is_offline:
            if partition is None or partition.is_offline or not params.any_replica or partition.leader == NO_LEADER:
                raise self._not_leader_error(topic, wanted.partition)
            partition.fence(wanted.current_leader_epoch)
        elif wanted.current_leader_epoch >= 0:
            partition.check_leader_epoch(wanted.current_leader_epoch)
        log = partition.log
        diverging = _diverging_epoch(partition, wanted)
        if diverging is not None:
            return FetchedPartition(
                b"", log.high_watermark, log.last_stable_offset, log.log_start_offset, None, diverging
            )
        if params.follower != CONSUMER:
            if wanted.fetch_offset == log.log_end_offset:
                return self._follower_result(partition, wanted, params, b"", is_offset_applied=is_offset_applied)
            if self._holds_back(partition, params.follower):
                max_bytes, whole_batch = 0, False
        if params.rack and self._selector is not None and partition.followers is not None:
            nearer = self._selector.select(partition, wanted.fetch_offset, params.rack, params.listener)
            if nearer is not None:
                ends = log.high_watermark, log.last_stable_offset, log.log_start_offset
                return FetchedPartition(b"", *ends, preferred_read_replica=nearer)
        is_shared = params.has_waited and params.as_file_slice and params.follower == CONSUMER
        if is_shared:
            read = (
                *(partition, partition.leader_epoch, log.log_start_offset, log.log_end_offset, log.high_watermark),
                *(log.last_stable_offset, wanted.fetch_offset, max_bytes, whole_batch, params.isolation),
            )
            if read == self._last_shared_read:
                return self._last_shared_result
        try:
            found = partition.read(
                wanted.fetch_offset,
                max(0, max_bytes),
                min_one_batch=whole_batch,
                isolation=params.isolation,
                hard_limit=params.hard_limit,
                as_file_slice=params.as_file_slice,
            )
        except LogDirFailedError as error:
            raise self._storage_error(error) from error
        if params.follower != CONSUMER:
            return self._follower_result(partition, wanted, params, found.records, is_offset_applied=is_offset_applied)
        aborted = found.aborted_transactions
        result = FetchedPartition(
            found.records, log.high_watermark, log.last_stable_offset, log.log_start_offset, aborted
        )
        if is_shared and type(found.records) is bytes:
            self._last_shared_read, self._last_shared_result = read, result
        return result

    def _follower_result(
        self,
        partition: Partition,
        wanted: FetchPartition,
        params: FetchParams,
        records: Sendable,
        *,
        is_offset_applied: bool,
    ) -> FetchedPartition:
        """Update the follower's log end offset by its fetch offset, and return its result. Raises KafkaError.

        If `is_offset_applied`, and after a wait of the fetch, the offset is not applied again.
        """
        log, throttle, fetch = partition.log, self._throttle, follower_fetch(wanted, params)
        is_applied = is_offset_applied or params.has_waited
        replica = partition.get_replica(fetch) if is_applied else partition.update_follower_fetch_state(fetch)
        if throttle is not None and records:
            throttle.record_sent(partition, params.follower, len(records))
        high_watermark = log.high_watermark
        result = FetchedPartition(records, high_watermark, log.last_stable_offset, log.log_start_offset)
        # Consumers that read from the follower see a record only after the follower has received the high watermark.
        result.is_immediate = self._selector is not None and replica.last_sent_high_watermark < high_watermark
        replica.last_sent_high_watermark = high_watermark
        return result

    def read_log(self, partition: Partition, offset: int, max_bytes: int) -> bytes | memoryview:
        """Return batches from the batch of `offset` on, committed or not; nothing at the log end. For coordinators.

        Raises KafkaError.
        """
        try:
            return partition.log.read(offset, max_bytes, min_one_message=True).data
        except LogDirFailedError as error:
            raise self._storage_error(error) from error

    def fetch_offset_for_timestamp(
        self, topic: str, index: int, timestamp: int, *, isolation: FetchIsolation, current_leader_epoch: int = -1
    ) -> Steps[FoundOffset]:
        """`Partition.fetch_offset_for_timestamp` of a partition that this broker leads. Raises KafkaError."""
        with self._as_kafka_error(topic, index):
            partition = self.get_leader_partition(topic, index)
            partition.check_leader_epoch(current_leader_epoch)
            return (yield from partition.fetch_offset_for_timestamp(timestamp, isolation))

    def legacy_fetch_offsets_for_timestamp(
        self, topic: str, index: int, timestamp: int, *, isolation: FetchIsolation, max_num_offsets: int
    ) -> list[int]:
        """`Partition.legacy_fetch_offsets_for_timestamp` of a partition that this broker leads. Raises KafkaError."""
        with self._as_kafka_error(topic, index):
            partition = self.get_leader_partition(topic, index)
            return partition.legacy_fetch_offsets_for_timestamp(timestamp, isolation, max_num_offsets)

    def last_offset_for_leader_epoch(
        self, topic: str, index: int, leader_epoch: int, *, current_leader_epoch: int
    ) -> EpochEnd:
        """Return the end of a leader epoch in a partition that this broker leads: `Partition.end_offset_for_epoch`.

        Raises KafkaError.
        """
        with self._as_kafka_error(topic, index):
            partition = self.get_leader_partition(topic, index)
            partition.check_leader_epoch(current_leader_epoch)
            return partition.end_offset_for_epoch(leader_epoch)

    def active_producers(self, topic: str, index: int) -> Mapping[int, ProducerStateEntry]:
        """Return the producer states of a partition that this broker leads, by producer id. Raises KafkaError."""
        with self._as_kafka_error(topic, index):
            return self.get_leader_partition(topic, index).log.producer_state.producers

    def log_config(self, topic: str, index: int) -> LogConfig:
        """Return the log config of a partition that this broker leads. Raises KafkaError."""
        return self.get_leader_partition(topic, index).log.config

    def describe_log_dirs(self, wanted: Iterable[tuple[str, Iterable[int]]] | None) -> Steps[list[DescribedLogDir]]:
        """Describe each log directory with its replicas of the `wanted` partitions, or of all."""
        return describe_log_dirs(self._log_manager, self._ports.filesystem, wanted)

    # -- deletion of records ---------------------------------------------------------------------------------------

    async def delete_records(
        self,
        offsets: Sequence[tuple[str, int, int]],
        timeout_ms: float,
        *,
        allow_internal_topic_deletion: bool = False,
    ) -> list[int | KafkaError]:
        """Raise the log start offsets of partitions that this broker leads; -1 stands for the high watermark.

        Kafka's ReplicaManager.deleteRecords. Returns for each, in order, the new low watermark, which is on this
        broker's disk and which the other live replicas have reached; REQUEST_TIMED_OUT after `timeout_ms`.
        """
        began = self._loop.time()
        results: list[int | KafkaError] = []
        budget = CountBudget()
        for topic, index, offset in offsets:
            await budget.step()
            try:
                partition = self.get_leader_partition(topic, index)
                if is_internal(topic) and not allow_internal_topic_deletion:
                    raise KafkaError(
                        ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {topic}"
                    )
                results.append(partition.delete_records(offset))
            except Exception as error:  # noqa: BLE001 - a fault in one partition must not affect the others
                results.append(self.partition_error(error, topic, index).as_result())
        moved = [number for number, result in enumerate(results) if not isinstance(result, KafkaError)]
        keeping = self.checkpoint_log_start_offsets({TopicPartition(*offsets[number][:2]) for number in moved})
        try:
            # Kafka does not wait for the disk, and so completes a request with timeout 0 that waits for no replica.
            await self._background.wait_for("DeleteRecords", keeping, max(timeout_ms, MIN_DISK_WAIT_MS))
        except TimeoutError:
            for number in moved:
                results[number] = KafkaError(
                    ErrorCode.REQUEST_TIMED_OUT, "The new log start offset is not on disk yet."
                )
            return results
        timeout_ms -= (self._loop.time() - began) * 1000
        waiting: dict[int, DelayedDeleteRecords] = {}
        for number in moved:
            topic, index, _ = offsets[number]
            try:
                partition = self.get_leader_partition(topic, index)  # unless its directory has failed
                target = results[number]
                if partition.followers is not None and not isinstance(target, KafkaError):
                    operation = DelayedDeleteRecords(partition, target, self._loop)
                    if not operation.try_complete():
                        self._delete_records_purgatory.watch(operation, [partition.topic_partition], max(timeout_ms, 0))
                    waiting[number] = operation
            except Exception as error:  # noqa: BLE001 - as above
                results[number] = self.partition_error(error, topic, index).as_result()
        for number, operation in waiting.items():
            results[number] = await operation.outcome
        return results

    async def close_active_segment(self, topic_partition: TopicPartition) -> None:
        """Roll the log and wait until the old segment is on disk.

        Raises KafkaError as `get_leader_partition`, KAFKA_STORAGE_ERROR after `FLUSH_SECONDS`.
        """
        partition = self.get_leader_partition(*topic_partition)
        log = partition.log
        with self._as_kafka_error(*topic_partition):
            log.roll()
        end = log.log_end_offset
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_SECONDS):
                self.group_commit.request(partition)
                while log.recovery_point < end and not partition.is_offline:  # noqa: ASYNC110 - seldom, and short
                    await asyncio.sleep(FLUSH_CHECK_SECONDS)
        if log.recovery_point < end:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{topic_partition} was not flushed within {FLUSH_SECONDS:.0f} s"
            )

    async def checkpoint_log_start_offsets(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Write the log start offsets of partitions to disk, unless their log directories fail."""
        await self.write_checkpoint(LOG_START_OFFSET_CHECKPOINT, topic_partitions)

    async def write_checkpoint(self, name: str, only: Collection[TopicPartition] | None = None) -> None:
        """Write a checkpoint of every online directory; with `only`, of the directories that hold these partitions.

        Each log that is not moved or deleted in between is written with its offset at the time of the call or a later
        one.
        """
        tasks = await self.new_role_budget().complete(self._log_manager.checkpoint_steps(name, only))
        await self.run_on_lanes(tasks)

    async def delete_old_segments(self, topic_partitions: Sequence[TopicPartition]) -> None:
        """Apply retention by time, size and log start offset: Kafka's LogManager.cleanupLogs, in slices."""
        logs = self._log_manager
        with suppress(AllLogDirsFailedError):
            budget = CountBudget(RETENTION_LOGS_PER_TURN)
            for first in range(0, len(topic_partitions), RETENTION_LOGS_PER_TURN):
                below = logs.retention.begin(topic_partitions[first : first + RETENTION_LOGS_PER_TURN])
                if below:
                    await self.checkpoint_log_start_offsets(below)
                    while tasks := logs.retention.finish(below, RETENTION_SEGMENTS_PER_TURN):
                        await self.run_on_lanes(tasks)
                await budget.rest()

    # -- following -------------------------------------------------------------------------------------------------

    def truncate(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Truncate logs, durably. The future log of a moving replica that is longer is discarded, and copied again
        later.

        Raises KafkaError.
        """
        copies = self._log_manager.future_logs
        for name, offset in offsets.items():
            copy = copies.copies.get(name)
            if copy is not None and copy.log is not None and copy.log.log_end_offset > offset:
                logger.warning(
                    "%s is truncated below its future log in %s, which is discarded", name, copy.log_dir.path
                )
                copies.cancel(name)
        self._log_manager.truncate_to(offsets)

    def truncate_fully_and_start_at(self, topic_partition: TopicPartition, offset: int) -> None:
        """Delete all records of a log, which continues at `offset`. Raises KafkaError."""
        self._log_manager.truncate_fully_and_start_at(topic_partition, offset)

    async def wait_until_flushed(self, partitions: Iterable[Partition]) -> None:
        """Wait until followers have their records on disk if acks=-1 promises that, or until their roles change.

        A follower fetches the next records after that: by the fetch offset its leader learns which records are on disk.
        """
        if not self.acks_all_on_disk:
            return
        futures = []
        for partition in partitions:
            end = partition.log.log_end_offset
            if partition.log.recovery_point < end and not partition.is_offline:
                future = self._loop.create_future()
                self._flush_waiters.setdefault(partition, []).append((end, future))
                futures.append(future)
                self.group_commit.request(partition)
        for future in futures:
            await future

    def on_follower_flushed(self, partition: Partition) -> None:
        """Wake the fetchers that wait for this flush."""
        waiting = self._flush_waiters.pop(partition, None)
        if waiting is not None:
            left = [one for one in waiting if one[0] > partition.log.recovery_point]
            _complete([one for one in waiting if one not in left])
            if left:
                self._flush_waiters[partition] = left

    # -- flushes ---------------------------------------------------------------------------------------------------

    async def finish_flushes(self) -> None:
        """Wait until no append waits for the disk: see `GroupCommit.finish`."""
        await self.group_commit.finish()

    async def end_flushes(self) -> None:
        """Wait for all flushes, and begin no more: see `GroupCommit.end`."""
        await self.group_commit.end()

    async def flush_overdue(self) -> None:
        """Flush the logs that have waited for `flush.ms`, in slices."""
        budget, now_ms = CountBudget(), self._ports.now_ms()
        isolated = IsolatedWork("a log that has waited for flush.ms could not be flushed")
        for partition in self.partitions:
            log = partition.log
            if (
                log.recovery_point < log.log_end_offset
                and now_ms - log.last_flush_ms >= log.config.flush_ms
                and self._partitions.get(partition.topic_partition) is partition  # it may have been stopped since
            ):
                with isolated:
                    self.group_commit.request(partition)
            await budget.step()

    # -- events of partitions --------------------------------------------------------------------------------------

    def try_complete_delayed_requests(self, partition: Partition) -> None:
        """Complete requests that wait for a new high watermark, flush or role (Kafka's Partition method of this
        name)."""
        key, produce = partition.topic_partition, self._produce_purgatory
        if produce.watchers and key in produce.watchers:
            if partition.is_leader and not partition.is_offline:
                produce.check_and_complete(key)
            else:
                # A request that is checked a turn later could find this broker the leader again, and acknowledge
                # records that the log has lost between.
                produce.check_and_complete_immediately(key)
        fetch, share_fetch = self._fetch_purgatory, self.share_fetch_purgatory
        if fetch.watchers and key in fetch.watchers:
            fetch.check_and_complete(key)
        if share_fetch.watchers and key in share_fetch.watchers:
            share_fetch.check_and_complete(key)

    def complete_fetches_later(self, partition: Partition) -> None:
        """Complete fetches of followers at the end of this turn: the leader has more records.

        The response then has the records of all appends of the turn. If the first append completed the fetch, the
        records of the others would wait for another round of fetch, append and acknowledgement.
        """
        watchers, key = self._fetch_purgatory.watchers, partition.topic_partition
        if watchers and key in watchers:
            if not self._appended:
                self._loop.call_soon(self._complete_fetches)
            self._appended[key] = None

    def _complete_fetches(self) -> None:
        appended, self._appended = self._appended, {}
        for key in appended:
            with IsolatedWork(f"the fetches of {key} could not be completed"):
                self._fetch_purgatory.check_and_complete(key)

    def submit_isr_change(self, partition: Partition, change: IsrChange) -> None:
        """Send a change of the ISR to the controller."""
        if self._isr_change_sender is not None:
            self._isr_change_sender.submit(partition, change)

    def try_complete_delayed_deletes(self, partition: Partition) -> None:
        """Complete DeleteRecords requests: a follower has raised its log start offset."""
        self._delete_records_purgatory.check_and_complete(partition.topic_partition)

    async def shrink_isrs(self) -> None:
        """Remove followers that have not caught up for `replica.lag.time.max.ms` from the ISR, in slices.

        Kafka's maybeShrinkIsr. Called every half of this interval.
        """
        budget = CountBudget()
        for partition in self.partitions:
            if partition.followers is not None:
                with IsolatedWork(f"the followers of {partition.topic_partition} could not be checked"):
                    partition.shrink_isr()
            await budget.step()

    # -- failing disks ---------------------------------------------------------------------------------------------

    def log_dir_failed(self, directory: str, error: BaseException) -> None:
        """Take a log directory offline until a restart, because it cannot be read or written."""
        with suppress(AllLogDirsFailedError):
            self._log_manager.held.fail_log_dir(directory, error if isinstance(error, OSError) else None)

    def log_failed(self, error: LogDirFailedError) -> None:
        """Take a log directory, or one log in it, offline until a restart."""
        with suppress(AllLogDirsFailedError):
            self._log_manager.held.fail(error)

    def _on_offline(self, failure: LogDirFailedError, lost: list[TopicPartition]) -> None:
        """Take the partitions of a failed log directory or log offline, and complete requests that wait for them."""
        if not isinstance(failure, LogFailedError):
            logger.error("%s; its partitions are offline until a restart", failure)
        for topic_partition in lost:
            partition = self._partitions.get(topic_partition)
            if partition is not None and not partition.is_offline:
                partition.go_offline()
                _complete(self._flush_waiters.pop(partition, ()))
                self.try_complete_delayed_requests(partition)
        if lost:
            self._on_partitions_lost(lost)
        if not self._log_manager.held.online_dirs:
            self._on_all_failed()

    # -- background work -------------------------------------------------------------------------------------------

    async def run_on_lanes(self, tasks: Sequence[LaneTask], beside: str = "") -> None:
        """Run blocking work of log directories on their lanes, whose names get the suffix `beside`.

        A failing directory is taken offline.
        """
        for task in tasks:
            try:
                await self._ports.work.run(task.lane + beside, task)
            except LogDirFailedError as error:
                self.log_failed(error)
            except OSError as error:
                # Too many open files: the next round may succeed.
                logger.warning("a disk operation in %s failed and will be retried: %s", task.lane, error)

    def topic_config_changed(self, topic: str | None) -> None:
        """Apply changed settings of a topic, or of every topic for None."""
        if topic is None:
            self._sliced_work.run(self._configure_all(), raise_error)
        else:
            self._configure(topic)

    def _configure_all(self) -> Steps[None]:
        """Apply the settings of one topic per step: each takes a tenth of a millisecond."""
        for topic in list(self._partitions_by_topic):
            self._configure(topic)
            yield

    def _configure(self, topic: str) -> None:
        config = self._topic_log_config(topic)
        for partition in self._partitions_by_topic.get(topic, {}).values():
            partition.log.config = config

    async def expire_producers(self) -> None:
        """Remove producers that have been silent for `producer.id.expiration.ms`, in slices."""
        budget, isolated = CountBudget(), IsolatedWork("the producers of a partition could not be expired")
        for partition in self.partitions:
            state = partition.log.producer_state
            producer_ids = iter(list(state.producers))
            while some := list(islice(producer_ids, ITEMS_PER_TURN)):
                with isolated:
                    state.remove_expired(some, self._ports.now_ms())
                await budget.step(len(some))
            await budget.step()

    def complete_all(self) -> None:
        """Complete all waiting requests, and drop the rest of suspended appends, for shutdown."""
        self._suspended.close()
        for purgatory in self._purgatories:
            purgatory.complete_all()


def _diverging_epoch(partition: Partition, wanted: FetchPartition) -> EpochEnd | None:
    """Return `Partition.find_diverging_epoch` of a fetch that names its last fetched epoch. Raises KafkaError."""
    last_epoch, log = wanted.last_fetched_epoch, partition.log
    if last_epoch < 0 or (wanted.fetch_offset == log.log_end_offset and last_epoch == log.leader_epochs.latest_epoch):
        return None
    return partition.find_diverging_epoch(last_epoch, wanted.fetch_offset)


def follower_fetch(wanted: FetchPartition, params: FetchParams) -> FollowerFetch:
    """Return the state of a follower that a fetch of one partition reports."""
    return FollowerFetch(
        params.follower,
        params.follower_epoch,
        wanted.fetch_offset,
        wanted.log_start_offset,
        wanted.current_leader_epoch >= 0,
    )


def _is_written(result: AppendResult) -> bool:
    """Return whether the append wrote records."""
    return not isinstance(result, KafkaError) and result.valid_bytes > 0


def _complete(waiters: Iterable[tuple[int, asyncio.Future[None]]]) -> None:
    for _, future in waiters:
        if not future.done():
            future.set_result(None)
