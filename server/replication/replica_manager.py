"""All replicas of this broker, and the doors through which others append to them and read them.

What waits, and what a failing disk means, is settled behind the doors: who comes through them gets a result for each
partition, or the error that its client is to be told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from ...protocol.batch_header import ATTRIBUTES_POSITION, TRANSACTIONAL_MASK
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.topic_partition import TopicPartition
from ...storage.errors import CorruptIndexError, LogDirFailedError
from ...storage.held_logs import AllLogDirsFailedError
from ...storage.log_dir import LOG_START_OFFSET_CHECKPOINT
from ...storage.record_validator import validate_and_assign
from ...storage.validation_result import HeavyRecordsError
from ..metadata.topic_names import INTERNAL_TOPICS, is_internal
from ..runtime.room_logger import room_logger
from ..runtime.turns import FETCHED_PARTITIONS, LONG_WORK_SECONDS, RETAINED_LOGS, LongWork, Pace, Steps, raise_error
from .delayed_fetch import (
    AwaitedRead,
    DelayedFetch,
    FetchCallback,
    FetchedPartition,
    FetchParams,
    FetchResult,
    calls_for_answer,
)
from .delayed_operation import Purgatory
from .delayed_produce import AppendCallback, AppendResult, AwaitedAppend, DelayedProduce
from .group_commit import GroupCommit
from .partition import FetchIsolation, FoundOffset, Partition
from .postponed_appends import AppendEntry, BegunAppend, PostponedAppends, check_transaction, invalid_acks, like

if TYPE_CHECKING:
    from ...protocol.messages.fetch import FetchPartition
    from ...storage.lane_task import LaneTask
    from ...storage.leader_epochs import EpochEnd
    from ...storage.log_config import LogConfig
    from ...storage.log_manager import LogManager
    from ...storage.producer_state import ProducerStateEntry
    from ...storage.record_validator import Origin
    from ..metadata.metadata_cache import MetadataCache
    from ..runtime.ports import Ports

logger = room_logger("replication")

LONGEST_WAIT_MS = 300_000
"""No fetch waits longer than this, whatever the client asks for."""
FLUSH_SECONDS = 60.0
"""How long a flush is waited for that somebody asked for."""
FLUSH_LOOK_SECONDS = 0.005
ATTRIBUTES_LOW_BYTE = ATTRIBUTES_POSITION + 1


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
        on_partitions_lost: Callable[[list[TopicPartition]], None],
        on_all_failed: Callable[[], None],
    ) -> None:
        self.log_manager = log_manager
        log_manager.held.on_dir_failure = self._dir_failed
        self.acks_all_on_disk = acks_all_on_disk
        self.produce_purgatory = Purgatory("Produce", loop)
        self.fetch_purgatory = Purgatory("Fetch", loop)
        self._purgatories = self.produce_purgatory, self.fetch_purgatory
        self.flushes = GroupCommit(ports, loop, self.log_dir_failed)
        self.flush_wanted = self.flushes.request
        self._on_partitions_lost = on_partitions_lost
        self._on_all_failed = on_all_failed
        self._metadata = metadata
        self._topic_log_config = topic_log_config
        self._ports = ports
        self._loop = loop
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._long_work = long_work
        self._postponed = PostponedAppends(ports.work, long_work)

    def loop_time(self) -> float:
        """Monotonic seconds."""
        return self._loop.time()

    # -- partitions ------------------------------------------------------------------------------------------------

    @property
    def partitions(self) -> Iterator[Partition]:
        return iter(list(self._partitions.values()))

    def find(self, topic: str, index: int) -> Partition | None:
        """The replica here, whatever its role."""
        return self._partitions.get((topic, index))

    def partition(self, topic: str, index: int) -> Partition:
        """The replica that this broker leads.

        Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR.
        """
        partition = self._partitions.get((topic, index))
        if partition is None or not partition.is_leader or partition.is_offline:
            raise self._not_led(topic, index)
        return partition

    def _not_led(self, topic: str, index: int) -> KafkaError:
        """Why a partition cannot be served here."""
        partition = self._partitions.get((topic, index))
        if partition is not None and partition.is_offline:
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory of {topic}-{index} has failed")
        if partition is not None:
            return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {topic}-{index}")
        if self._metadata.partition(TopicPartition(topic, index)) is not None:
            return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{index} has no replica on this broker")
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")

    async def prepare_logs(self, topic_ids: Mapping[TopicPartition, UUID]) -> None:
        """Have the folders of new partitions made and synced on the lanes of their directories, for `become_leader`."""
        tasks: list[LaneTask] = []
        with suppress(AllLogDirsFailedError):
            tasks = self.log_manager.creation.preparation_tasks(topic_ids)
        for task in tasks:
            try:
                await self._ports.work.run(task.lane, task)
            except (OSError, LogDirFailedError) as error:
                # Left to `become_leader`, which tries each by itself and says what is wrong with it.
                logger.warning("new partitions could not be prepared: %s", error)

    def become_leader(
        self,
        topic_partition: TopicPartition,
        *,
        topic_id: UUID,
        leader_epoch: int,
        partition_epoch: int,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
        is_new: bool,
    ) -> None:
        """Lead a partition, creating its log where there is none (LeaderAndIsr for a leader).

        Raises KafkaError KAFKA_STORAGE_ERROR if no log directory can hold it.
        """
        partition = self._partitions.get(topic_partition)
        if partition is None:
            config = self._topic_log_config(topic_partition.topic)
            try:
                log = self.log_manager.creation.get_or_create_log(
                    topic_partition, topic_id=topic_id, config=config, is_new=is_new
                )
            except (OSError, LogDirFailedError, AllLogDirsFailedError) as error:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"no log for {topic_partition}: {error}") from error
            partition = self._partitions[topic_partition] = Partition(topic_partition, topic_id, log, self)
        partition.become_leader(leader_epoch, partition_epoch, replicas, isr)
        # Who waits with an older epoch is to hear of the new one.
        self.progressed(partition)

    async def stop_replica(self, topic_partition: TopicPartition, *, delete: bool) -> None:
        """Stop serving a replica; with `delete` its directory is renamed away before this returns (StopReplica)."""
        partition = self._partitions.pop(topic_partition, None)
        if partition is not None:
            partition.resign()
            self.flushes.forget(partition)
            self.progressed(partition)
        if delete:
            try:
                task = self.log_manager.delete_log(topic_partition)
                if task is not None:
                    await self._ports.work.run(task.lane, task)
            except LogDirFailedError as error:
                # Its folder may have its old name again at the next start.
                self.log_manager.held.offline[topic_partition] = error
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
        may_linger: bool = False,
        begun: BegunAppend | None = None,
    ) -> None:
        """Append to partitions that this broker leads, each succeeding or failing on its own.

        `callback` gets a result for each entry, in their order: before this returns, unless acks are -1 and the disk or
        other replicas are to be waited for, or acks are 1 and `flush.messages` asks for a flush (REQUEST_TIMED_OUT for
        what is undecided after `timeout_ms`), or a client's records are too much for one turn or for the loop's thread.
        Nothing of a client gets into a partition before what came for it earlier. `begun` is what was done in earlier
        turns, `may_linger` as in `GroupCommit.request`. Kafka's ReplicaManager.appendRecords,
        by which a partition that is not here comes before anything that is wrong with the request.
        """
        results: list[AppendResult] = []
        awaited: list[AwaitedAppend] = []
        held, stopwatch, validate = self._postponed.held, self._ports.stopwatch, validate_and_assign
        entries, enough = iter(entries), stopwatch() + LONG_WORK_SECONDS
        if begun is not None:
            entries, validate = begun.rest(), begun.take_validation()
        for entry in entries:
            topic, index, records = entry
            if origin == "client" and ((results and stopwatch() >= enough) or (held and (topic, index) in held)):
                begun = self._interrupted(begun, entry, entries, None)
                break
            try:
                partition = self._partitions.get((topic, index))
                if partition is None or not partition.is_leader or partition.is_offline:
                    raise self._not_led(topic, index)
                if not -1 <= required_acks <= 1:
                    raise invalid_acks(required_acks)
                if origin == "client":
                    _check_client_records(topic, records, internal_topics_allowed)
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
            except KafkaError as error:
                results.append(like(results[-1] if results else None, error))
            except LogDirFailedError as error:
                results.append(self._storage_error(error))
            else:
                is_open = required_acks and info.last_offset >= partition.log.high_watermark
                if is_open and (required_acks == -1 or partition.has_flushed(info.last_offset + 1) is None):
                    awaited.append(AwaitedAppend(partition, info.last_offset + 1, len(results), required_acks))
                results.append(info)
            validate = validate_and_assign
        if begun is not None:
            terms = required_acks, timeout_ms, callback, produce_version, internal_topics_allowed
            callback = self._postponed.go_on(begun, self.append_records, terms)
        if awaited:
            self._wait(DelayedProduce(awaited, results, callback), awaited, timeout_ms)
        else:
            callback(results)

    def _wait(self, waiting: DelayedProduce, awaited: list[AwaitedAppend], timeout_ms: float) -> None:
        """Only where there were other entries can anything have changed since it was seen that this one must wait."""
        keys = [append.partition.topic_partition for append in awaited]
        if len(waiting.results) == 1 or not waiting.try_complete():
            self.produce_purgatory.watch(waiting, keys, timeout_ms)

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

    # -- reading ---------------------------------------------------------------------------------------------------

    def fetch_records(
        self, params: FetchParams, callback: FetchCallback, *, on_resume: Callable[[], None] | None = None
    ) -> DelayedFetch | None:
        """Read partitions that this broker leads; `callback` gets a result for each, in their order.

        That is before this returns if there is enough, or anything to tell. Else it returns what waits, to be cancelled
        if the reader goes away; when the wait is over everything is read afresh, after `on_resume`. Kafka's
        ReplicaManager.fetchMessages.
        """
        if len(params.partitions) > FETCHED_PARTITIONS:
            self._read_in_turns(params, partial(self._answer_or_wait, params, callback, on_resume))
            return None
        return self._answer_or_wait(params, callback, on_resume, *self._read(params, params.partitions))

    def _answer_or_wait(
        self,
        params: FetchParams,
        callback: FetchCallback,
        on_resume: Callable[[], None] | None,
        results: list[FetchResult],
        total: int,
    ) -> DelayedFetch | None:
        """Call back, or wait until there is enough."""
        if params.max_wait_ms <= 0 or total >= params.min_bytes or not params.partitions or calls_for_answer(results):
            callback(results)
            return None
        reads = []
        for topic, wanted in params.partitions:
            partition = self._partitions.get((topic, wanted.partition))
            if partition is None:  # gone since it was read, in an earlier turn
                callback(results)
                return None
            reads.append(
                AwaitedRead(partition, wanted.fetch_offset, wanted.partition_max_bytes, partition.leader_epoch)
            )

        def respond() -> None:
            if on_resume is not None:
                on_resume()
            if len(params.partitions) > FETCHED_PARTITIONS:
                self._read_in_turns(params, lambda results, _: callback(results))
            else:
                callback(self._read(params, params.partitions)[0])

        waiting = DelayedFetch(reads, min_bytes=params.min_bytes, isolation=params.isolation, respond=respond)
        if not waiting.try_complete():
            keys = [read.partition.topic_partition for read in reads]
            self.fetch_purgatory.watch(waiting, keys, min(params.max_wait_ms, LONGEST_WAIT_MS))
        return waiting

    def _read_in_turns(self, params: FetchParams, done: Callable[[list[FetchResult], int], object]) -> None:
        """`_read` of very many partitions, others being served meanwhile."""

        def steps() -> Steps[None]:
            results: list[FetchResult] = []
            total = 0
            for first in range(0, len(params.partitions), FETCHED_PARTITIONS):
                some, size = self._read(params, params.partitions[first : first + FETCHED_PARTITIONS], total)
                results += some
                total += size
                yield
            done(results, total)

        self._long_work.run(steps(), raise_error)

    def _read(
        self, params: FetchParams, partitions: Sequence[tuple[str, FetchPartition]], before: int = 0
    ) -> tuple[list[FetchResult], int]:
        """These partitions in order within the limits, so many bytes having been read before; how many they gave."""
        budget, total, whole_batch = max(0, params.max_bytes - before), 0, not params.hard_limit and not before
        results: list[FetchResult] = []
        for topic, wanted in partitions:
            try:
                found = self._read_partition(
                    topic, wanted, params, min(wanted.partition_max_bytes, budget), whole_batch
                )
            except KafkaError as error:
                results.append(like(results[-1] if results else None, error))
                continue
            results.append(found)
            size = len(found.records)
            if size:
                total += size
                budget = max(0, budget - size)
                whole_batch = False
        return results, total

    def _read_partition(
        self, topic: str, wanted: FetchPartition, params: FetchParams, max_bytes: int, whole_batch: bool
    ) -> FetchedPartition:
        """Raises KafkaError for whatever is wrong with this partition."""
        partition = self._partitions.get((topic, wanted.partition))
        if partition is None or not partition.is_leader or partition.is_offline:
            raise self._not_led(topic, wanted.partition)
        if wanted.current_leader_epoch >= 0:
            partition.check_leader_epoch(wanted.current_leader_epoch)
        log = partition.log
        if wanted.last_fetched_epoch >= 0:
            diverging = partition.divergence(wanted.last_fetched_epoch, wanted.fetch_offset)
            if diverging is not None:
                return FetchedPartition(
                    b"", log.high_watermark, log.last_stable_offset, log.log_start_offset, None, diverging
                )
        try:
            found = partition.read(
                wanted.fetch_offset,
                max(0, max_bytes),
                min_one_batch=whole_batch,
                isolation=params.isolation,
                hard_limit=params.hard_limit,
                lend=params.lend,
            )
        except LogDirFailedError as error:
            raise self._storage_error(error) from error
        except CorruptIndexError as error:  # of transactions; the next start makes it anew
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        aborted = found.aborted_transactions
        return FetchedPartition(
            found.records, log.high_watermark, log.last_stable_offset, log.log_start_offset, aborted
        )

    def read_log(self, partition: Partition, offset: int, max_bytes: int) -> bytes | memoryview:
        """Batches from the one of `offset` on, committed or not; nothing at the log's end. For coordinators.

        Raises KafkaError.
        """
        with self._checked_io():
            return partition.log.read(offset, max_bytes, min_one_message=True).data

    def fetch_offset_for_timestamp(
        self, topic: str, index: int, timestamp: int, *, isolation: FetchIsolation, current_leader_epoch: int = -1
    ) -> FoundOffset:
        """`Partition.fetch_offset_for_timestamp` of a partition that this broker leads. Raises KafkaError."""
        partition = self._led(topic, index, current_leader_epoch)
        with self._checked_io():
            return partition.fetch_offset_for_timestamp(timestamp, isolation)

    def legacy_fetch_offsets_for_timestamp(
        self, topic: str, index: int, timestamp: int, *, isolation: FetchIsolation, max_num_offsets: int
    ) -> list[int]:
        """`Partition.legacy_fetch_offsets_for_timestamp` of a partition that this broker leads. Raises KafkaError."""
        partition = self.partition(topic, index)
        with self._checked_io():
            return partition.legacy_fetch_offsets_for_timestamp(timestamp, isolation, max_num_offsets)

    def last_offset_for_leader_epoch(
        self, topic: str, index: int, leader_epoch: int, *, current_leader_epoch: int
    ) -> EpochEnd:
        """Where a leader epoch ends in a partition that this broker leads: `Partition.end_offset_for_epoch`.

        Raises KafkaError.
        """
        return self._led(topic, index, current_leader_epoch).end_offset_for_epoch(leader_epoch)

    def active_producers(self, topic: str, index: int) -> Collection[ProducerStateEntry]:
        """The idempotent and transactional producers that a partition knows. Raises KafkaError."""
        return self.partition(topic, index).log.producer_state.producers.values()

    def log_config(self, topic: str, index: int) -> LogConfig:
        """How a partition that this broker leads is kept. Raises KafkaError."""
        return self.partition(topic, index).log.config

    def _led(self, topic: str, index: int, current_leader_epoch: int) -> Partition:
        """A partition that this broker leads, in the epoch that the client believes in. Raises KafkaError."""
        partition = self.partition(topic, index)
        partition.check_leader_epoch(current_leader_epoch)
        return partition

    # -- the ends of a log -----------------------------------------------------------------------------------------

    async def delete_records(self, offsets: Sequence[tuple[str, int, int]]) -> list[int | KafkaError]:
        """Raise the log starts of partitions that this broker leads to offsets, -1 for the high watermark.

        Gives for each, in their order, the new low watermark, which is on disk. Kafka's ReplicaManager.deleteRecords.
        """
        results: list[int | KafkaError] = []
        pace = Pace()
        for topic, index, offset in offsets:
            await pace.step()
            try:
                partition = self.partition(topic, index)
                if is_internal(topic):
                    raise KafkaError(
                        ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {topic}"
                    )
                results.append(partition.delete_records(offset))
            except KafkaError as error:
                results.append(error.as_result())
        moved = [number for number, result in enumerate(results) if not isinstance(result, KafkaError)]
        await self.keep_log_starts({TopicPartition(*offsets[number][:2]) for number in moved})
        for number in moved:
            try:
                self.partition(*offsets[number][:2])  # unless its directory has failed
            except KafkaError as error:
                results[number] = error.as_result()
        return results

    async def close_active_segment(self, topic_partition: TopicPartition) -> None:
        """Begin a new segment, and have the old one on disk. Raises KafkaError as `partition`, KAFKA_STORAGE_ERROR."""
        partition = self.partition(*topic_partition)
        log = partition.log
        with self._checked_io():
            log.roll()
        end = log.log_end_offset
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_SECONDS):
                self.flushes.request(partition)
                while log.recovery_point < end and not partition.is_offline:  # noqa: ASYNC110 - seldom, and short
                    await asyncio.sleep(FLUSH_LOOK_SECONDS)
        if log.recovery_point < end:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic_partition} does not get onto the disk")

    async def keep_log_starts(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Have the log starts of partitions on disk, unless their directories fail."""
        await self.run_on_lanes(self.log_manager.checkpoint_tasks(LOG_START_OFFSET_CHECKPOINT, topic_partitions))

    async def retain(self, topic_partitions: Sequence[TopicPartition]) -> None:
        """Delete segments that are too old, too many, or below the log start; others are served meanwhile."""
        logs = self.log_manager
        with suppress(AllLogDirsFailedError):
            pace = Pace(RETAINED_LOGS)
            for first in range(0, len(topic_partitions), RETAINED_LOGS):
                below = logs.retention.begin(topic_partitions[first : first + RETAINED_LOGS])
                if below:
                    await self.keep_log_starts(below)
                    while tasks := logs.retention.finish(below):
                        await self.run_on_lanes(tasks)
                await pace.rest()

    # -- durability ------------------------------------------------------------------------------------------------

    def flush_overdue(self, now_ms: int) -> None:
        """Flush the logs that have waited for `flush.ms`."""
        for partition in self._partitions.values():
            log = partition.log
            if log.recovery_point < log.log_end_offset and now_ms - log.last_flush_ms >= log.config.flush_ms:
                self.flushes.request(partition)

    # -- events ----------------------------------------------------------------------------------------------------

    def progressed(self, partition: Partition) -> None:
        """Its high watermark has risen, or what is on disk, or it is led otherwise: answer whoever waited for that."""
        key = partition.topic_partition
        for purgatory in self._purgatories:
            if purgatory.watchers and key in purgatory.watchers:
                purgatory.check(key)

    def log_dir_failed(self, directory: str, error: BaseException) -> None:
        """A log directory cannot be written or read any more: have it taken offline, for good."""
        with suppress(AllLogDirsFailedError):
            self.log_manager.held.fail_log_dir(directory, error if isinstance(error, OSError) else None)

    def _dir_failed(self, failure: LogDirFailedError, lost: list[TopicPartition]) -> None:
        """A log directory is offline, whoever found out: its partitions are too, and nobody waits for them."""
        logger.error("%s; its partitions are offline until a restart", failure)
        for topic_partition in lost:
            partition = self._partitions.get(topic_partition)
            if partition is not None and not partition.is_offline:
                partition.go_offline()
                self.progressed(partition)
        if lost:
            self._on_partitions_lost(lost)
        if not self.log_manager.held.online_dirs:
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

    @contextmanager
    def _checked_io(self) -> Iterator[None]:
        """Work on a log whose directory fails if the log cannot be read or written. Raises KafkaError."""
        try:
            yield
        except LogDirFailedError as error:
            raise self._storage_error(error) from error

    def _storage_error(self, error: LogDirFailedError) -> KafkaError:
        """A disk failed while a partition was served: fail its directory, and say what to answer."""
        self.log_dir_failed(error.path, error.cause)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    def topic_config_changed(self, topic: str | None) -> None:
        """The settings of a topic, or of every topic, are others now."""
        for partition in self._partitions.values():
            name = partition.topic_partition.topic
            if topic is None or name == topic:
                partition.log.config = self._topic_log_config(name)

    def expire_producers(self) -> None:
        """Forget producers that have been silent for `producer.id.expiration.ms`."""
        for partition in self._partitions.values():
            partition.log.producer_state.remove_expired(self._ports.now_ms())

    def complete_all(self) -> None:
        """Answer everything that waits; for shutdown."""
        self.produce_purgatory.complete_all()
        self.fetch_purgatory.complete_all()


def _check_client_records(topic: str, records: memoryview, internal_topics_allowed: bool) -> None:
    """Raises KafkaError for what a client may not append, wherever it is."""
    if topic in INTERNAL_TOPICS and not internal_topics_allowed:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal")
    if len(records) > ATTRIBUTES_LOW_BYTE and records[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_MASK:
        check_transaction(records)
