"""Compacts one partition's folder without a broker, whether Barnabas or Apache Kafka wrote it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ...protocol.topic_partition import TopicPartition
from ..errors import StorageError
from ..filesystem import FileSystem, parent_of
from ..log import Log
from ..log_config import LogConfig
from ..log_dir import (
    CHECKPOINTS,
    CLEAN_SHUTDOWN_FILE,
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOCK_FILE,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    LogDir,
)
from ..log_loader import NO_RECOVERY_POINT, RandomSource
from ..meta_properties import META_PROPERTIES
from ..partition_dir import parse_partition_dir
from ..partition_files import is_log_file
from ..segment_files import LOG_SUFFIX
from .clean_job import CleanerStats, GroupCleaned, PassFinished, Progress
from .cleaner import clean
from .log_to_clean import CleanerSettings, LogToClean, log_to_clean


class NoPartitionFolderError(StorageError):
    """The folder is not `<topic>-<partition>`, or holds no log."""


@dataclass(slots=True)
class OfflineReport:
    """The result of compacting a folder."""

    topic_partition: TopicPartition
    bytes_before: int = 0
    bytes_after: int = 0
    segments_before: int = 0
    segments_after: int = 0
    clean_offset: int = 0
    passes: list[CleanerStats] = field(default_factory=list)


class OfflineCleaner:
    """Compacts one partition folder, its newest segment included, under the lock of its log directory.

    A folder outside a log directory, for example a copy of one partition, has no lock and no checkpoints: the whole
    log is checked, and all of it counts as replicated. In a log directory the cleaner does not touch offsets at or
    above the high watermark, and updates the cleaner's checkpoint.
    """

    def __init__(
        self,
        fs: FileSystem,
        *,
        now_ms: Callable[[], int],
        rng: RandomSource,
        config: LogConfig,
        settings: CleanerSettings,
    ) -> None:
        self._fs = fs
        self._now_ms = now_ms
        self._rng = rng
        self._config = config
        self._settings = settings

    def compact(self, path: str, on_progress: Callable[[Progress], None]) -> OfflineReport:
        """Do it. Raises `BlockingIOError` if a broker runs on the directory, OSError, StorageError, KafkaError."""
        parsed = parse_partition_dir(path.rpartition("/")[2])
        names = self._fs.list_dir(path) if self._fs.is_dir(path) else []
        segments = [name for name in names if name.endswith(LOG_SUFFIX) and is_log_file(name)]
        if parsed is None or parsed.suffix or not segments:
            raise NoPartitionFolderError(f"{path}: not a partition folder. Expected <topic>-<number> with .log files")
        with self._locked(parent_of(path)) as log_dir:
            return self._compact(path, parsed.topic_partition, log_dir, on_progress)

    @contextmanager
    def _locked(self, directory: str) -> Iterator[LogDir | None]:
        """Lock a log directory and read its checkpoints; None if the folder is not a log directory."""
        marks = {META_PROPERTIES, LOCK_FILE, *CHECKPOINTS}
        if not marks & set(self._fs.list_dir(directory)):
            yield None
            return
        log_dir = LogDir(directory, self._fs)
        log_dir.open()
        marker = f"{directory}/{CLEAN_SHUTDOWN_FILE}"
        try:
            log_dir.read_checkpoints()
            log_dir.was_clean_shutdown = self._fs.exists(marker)
            # Until the marker is written again, the directory counts as not cleanly closed.
            content = self._fs.read_bytes(marker) if log_dir.was_clean_shutdown else b""
            if log_dir.was_clean_shutdown:
                log_dir.transaction_indexes = log_dir.read_index_checksums()
                self._fs.unlink(marker)
                self._fs.fsync_dir(directory)
            yield log_dir
            if log_dir.was_clean_shutdown:
                self._fs.write_atomic(marker, content)
                log_dir.write_index_checksums(log_dir.transaction_indexes)
        finally:
            log_dir.close()

    def _compact(
        self, path: str, key: TopicPartition, log_dir: LogDir | None, on_progress: Callable[[Progress], None]
    ) -> OfflineReport:
        log = self._open(path, key, log_dir)
        report = OfflineReport(key)
        report.bytes_before, report.segments_before = log.size, len(log.segments)
        try:
            log.roll()
            log.flush()
            clean_offset = None if log_dir is None else log_dir.offsets[CLEANER_CHECKPOINT].get(key)
            while (todo := log_to_clean(key, log, clean_offset, self._now_ms())).is_cleanable:
                clean_offset = self._pass(log, todo, report, on_progress)
                if log_dir is not None:
                    noted = log_dir.offsets[CLEANER_CHECKPOINT] | {key: clean_offset}
                    log_dir.write_checkpoint(CLEANER_CHECKPOINT, noted, log_dir.moment())
                if clean_offset <= todo.first_dirty_offset:
                    break
            report.clean_offset = todo.first_dirty_offset
            report.bytes_after, report.segments_after = log.size, len(log.segments)
        finally:
            log.close()
        if log_dir is not None:
            log_dir.transaction_indexes[key] = log.index_checksums()
        return report

    def _open(self, path: str, key: TopicPartition, log_dir: LogDir | None) -> Log:
        offsets = {name: log_dir.offsets[name].get(key) for name in CHECKPOINTS} if log_dir is not None else {}
        recovery_point = offsets.get(RECOVERY_POINT_CHECKPOINT)
        log = Log.open(
            path,
            config=self._config,
            fs=self._fs,
            now_ms=self._now_ms,
            recovery_point=NO_RECOVERY_POINT if recovery_point is None else recovery_point,
            log_start_offset=offsets.get(LOG_START_OFFSET_CHECKPOINT) or 0,
            clean_shutdown=log_dir is not None and log_dir.was_clean_shutdown,
            rng=self._rng,
            transaction_indexes={} if log_dir is None else log_dir.transaction_indexes.get(key, {}),
        )
        high_watermark = offsets.get(HIGH_WATERMARK_CHECKPOINT)
        log.restore_high_watermark(log.log_end_offset if high_watermark is None else high_watermark)
        return log

    def _pass(self, log: Log, todo: LogToClean, report: OfflineReport, on_progress: Callable[[Progress], None]) -> int:
        """Run one pass; return the offset up to which the log is clean."""
        for event in clean(todo.job(self._settings, self._now_ms()), self._fs, lambda size: None):
            if isinstance(event, Progress):
                on_progress(event)
            elif isinstance(event, GroupCleaned):
                for old in log.begin_swap([event.base_offset]).run(event.replaced):
                    self._fs.unlink(old)
            elif isinstance(event, PassFinished):
                report.passes.append(event.stats)
                return event.next_dirty_offset
        raise AssertionError("a pass ended without its last event")
