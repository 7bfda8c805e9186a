"""Copies of logs in another log directory that are to take their logs' place (AlterReplicaLogDirs, KIP-113)."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol
from uuid import UUID

from ..common.room_logger import room_logger
from ..protocol.topic_partition import TopicPartition
from .filesystem import FileSystem
from .log import Log
from .log_config import LogConfig
from .log_dir import LogDir
from .log_loader import NO_RECOVERY_POINT
from .partition_dir import FUTURE_SUFFIX, PartitionDir, marked_dir_name
from .partition_files import REPLACING_FILE
from .recovered_files import RecoveredFiles
from .transaction_index import IndexChecksum

logger = room_logger("storage")


class OpenLog(Protocol):
    """`Log.open` with everything that is the same for all logs of a broker."""

    def __call__(
        self,
        path: str,
        *,
        config: LogConfig,
        recovery_point: int,
        log_start_offset: int,
        clean_shutdown: bool,
        topic_id: UUID | None = None,
        may_have_gaps: bool = False,
        transaction_indexes: Mapping[int, IndexChecksum] = ...,
        sync: Callable[[RecoveredFiles], None] = ...,
        stored_topic_id: UUID | None = None,
    ) -> Log: ...


@dataclass(slots=True, eq=False)
class FutureLog:
    """One copy. Its directory's lane alone works with `log`, until that takes the place of the partition's log."""

    topic_partition: TopicPartition
    log_dir: LogDir
    path: str
    log: Log | None = None
    valid_below: int = 0
    """A copy from an earlier run counts below this only: from there on the log may have changed since."""
    is_cancelled: bool = False
    """Whether the move was cancelled; the task that is working on the copy removes it."""

    def close_handles(self) -> None:
        """Give the handles back."""
        if self.log is not None:
            self.log.close_handles()


@dataclass
class FutureLogs:
    """All copies of a broker, at most one of a partition.

    Layout: `<topic>-<partition>.<32 hex>-future`, the files of a log. A crash leaves it as it is, and copying continues
    after the next start. When the copy replaces the log, it gets the plain name before the log's folder is renamed for
    deletion; between the two renames its file `replacing` marks it as the valid folder.
    """

    logs: dict[TopicPartition, Log]
    dir_of: dict[TopicPartition, LogDir]
    fs: FileSystem
    config_for: Callable[[str], LogConfig]
    open_log: OpenLog
    retire: Callable[[Log, LogDir], None]
    """Renames a log's folder away and has it removed later. Raises OSError."""
    announced: Callable[[TopicPartition, LogDir, Log], AbstractContextManager[None]]
    """Durably names a log in the checkpoints of a directory while it is moved there. Raises OSError."""
    random_bits: Callable[[int], int]
    copies: dict[TopicPartition, FutureLog] = field(default_factory=dict)

    # Start

    def settle(self, found: Mapping[LogDir, Sequence[PartitionDir]]) -> dict[LogDir, list[PartitionDir]]:
        """End the replacements that a crash cut short; return the folders of logs. Raises OSError."""
        live = {log_dir: [one for one in folders if not one.suffix] for log_dir, folders in found.items()}
        counts = Counter(folder for folders in live.values() for folder in folders) if len(live) > 1 else Counter()
        for folder in [one for one, count in counts.items() if count > 1]:
            holders = [log_dir for log_dir, folders in live.items() if folder in folders]
            marked = [one for one in holders if self.fs.exists(f"{one.path}/{folder.name}/{REPLACING_FILE}")]
            for other in holders if marked else ():
                if other is not marked[0]:
                    live[other].remove(folder)
                    other.remove_log(f"{other.path}/{folder.name}")
        return live

    def take_up(self, found: Mapping[LogDir, Sequence[PartitionDir]]) -> None:
        """Note the copies that an earlier run began. Raises OSError.

        A copy whose log is missing is left alone, as that may be on a disk that is missing today; one in its log's own
        directory, or a second one, is removed.
        """
        for log_dir, folders in found.items():
            for folder in folders:
                if folder.suffix != FUTURE_SUFFIX:
                    continue
                path, source = f"{log_dir.path}/{folder.name}", self.dir_of.get(folder.topic_partition)
                if source is None:
                    logger.warning("%s is ignored, because it is the copy of a log that does not exist", path)
                elif source is log_dir or folder.topic_partition in self.copies:
                    log_dir.remove_log(path)
                else:
                    self.copies[folder.topic_partition] = FutureLog(folder.topic_partition, log_dir, path)

    def note_ends(self) -> None:
        """Note that all logs are loaded: copies from earlier runs are valid up to the present ends of their logs."""
        for topic_partition, copy in self.copies.items():
            source = self.logs.get(topic_partition)
            copy.valid_below = 0 if source is None else source.log_end_offset

    # One copy

    def begin(self, topic_partition: TopicPartition, log_dir: LogDir) -> FutureLog:
        """Begin a copy in another directory and return it."""
        unique_id = f"{self.random_bits(128):032x}"
        path = f"{log_dir.path}/{marked_dir_name(topic_partition, unique_id, FUTURE_SUFFIX)}"
        copy = self.copies[topic_partition] = FutureLog(topic_partition, log_dir, path)
        return copy

    def open(self, copy: FutureLog) -> None:
        """Create the folder of the copy, or open an existing one. Runs on the lane of its directory.

        Raises OSError, StorageError, KafkaError INCONSISTENT_TOPIC_ID for a copy of another topic of the name.
        """
        is_new = not self.fs.is_dir(copy.path)
        copy.log = self.open_log(
            copy.path,
            config=self.config_for(copy.topic_partition.topic),
            recovery_point=0 if is_new else NO_RECOVERY_POINT,
            log_start_offset=0,
            clean_shutdown=is_new,
        )
        for before, following in pairwise(copy.log.segments):
            # A copy is synced when it is complete: a crash may have cost an earlier segment and not a later one. If
            # the log itself has a gap there, the following segments are only copied again.
            if (end := before.next_offset()) != following.base_offset:
                copy.log.truncate_to(end)
                break
        copy.log.truncate_to(copy.valid_below)
        source = self.logs.get(copy.topic_partition)
        if source is not None and source.topic_id is not None:
            copy.log.assign_topic_id(source.topic_id)

    def cancel(self, topic_partition: TopicPartition) -> None:
        """Cancel the copy of a partition."""
        copy = self.copies.pop(topic_partition, None)
        if copy is not None:
            copy.is_cancelled = True

    def remove(self, copy: FutureLog) -> None:
        """Remove a cancelled copy. Runs on the lane of its directory. Raises OSError."""
        copy.close_handles()
        if self.fs.is_dir(copy.path):
            copy.log_dir.remove_log(copy.path)

    def replace(self, copy: FutureLog) -> Log:
        """Replace a log with its complete copy, and return the log. No flush of the copy may be in progress.

        Raises OSError if the copy's disk fails: then the log is as before.
        """
        topic_partition, log_dir, log = copy.topic_partition, copy.log_dir, copy.log
        assert log is not None and log.recovery_point == log.log_end_offset
        source, source_dir = self.logs[topic_partition], self.dir_of[topic_partition]
        with self.announced(topic_partition, log_dir, log):
            self.fs.write_atomic(f"{copy.path}/{REPLACING_FILE}", b"")
            log.rename_dir(f"{log_dir.path}/{topic_partition}")
            self.fs.fsync_dir(log_dir.path)
            self.logs[topic_partition], self.dir_of[topic_partition] = log, log_dir
        log_dir.partition_count += 1
        source_dir.partition_count -= 1
        del self.copies[topic_partition]
        try:
            self.retire(source, source_dir)
            self.fs.fsync_dir(source_dir.path)
        except OSError as error:
            logger.error("%s: %s cannot be removed: %s", source_dir.path, topic_partition, error)
            return log
        with suppress(FileNotFoundError):
            self.fs.unlink(f"{log.path}/{REPLACING_FILE}")
        return log
