"""Moves logs between log directories while they are read and written (Kafka's ReplicaAlterLogDirsThread).

The future log is written on the lane of its directory, in pieces of committed records. When it has them all on disk,
the few records appended since are added and the future log replaces the log, in one loop turn: the partition always has
a log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING

from ...common.room_logger import room_logger
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.topic_partition import TopicPartition
from ...storage.errors import FILE_ERRORS, PASSING, LogDirFailedError, LogFailedError, StorageError

if TYPE_CHECKING:
    from ...storage.future_logs import FutureLog
    from ...storage.log import Log
    from ...storage.log_dir import LogDir
    from ...storage.log_manager import LogManager
    from ..quotas.replication_quota_manager import ReplicationQuotaManager
    from ..runtime.ports import Ports
    from .partition import Partition
    from .replica_manager import ReplicaManager

logger = room_logger("replication")

PIECE_BYTES = 256 * 1024
REST_BYTES = 2 * 1024 * 1024
"""The last piece, which is added in one loop turn, is smaller than this."""
RETRY_SECONDS = 1.0
THROTTLED_SECONDS = 0.1
"""The delay before a move checks an exceeded quota again."""
LONGEST_NAME = 255


class ReplicaAlterLogDirsManager:
    """All moves of a broker; a move continues after a restart. Runs on the event loop."""

    def __init__(
        self,
        log_manager: LogManager,
        replica_manager: ReplicaManager,
        paused: Callable[[TopicPartition], AbstractAsyncContextManager[None]],
        ports: Ports,
        loop: asyncio.AbstractEventLoop,
        *,
        quota: ReplicationQuotaManager,
    ) -> None:
        """`paused` keeps the cleaner away from a log; `quota` is `replica.alter.log.dirs.io.max.bytes.per.second`."""
        self._log_manager = log_manager
        self._replicas = replica_manager
        self._paused = paused
        self._work = ports.work
        self._loop = loop
        self._quota = quota
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Continue the moves from before a restart, before the first append."""
        self._log_manager.future_logs.note_ends()
        for copy in list(self._log_manager.future_logs.copies.values()):
            self._begin(copy)

    async def close(self) -> None:
        """Leave the copies as they are, for the next start."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def move(self, topic_partition: TopicPartition, path: str) -> None:
        """Begin to move a partition into another log directory; into the one it is in ends a move that is on.

        Raises KafkaError INVALID_TOPIC_EXCEPTION, LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR, REPLICA_NOT_AVAILABLE,
        UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICA_ASSIGNMENT for a cordoned directory.
        """
        if len(str(topic_partition)) + len(".-future") + 32 > LONGEST_NAME:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
        destination = self._destination(path)
        copies = self._log_manager.future_logs
        copy = copies.copies.get(topic_partition)
        if copy is not None and copy.log_dir is not destination:
            copies.cancel(topic_partition)
            copy = None
        self._check_replica(topic_partition)
        if copy is not None or self._log_manager.log_dir_of(topic_partition) == destination.path:
            return
        if len(self._log_manager.held.online_dirs) < len(self._log_manager.dirs):
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, "A log directory is offline, and may contain a copy of the replica."
            )
        self._begin(copies.begin(topic_partition, destination))

    def _destination(self, path: str) -> LogDir:
        wanted = path.rstrip("/") or "/"
        found = next((log_dir for log_dir in self._log_manager.dirs if log_dir.path == wanted), None)
        if not path.startswith("/") or found is None:
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"Log dir {path} is not found in the config.")
        if not found.is_online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Log directory {path} is offline")
        if self._log_manager.held.is_cordoned(found.path):
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Log directory {path} is cordoned")
        return found

    def _check_replica(self, topic_partition: TopicPartition) -> None:
        found = self._replicas.get_partition(*topic_partition)
        if found is not None and not found.is_offline:
            return  # whether it leads or follows
        try:
            self._replicas.get_leader_partition(*topic_partition)
        except KafkaError as error:
            if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, error.message) from error
            raise

    # -- one move --------------------------------------------------------------------------------------------------

    def _begin(self, copy: FutureLog) -> None:
        task = self._loop.create_task(self._move(copy))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _move(self, copy: FutureLog) -> None:
        name, copies = copy.topic_partition, self._log_manager.future_logs
        try:
            async with self._paused(name):
                if await self._copy_all(copy):
                    logger.info("%s has moved to %s", name, copy.log_dir.path)
        except (KafkaError, StorageError, OSError) as error:
            if isinstance(error, LogDirFailedError) and not isinstance(error, LogFailedError):
                self._replicas.log_failed(error)
            logger.error("%s cannot be moved to %s: %s", name, copy.log_dir.path, error)
            copies.cancel(name)
        if copy.is_cancelled and copy.log_dir.is_online:
            await self._on_lane(copy, partial(copies.remove, copy))

    async def _copy_all(self, copy: FutureLog) -> bool:
        """Copy until the copy is the log; False if it is no longer to be, or cannot be before the next start."""
        copies = self._log_manager.future_logs
        await self._on_lane(copy, partial(copies.open, copy))
        while not copy.is_cancelled:
            partition = self._replicas.get_partition(*copy.topic_partition)
            if copy.log is None or partition is None or partition.is_offline:
                return False
            if self._quota.is_exceeded:
                await asyncio.sleep(THROTTLED_SECONDS)
                continue
            if await self._copy_some(copy, copy.log, partition.log):
                continue
            await self._on_lane(copy, copy.log.flush)
            if not (copy.is_cancelled or partition.is_offline) and self._replace(copy, copy.log, partition):
                return True
        return False

    async def _copy_some(self, copy: FutureLog, log: Log, source: Log) -> bool:
        """Copy a piece of the committed records; return False if the future log has them all."""
        start, end = source.log_start_offset, log.log_end_offset
        if end < start or end == log.log_start_offset < start or log.log_start_offset > start:
            # The next records have been deleted, or a crash has removed the first segments of the future log.
            await self._on_lane(copy, partial(log.truncate_fully_and_start_at, start))
            return True
        if end >= source.high_watermark:
            return False
        piece = _read(source, end, PIECE_BYTES, source.high_watermark)
        await self._on_lane(copy, partial(log.append_as_follower, piece))
        self._quota.record(len(piece))
        return True

    def _replace(self, copy: FutureLog, log: Log, partition: Partition) -> bool:
        """Add the rest and replace the log by its future log; return False if the rest is too large.

        Raises LogDirFailedError, KafkaError.
        """
        source, added = partition.log, 0
        while log.log_end_offset < source.log_end_offset:
            rest = _read(source, log.log_end_offset, REST_BYTES, source.log_end_offset)  # up to a segment's end
            added += len(rest)
            if added >= REST_BYTES:
                return False
            log.append_as_follower(rest)
        log.update_high_watermark(source.high_watermark)
        log.maybe_increment_log_start_offset(source.log_start_offset)
        log.flush()
        log.config = source.config
        try:
            partition.log = self._log_manager.future_logs.replace(copy)
        except OSError as error:
            raise LogDirFailedError(copy.log_dir.path, error) from error
        partition.log.rebuild_indexes_in_steps(self._replicas.rebuild_index)
        self._replicas.group_commit.request(partition)
        return True

    async def _on_lane(self, copy: FutureLog, job: Callable[[], object]) -> None:
        """Run a job on the lane of the copy's directory; retry it without space or handles."""
        while True:
            try:
                await self._work.run(copy.log_dir.path, job)
            except OSError as error:
                if error.errno in FILE_ERRORS:
                    raise
                if error.errno not in PASSING:
                    raise LogDirFailedError(copy.log_dir.path, error) from error
            except KafkaError as error:
                if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                    raise
            else:
                return
            logger.warning("%s has no space for %s yet; retrying", copy.log_dir.path, copy.topic_partition)
            if copy.is_cancelled:
                return
            await asyncio.sleep(RETRY_SECONDS)


def _read(source: Log, offset: int, max_bytes: int, bound: int) -> memoryview:
    """Return a copy of the next bytes of a log. Raises KafkaError, also if there are none, as the copy would stall."""
    found = source.read(offset, max_bytes, max_offset=bound, min_one_message=True).data
    if not found:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"{source.topic_partition} has no records from offset {offset} to {bound}"
        )
    return memoryview(bytearray(found))
