"""One log directory: its lock, its clean-shutdown marker, its checkpoints, and whether its disk can be trusted."""

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from itertools import islice
from typing import TypeVar
from uuid import UUID

from ..common.error_description import describe_error
from ..common.room_logger import room_logger
from ..protocol.topic_partition import TopicPartition
from .checkpoint_file import OffsetCheckpointFile
from .errors import FILE_ERRORS, PASSING, CorruptCheckpointError, LogDirFailedError
from .filesystem import FileSystem, Lock, TemporaryFile, parent_of
from .meta_properties import MetaProperties, read_meta_properties
from .partition_dir import KRAFT_NAMES, PartitionDir, parse_partition_dir
from .partition_files import TEMPORARY_SUFFIX, clear_name, remove_log, set_aside
from .partition_metadata import FILE_NAME as METADATA_FILE
from .partition_metadata import metadata_content
from .reserve import Reserve
from .segment_files import LOG_SUFFIX, segment_file_name
from .transaction_index import IndexChecksum
from .transaction_index_checkpoint import FILE_NAME as TRANSACTION_INDEX_CHECKPOINT
from .transaction_index_checkpoint import TransactionIndexCheckpoint

T = TypeVar("T")

LOCK_FILE = ".lock"
RESERVE_FILE = ".reserve"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"

CHECKPOINTS = (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, CLEANER_CHECKPOINT)
ORDINARY_NAMES = KRAFT_NAMES | {"lost+found"}
LOG_FILE = segment_file_name(0, LOG_SUFFIX)
UNNAMED_METADATA = METADATA_FILE + TEMPORARY_SUFFIX
FOLDERS_PER_CALL = 100
"""New folders of one call of the file system: the thread prepares them in a fraction of a millisecond, in which the
event loop may have to wait for the interpreter."""
MANY_FOLDERS = 64
"""The number of new folders from which on one sync of the whole disk replaces the syncs of the folders."""
OWN_FILES = (CLEAN_SHUTDOWN_FILE, TRANSACTION_INDEX_CHECKPOINT, *CHECKPOINTS)

logger = room_logger("storage")


class LogDir:
    """A folder that holds partition folders.

    Layout: `.lock`, `.reserve`, `meta.properties`, four text checkpoints of one line per partition, and
    `.kafka_cleanshutdown` and `transaction-index-checkpoint`, which exist only between a clean shutdown and the next
    start. Checkpoints are replaced
    whole, by temp file and rename, so a crash leaves the old or the new one. An unreadable checkpoint counts as empty:
    recovery then starts at 0, which costs time and no data.

    `offsets` mirrors the content of the checkpoint files; `partition_count` is kept by the log manager. After an I/O
    error `failure` is set, permanently.
    """

    def __init__(
        self,
        path: str,
        fs: FileSystem,
        writing: AbstractContextManager[object] | None = None,
        *,
        reserve_bytes: int = 0,
    ) -> None:
        """`writing` lets in one thread at a time, where there are several; `reserve_bytes` are kept for bad times."""
        self.path = path
        self.reserve = Reserve(fs, f"{path}/{RESERVE_FILE}", reserve_bytes)
        self.failure: LogDirFailedError | None = None
        self.was_clean_shutdown = False
        self.previous_broker_epoch = -1
        """The broker epoch at the clean stop before this start; -1 after an unclean stop."""
        self.transaction_indexes: dict[TopicPartition, dict[int, IndexChecksum]] = {}
        """Checksums of the clean stop before this start, until the log of each partition is opened."""
        self.is_new = False
        """Whether it had neither an identity nor a partition when the broker started."""
        self.partition_count = 0
        self.meta_properties: MetaProperties | None = None
        self.offsets: dict[str, dict[TopicPartition, int]] = {name: {} for name in CHECKPOINTS}
        self.unwritten_checkpoints: set[str] = set()
        """Checkpoints whose last write failed for lack of space or handles. Any thread adds and discards names."""
        self._fs = fs
        self._lock: Lock | None = None
        self._writing: AbstractContextManager[object] = writing or nullcontext()
        self._moment = 0
        self._written = dict.fromkeys(CHECKPOINTS, 0)
        self._changed: dict[str, dict[TopicPartition, int]] = {name: {} for name in CHECKPOINTS}
        """Entries that were changed by themselves since the last whole content, each with its moment."""

    @property
    def is_online(self) -> bool:
        """False once the disk failed."""
        return self.failure is None

    def is_in_place(self) -> bool:
        """Return whether the path still leads to the locked folder: the disk was not unmounted or unplugged."""
        return self._fs.exists(f"{self.path}/{LOCK_FILE}")

    def open(self) -> None:
        """Make the folder if it is missing, take its lock and read its identity.

        Raises `BlockingIOError` if another broker holds the lock, other `OSError` if the disk fails.
        """
        self._fs.make_dirs(self.path)
        self._lock = self._fs.lock(f"{self.path}/{LOCK_FILE}")
        self.reserve.give_up()
        self.meta_properties = read_meta_properties(self._fs, self.path)
        self.is_new = self.meta_properties is None

    def begin_loading(self) -> list[PartitionDir]:
        """Read and remove the clean-shutdown marker with its checksums, read the checkpoints, list partition folders.

        The marker is removed, durably, before any log is opened: a crash from then on is an unclean shutdown. Raises
        `OSError`.
        """
        found = self._fs.scan_dir(self.path)
        own = [name + suffix for name in OWN_FILES for suffix in ("", TEMPORARY_SUFFIX)]
        set_aside(self._fs, self.path, [name for name in own if found.get(name) is False])
        marker = f"{self.path}/{CLEAN_SHUTDOWN_FILE}"
        self.was_clean_shutdown = found.get(CLEAN_SHUTDOWN_FILE, False)
        if self.was_clean_shutdown:
            try:
                self.previous_broker_epoch = broker_epoch_in(self._fs.read_bytes(marker))
                self.transaction_indexes = self.read_index_checksums()
            except OSError as error:
                if error.errno not in FILE_ERRORS:
                    raise
                logger.warning("%s cannot be read, so all logs are recovered: %s", marker, error)
                self.was_clean_shutdown = False
            self._fs.unlink(marker)
        if found.get(TRANSACTION_INDEX_CHECKPOINT, False):
            self._fs.unlink(f"{self.path}/{TRANSACTION_INDEX_CHECKPOINT}")
        if found.get(CLEAN_SHUTDOWN_FILE, False):
            self._fs.fsync_dir(self.path)
        self.read_checkpoints()
        partition_dirs = self._partition_dirs(name for name, is_file in found.items() if not is_file)
        self.is_new = self.is_new and not partition_dirs
        return partition_dirs

    def read_checkpoints(self) -> None:
        """Read the checkpoint files into `offsets`. Raises `OSError`."""
        for name in CHECKPOINTS:
            self.offsets[name] = self._read_checkpoint(name)

    def _read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        try:
            return self._file(name).read()
        except CorruptCheckpointError as error:
            logger.warning("%s is damaged and treated as empty: %s", name, error)
            return {}
        except OSError as error:
            if error.errno not in FILE_ERRORS:
                raise
            logger.warning("%s cannot be read and is treated as empty: %s", name, error)
            return {}

    def _partition_dirs(self, names: Iterable[str]) -> list[PartitionDir]:
        found = []
        for name in sorted(names):
            path = f"{self.path}/{name}"
            if name.startswith(".") or name in ORDINARY_NAMES or not self._fs.is_dir(path):
                continue
            partition_dir = parse_partition_dir(name)
            if partition_dir is not None:
                found.append(partition_dir)
            else:
                logger.warning("%s: ignored, because it is not a partition folder", path)
        return found

    def moment(self) -> int:
        """Return a rising number: of two contents a checkpoint keeps the one with the higher.

        For the thread that owns the logs.
        """
        self._moment += 1
        return self._moment

    def write_checkpoint(self, name: str, offsets: Mapping[TopicPartition, int], moment: int) -> None:
        """Replace one checkpoint file, durably, with its content at one moment. Any thread may call this.

        Nothing is written if the file is equal already, or was written for a later moment. Raises `OSError`.
        """
        with self._writing:
            if moment < self._written[name]:
                return
            if changed := self._changed[name]:
                later = {key for key, since in changed.items() if since > moment}
                present = {key: offset for key, offset in self.offsets[name].items() if key in later}
                offsets = {key: offset for key, offset in offsets.items() if key not in later} | present
                self._changed[name] = {key: changed[key] for key in later}
            if offsets != self.offsets[name]:
                self._write_over(name, partial(self._file(name).write, offsets))
                self.offsets[name] = dict(offsets)
            self._written[name] = moment

    def change_checkpoint(self, name: str, changes: Mapping[TopicPartition, int | None], moment: int) -> None:
        """Set entries of one checkpoint file, durably; None removes an entry. Any thread may call this.

        A content of an earlier moment that is written later leaves these entries as they are. Raises `OSError`.
        """
        with self._writing:
            former = self.offsets[name]
            if any(former.get(key) != offset for key, offset in changes.items()):
                offsets = {key: offset for key, offset in {**former, **changes}.items() if offset is not None}
                self._file(name).write(offsets)
                self.offsets[name] = offsets
            self._changed[name].update(dict.fromkeys(changes, moment))

    def make_folders(self, topic_ids: Mapping[TopicPartition, UUID]) -> list[TopicPartition]:
        """Make the folders of new partitions, durably, each with an empty log; return the partitions that are new.

        The names in this directory are synced once for all folders. For many folders, a sync of the whole disk replaces
        the syncs of the folders. Raises `OSError`; then none of the folders counts.
        """
        partitions = {f"{self.path}/{key}": key for key in topic_ids}
        made: list[str] = []
        try:
            # First all writes, then all syncs: a journal that is written for one of them is written for all.
            waiting = iter(partitions.items())
            while some := dict(islice(waiting, FOLDERS_PER_CALL)):
                folders = {
                    path: {LOG_FILE: b"", UNNAMED_METADATA: metadata_content(topic_ids[key])}
                    for path, key in some.items()
                }
                self._fs.make_folders(folders, made)
            # Two syncs per folder, each a flush of the disk's cache, are most of the time that many new partitions
            # take. Two syncs of the disk also write all other dirty data on it, so a few folders are synced one by one.
            by_disk = len(made) >= MANY_FOLDERS and self._fs.sync_disk(self.path)
            for path in made if not by_disk else ():
                TemporaryFile(self._fs, f"{path}/{METADATA_FILE}").sync()
            for start in range(0, len(made), FOLDERS_PER_CALL):
                some_made = made[start : start + FOLDERS_PER_CALL]
                self._fs.rename_all({f"{path}/{UNNAMED_METADATA}": f"{path}/{METADATA_FILE}" for path in some_made})
            if not (by_disk and self._fs.sync_disk(self.path)):
                for path in made:
                    self._fs.fsync_dir(path)
                self._fs.fsync_dir(self.path)
        except OSError:
            for path in made:
                remove_log(self._fs, path)
            raise
        return [partitions[path] for path in made]

    def read_index_checksums(self) -> dict[TopicPartition, dict[int, IndexChecksum]]:
        """Return the checksums that were written after the clean-shutdown marker, if readable. Raises `OSError`."""
        modified_ms = self._fs.modified_ms(f"{self.path}/{CLEAN_SHUTDOWN_FILE}")
        try:
            return TransactionIndexCheckpoint(self.path, self._fs).read(modified_ms)
        except CorruptCheckpointError as error:
            logger.warning("%s is damaged and is ignored: %s", TRANSACTION_INDEX_CHECKPOINT, error)
        except OSError as error:
            if error.errno not in FILE_ERRORS:
                raise
            logger.warning("%s cannot be read and is ignored: %s", TRANSACTION_INDEX_CHECKPOINT, error)
        return {}

    def write_index_checksums(self, checksums: Mapping[TopicPartition, Mapping[int, IndexChecksum]]) -> None:
        """Write checksums for the next start, after the clean-shutdown marker. Raises `OSError`.

        If the disk is full, the next start has no checksums.
        """
        if not any(checksums.values()):
            return
        modified_ms = self._fs.modified_ms(f"{self.path}/{CLEAN_SHUTDOWN_FILE}")
        checkpoint = TransactionIndexCheckpoint(self.path, self._fs)
        try:
            self._write_over(TRANSACTION_INDEX_CHECKPOINT, partial(checkpoint.write, modified_ms, checksums))
        except OSError as error:
            if error.errno not in PASSING:
                raise
            logger.warning("%s could not be written: %s", checkpoint.path, error)

    def write_clean_shutdown_marker(self, broker_epoch: int = -1) -> None:
        """Mark the directory for the next start: every log was flushed and closed. Raises `OSError`."""
        content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        write = partial(self._fs.write_atomic, f"{self.path}/{CLEAN_SHUTDOWN_FILE}", content.encode("ascii"))
        self._write_over(CLEAN_SHUTDOWN_FILE, write)

    def _write_over(self, name: str, write: Callable[[], None]) -> None:
        """Replace one of the folder's own files, moving a directory with its name away. Raises `OSError`."""
        try:
            write()
        except OSError as error:
            if error.errno not in FILE_ERRORS:
                raise
            path = f"{self.path}/{name}"
            logger.warning("%s cannot be replaced: %s; the existing entry is renamed", path, error)
            if self._fs.exists(path + TEMPORARY_SUFFIX):
                clear_name(self._fs, path + TEMPORARY_SUFFIX)
            if self._fs.is_dir(path):
                clear_name(self._fs, path)
            write()

    def use_reserve(self, use: Callable[[Reserve], T]) -> T:
        """Call `use` with the reserve of this directory. On any thread. Raises the errors of `use`."""
        with self._writing:
            return use(self.reserve)

    def remove_log(self, path: str) -> None:
        """Remove the files of a log, durably, and its folder if nothing else is in it. Raises `OSError`."""
        remove_log(self._fs, path)
        self._fs.fsync_dir(parent_of(path))

    def unlink_all(self, paths: Iterable[str]) -> None:
        """Unlink files; a file that was deleted with its folder is not an error. Raises `OSError`."""
        for path in paths:
            with suppress(FileNotFoundError):
                self._fs.unlink(path)

    def fail(self, cause: OSError) -> LogDirFailedError:
        """Mark the directory as offline until the next start."""
        if self.failure is None:
            self.failure = LogDirFailedError(self.path, cause)
            logger.error("log directory %s is offline: %s", self.path, describe_error(cause))
        return self.failure

    def close(self) -> None:
        """Release the lock of the directory."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def _file(self, name: str) -> OffsetCheckpointFile:
        return OffsetCheckpointFile(f"{self.path}/{name}", self._fs)


def broker_epoch_in(marker: bytes) -> int:
    """Return the broker epoch in a clean-shutdown marker; -1 if there is none, as in markers of older brokers."""
    try:
        epoch = json.loads(marker)["brokerEpoch"]
    except (ValueError, KeyError, TypeError):
        return -1
    return epoch if type(epoch) is int and epoch >= 0 else -1
