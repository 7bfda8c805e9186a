"""Deletion of segments that are too old, too many bytes, or below the log start, over all logs of a broker."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial

from ..common.room_logger import room_logger
from ..protocol.errors import KafkaError
from ..protocol.topic_partition import TopicPartition
from .cleaning.log_cleaner_manager import LogCleanerManager
from .deletions import Deletions
from .errors import LogDirFailedError
from .filesystem import FileSystem
from .held_logs import HeldLogs
from .lane_task import LaneTask
from .log import Log
from .reserve import Reserve

logger = room_logger("storage")


class Retention:
    """Kafka's LogManager.cleanupLogs, cut where the thread changes. For the thread that owns the logs."""

    def __init__(
        self, held: HeldLogs, cleaner_manager: LogCleanerManager, deletions: Deletions, fs: FileSystem
    ) -> None:
        self._held = held
        self._cleaner_manager = cleaner_manager
        self._deletions = deletions
        self._fs = fs

    def begin(self, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Raises the log start of each log past the segments that it need not keep; returns the new log starts.

        They have to be on disk before `finish`, so that a crash never moves a log start back. A log that is being
        cleaned is left out, and checked again afterwards. A log directory that fails is taken offline.
        """
        found = {}
        for log in self._not_in_a_pass(topic_partitions):
            try:
                below = self._begin(log)
            except KafkaError as error:
                logger.warning("retention of %s is delayed: %s", log.topic_partition, error)
            except LogDirFailedError as error:
                self._held.fail(error)
            else:
                if below is not None:
                    found[log.topic_partition] = below
        return found

    def _begin(self, log: Log) -> int | None:
        try:
            return log.begin_retention()
        except KafkaError:
            # All segments are to be deleted, and the disk has no space for the new active segment.
            if not self._held.dir_of[log.topic_partition].use_reserve(Reserve.release_part):
                raise
        return log.begin_retention()

    def finish(self, below: Mapping[TopicPartition, int], most: int) -> list[LaneTask]:
        """Rename the files of segments below these offsets to `.deleted`, and have them unlinked some time later.

        The tasks make the new names durable. Of up to `most` segments, of all these logs together: to be called until
        it returns no tasks.
        """
        left = most
        directories: dict[str, list[str]] = {}
        for log in self._not_in_a_pass(below):
            if left == 0:
                break
            count = len(log.segments)
            try:
                paths = log.finish_retention(below[log.topic_partition], left)
            except LogDirFailedError as error:
                self._held.fail(error)
            else:
                left -= count - len(log.segments)
                if paths:
                    self.delete_later(log, paths)
                    directories.setdefault(log.directory, []).append(log.path)
        return [LaneTask(lane, partial(self._sync_names, paths)) for lane, paths in directories.items()]

    def delete_later(self, log: Log, paths: list[str]) -> None:
        """Unlink files that a log no longer needs, after `file.delete.delay.ms`."""
        log_dir = self._held.dir_of[log.topic_partition]
        self._deletions.add_files(paths, log_dir, log.config.file_delete_delay_ms)

    def _not_in_a_pass(self, topic_partitions: Iterable[TopicPartition]) -> Iterable[Log]:
        for topic_partition in topic_partitions:
            log = self._held.logs.get(topic_partition)
            if log is not None and not self._cleaner_manager.is_in_progress(topic_partition):
                yield log

    def _sync_names(self, directories: Iterable[str]) -> None:
        for directory in directories:
            with suppress(FileNotFoundError):  # the log and all its files may have been deleted
                self._fs.fsync_dir(directory)
