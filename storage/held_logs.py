"""The logs of a broker by log directory, and the logs that a failing disk takes offline."""

from collections.abc import Callable, Sequence

from ..common.error_description import describe_error
from ..common.room_logger import room_logger
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.topic_partition import TopicPartition
from .errors import LogDirFailedError, LogFailedError, StorageError
from .lane_task import LaneTask
from .log import Log
from .log_dir import LogDir

logger = room_logger("storage")


class AllLogDirsFailedError(StorageError):
    """No log directory is left, so the broker can serve nothing."""


class HeldLogs:
    """A partition is in exactly one place: in `logs`, or in `offline` with the reason why it is not served, or nowhere.

    `dir_of` has its directory in either case. A directory whose disk failed is offline until the next start, with all
    its logs; the other directories continue. For the thread that owns the logs.
    """

    def __init__(self, dirs: Sequence[LogDir]) -> None:
        self.dirs = list(dirs)
        self.logs: dict[TopicPartition, Log] = {}
        self.offline: dict[TopicPartition, StorageError] = {}
        self.dir_of: dict[TopicPartition, LogDir] = {}
        self.on_dir_failure: Callable[[LogDirFailedError, list[TopicPartition]], None] | None = None
        """Called for each directory that fails, with the partitions it held."""
        self.is_cordoned: Callable[[str], bool] = lambda _: False
        """Returns whether the directory with this path gets no new partitions (Kafka's cordonedLogDirs, KIP-1066)."""

    @property
    def online_dirs(self) -> list[LogDir]:
        """The directories whose disks work."""
        return [log_dir for log_dir in self.dirs if log_dir.is_online]

    @property
    def dirs_for_new_logs(self) -> list[LogDir]:
        """The online directories that are not cordoned, or all online directories if all of them are."""
        online = self.online_dirs
        return [log_dir for log_dir in online if not self.is_cordoned(log_dir.path)] or online

    def dir_at(self, path: str) -> LogDir:
        """Return the directory of a path, as it is configured."""
        return next(log_dir for log_dir in self.dirs if log_dir.path == path)

    def held_by(self, log_dir: LogDir) -> list[TopicPartition]:
        """Return the partitions that a directory has."""
        return [topic_partition for topic_partition, holder in self.dir_of.items() if holder is log_dir]

    def get_log(self, topic_partition: TopicPartition) -> Log | None:
        """Return the log of a partition, None if this broker has none. Raises KAFKA_STORAGE_ERROR if it is offline."""
        log = self.logs.get(topic_partition)
        if log is None and topic_partition in self.offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic_partition} is offline")
        return log

    def add(self, topic_partition: TopicPartition, log: Log, log_dir: LogDir) -> None:
        """Add a new log."""
        self.logs[topic_partition] = log
        self.dir_of[topic_partition] = log_dir
        log_dir.partition_count += 1

    def remove(self, topic_partition: TopicPartition) -> None:
        """Remove a deleted log."""
        del self.logs[topic_partition]
        self.dir_of.pop(topic_partition).partition_count -= 1

    # Failure

    def fail_log_dir(self, path: str, cause: OSError | None = None) -> list[TopicPartition]:
        """Take a directory and all its logs offline until the next start; return the partitions it held.

        Nothing in it is written or flushed any more, because reads may differ from the bytes on the disk.
        Raises `AllLogDirsFailedError` if no directory is left.
        """
        log_dir = self.dir_at(path)
        lost = self.take_offline(log_dir, log_dir.fail(cause or OSError("the disk failed")))
        if not self.online_dirs:
            raise AllLogDirsFailedError(f"every log directory has failed: {', '.join(d.path for d in self.dirs)}")
        return lost

    def fail(self, error: LogDirFailedError) -> list[TopicPartition]:
        """Take the subject of an error offline: a log directory, or one log; return the partitions.

        Raises `AllLogDirsFailedError`.
        """
        if isinstance(error, LogFailedError) and self.dir_at(error.path).is_in_place():
            return self._fail_log(error)
        return self.fail_log_dir(error.path, error.cause)

    def _fail_log(self, failure: LogFailedError) -> list[TopicPartition]:
        topic_partition = failure.topic_partition
        log = self.logs.pop(topic_partition, None)
        if log is None:
            return []
        logger.error("%s is offline until a restart: %s", log.path, describe_error(failure.cause))
        self.offline[topic_partition] = failure
        log.close_handles()
        if self.on_dir_failure is not None:
            self.on_dir_failure(failure, [topic_partition])
        return [topic_partition]

    def take_offline(self, log_dir: LogDir, failure: LogDirFailedError) -> list[TopicPartition]:
        """Close the logs of a directory; return their partitions."""
        held = self.held_by(log_dir)
        for topic_partition in held:
            log = self.logs.pop(topic_partition, None)
            if log is not None:
                log.close_handles()
            self.offline[topic_partition] = failure
        if self.on_dir_failure is not None:
            self.on_dir_failure(failure, held)
        return held

    def on_disk(self, log_dir: LogDir, work: Callable[[], object]) -> bool:
        """Run a function on the disk of a directory; an error takes the directory offline. Return whether it succeeded.

        Raises `AllLogDirsFailedError`.
        """
        if not log_dir.is_online:
            return False
        try:
            work()
        except LogDirFailedError as error:
            self.fail(error)
        except OSError as error:
            self.fail_log_dir(log_dir.path, error)
        else:
            return True
        return False

    def run(self, task: LaneTask) -> None:
        """Run a lane task on the calling thread. Raises as `on_disk`, and `OSError` if no file handle is available."""
        try:
            task()
        except LogDirFailedError as error:
            self.fail(error)
