"""All replicas of this broker, and the doors through which others append to them and read them.

What waits, and what a failing disk means, is settled behind the doors: callers get a result for each
partition, or the error that its client is to be told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from ...protocol.batch_header import TRANSACTIONAL_MASK
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.room_logger import room_logger
from ...protocol.schema import ZERO_UUID
from ...protocol.topic_partition import TopicPartition
from ...storage.errors import LogDirFailedError
from ...storage.held_logs import AllLogDirsFailedError
from ...storage.record_validator import validate_and_assign
from ...storage.validation_result import HeavyRecordsError
from ..metadata.topic_names import INTERNAL_TOPICS
from ..runtime.turns import LONG_WORK_SECONDS, LongWork, Pace, Steps, raise_error
from .delayed_operation import Purgatory
from .delayed_produce import AppendCallback, AppendResult, AwaitedAppend, DelayedProduce
from .described_log_dirs import describe_log_dirs
from .follower_logs import FollowerLogs
from .group_commit import GroupCommit
from .hosted_partitions import HostedPartitions
from .log_ends import LogEnds
from .partition import Partition
from .partition_reader import PartitionReader
from .postponed_appends import AppendEntry, BegunAppend, PostponedAppends, invalid_acks, like
from .verified_producers import ATTRIBUTES_LOW_BYTE, VerifiedProducers

if TYPE_CHECKING:
    from ...storage.lane_task import LaneTask
    from ...storage.log_config import LogConfig
    from ...storage.log_manager import LogManager
    from ...storage.record_validator import Origin
    from ..metadata.metadata_cache import MetadataCache
    from ..runtime.ports import Ports
    from .followers import Peers
    from .isr_changes import IsrChange
    from .isr_updates import IsrUpdates
    from .partition_order import PartitionOrder
    from .replica_fetcher_manager import ReplicaFetcherManager
    from .replica_selector import RackAwareReplicaSelector
    from .replication_throttle import LeaderThrottle

logger = room_logger("replication")


class ReplicaManager:
    """Kafka's ReplicaManager. Loop-thread only; blocking work goes to one lane per log directory."""

    def __init__(
        self,
        *,
        log_manager: LogManager,
        metadata: MetadataCache,
        topic_log_config: Callable[[str], LogConfig],
        ports: Ports,
        long_work: LongWork,
        loop: asyncio.AbstractEventLoop,
        acks_all_on_disk: bool,
        is_verification_needed: Callable[[], bool],
        on_partitions_lost: Callable[[list[TopicPartition]], None],
        on_all_failed: Callable[[], None],
    ) -> None:
        self._log_manager = log_manager
        self._hosted = hosted = HostedPartitions(log_manager, metadata, loop.time)
        self._partitions = hosted.by_name
        self.find, self.partition, self.log_dir_failed = hosted.find, hosted.led, hosted.log_dir_failed
        log_manager.held.on_dir_failure = self._dir_failed
        self.acks_all_on_disk = acks_all_on_disk
        self._produce_purgatory, self._fetch_purgatory = Purgatory("Produce", loop), Purgatory("Fetch", loop)
        self._purgatories = self._produce_purgatory, self._fetch_purgatory
        self._flushes = flushes = GroupCommit(ports, loop, self.log_dir_failed)
        self.flush_wanted, self.finish_flushes, self.end_flushes = flushes.request, flushes.finish, flushes.end
        self._on_partitions_lost = on_partitions_lost
        self._on_all_failed = on_all_failed
        self._topic_log_config = topic_log_config
        self._long_work = long_work
        self._ports = ports
        self._loop = loop
        self._postponed = PostponedAppends(ports.work, long_work)
        self._reader = reader = PartitionReader(hosted, self._fetch_purgatory, long_work)
        self.fetch_records, self.read_log = reader.fetch_records, reader.read_log
        self.fetch_offset_for_timestamp = reader.fetch_offset_for_timestamp
        self.legacy_fetch_offsets_for_timestamp = reader.legacy_fetch_offsets_for_timestamp
        self.last_offset_for_leader_epoch = reader.last_offset_for_leader_epoch
        self.active_producers, self.log_config = reader.active_producers, reader.log_config
        self._log_ends = ends = LogEnds(hosted, log_manager, flushes, self.run_on_lanes, loop)
        self.delete_records, self.retain = ends.delete_records, ends.retain
        self.close_active_segment = ends.close_active_segment
        self.describe_log_dirs = partial(describe_log_dirs, log_manager, ports.filesystem)
        self.verified = VerifiedProducers(is_verification_needed)
        """Through which coordinators say who may begin a transaction where."""
        self.follower_logs = FollowerLogs(hosted, log_manager, flushes, loop, on_disk=acks_all_on_disk)
        """Through which fetchers append what leaders have sent."""
        self.synced = self.follower_logs.flushed
        self._tell_role_changes: list[Callable[[TopicPartition], None]] = []
        self._peers: Peers | None = None
        self._isr_updates: IsrUpdates | None = None
        self._fetchers: ReplicaFetcherManager | None = None

    def join_cluster(
        self,
        peers: Peers,
        isr_updates: IsrUpdates,
        fetchers: ReplicaFetcherManager,
        *,
        throttle: LeaderThrottle,
        selector: RackAwareReplicaSelector | None,
    ) -> None:
        """There are other brokers: before the first order. `selector` sends consumers to nearer ones, if wished for."""
        self._reader.throttle, self._reader.selector = throttle, selector
        self._peers = peers
        self._isr_updates = isr_updates
        self._fetchers = fetchers

    def loop_time(self) -> float:
        """Monotonic seconds."""
        return self._loop.time()

    def on_flushed(self, tell: Callable[[float], None] | None) -> None:
        """Have somebody who measures told, from now on, after how many seconds a round of flushes was on the disk."""
        self._flushes.on_flushed = tell

    def on_role_change(self, tell: Callable[[TopicPartition], None]) -> None:
        """Have somebody told, from now on, that a partition is led otherwise."""
        self._tell_role_changes.append(tell)

    @property
    def delayed_operations(self) -> dict[str, int]:
        """How many requests of a kind wait now."""
        return {purgatory.name: len(purgatory) for purgatory in self._purgatories}

    # -- partitions ------------------------------------------------------------------------------------------------

    @property
    def failures(self) -> int:
        """How often a partition was not served because of a mistake of the broker's."""
        return self._hosted.failures

    @property
    def partitions(self) -> Iterator[Partition]:
        return iter(list(self._partitions.values()))

    async def prepare_logs(self, topic_ids: Mapping[TopicPartition, UUID]) -> None:
        """Have the folders of new partitions made and synced on the lanes of their directories, for `become_leader`."""
        tasks: list[LaneTask] = []
        with suppress(AllLogDirsFailedError):
            named = {name: topic_id for name, topic_id in topic_ids.items() if topic_id != ZERO_UUID}
            tasks = self._log_manager.creation.preparation_tasks(named)
        for task in tasks:
            try:
                await self._ports.work.run(task.lane, task)
            except (OSError, LogDirFailedError) as error:
                # Left to `become_leader`, which tries each by itself and says what is wrong with it.
                logger.warning("new partitions could not be prepared: %s", error)

    def become_leader(self, order: PartitionOrder) -> None:
        """Lead a partition, creating its log where there is none (LeaderAndIsr for a leader).

        Raises KafkaError KAFKA_STORAGE_ERROR if no log directory can hold it, STALE_CONTROLLER_EPOCH for an order that
        a later one has overtaken.
        """
        partition = self._ordered(order)
        if self._fetchers is not None and order.leader_epoch > partition.leader_epoch:
            self._fetchers.forget(order.topic_partition)
        partition.become_leader(order)
        self._role_changed(partition)

    def become_follower(self, order: PartitionOrder) -> None:
        """Follow a partition's leader, -1 while there is none (LeaderAndIsr for a follower).

        Raises as `become_leader`.
        """
        partition = self._ordered(order)
        if partition.become_follower(order):
            self.verified.forget_partition(order.topic_partition)
            self._role_changed(partition)
            if self._fetchers is not None:
                self._fetchers.follow(partition)

    def _ordered(self, order: PartitionOrder) -> Partition:
        """The partition of an order, made if it is not here. Raises KafkaError."""
        name, topic_id = order.topic_partition, order.topic_id
        is_named = topic_id != ZERO_UUID  # else it comes from a controller that knows no ids
        partition = self._partitions.get(name)
        if partition is None:
            config = self._topic_log_config(name.topic)
            try:
                log = self._log_manager.creation.get_or_create_log(
                    name, topic_id=topic_id if is_named else None, config=config, is_new=order.is_new
                )
            except (OSError, LogDirFailedError, AllLogDirsFailedError) as error:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"no log for {name}: {error}") from error
            partition = Partition(name, log.topic_id or topic_id, log, self, self._peers)
            self._hosted.add(partition)
        elif is_named and partition.topic_id == ZERO_UUID:
            partition.log.assign_topic_id(topic_id)
            partition.topic_id = topic_id
        elif is_named and partition.topic_id != topic_id:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{name} is of topic {partition.topic_id}")
        if order.leader_epoch < partition.leader_epoch:
            reason = f"{name} is in leader epoch {partition.leader_epoch}, and the order in {order.leader_epoch}"
            raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH, reason)
        if partition.is_offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory of {name} has failed")
        return partition

    def _role_changed(self, partition: Partition) -> None:
        """It is led otherwise: clients that wait with an older epoch are told, and coordinators as well."""
        self.follower_logs.role_changed(partition)
        self.progressed(partition)
        self.low_watermark_raised(partition)
        for tell in self._tell_role_changes:
            tell(partition.topic_partition)

    async def stop_replica(self, topic_partition: TopicPartition, *, delete: bool) -> None:
        """Stop serving a replica; with `delete` its directory is renamed away before this returns (StopReplica)."""
        partition = self._hosted.remove(topic_partition)
        if partition is not None:
            if self._fetchers is not None:
                self._fetchers.forget(topic_partition)
            partition.resign()
            self._flushes.forget(partition)
            self.verified.forget_partition(topic_partition)
            self._role_changed(partition)
        if delete:
            try:
                task = self._log_manager.delete_log(topic_partition)
                if task is not None:
                    await self._ports.work.run(task.lane, task)
            except LogDirFailedError as error:
                # Its folder may have its old name again at the next start.
                self._log_manager.held.offline[topic_partition] = error
                self.log_dir_failed(error.path, error.cause)
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
            except (OSError, AllLogDirsFailedError) as error:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    # -- appending -------------------------------------------------------------------------------------------------

    def append_records(
        self,
        entries: Iterable[AppendEntry],
        required_acks: int,
        timeout_ms: float,
        callback: AppendCallback,
        *,
        produce_version: int,
        origin: Origin = "client",
        internal_topics_allowed: bool = False,
        in_transaction: bool = False,
        may_linger: bool = False,
        begun: BegunAppend | None = None,
    ) -> None:
        """Append to partitions that this broker leads, each succeeding or failing on its own.

        `callback` gets a result for each entry, in their order: before this returns, unless acks are -1 and the disk or
        other replicas are to be waited for, or acks are 1 and `flush.messages` asks for a flush (REQUEST_TIMED_OUT for
        what is undecided after `timeout_ms`), or a client's records are too much for one turn or for the loop's thread.
        Nothing of a client gets into a partition before what came for it earlier. `begun` is what was done in earlier
        turns, `may_linger` as in `GroupCommit.request`. `in_transaction` says that the client has named a transactional
        id, without which nothing of a transaction is taken. Kafka's ReplicaManager.appendRecords,
        by which a partition that is not here comes before anything that is wrong with the request.
        """
        results: list[AppendResult] = []
        awaited: list[AwaitedAppend] = []
        held, stopwatch, validate = self._postponed.held, self._ports.stopwatch, validate_and_assign
        entries, enough = iter(entries), 0.0
        if begun is not None:
            entries, validate = begun.rest(), begun.take_validation()
        for entry in entries:
            topic, index, records = entry
            if origin == "client" and (results or held):
                now = stopwatch()
                if now >= (enough := enough or now + LONG_WORK_SECONDS) or (topic, index) in held:
                    begun = self._interrupted(begun, entry, entries, None)
                    break
            try:
                partition = self._partitions.get((topic, index))
                if partition is None or not partition.is_leader or partition.is_offline:
                    raise self._hosted.not_led(topic, index)
                if origin == "client":
                    if not -1 <= required_acks <= 1:
                        raise invalid_acks(required_acks)
                    self._check_client_records(entry, partition, internal_topics_allowed, in_transaction)
                info = partition.append_records_to_leader(
                    records,
                    required_acks,
                    api_version=produce_version,
                    origin=origin,
                    may_linger=may_linger,
                    validate=validate,
                )
            except HeavyRecordsError:
                begun = self._interrupted(begun, entry, entries, produce_version)
                break
            except Exception as error:  # noqa: BLE001 - whatever one partition comes to, the others are served
                results.append(like(results[-1] if results else None, self._hosted.answer_to(error, topic, index)))
            else:
                is_open = required_acks and info.last_offset >= partition.log.high_watermark
                if is_open and (required_acks == -1 or partition.has_flushed(info.last_offset + 1) is None):
                    awaited.append((partition, info.last_offset + 1, len(results)))
                results.append(info)
            validate = validate_and_assign
        if begun is not None:
            terms = required_acks, timeout_ms, callback, produce_version, internal_topics_allowed, in_transaction
            callback = self._postponed.go_on(begun, self.append_records, terms)
        self._answer(results, awaited, required_acks, callback, timeout_ms)

    def _check_client_records(
        self, entry: AppendEntry, partition: Partition, internal_topics_allowed: bool, in_transaction: bool
    ) -> None:
        """Raises KafkaError for what a client may not append, wherever it is."""
        topic, _, records = entry
        if topic in INTERNAL_TOPICS and not internal_topics_allowed:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal")
        if len(records) > ATTRIBUTES_LOW_BYTE and records[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_MASK:
            self.verified.check(partition, records, in_transaction=in_transaction)

    def _answer(
        self,
        results: list[AppendResult],
        awaited: list[AwaitedAppend],
        acks: int,
        callback: AppendCallback,
        timeout_ms: float,
    ) -> None:
        """Only where there were other entries can anything have changed since it was seen that this one must wait."""
        if not awaited:
            callback(results)
            return
        waiting = DelayedProduce(awaited, acks, results, callback)
        if len(results) == 1 or not waiting.try_complete():
            if len(awaited) == 1:  # as most
                keys = [awaited[0][0].topic_partition]
            else:
                keys = [partition.topic_partition for partition, _, _ in awaited]
            self._produce_purgatory.watch(waiting, keys, timeout_ms)

    def _interrupted(
        self, begun: BegunAppend | None, entry: AppendEntry, entries: Iterator[AppendEntry], version: int | None
    ) -> BegunAppend:
        """An append that goes on with this entry later; with a version of Produce it has to be validated before."""
        begun = begun or BegunAppend()
        begun.keep(entry, entries)
        partition = self._partitions.get(entry[:2])
        if version is not None and partition is not None:
            begun.validation = partition.validation(begun.next[2], api_version=version, now_ms=self._ports.now_ms())
        return begun

    # -- durability ------------------------------------------------------------------------------------------------

    async def flush_overdue(self) -> None:
        """Flush the logs that have waited for `flush.ms`; others are served meanwhile."""
        pace, now_ms = Pace(), self._ports.now_ms()
        for partition in self.partitions:
            log = partition.log
            if (
                log.recovery_point < log.log_end_offset
                and now_ms - log.last_flush_ms >= log.config.flush_ms
                and self._partitions.get(partition.topic_partition) is partition  # and has not gone meanwhile
            ):
                self._flushes.request(partition)
            await pace.step()

    # -- events ----------------------------------------------------------------------------------------------------

    def progressed(self, partition: Partition) -> None:
        """Its high watermark has risen, or what is on disk, or it is led otherwise: answer whoever waited for that."""
        key = partition.topic_partition
        for purgatory in self._purgatories:
            if purgatory.watchers and key in purgatory.watchers:
                purgatory.check(key)

    def appended(self, partition: Partition) -> None:
        """A leader with followers has more records: they may fetch them."""
        watchers, key = self._fetch_purgatory.watchers, partition.topic_partition
        if watchers and key in watchers:
            self._fetch_purgatory.check(key)

    def isr_change_wanted(self, partition: Partition, change: IsrChange) -> None:
        """Have other replicas in sync."""
        if self._isr_updates is not None:
            self._isr_updates.want(partition, change)

    def low_watermark_raised(self, partition: Partition) -> None:
        """A follower has given up records at the start of its log."""
        self._log_ends.deletions.check(partition.topic_partition)

    async def shrink_isrs(self) -> None:
        """Let go of followers that have not caught up for too long; each half of `replica.lag.time.max.ms`.

        Others are served meanwhile.
        """
        pace = Pace()
        for partition in self.partitions:
            if partition.followers is not None:
                partition.shrink_isr()
            await pace.step()

    def _dir_failed(self, failure: LogDirFailedError, lost: list[TopicPartition]) -> None:
        """A log directory is offline, whoever found out: its partitions are too, and nobody waits for them."""
        logger.error("%s; its partitions are offline until a restart", failure)
        for topic_partition in lost:
            partition = self._partitions.get(topic_partition)
            if partition is not None and not partition.is_offline:
                partition.go_offline()
                self.follower_logs.role_changed(partition)
                self.progressed(partition)
        if lost:
            self._on_partitions_lost(lost)
        if not self._log_manager.held.online_dirs:
            self._on_all_failed()

    async def run_on_lanes(self, tasks: Sequence[LaneTask], beside: str = "") -> None:
        """Run blocking work of log directories on their lanes, or beside them; a failing directory goes offline."""
        for task in tasks:
            try:
                await self._ports.work.run(task.lane + beside, task)
            except LogDirFailedError as error:
                self.log_dir_failed(error.path, error.cause)
            except OSError as error:
                # Too many open files: the next round may find one.
                logger.warning("work in %s has to wait: %s", task.lane, error)

    def topic_config_changed(self, topic: str | None) -> None:
        """The settings of a topic, or of every topic, are others now."""
        if topic is None:
            self._long_work.run(self._configure_all(), raise_error)
        else:
            self._configure(topic)

    def _configure_all(self) -> Steps[None]:
        """What a topic has of its own is worked out anew for each: a tenth of a millisecond."""
        for topic in self._hosted.topics():
            self._configure(topic)
            yield

    def _configure(self, topic: str) -> None:
        config = self._topic_log_config(topic)
        for partition in self._hosted.of(topic):
            partition.log.config = config

    async def expire_producers(self) -> None:
        """Forget producers that have been silent for `producer.id.expiration.ms`; others are served meanwhile."""
        pace = Pace()
        for partition in self.partitions:
            state = partition.log.producer_state
            looked_at = 1 + len(state.producers)
            state.remove_expired(self._ports.now_ms())
            await pace.step(looked_at)

    def complete_all(self) -> None:
        """Answer everything that waits; for shutdown."""
        self._produce_purgatory.complete_all()
        self._fetch_purgatory.complete_all()
        self._log_ends.deletions.complete_all()
