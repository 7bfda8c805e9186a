"""The logs that a start finds in the log directories: which folders are logs, and opening each."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..protocol.topic_partition import TopicPartition
from .errors import LogDirFailedError, StorageError
from .filesystem import FileSystem
from .future_logs import OpenLog
from .log import Log
from .log_config import LogConfig
from .log_dir import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    LogDir,
)
from .log_loader import NO_RECOVERY_POINT
from .partition_dir import PartitionDir

_logger = logging.getLogger(__name__)


class DuplicateLogError(StorageError):
    """One partition has a folder in two log directories, and nothing tells which one counts."""


@dataclass
class FoundLogs:
    """Puts what it finds into its manager's `logs`, `dir_of` and `offline`."""

    logs: dict[TopicPartition, Log]
    dir_of: dict[TopicPartition, LogDir]
    offline: dict[TopicPartition, StorageError]
    fs: FileSystem
    config_for: Callable[[str], LogConfig]
    open_log: OpenLog

    def claim(self, log_dir: LogDir, partition_dirs: Iterable[PartitionDir]) -> None:
        """Notes where partitions are before they are opened, so that a failing disk takes all of its own offline.

        Raises `DuplicateLogError`.
        """
        for partition_dir in partition_dirs:
            other = self.dir_of.setdefault(partition_dir.topic_partition, log_dir)
            if other is not log_dir:
                name = partition_dir.topic_partition
                raise DuplicateLogError(f"{name} is in {other.path} and in {log_dir.path}")

    def load(self, log_dir: LogDir, partition_dirs: Iterable[PartitionDir]) -> None:
        """Opens logs, after an unclean stop by recovery. On the lane of their directory.

        One that contradicts itself is offline, alone. Raises `OSError`, `LogDirFailedError`.
        """
        for partition_dir in partition_dirs:
            path = f"{log_dir.path}/{partition_dir.name}"
            topic_partition = partition_dir.topic_partition
            if not log_dir.was_clean_shutdown and self._is_abandoned(path):
                del self.dir_of[topic_partition]
                log_dir.remove_tree(path)
                continue
            try:
                self.logs[topic_partition] = self._open(log_dir, topic_partition)
            except LogDirFailedError:
                raise
            except StorageError as error:
                _logger.error("%s is not served: %s", path, error)
                self.offline[topic_partition] = error

    def _is_abandoned(self, path: str) -> bool:
        """Whether the folder is left from a creation that a crash cut short: nothing was ever acknowledged in it."""
        return not any(name.endswith(".log") or name == "partition.metadata" for name in self.fs.list_dir(path))

    def _open(self, log_dir: LogDir, topic_partition: TopicPartition) -> Log:
        log = self.open_log(
            f"{log_dir.path}/{topic_partition}",
            config=self.config_for(topic_partition.topic),
            recovery_point=self._recovery_point_of(log_dir, topic_partition),
            log_start_offset=log_dir.offsets[LOG_START_OFFSET_CHECKPOINT].get(topic_partition, 0),
            clean_shutdown=log_dir.was_clean_shutdown,
        )
        log.update_high_watermark(log_dir.offsets[HIGH_WATERMARK_CHECKPOINT].get(topic_partition, 0))
        return log

    def _recovery_point_of(self, log_dir: LogDir, topic_partition: TopicPartition) -> int:
        """What the checkpoint says; -1 for a log that came from elsewhere, which may have been compacted.

        Logs of this broker have an entry from their creation on.
        """
        may_have_gaps = topic_partition in log_dir.offsets[CLEANER_CHECKPOINT]
        if may_have_gaps and not self.config_for(topic_partition.topic).compact:
            return NO_RECOVERY_POINT
        return log_dir.offsets[RECOVERY_POINT_CHECKPOINT].get(topic_partition, NO_RECOVERY_POINT)
