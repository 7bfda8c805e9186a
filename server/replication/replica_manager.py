"""All replicas of this broker, and the operations that wait on them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import UUID

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.topic_partition import TopicPartition
from ...storage.errors import LogDirFailedError
from ...storage.log_dir import LOG_START_OFFSET_CHECKPOINT
from ...storage.log_manager import AllLogDirsFailedError
from .delayed_operation import Purgatory
from .group_commit import GroupCommit
from .partition import Partition

if TYPE_CHECKING:
    from ...storage.lane_task import LaneTask
    from ...storage.log_config import LogConfig
    from ...storage.log_manager import LogManager
    from ..metadata.metadata_cache import MetadataCache
    from ..runtime.ports import Ports

logger = logging.getLogger("barnabas.replication")

RETAINED_PER_TURN = 64
"""Logs that retention looks at before the loop gets to serve others."""


class ReplicaManager:
    """Kafka's ReplicaManager. Loop-thread only; blocking work goes to one lane per log directory."""

    def __init__(
        self,
        *,
        log_manager: LogManager,
        metadata: MetadataCache,
        topic_log_config: Callable[[str], LogConfig],
        ports: Ports,
        loop: asyncio.AbstractEventLoop,
        acks_all_on_disk: bool,
        on_partitions_lost: Callable[[list[TopicPartition]], None],
        on_all_failed: Callable[[], None],
    ) -> None:
        self.log_manager = log_manager
        log_manager.on_dir_failure = self._dir_failed
        self.acks_all_on_disk = acks_all_on_disk
        self.produce_purgatory = Purgatory("Produce", loop)
        self.fetch_purgatory = Purgatory("Fetch", loop)
        self.flushes = GroupCommit(ports, loop, self.log_dir_failed)
        self._on_partitions_lost = on_partitions_lost
        self._on_all_failed = on_all_failed
        self._metadata = metadata
        self._topic_log_config = topic_log_config
        self._ports = ports
        self._loop = loop
        self._partitions: dict[tuple[str, int], Partition] = {}

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
        if partition is None:
            if self._metadata.partition(TopicPartition(topic, index)) is not None:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{index} has no replica on this broker")
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
        if partition.is_offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory of {topic}-{index} has failed")
        if not partition.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {topic}-{index}")
        return partition

    async def prepare_logs(self, topic_ids: Mapping[TopicPartition, UUID]) -> None:
        """Have the folders of new partitions made and synced on the lanes of their directories, for `become_leader`."""
        tasks: list[LaneTask] = []
        with suppress(AllLogDirsFailedError):
            tasks = self.log_manager.preparation_tasks(topic_ids)
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
                log = self.log_manager.get_or_create_log(
                    topic_partition, topic_id=topic_id, config=config, is_new=is_new
                )
            except (OSError, LogDirFailedError, AllLogDirsFailedError) as error:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"no log for {topic_partition}: {error}") from error
            partition = self._partitions[topic_partition] = Partition(topic_partition, topic_id, log, self)
        partition.become_leader(leader_epoch, partition_epoch, replicas, isr)
        # Who waits with an older epoch is to hear of the new one.
        self._changed(partition)

    async def stop_replica(self, topic_partition: TopicPartition, *, delete: bool) -> None:
        """Stop serving a replica; with `delete` its directory is renamed away before this returns (StopReplica)."""
        partition = self._partitions.pop(topic_partition, None)
        if partition is not None:
            partition.resign()
            self.flushes.forget(partition)
            self._changed(partition)
        if delete:
            try:
                task = self.log_manager.delete_log(topic_partition)
                if task is not None:
                    await self._ports.work.run(task.lane, task)
            except LogDirFailedError as error:
                # Its folder may have its old name again at the next start.
                self.log_manager.offline[topic_partition] = error
                self.log_dir_failed(error.path, error.cause)
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
            except (OSError, AllLogDirsFailedError) as error:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    # -- log start offsets -----------------------------------------------------------------------------------------

    async def keep_log_starts(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Have the log starts of partitions on disk, unless their directories fail."""
        await self.run_on_lanes(self.log_manager.checkpoint_tasks(LOG_START_OFFSET_CHECKPOINT, topic_partitions))

    async def retain(self, topic_partitions: Sequence[TopicPartition]) -> None:
        """Delete segments that are too old, too many, or below the log start; others are served meanwhile."""
        logs = self.log_manager
        with suppress(AllLogDirsFailedError):
            for first in range(0, len(topic_partitions), RETAINED_PER_TURN):
                below = logs.begin_retention(topic_partitions[first : first + RETAINED_PER_TURN])
                if below:
                    await self.keep_log_starts(below)
                    while tasks := logs.finish_retention(below):
                        await self.run_on_lanes(tasks)
                await asyncio.sleep(0)

    # -- durability ------------------------------------------------------------------------------------------------

    def flush_overdue(self, now_ms: int) -> None:
        """Flush the logs that have waited for `flush.ms`."""
        for partition in self._partitions.values():
            log = partition.log
            if log.recovery_point < log.log_end_offset and now_ms - log.last_flush_ms >= log.config.flush_ms:
                self.flushes.request(partition)

    # -- events ----------------------------------------------------------------------------------------------------

    def high_watermark_raised(self, partition: Partition) -> None:
        """Answer whoever waited for it."""
        self._changed(partition)

    def log_dir_failed(self, directory: str, error: BaseException) -> None:
        """A log directory cannot be written or read any more: have it taken offline, for good."""
        with suppress(AllLogDirsFailedError):
            self.log_manager.fail_log_dir(directory, error if isinstance(error, OSError) else None)

    def _dir_failed(self, failure: LogDirFailedError, lost: list[TopicPartition]) -> None:
        """A log directory is offline, whoever found out: its partitions are too, and nobody waits for them."""
        logger.error("%s; its partitions are offline until a restart", failure)
        for topic_partition in lost:
            partition = self._partitions.get(topic_partition)
            if partition is not None and not partition.is_offline:
                partition.go_offline()
                self._changed(partition)
        if lost:
            self._on_partitions_lost(lost)
        if not self.log_manager.online_dirs:
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

    def checked_io(self, partition: Partition, error: LogDirFailedError | OSError) -> KafkaError:
        """An I/O error met while serving `partition`: fail its directory and say what to answer."""
        self.log_dir_failed(partition.log.directory, error)
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
            partition.log.expire_producers()

    def complete_all(self) -> None:
        """Answer everything that waits; for shutdown."""
        self.produce_purgatory.complete_all()
        self.fetch_purgatory.complete_all()

    def _changed(self, partition: Partition) -> None:
        key = partition.topic_partition
        self.produce_purgatory.check(key)
        self.fetch_purgatory.check(key)
