"""What following does to logs beyond appending: they are cut, emptied, and on disk before more is asked for.

With `acks.all.durability=disk` a follower asks for the next records when those it has are on its disk: by that fetch
the leader knows so, and what is acknowledged to acks=-1 is on the disks of all replicas in sync.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ...protocol.room_logger import room_logger

if TYPE_CHECKING:
    from ...protocol.topic_partition import TopicPartition
    from ...storage.errors import LogDirFailedError
    from ...storage.log_manager import LogManager
    from .group_commit import GroupCommit
    from .hosted_partitions import HostedPartitions
    from .partition import Partition

logger = room_logger("replication")


class FollowerLogs:
    """Loop-thread only."""

    def __init__(
        self,
        hosted: HostedPartitions,
        log_manager: LogManager,
        flushes: GroupCommit,
        loop: asyncio.AbstractEventLoop,
        *,
        on_disk: bool,
    ) -> None:
        self._hosted = hosted
        self._log_manager = log_manager
        self._flushes = flushes
        self._loop = loop
        self._on_disk = on_disk
        self._waiting: dict[Partition, list[tuple[int, asyncio.Future[None]]]] = {}

    def truncate(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Cut logs down, durably. A copy for another directory that has more than is left is begun anew some time.

        Raises KafkaError.
        """
        copies = self._log_manager.future_logs
        for name, offset in offsets.items():
            copy = copies.copies.get(name)
            if copy is not None and copy.log is not None and copy.log.log_end_offset > offset:
                logger.warning("%s has been cut below its copy in %s, which ends", name, copy.log_dir.path)
                copies.cancel(name)
        self._log_manager.truncate_to(offsets)

    def truncate_fully_and_start_at(self, topic_partition: TopicPartition, offset: int) -> None:
        """Empty a log. Raises KafkaError."""
        self._log_manager.truncate_fully_and_start_at(topic_partition, offset)

    def disk_failed(self, error: LogDirFailedError) -> None:
        """A log directory is gone."""
        self._hosted.log_dir_failed(error.path, error.cause)

    async def synced(self, partitions: Iterable[Partition]) -> None:
        """Wait until what was appended to these is on disk, if that is promised, or they follow no longer."""
        if not self._on_disk:
            return
        futures = []
        for partition in partitions:
            end = partition.log.log_end_offset
            if partition.log.recovery_point < end and not partition.is_offline:
                future = self._loop.create_future()
                self._waiting.setdefault(partition, []).append((end, future))
                futures.append(future)
                self._flushes.request(partition)
        for future in futures:
            await future

    def flushed(self, partition: Partition) -> None:
        """More of a log is on disk."""
        waiting = self._waiting.pop(partition, None)
        if waiting is not None:
            left = [one for one in waiting if one[0] > partition.log.recovery_point]
            _end([one for one in waiting if one not in left])
            if left:
                self._waiting[partition] = left

    def role_changed(self, partition: Partition) -> None:
        """Its role has changed, or its directory has failed."""
        _end(self._waiting.pop(partition, ()))


def _end(waiting: Iterable[tuple[int, asyncio.Future[None]]]) -> None:
    for _, future in waiting:
        if not future.done():
            future.set_result(None)
