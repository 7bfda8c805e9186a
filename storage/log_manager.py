"""All logs of a broker, over several log directories: found, made, deleted, flushed, checkpointed, closed."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from uuid import UUID

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.topic_partition import TopicPartition
from .cleaning.cleaner_manager import CleanerManager
from .deletions import Deletions
from .errors import PASSING, LogDirFailedError, StorageError
from .filesystem import FileSystem
from .found_logs import FindStrays, FoundLogs
from .future_logs import FutureLogs
from .lane_task import LaneTask, close_together
from .log import Log
from .log_checkpoints import CHECKPOINTED, Checkpoint, LogCheckpoints
from .log_config import LogConfig
from .log_dir import LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, LogDir
from .log_loader import Chance
from .meta_properties import MetaProperties, common_identity, new_directory_id, write_meta_properties
from .open_files import OpenFiles
from .reserve import Reserve

LOGS_PER_LOADING_TASK = 64
LOGS_PER_CLOSING_TASK = 128

_logger = logging.getLogger(__name__)


class AllLogDirsFailedError(StorageError):
    """No log directory is left, so the broker can serve nothing."""


class LogManager:
    """Kafka's LogManager.

    Everything but a `LaneTask` is called by one thread. A partition is in exactly one place: in `logs`, or in
    `offline` with the reason why it is not served, or it does not exist. A directory whose disk failed stays offline
    until the next start, with all its logs; the others go on.
    """

    def __init__(
        self,
        log_dirs: Sequence[str],
        *,
        fs: FileSystem,
        config_for: Callable[[str], LogConfig],
        now_ms: Callable[[], int],
        rng: Chance,
        lock: Callable[[], AbstractContextManager[object]] = nullcontext,
        reserve_bytes: int = 0,
    ) -> None:
        """`lock` makes a lock for what several lanes may do; each directory keeps `reserve_bytes` for bad times."""
        assert log_dirs, "a broker needs at least one log directory"
        self.dirs = [
            LogDir(path.rstrip("/") or "/", fs, lock(), reserve_bytes=reserve_bytes) for path in dict.fromkeys(log_dirs)
        ]
        self.logs: dict[TopicPartition, Log] = {}
        self.offline: dict[TopicPartition, StorageError] = {}
        self._fs = fs
        self._config_for = config_for
        self._now_ms = now_ms
        self._rng = rng
        self._dir_of: dict[TopicPartition, LogDir] = {}
        self._checkpoints = LogCheckpoints(self.logs, self._dir_of)
        self._open = partial(Log.open, fs=fs, now_ms=now_ms, rng=rng)
        self._found = FoundLogs(self.logs, self._dir_of, self.offline, fs, config_for, self._open)
        self._deletions = Deletions(fs, now_ms, rng.getrandbits)
        self.future_logs = FutureLogs(
            self.logs,
            self._dir_of,
            fs,
            config_for,
            self._open,
            self._deletions.add_log,
            self._checkpoints.announced,
            random_bits=rng.getrandbits,
        )
        self.cleaner_manager = CleanerManager(self.logs, now_ms)
        self._logs_per_closing_task = LOGS_PER_CLOSING_TASK
        self._prepared: dict[TopicPartition, LogDir] = {}
        """Folders that are made and durable, and of which nobody has opened a log yet."""
        self.on_dir_failure: Callable[[LogDirFailedError, list[TopicPartition]], None] | None = None
        """Told of each directory that fails, with the partitions it held."""

    def limit_open_files(self, limit: int, is_owner: Callable[[], bool] = lambda: True) -> None:
        """Have no more files open than that, if it can be helped; `is_owner` says whether the present thread may help.

        Each lane that closes logs has a sixteenth of them.
        """
        self._logs_per_closing_task = max(1, min(LOGS_PER_CLOSING_TASK, limit // 16))
        OpenFiles(self._fs, self.logs, limit, is_owner)

    # Start

    def open_dirs(self) -> None:
        """Makes, locks and identifies the log directories.

        Raises `BlockingIOError` if a running broker holds one, `AllLogDirsFailedError` if none can be used.
        """
        for log_dir in self.dirs:
            try:
                log_dir.open()
            except BlockingIOError as error:
                self.close()
                raise BlockingIOError(f"{log_dir.path}: another broker is using this log directory") from error
            except OSError as error:
                self.fail_log_dir(log_dir.path, error)

    def stored_identity(self) -> tuple[int | None, str | None]:
        """The broker id and cluster id that the directories carry, each None if no directory says it.

        Raises `InconsistentMetaPropertiesError` if they disagree.
        """
        stored = [(d.path, d.meta_properties) for d in self.online_dirs if d.meta_properties is not None]
        return common_identity(stored)

    def write_identity(self, node_id: int, cluster_id: str) -> None:
        """Gives directories without `meta.properties` one, and leaves those that have it untouched.

        Raises `InconsistentMetaPropertiesError` if a directory belongs to another broker or cluster.
        """
        wanted = MetaProperties(version=1, node_id=node_id, cluster_id=cluster_id)
        for log_dir in self.online_dirs:
            if log_dir.meta_properties is not None:
                common_identity([("the configuration", wanted), (log_dir.path, log_dir.meta_properties)])
                continue
            directory_id = new_directory_id(self._rng.getrandbits)
            properties = MetaProperties(1, node_id, cluster_id, directory_id)
            if self._on_disk(log_dir, partial(write_meta_properties, self._fs, log_dir.path, properties)):
                log_dir.meta_properties = properties

    def loading_tasks(self, find_strays: FindStrays = lambda folders: {}) -> list[LaneTask]:
        """Opening every log: after a clean stop by trusting its files, else by recovery from its recovery point.

        In pieces that may run on several lanes at once; `finish_loading` comes after. What `find_strays` finds is not
        touched.
        """
        tasks, found = [], {}
        for log_dir in self.online_dirs:
            try:
                found[log_dir] = log_dir.begin_loading()
            except OSError as error:
                self.fail_log_dir(log_dir.path, error)
        for log_dir, live in self._found.leave_strays(self.future_logs.settle(found), find_strays).items():
            self._found.claim(log_dir, live)
            for start in range(0, len(live), LOGS_PER_LOADING_TASK):
                chunk = live[start : start + LOGS_PER_LOADING_TASK]
                tasks.append(LaneTask(log_dir.path, partial(self._found.load, log_dir, chunk)))
            self._deletions.resume(log_dir, [d for d in found[log_dir] if d.is_deleted])
        self.future_logs.take_up(found)
        return tasks

    def finish_loading(self) -> None:
        """Counts what was found, and closes the logs of directories that failed while others were loading."""
        for log_dir in self.dirs:
            log_dir.partition_count = len(self._held_by(log_dir))
            if log_dir.failure is not None:
                self._take_offline(log_dir, log_dir.failure)
            else:
                self._on_disk(log_dir, partial(self.cleaner_manager.load, log_dir, self._held_by(log_dir)))

    def _held_by(self, log_dir: LogDir) -> list[TopicPartition]:
        return [topic_partition for topic_partition, holder in self._dir_of.items() if holder is log_dir]

    # Logs

    @property
    def online_dirs(self) -> list[LogDir]:
        """The directories whose disks work."""
        return [log_dir for log_dir in self.dirs if log_dir.is_online]

    def get_log(self, topic_partition: TopicPartition) -> Log | None:
        """The log of a partition, None if this broker has none. Raises KAFKA_STORAGE_ERROR if it is offline."""
        log = self.logs.get(topic_partition)
        if log is None and topic_partition in self.offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic_partition} is offline")
        return log

    def log_dir_of(self, topic_partition: TopicPartition) -> str | None:
        """The path of the log directory that holds a partition."""
        log_dir = self._dir_of.get(topic_partition)
        return None if log_dir is None else log_dir.path

    def get_or_create_log(
        self,
        topic_partition: TopicPartition,
        *,
        topic_id: UUID | None = None,
        config: LogConfig | None = None,
        is_new: bool = False,
    ) -> Log:
        """The log of a partition, made in the online directory with the fewest partitions if there is none.

        When this returns, a new log survives a power loss. `is_new` says that the partition cannot have a log in a
        directory that is offline. Raises KAFKA_STORAGE_ERROR, and INCONSISTENT_TOPIC_ID if the folder belongs to
        another topic of the same name.
        """
        log = self.get_log(topic_partition)
        if log is not None:
            if topic_id is not None:
                log.assign_topic_id(topic_id)
            return log
        if not is_new and len(self.online_dirs) < len(self.dirs):
            message = f"Can't create log for {topic_partition} because log directories are offline: it may be there"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)
        self._check_no_stray(topic_partition)
        prepared = self._prepared.get(topic_partition)
        for log_dir in [prepared] if prepared is not None and prepared.is_online else self._dirs_by_load():
            path = f"{log_dir.path}/{topic_partition}"
            was_there = self._fs.exists(path)
            if was_there and not self._fs.is_dir(path):
                _logger.warning("no log for %s in %s: a file has the name", topic_partition, log_dir.path)
                continue
            try:
                return self._create_log(log_dir, topic_partition, topic_id, config)
            except OSError as error:
                if error.errno not in PASSING:
                    self.fail_log_dir(log_dir.path, error)
                    continue
                # A full disk has no room for a new log, which is no reason to give up those that are there.
                _logger.warning("no log for %s in %s: %s", topic_partition, log_dir.path, error)
                if not was_there and self._fs.is_dir(path):
                    self._on_disk(log_dir, partial(log_dir.remove_log, path))
            finally:
                self._checkpoints.arriving.pop(topic_partition, None)
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"No log directory could take {topic_partition}")

    def _check_no_stray(self, topic_partition: TopicPartition) -> None:
        for log_dir in self.dirs:
            path = f"{log_dir.path}/{topic_partition}"
            if path in self._found.strays:
                raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{path} is in the way: {self._found.strays[path]}")

    def _dirs_by_load(self) -> list[LogDir]:
        return sorted(self.online_dirs, key=lambda log_dir: log_dir.partition_count)

    def _create_log(
        self, log_dir: LogDir, topic_partition: TopicPartition, topic_id: UUID | None, config: LogConfig | None
    ) -> Log:
        is_prepared = self._prepared.pop(topic_partition, None) is log_dir
        if not is_prepared:
            self._begin_anew(log_dir, [topic_partition])()
        log = self._open(
            f"{log_dir.path}/{topic_partition}",
            config=config or self._config_for(topic_partition.topic),
            recovery_point=0,
            log_start_offset=0,
            clean_shutdown=True,
            topic_id=topic_id,
        )
        if not is_prepared:
            self._fs.fsync_dir(log.path)
            self._fs.fsync_dir(log_dir.path)
        self.logs[topic_partition] = log
        self._dir_of[topic_partition] = log_dir
        log_dir.partition_count += 1
        return log

    def preparation_tasks(self, topic_ids: Mapping[TopicPartition, UUID]) -> list[LaneTask]:
        """The folders of new partitions, made and synced all at once; `get_or_create_log` then need not wait for disks.

        A partition that a failing task leaves out is made by `get_or_create_log`, which says what is wrong with it.
        """
        wanted = [one for one in topic_ids if one not in self._dir_of and one not in self.offline]
        per_dir: dict[str, list[TopicPartition]] = {}
        by_path = {log_dir.path: log_dir for log_dir in self.online_dirs}
        counts = {path: log_dir.partition_count for path, log_dir in by_path.items()}
        for topic_partition in wanted if counts else ():
            path = min(counts, key=counts.__getitem__)
            counts[path] += 1
            per_dir.setdefault(path, []).append(topic_partition)
        tasks = []
        for path, chosen in per_dir.items():
            log_dir = by_path[path]
            begin_anew = self._begin_anew(log_dir, chosen)
            topic_ids_here = {topic_partition: topic_ids[topic_partition] for topic_partition in chosen}
            tasks.append(LaneTask(path, partial(self._prepare, log_dir, topic_ids_here, begin_anew)))
        return tasks

    def _prepare(
        self, log_dir: LogDir, topic_ids: Mapping[TopicPartition, UUID], begin_anew: Callable[[], None]
    ) -> None:
        begin_anew()
        self._prepared.update(dict.fromkeys(log_dir.make_folders(topic_ids), log_dir))

    def _begin_anew(self, log_dir: LogDir, topic_partitions: Iterable[TopicPartition]) -> Callable[[], None]:
        """Partitions are about to be made: their recovery starts at 0, and no older offsets of their names count.

        A deleted log's offsets must never be applied to a new log of the same name: a recovery point beyond its data
        would skip recovery, a start offset beyond its end would discard it. An old high watermark may stay, as it is
        held within the log's ends. What this returns has the checkpoints say so, on any thread; raises `OSError`.
        """
        self._checkpoints.arriving.update(dict.fromkeys(topic_partitions, (log_dir, None)))
        checkpoints = [
            self._checkpoints.take(log_dir, RECOVERY_POINT_CHECKPOINT),
            self._checkpoints.take(log_dir, LOG_START_OFFSET_CHECKPOINT),
            self.cleaner_manager.checkpoint_of(log_dir, self._held_by(log_dir)),
        ]
        return partial(_write_all, checkpoints)

    # Deletion

    def delete_log(self, topic_partition: TopicPartition) -> LaneTask | None:
        """Renames a partition's folder so that a restart goes on with its deletion, and serves it no longer.

        Durable when the task has run. The files go with `deletion_tasks` after `file.delete.delay.ms`, when readers of
        the log are done with it. Raises KAFKA_STORAGE_ERROR if the partition is offline or its disk fails now; of a
        partition that is not here there is nothing to delete.
        """
        log = self.get_log(topic_partition)
        if log is None:
            return None
        log_dir = self._dir_of[topic_partition]
        self.future_logs.cancel(topic_partition)
        try:
            self._deletions.add_log(log, log_dir)
        except OSError as error:
            self.fail_log_dir(log_dir.path, error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log_dir.path}: {error}") from error
        del self.logs[topic_partition]
        del self._dir_of[topic_partition]
        log_dir.partition_count -= 1
        self._note_clean_offsets(log_dir, self.cleaner_manager.forget(topic_partition))
        return LaneTask(log_dir.path, partial(self._fs.fsync_dir, log_dir.path))

    def deletion_tasks(self) -> list[LaneTask]:
        """The removal of deleted logs and segments whose delay is over; what fails to be done is due again."""
        return self._deletions.due_tasks()

    # Changes that a checkpoint has to follow

    def truncate_to(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Cuts logs down to offsets, which must be done before their followers or leaders fetch again.

        The recovery points are written at once: one beyond the new end would skip what is appended next.
        Raises KAFKA_STORAGE_ERROR if a disk fails.
        """
        self._change_logs(offsets, lambda log, offset: log.truncate_to(offset), RECOVERY_POINT_CHECKPOINT)

    def truncate_fully_and_start_at(self, topic_partition: TopicPartition, offset: int) -> None:
        """Empties a log and lets it go on at an offset. Raises KAFKA_STORAGE_ERROR if the disk fails."""
        self._change_logs(
            {topic_partition: offset},
            lambda log, offset: log.truncate_fully_and_start_at(offset),
            RECOVERY_POINT_CHECKPOINT,
            LOG_START_OFFSET_CHECKPOINT,
        )

    def _change_logs(
        self, offsets: Mapping[TopicPartition, int], change: Callable[[Log, int], object], *checkpoints: str
    ) -> None:
        changed: dict[str, LogDir] = {}
        for topic_partition, offset in offsets.items():
            log = self.get_log(topic_partition)
            if log is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no log for {topic_partition}")
            log_dir = self._dir_of[topic_partition]
            changed[log_dir.path] = log_dir
            if not self._on_disk(log_dir, partial(change, log, offset)):
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log_dir.path} failed")
            self._note_clean_offsets(log_dir, self.cleaner_manager.truncated(topic_partition, log.log_end_offset))
        for log_dir in changed.values():
            for name in checkpoints:
                self._write_checkpoint(log_dir, name)
            if not log_dir.is_online:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log_dir.path} failed")

    # Retention and checkpoints

    def begin_retention(self, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Raises the start of logs above segments that are too old, too many, or below it; for `finish_retention`.

        By then the new starts have to be on disk, so that a crash never moves a log start back. A log that is being
        cleaned is left out; its turn comes at the end of that.
        """
        found = {}
        for log in self._not_in_a_pass(topic_partitions):
            try:
                below = self._begin_retention(log)
            except KafkaError as error:
                _logger.warning("retention of %s has to wait: %s", log.topic_partition, error)
            except LogDirFailedError as error:
                self.fail_log_dir(error.path, error.cause)
            else:
                if below is not None:
                    found[log.topic_partition] = below
        return found

    def _begin_retention(self, log: Log) -> int | None:
        try:
            return log.begin_retention()
        except KafkaError:
            # All segments are to go, and there is no room for the one that takes their place.
            if not self._dir_of[log.topic_partition].use_reserve(Reserve.lend):
                raise
        return log.begin_retention()

    def finish_retention(self, below: Mapping[TopicPartition, int]) -> list[LaneTask]:
        """Marks segments below offsets as to be deleted; the tasks make that durable, the files go some time later.

        Some at a time: to be called until there are no tasks.
        """
        directories: dict[str, list[str]] = {}
        for log in self._not_in_a_pass(below):
            try:
                paths = log.finish_retention(below[log.topic_partition])
            except LogDirFailedError as error:
                self.fail_log_dir(error.path, error.cause)
            else:
                if paths:
                    self.delete_later(log, paths)
                    directories.setdefault(log.directory, []).append(log.path)
        return [LaneTask(lane, partial(self._sync_names, paths)) for lane, paths in directories.items()]

    def _not_in_a_pass(self, topic_partitions: Iterable[TopicPartition]) -> Iterable[Log]:
        for topic_partition in topic_partitions:
            log = self.logs.get(topic_partition)
            if log is not None and not self.cleaner_manager.is_in_progress(topic_partition):
                yield log

    def _sync_names(self, directories: Iterable[str]) -> None:
        for directory in directories:
            with suppress(FileNotFoundError):  # the log was deleted meanwhile, and all its files with it
                self._fs.fsync_dir(directory)

    def delete_later(self, log: Log, paths: list[str]) -> None:
        """Have files that a log needs no more unlinked after `file.delete.delay.ms`."""
        self._deletions.add_files(paths, self._dir_of[log.topic_partition], log.config.file_delete_delay_ms)

    def reserve_tasks(self, use: Callable[[Reserve], object]) -> list[LaneTask]:
        """Something that is to be done with the reserve of each directory."""
        return [LaneTask(log_dir.path, partial(log_dir.use_reserve, use)) for log_dir in self.online_dirs]

    def cleaner_checkpoint_task(self, path: str) -> LaneTask:
        """The cleaner's checkpoint of a directory as it has to be now."""
        log_dir = next(log_dir for log_dir in self.dirs if log_dir.path == path)
        return LaneTask(path, self.cleaner_manager.checkpoint_of(log_dir, self._held_by(log_dir)).write_if_room)

    def _note_clean_offsets(self, log_dir: LogDir, has_changed: bool) -> None:
        if has_changed:
            self._run(self.cleaner_checkpoint_task(log_dir.path))

    def checkpoint_tasks(self, name: str, only: Iterable[TopicPartition] | None = None) -> list[LaneTask]:
        """One checkpoint in every online directory, as of now; `only` in the directories that hold some partitions."""
        wanted = self.dirs if only is None else {self._dir_of[one]: None for one in only if one in self._dir_of}
        return [
            LaneTask(log_dir.path, self._checkpoints.take(log_dir, name).write_if_room)
            for log_dir in wanted
            if log_dir.is_online
        ]

    def _write_checkpoint(self, log_dir: LogDir, name: str) -> None:
        self._on_disk(log_dir, self._checkpoints.take(log_dir, name).write_if_room)

    # Failure and end

    def fail_log_dir(self, path: str, cause: OSError | None = None) -> list[TopicPartition]:
        """Takes a directory and all its logs offline until the next start; returns the partitions it held.

        Nothing in it is written or flushed any more, as what reads show may differ from what is on the disk.
        Raises `AllLogDirsFailedError` if no directory is left.
        """
        log_dir = next(log_dir for log_dir in self.dirs if log_dir.path == path)
        lost = self._take_offline(log_dir, log_dir.fail(cause or OSError("the disk failed")))
        if not self.online_dirs:
            raise AllLogDirsFailedError(f"every log directory has failed: {', '.join(d.path for d in self.dirs)}")
        return lost

    def _take_offline(self, log_dir: LogDir, failure: LogDirFailedError) -> list[TopicPartition]:
        held = self._held_by(log_dir)
        for topic_partition in held:
            log = self.logs.pop(topic_partition, None)
            if log is not None:
                log.close_handles()
            self.offline[topic_partition] = failure
        if self.on_dir_failure is not None:
            self.on_dir_failure(failure, held)
        return held

    def closing_tasks(self) -> list[LaneTask]:
        """The first part of Kafka's clean shutdown: flush and close every log, in pieces for several lanes at once.

        A directory that fails on the way gets no marker, so that its next start is an unclean one.
        """
        logs: dict[str, list[Log]] = {}
        for topic_partition, log in self.logs.items():
            logs.setdefault(self._dir_of[topic_partition].path, []).append(log)
        return [
            LaneTask(path, partial(close_together, held[start : start + self._logs_per_closing_task]))
            for path, held in logs.items()
            for start in range(0, len(held), self._logs_per_closing_task)
        ]

    def marking_tasks(self, broker_epoch: int = -1) -> list[LaneTask]:
        """The second part, when all of the first is done: the last word of each directory still online.

        `close` comes after.
        """
        tasks = []
        for log_dir in self.online_dirs:
            checkpoints = [self._checkpoints.take(log_dir, name) for name in CHECKPOINTED]
            tasks.append(LaneTask(log_dir.path, partial(_mark_clean, log_dir, checkpoints, broker_epoch)))
        return tasks

    def close(self) -> None:
        """Gives all handles and locks back and writes nothing; the next start is an unclean one."""
        for log in self.logs.values():
            log.close_handles()
        for copy in self.future_logs.copies.values():
            copy.close_handles()
        self._deletions.close_handles()
        self.logs.clear()
        for log_dir in self.dirs:
            log_dir.close()

    def _run(self, task: LaneTask) -> None:
        try:
            task()
        except LogDirFailedError as error:
            self.fail_log_dir(error.path, error.cause)

    def _on_disk(self, log_dir: LogDir, work: Callable[[], object], harmless: Collection[int] = ()) -> bool:
        """Does something on a directory's disk; a failure takes it offline. Returns whether it was done.

        Raises `OSError` of the `harmless` numbers, and `AllLogDirsFailedError`.
        """
        if not log_dir.is_online:
            return False
        try:
            work()
        except LogDirFailedError as error:
            self.fail_log_dir(log_dir.path, error.cause)
        except OSError as error:
            if error.errno in harmless:
                raise
            self.fail_log_dir(log_dir.path, error)
        else:
            return True
        return False


def _write_all(checkpoints: Sequence[Checkpoint]) -> None:
    for checkpoint in checkpoints:
        checkpoint.write()


def _mark_clean(log_dir: LogDir, checkpoints: Sequence[Checkpoint], broker_epoch: int) -> None:
    for checkpoint in checkpoints:
        checkpoint.write_if_room()
    log_dir.write_clean_shutdown_marker(broker_epoch)
