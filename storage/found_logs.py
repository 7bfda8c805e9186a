"""The logs that a start finds in the log directories: which folders are logs, and opening each."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

from ..common.room_logger import room_logger
from ..protocol.topic_partition import TopicPartition
from .errors import FILE_ERRORS, CorruptCheckpointError, LogDirFailedError, StorageError
from .filesystem import FileSystem, parent_of
from .future_logs import OpenLog
from .held_logs import HeldLogs
from .lane_task import MANY_LOGS
from .leader_epochs import FILE_NAME as EPOCHS_FILE_NAME
from .leader_epochs import UNDEFINED_EPOCH, LeaderEpochCache
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
from .partition_dir import STRAY_SUFFIX, PartitionDir, marked_dir_name
from .partition_files import holds_log
from .partition_metadata import read_partition_metadata
from .recovered_files import RecoveredFiles
from .segment_files import LOG_SUFFIX

logger = room_logger("storage")


class DuplicateLogError(StorageError):
    """One partition has a folder in two log directories, and neither is marked as the replacement of the other."""


@dataclass(frozen=True, slots=True)
class FoundFolder:
    """The folder of a partition before the broker has opened or changed its files."""

    topic_partition: TopicPartition
    topic_id: UUID | None
    """None if there is no readable `partition.metadata`."""
    is_named: bool = True
    """Whether a checkpoint file contains the partition. The broker that created the folder adds it after some time."""


FindStrays = Callable[[Mapping[str, FoundFolder]], Mapping[str, str]]
"""Returns, for folders by path, the folders that are not partitions of this broker, each with the reason."""


@dataclass
class FoundLogs:
    """Finds the logs of all directories when the broker starts, and adds them to `held`."""

    held: HeldLogs
    fs: FileSystem
    config_for: Callable[[str], LogConfig]
    open_log: OpenLog
    strays: dict[str, str] = field(default_factory=dict)
    """Folders with a partition's name that are left alone, each with the reason."""
    random_bits: Callable[[int], int] | None = None
    """If set, folders that are not partitions of this broker are renamed with `-stray`, as by Kafka's KRaft brokers.

    Their names are free then: the cluster may have, or get, a partition of the same name with a replica here.
    """
    known_topics: Collection[str] | None = None
    """The topics whose settings are known; None for all."""
    partition_dirs: dict[LogDir, list[PartitionDir]] = field(default_factory=dict)
    """The folders that `find` has listed, until the loading tasks are made."""
    topic_ids: dict[TopicPartition, UUID | None] = field(default_factory=dict)
    """The ids of all partitions that were found, including partitions that could not be opened."""
    unopened_epochs: dict[TopicPartition, int] = field(default_factory=dict)
    """The latest leader epoch of logs that could not be opened, where their files say one."""
    _folders: dict[str, UUID | None] = field(default_factory=dict)
    """The topic ids in the folders that contain a log, by path, as `find` has read them."""
    _recovered: dict[str, dict[TopicPartition, RecoveredFiles]] = field(default_factory=dict)
    """The files of recovered logs that are not durable yet, by log directory."""

    def find(self, log_dir: LogDir) -> None:
        """List the partition folders of a directory, and read their topic ids. Runs on a lane of the directory.

        Ten thousand folders take a second, in which a broker may have to answer other brokers. Raises `OSError`.
        """
        self.partition_dirs[log_dir] = partition_dirs = log_dir.begin_loading()
        for partition_dir in partition_dirs:
            path = f"{log_dir.path}/{partition_dir.name}"
            if not partition_dir.suffix:
                topic_id = self._topic_id(path)
                if topic_id is not None or self._holds_log(path):
                    self._folders[path] = topic_id

    def leave_strays(
        self, found: Mapping[LogDir, Sequence[PartitionDir]], find_strays: FindStrays
    ) -> dict[LogDir, list[PartitionDir]]:
        """Return the folders that hold partitions of this broker.

        All others remain untouched, apart from their names (see `random_bits`), except for a log that was being
        created when its disk failed: it has no record, would conflict with a log that is moved into the directory, and
        would count as the log once the other disk fails.
        """
        folders = {}
        # In any directory: a partition whose folder was moved to another disk is still the same partition.
        named = {key for log_dir in found for offsets in log_dir.offsets.values() for key in offsets}
        for log_dir, partition_dirs in found.items():
            for partition_dir in partition_dirs:
                path = f"{log_dir.path}/{partition_dir.name}"
                if path in self._folders:
                    key = partition_dir.topic_partition
                    folders[path] = FoundFolder(key, self._folders.pop(path), key in named)
                else:
                    logger.warning("%s is ignored, because it contains no log", path)
        self.strays, renamed = dict(find_strays(folders)), dict[str, str]()
        for path, reason in self.strays.items():
            logger.warning("%s is ignored: %s", path, reason)
            topic_partition = folders.pop(path).topic_partition
            if self.random_bits is not None:
                name = marked_dir_name(topic_partition, f"{self.random_bits(128):032x}", STRAY_SUFFIX)
                renamed[path] = f"{parent_of(path)}/{name}"
        self._rename_strays(renamed)
        for path in self._unmade(folders):
            logger.warning("%s: deleted. It contains no record, and the partition is in another directory", path)
            try:
                next(log_dir for log_dir in found if parent_of(path) == log_dir.path).remove_log(path)
            except OSError as error:
                logger.warning("%s cannot be removed: %s", path, error)
            del folders[path]
        self.topic_ids = {folder.topic_partition: folder.topic_id for folder in folders.values()}
        return {
            log_dir: [one for one in partition_dirs if f"{log_dir.path}/{one.name}" in folders]
            for log_dir, partition_dirs in found.items()
        }

    def _rename_strays(self, renamed: Mapping[str, str]) -> None:
        """Give folders new names, durably. A folder that cannot be renamed remains in the way of its partition."""
        for path, new_path in renamed.items():
            try:
                self.fs.rename(path, new_path)
            except OSError as error:
                logger.warning("%s cannot be renamed to %s: %s", path, new_path, error)
                continue
            del self.strays[path]
            logger.warning("%s was renamed to %s", path, new_path)
        for parent in dict.fromkeys(map(parent_of, renamed)):
            try:
                self.fs.fsync_dir(parent)
            except OSError as error:
                self.held.fail_log_dir(parent, error)

    def identity(self, topic_partition: TopicPartition) -> tuple[UUID | None, int]:
        """Return the topic id and the latest leader epoch of a partition, opened or not; -1 if no file has an epoch."""
        log = self.held.logs.get(topic_partition)
        if log is not None:
            return log.topic_id, log.leader_epochs.latest_epoch
        return self.topic_ids.get(topic_partition), self.unopened_epochs.get(topic_partition, UNDEFINED_EPOCH)

    def _unmade(self, folders: Mapping[str, FoundFolder]) -> list[str]:
        """Return the folders that were being created when their disk failed, of partitions in several directories."""
        places: dict[TopicPartition, list[str]] = {}
        for path, folder in folders.items():
            places.setdefault(folder.topic_partition, []).append(path)
        unmade = []
        for paths in places.values():
            if len(paths) > 1 and len({folders[path].topic_id for path in paths} - {None}) == 1:
                newest = {path: self._newest(path, with_records=True) for path in paths}
                if not any(newest.values()):
                    newest = {path: self._newest(path, with_records=False) for path in paths}
                    newest = {max(paths, key=lambda path: (newest[path], folders[path].topic_id is not None)): "kept"}
                unmade += [path for path in paths if not newest.get(path)]
        return unmade

    def _newest(self, path: str, *, with_records: bool) -> str:
        """Return the name of a folder's newest segment, or of the newest with records; "" if there is none."""
        try:
            names = [name for name in self.fs.list_dir(path) if name.endswith(LOG_SUFFIX)]
            return max((one for one in names if not with_records or self.fs.size(f"{path}/{one}")), default="")
        except OSError:
            return "it cannot be read"

    def _holds_log(self, path: str) -> bool:
        try:
            return holds_log(self.fs, path)
        except OSError:
            # A partition that cannot be read is one still; whether its disk has failed is found out when it is opened.
            return True

    def _topic_id(self, path: str) -> UUID | None:
        try:
            return read_partition_metadata(self.fs, path)
        except (CorruptCheckpointError, OSError):
            return None

    def claim(self, log_dir: LogDir, partition_dirs: Iterable[PartitionDir]) -> None:
        """Store the directories of partitions before they are opened: a failing disk takes all of its logs offline.

        Raises `DuplicateLogError`.
        """
        self._recovered[log_dir.path] = {}
        for partition_dir in partition_dirs:
            other = self.held.dir_of.setdefault(partition_dir.topic_partition, log_dir)
            if other is not log_dir:
                name = partition_dir.topic_partition
                raise DuplicateLogError(f"{name} is in {other.path} and in {log_dir.path}")

    def load(self, log_dir: LogDir, partition_dirs: Iterable[PartitionDir], others: list[None]) -> None:
        """Open logs, with recovery after an unclean stop. Runs on a lane of their directory.

        A log that contradicts itself is taken offline alone. `others` has an entry for each other task of the directory
        that has not ended, and the last task makes all recovered files durable. Raises `OSError`, `LogDirFailedError`.
        """
        for partition_dir in partition_dirs:
            topic_partition = partition_dir.topic_partition
            with self._giving_up(log_dir, topic_partition):
                self.held.logs[topic_partition] = self._open(log_dir, topic_partition)
        try:
            others.pop()
        except IndexError:
            self._sync(log_dir)

    @contextmanager
    def _giving_up(self, log_dir: LogDir, topic_partition: TopicPartition) -> Iterator[None]:
        """Take a log offline alone because of an error about its own files."""
        path = f"{log_dir.path}/{topic_partition}"
        try:
            yield
        except LogDirFailedError:
            raise
        except OSError as error:
            if error.errno not in FILE_ERRORS:
                raise
            self._give_up(path, topic_partition, StorageError(str(error)))
        except StorageError as error:
            self._give_up(path, topic_partition, error)

    def _sync(self, log_dir: LogDir) -> None:
        """Make the recovered files of a directory durable. Raises `OSError`."""
        recovered = self._recovered.pop(log_dir.path, {})
        if len(recovered) < MANY_LOGS or not self._sync_by_disk(log_dir, recovered):
            for topic_partition, files in recovered.items():
                if topic_partition in self.held.logs:
                    with self._giving_up(log_dir, topic_partition):
                        files.sync()

    def _sync_by_disk(self, log_dir: LogDir, recovered: Mapping[TopicPartition, RecoveredFiles]) -> bool:
        """Make recovered files durable by syncs of the disk; return False if the system has no such sync."""
        for topic_partition, files in recovered.items():
            with self._giving_up(log_dir, topic_partition):
                files.write()
        if not self.fs.sync_disk(log_dir.path):
            return False
        is_renamed = False
        for topic_partition, files in recovered.items():
            if topic_partition in self.held.logs:
                with self._giving_up(log_dir, topic_partition):
                    is_renamed |= files.rename()
        return not is_renamed or self.fs.sync_disk(log_dir.path)

    def _give_up(self, path: str, topic_partition: TopicPartition, error: StorageError) -> None:
        logger.error("%s is not served: %s", path, error)
        self.held.logs.pop(topic_partition, None)
        self.held.offline[topic_partition] = error
        try:
            epochs = LeaderEpochCache(f"{path}/{EPOCHS_FILE_NAME}", self.fs)
        except OSError:
            return
        self.unopened_epochs[topic_partition] = epochs.latest_epoch

    def _open(self, log_dir: LogDir, topic_partition: TopicPartition) -> Log:
        log = self.open_log(
            f"{log_dir.path}/{topic_partition}",
            config=self.config_for(topic_partition.topic),
            recovery_point=self._recovery_point_of(log_dir, topic_partition),
            log_start_offset=log_dir.offsets[LOG_START_OFFSET_CHECKPOINT].get(topic_partition, 0),
            clean_shutdown=log_dir.was_clean_shutdown,
            may_have_gaps=self.known_topics is not None and topic_partition.topic not in self.known_topics,
            transaction_indexes=log_dir.transaction_indexes.pop(topic_partition, {}),
            sync=partial(self._sync_later, log_dir, topic_partition),
            stored_topic_id=self.topic_ids.get(topic_partition),
        )
        log.restore_high_watermark(log_dir.offsets[HIGH_WATERMARK_CHECKPOINT].get(topic_partition, 0))
        return log

    def _sync_later(self, log_dir: LogDir, topic_partition: TopicPartition, files: RecoveredFiles) -> None:
        """Note recovered files, which the last task of the directory makes durable."""
        self._recovered[log_dir.path][topic_partition] = files

    def _recovery_point_of(self, log_dir: LogDir, topic_partition: TopicPartition) -> int:
        """Return the offset in the checkpoint; -1 for a log from another broker, which may have been compacted.

        Logs of this broker have an entry from their creation on.
        """
        may_have_gaps = topic_partition in log_dir.offsets[CLEANER_CHECKPOINT]
        if may_have_gaps and not self.config_for(topic_partition.topic).compact:
            return NO_RECOVERY_POINT
        return log_dir.offsets[RECOVERY_POINT_CHECKPOINT].get(topic_partition, NO_RECOVERY_POINT)
