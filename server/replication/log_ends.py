"""The two ends of logs: records deleted from the start, by wish or by age, and segments closed at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.topic_partition import TopicPartition
from ...storage.held_logs import AllLogDirsFailedError
from ...storage.log_dir import LOG_START_OFFSET_CHECKPOINT
from ..metadata.topic_names import is_internal
from ..runtime.turns import RETAINED_LOGS, RETAINED_SEGMENTS, Pace
from .delayed_delete_records import DelayedDeleteRecords
from .delayed_operation import Purgatory

if TYPE_CHECKING:
    from ...storage.lane_task import LaneTask
    from ...storage.log_manager import LogManager
    from .group_commit import GroupCommit
    from .hosted_partitions import HostedPartitions

FLUSH_SECONDS = 60.0
"""How long a flush is waited for that somebody asked for."""
FLUSH_LOOK_SECONDS = 0.005


class LogEnds:
    """Loop-thread only; blocking work goes to the lanes."""

    def __init__(
        self,
        hosted: HostedPartitions,
        log_manager: LogManager,
        flushes: GroupCommit,
        run_on_lanes: Callable[[Sequence[LaneTask]], Awaitable[None]],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._hosted = hosted
        self._log_manager = log_manager
        self._flushes = flushes
        self._run_on_lanes = run_on_lanes
        self._loop = loop
        self.deletions = Purgatory("DeleteRecords", loop)

    async def delete_records(
        self, offsets: Sequence[tuple[str, int, int]], timeout_ms: float
    ) -> list[int | KafkaError]:
        """Raise the log starts of partitions that this broker leads to offsets, -1 for the high watermark.

        Gives for each, in their order, the new low watermark, which is on disk here and which the other live replicas
        have followed; REQUEST_TIMED_OUT where they have not after `timeout_ms`. Kafka's ReplicaManager.deleteRecords.
        """
        results: list[int | KafkaError] = []
        pace = Pace()
        for topic, index, offset in offsets:
            await pace.step()
            try:
                partition = self._hosted.led(topic, index)
                if is_internal(topic):
                    raise KafkaError(
                        ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {topic}"
                    )
                results.append(partition.delete_records(offset))
            except Exception as error:  # noqa: BLE001 - whatever one partition comes to, the others are served
                results.append(self._hosted.answer_to(error, topic, index).as_result())
        moved = [number for number, result in enumerate(results) if not isinstance(result, KafkaError)]
        await self.keep_log_starts({TopicPartition(*offsets[number][:2]) for number in moved})
        waiting: dict[int, DelayedDeleteRecords] = {}
        for number in moved:
            topic, index, _ = offsets[number]
            try:
                partition = self._hosted.led(topic, index)  # unless its directory has failed
                target = results[number]
                if partition.followers is not None and not isinstance(target, KafkaError):
                    operation = DelayedDeleteRecords(partition, target, self._loop)
                    if not operation.try_complete():
                        self.deletions.watch(operation, [partition.topic_partition], timeout_ms)
                    waiting[number] = operation
            except Exception as error:  # noqa: BLE001 - as above
                results[number] = self._hosted.answer_to(error, topic, index).as_result()
        for number, operation in waiting.items():
            results[number] = await operation.outcome
        return results

    async def close_active_segment(self, topic_partition: TopicPartition) -> None:
        """Begin a new segment, and have the old one on disk. Raises KafkaError as `partition`, KAFKA_STORAGE_ERROR."""
        partition = self._hosted.led(*topic_partition)
        log = partition.log
        with self._hosted.answering(*topic_partition):
            log.roll()
        end = log.log_end_offset
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_SECONDS):
                self._flushes.request(partition)
                while log.recovery_point < end and not partition.is_offline:  # noqa: ASYNC110 - seldom, and short
                    await asyncio.sleep(FLUSH_LOOK_SECONDS)
        if log.recovery_point < end:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic_partition} does not get onto the disk")

    async def keep_log_starts(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Have the log starts of partitions on disk, unless their directories fail."""
        await self._run_on_lanes(self._log_manager.checkpoint_tasks(LOG_START_OFFSET_CHECKPOINT, topic_partitions))

    async def retain(self, topic_partitions: Sequence[TopicPartition]) -> None:
        """Delete segments that are too old, too many, or below the log start; others are served meanwhile."""
        logs = self._log_manager
        with suppress(AllLogDirsFailedError):
            pace = Pace(RETAINED_LOGS)
            for first in range(0, len(topic_partitions), RETAINED_LOGS):
                below = logs.retention.begin(topic_partitions[first : first + RETAINED_LOGS])
                if below:
                    await self.keep_log_starts(below)
                    while tasks := logs.retention.finish(below, RETAINED_SEGMENTS):
                        await self._run_on_lanes(tasks)
                await pace.rest()
