"""All logs of a broker, over several log directories: found, made, deleted, flushed, checkpointed, closed."""

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from uuid import UUID

from ..common.room_logger import room_logger
from ..common.uuid_text import new_uuid, uuid_text
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.topic_partition import TopicPartition
from .cleaning.log_cleaner_manager import LogCleanerManager
from .deletions import Deletions
from .errors import FILE_ERRORS, CorruptCheckpointError
from .filesystem import FileSystem
from .found_logs import FindStrays, FoundLogs
from .future_logs import FutureLogs
from .held_logs import HeldLogs
from .lane_task import LaneTask, close_together
from .log import Log
from .log_checkpoints import CHECKPOINTED, Checkpoint, LogCheckpoints
from .log_config import LogConfig
from .log_creation import LogCreation
from .log_dir import LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, LogDir
from .log_loader import RandomSource
from .log_values import LogExtent
from .meta_properties import (
    META_PROPERTIES,
    InconsistentMetaPropertiesError,
    MetaProperties,
    common_identity,
    parse_directory_id,
    write_meta_properties,
)
from .open_files import OpenFiles
from .reserve import Reserve
from .retention import Retention

LOGS_PER_LOADING_TASK = 64
LOGS_PER_CLOSING_TASK = 128

logger = room_logger("storage")


class LogManager:
    """Kafka's LogManager.

    All methods except `LaneTask`s run on one thread. `held` contains the logs and their directories; `creation`,
    `retention`, `future_logs` and `cleaner_manager` work on them.
    """

    def __init__(
        self,
        log_dirs: Sequence[str],
        *,
        fs: FileSystem,
        config_for: Callable[[str], LogConfig],
        now_ms: Callable[[], int],
        rng: RandomSource,
        lock: Callable[[], AbstractContextManager[object]] = nullcontext,
        reserve_bytes: int = 0,
        rename_strays: bool = False,
    ) -> None:
        """`lock` makes a lock for state that several lanes change; each directory reserves `reserve_bytes` of disk.

        `rename_strays` gives folders that are not partitions of this broker a name with `-stray`.
        """
        assert log_dirs, "a broker needs at least one log directory"
        paths = dict.fromkeys(path.rstrip("/") or "/" for path in log_dirs)
        self.held = HeldLogs([LogDir(path, fs, lock(), reserve_bytes=reserve_bytes) for path in paths])
        self.logs, self.dirs = self.held.logs, self.held.dirs
        self._fs = fs
        self._rng = rng
        self._checkpoints = LogCheckpoints(self.logs, self.held.dir_of)
        open_log = partial(Log.open, fs=fs, now_ms=now_ms, rng=rng)
        self._found = FoundLogs(
            self.held, fs, config_for, open_log, random_bits=rng.getrandbits if rename_strays else None
        )
        self._deletions = Deletions(fs, now_ms, rng.getrandbits)
        self.future_logs = FutureLogs(
            self.logs,
            self.held.dir_of,
            fs,
            config_for,
            open_log,
            self._deletions.add_log,
            self._checkpoints.announced,
            random_bits=rng.getrandbits,
        )
        self.cleaner_manager = LogCleanerManager(self.logs, now_ms)
        open_new_log = partial(Log.of_new_folder, fs=fs, now_ms=now_ms, rng=rng)
        self.creation = LogCreation(self.held, self._found, self._checkpoints, fs, open_new_log)
        self.retention = Retention(self.held, self.cleaner_manager, self._deletions, fs)
        self._logs_per_closing_task = LOGS_PER_CLOSING_TASK

    def limit_open_files(self, limit: int, is_owner: Callable[[], bool] = lambda: True) -> None:
        """Try to keep at most `limit` files open; `is_owner` returns whether the current thread may close files.

        Each lane that closes logs has a sixteenth of them.
        """
        self._logs_per_closing_task = max(1, min(LOGS_PER_CLOSING_TASK, limit // 16))
        OpenFiles(self._fs, self.logs, limit, is_owner)

    # Start

    def open_dirs(self) -> None:
        """Make, lock and identify the log directories.

        Raises `BlockingIOError` if a running broker holds one, `CorruptCheckpointError` if an identity is damaged or of
        a newer version, `AllLogDirsFailedError` if none can be used.
        """
        for log_dir in self.dirs:
            try:
                log_dir.open()
            except BlockingIOError as error:
                self.close()
                raise BlockingIOError(f"{log_dir.path}: another broker is using this log directory") from error
            except CorruptCheckpointError:
                self.close()
                raise
            except OSError as error:
                self.held.fail_log_dir(log_dir.path, error)

    def stored_identity(self) -> tuple[int | None, str | None]:
        """Return the broker id and cluster id stored in the directories, each None if no directory contains it.

        Raises `InconsistentMetaPropertiesError` if they disagree.
        """
        stored = [(d.path, d.meta_properties) for d in self.held.online_dirs if d.meta_properties is not None]
        return common_identity(stored)

    def write_identity(self, node_id: int, cluster_id: str, *, version: int = 1) -> None:
        """Write `meta.properties` in directories without it, and leave the other directories unchanged.

        Version 0 is for a cluster around ZooKeeper, where Kafka's brokers refuse directories of any other version.
        Raises `InconsistentMetaPropertiesError` if a directory belongs to another broker or cluster.
        """
        wanted = MetaProperties(version, node_id, cluster_id)
        for log_dir in self.held.online_dirs:
            if log_dir.meta_properties is not None:
                common_identity([("the configuration", wanted), (log_dir.path, log_dir.meta_properties)])
                continue
            directory_id = uuid_text(new_uuid(self._rng.randbytes)) if version else None
            properties = replace(wanted, directory_id=directory_id)
            if self.held.on_disk(log_dir, partial(write_meta_properties, self._fs, log_dir.path, properties)):
                log_dir.meta_properties = properties

    def directory_ids(self) -> dict[str, UUID]:
        """Return the ids of the online directories by path, and create missing ones (KIP-858).

        Raises `InconsistentMetaPropertiesError` for a directory of a broker in a ZooKeeper cluster, which has none, and
        for an id that is not valid or is that of another directory, such as the original of a copy.
        """
        found: dict[str, UUID] = {}
        for log_dir in self.held.online_dirs:
            properties = log_dir.meta_properties
            assert properties is not None, "the identity was not written"
            if properties.version == 0:
                reason = "it belongs to a broker of a ZooKeeper cluster, and a KRaft cluster requires version=1"
                raise InconsistentMetaPropertiesError(f"{log_dir.path}/{META_PROPERTIES}: {reason}")
            if properties.directory_id is None:
                properties = replace(properties, directory_id=uuid_text(new_uuid(self._rng.randbytes)))
                if not self.held.on_disk(log_dir, partial(write_meta_properties, self._fs, log_dir.path, properties)):
                    continue
                log_dir.meta_properties = properties
            assert properties.directory_id is not None
            directory_id = parse_directory_id(properties.directory_id, f"{log_dir.path}/{META_PROPERTIES}")
            for other, known in found.items():
                if known == directory_id:
                    raise InconsistentMetaPropertiesError(
                        f"{log_dir.path} and {other} have the same directory.id {properties.directory_id}"
                    )
            found[log_dir.path] = directory_id
        return found

    def finding_tasks(self) -> list[LaneTask]:
        """Return the tasks that list the folders of all directories, to be followed by `loading_tasks`."""
        return [LaneTask(log_dir.path, partial(self._found.find, log_dir)) for log_dir in self.held.online_dirs]

    def loading_tasks(
        self, find_strays: FindStrays = lambda folders: {}, known_topics: Collection[str] | None = None
    ) -> list[LaneTask]:
        """Opening every log: after a clean stop by trusting its files, else by recovery from its recovery point.

        In tasks that may run on several lanes in parallel, to be followed by `finish_loading`. Folders that
        `find_strays` returns are not touched. A topic outside `known_topics` may have been compacted.
        """
        tasks = []
        self._found.known_topics = known_topics
        found = {log_dir: self._found.partition_dirs.pop(log_dir) for log_dir in self.held.online_dirs}
        for log_dir, live in self._found.leave_strays(self.future_logs.settle(found), find_strays).items():
            self._found.claim(log_dir, live)
            chunks = [
                live[start : start + LOGS_PER_LOADING_TASK] for start in range(0, len(live), LOGS_PER_LOADING_TASK)
            ]
            others: list[None] = [None] * (len(chunks) - 1)
            tasks += [LaneTask(log_dir.path, partial(self._found.load, log_dir, chunk, others)) for chunk in chunks]
            self._deletions.resume(log_dir, [d for d in found[log_dir] if d.is_deleted])
        self.future_logs.take_up(found)
        return tasks

    def identities(self) -> dict[TopicPartition, tuple[UUID | None, int]]:
        """Topic id and latest leader epoch of all partitions that were found, also of logs that could not be opened.

        None and -1 if no file contains them.
        """
        return {key: self._found.identity(key) for key in [*self.logs, *self.held.offline]}

    def finish_loading(self) -> None:
        """Count the opened logs, and close the logs of directories that failed while others were loading."""
        for log_dir in self.dirs:
            log_dir.transaction_indexes = {}  # of partitions whose folders are missing
            log_dir.partition_count = len(self.held.held_by(log_dir))
            if log_dir.failure is not None:
                self.held.take_offline(log_dir, log_dir.failure)
            else:
                self.held.on_disk(log_dir, partial(self.cleaner_manager.load, log_dir, self.held.held_by(log_dir)))

    # Logs

    def log_dir_of(self, topic_partition: TopicPartition) -> str | None:
        """Return the path of the log directory that holds a partition."""
        log_dir = self.held.dir_of.get(topic_partition)
        return None if log_dir is None else log_dir.path

    # Deletion

    def delete_log(self, topic_partition: TopicPartition) -> LaneTask | None:
        """Stop serving a partition and rename its folder, so that a restart continues its deletion.

        Durable when the task has run. `deletion_tasks` removes the files after `file.delete.delay.ms`, when readers of
        the log have finished. Raises KAFKA_STORAGE_ERROR if the partition is offline or its disk fails now; returns
        None if this broker has no log of the partition.
        """
        log = self.held.get_log(topic_partition)
        if log is None:
            return None
        log_dir = self.held.dir_of[topic_partition]
        self.future_logs.cancel(topic_partition)
        try:
            self._deletions.add_log(log, log_dir)
        except OSError as error:
            if error.errno not in FILE_ERRORS or not log_dir.is_in_place():
                self.held.fail_log_dir(log_dir.path, error)
            if not isinstance(error, FileNotFoundError) or not log_dir.is_online:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log_dir.path}: {error}") from error
            logger.warning("%s was already removed by another program", log.path)
            log.close_handles()
        self.held.remove(topic_partition)
        self._note_clean_offsets(log_dir, self.cleaner_manager.forget(topic_partition))
        return LaneTask(log_dir.path, partial(self._fs.fsync_dir, log_dir.path))

    def deletion_tasks(self) -> list[LaneTask]:
        """Return the tasks that remove logs and segments whose delay is over; failed removals are due again."""
        return self._deletions.due_tasks()

    # Backups

    def hold_files(self) -> None:
        """Keep the files of all logs on the disk until `release_files`: no deletion, and no new pass of the cleaner.

        Retention and topic deletion continue to rename files and folders. The caller ends the passes in progress.
        """
        self._deletions.is_held = self.cleaner_manager.is_held = True

    def release_files(self) -> None:
        """End `hold_files`."""
        self._deletions.is_held = self.cleaner_manager.is_held = False

    def log_extents(self) -> list[LogExtent]:
        """Return the extents of all logs at this moment.

        An append is complete when its method returns, so each size ends with a whole batch, and the extents together
        are the state that a crash of the process would leave now.
        """
        clean_offsets = self.cleaner_manager.clean_offsets
        return [
            LogExtent(
                topic_partition,
                log.topic_id,
                log.directory,
                log.log_start_offset,
                log.log_end_offset,
                [(segment.base_offset, segment.size) for segment in log.segments],
                clean_offsets.get(topic_partition),
            )
            for topic_partition, log in self.logs.items()
        ]

    # Changes that a checkpoint has to follow

    def truncate_to(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Truncate logs to offsets, before their followers or leaders fetch again.

        The recovery points are written immediately: a recovery point above the new end would exempt the next appended
        records from recovery. Raises KAFKA_STORAGE_ERROR if a disk fails.
        """
        self._change_logs(offsets, lambda log, offset: log.truncate_to(offset), RECOVERY_POINT_CHECKPOINT)

    def truncate_fully_and_start_at(self, topic_partition: TopicPartition, offset: int) -> None:
        """Empty a log and let it go on at an offset. Raises KAFKA_STORAGE_ERROR if the disk fails."""
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
            log = self.held.get_log(topic_partition)
            if log is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no log for {topic_partition}")
            log_dir = self.held.dir_of[topic_partition]
            changed[log_dir.path] = log_dir
            if not self.held.on_disk(log_dir, partial(change, log, offset)):
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log_dir.path} failed")
            self._note_clean_offsets(log_dir, self.cleaner_manager.mark_truncated(topic_partition, log.log_end_offset))
        for log_dir in changed.values():
            for name in checkpoints:
                self._write_checkpoint(log_dir, name)
            if not log_dir.is_online:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log_dir.path} failed")

    # Checkpoints and reserves

    def reserve_tasks(self, use: Callable[[Reserve], object]) -> list[LaneTask]:
        """Something that is to be done with the reserve of each directory."""
        return [LaneTask(log_dir.path, partial(log_dir.use_reserve, use)) for log_dir in self.held.online_dirs]

    def cleaner_checkpoint_task(self, path: str) -> LaneTask:
        """Return the cleaner's checkpoint of a directory as it has to be now."""
        log_dir = self.held.dir_at(path)
        return LaneTask(path, self.cleaner_manager.checkpoint_of(log_dir, self.held.held_by(log_dir)).write_if_room)

    def _note_clean_offsets(self, log_dir: LogDir, has_changed: bool) -> None:
        if has_changed:
            self.held.run(self.cleaner_checkpoint_task(log_dir.path))

    def checkpoint_steps(
        self, name: str, only: Iterable[TopicPartition] | None = None
    ) -> Generator[None, None, list[LaneTask]]:
        """Return, in steps, the tasks that write a checkpoint of every online directory; with `only`, of the
        directories that hold these partitions.
        """
        wanted = self.dirs if only is None else {self.held.dir_of[one]: None for one in only if one in self.held.dir_of}
        tasks = []
        for log_dir in wanted:
            if log_dir.is_online:
                checkpoint = yield from self._checkpoints.take_in_steps(log_dir, name)
                if log_dir.is_online:  # it may have failed between the steps
                    tasks.append(LaneTask(log_dir.path, checkpoint.write_if_room))
        return tasks

    def _write_checkpoint(self, log_dir: LogDir, name: str) -> None:
        self.held.on_disk(log_dir, self._checkpoints.take(log_dir, name).write_if_room)

    # End

    def previous_broker_epoch(self) -> int:
        """Return the broker epoch in the clean-shutdown markers that the start has found, -1 unless all agree.

        A registration with it means that the broker has lost no records since then (KIP-966).
        """
        epochs = {log_dir.previous_broker_epoch if log_dir.is_online else -1 for log_dir in self.dirs}
        return epochs.pop() if len(epochs) == 1 else -1

    def closing_tasks(self) -> list[LaneTask]:
        """Return the tasks that flush and close every log, for several lanes: the first part of Kafka's clean shutdown.

        A directory that fails on the way gets no marker, so that its next start is an unclean one.
        """
        logs: dict[str, list[Log]] = {}
        for topic_partition, log in self.logs.items():
            logs.setdefault(self.held.dir_of[topic_partition].path, []).append(log)
        return [
            LaneTask(path, partial(close_together, held[start : start + self._logs_per_closing_task]))
            for path, held in logs.items()
            for start in range(0, len(held), self._logs_per_closing_task)
        ]

    def marking_tasks(self, broker_epoch: int = -1) -> list[LaneTask]:
        """Return the tasks that write the clean-shutdown markers of the online directories, after all closing tasks.

        A directory with an offline log gets no marker: that log was not closed, or never recovered, and the next start
        has to check it. `close` follows.
        """
        tasks = []
        unclosed = {self.held.dir_of[topic_partition] for topic_partition in self.held.offline}
        for log_dir in self.held.online_dirs:
            if log_dir in unclosed:
                continue
            checkpoints = [self._checkpoints.take(log_dir, name) for name in CHECKPOINTED]
            logs = [self.logs[key] for key in self.held.held_by(log_dir)]
            tasks.append(LaneTask(log_dir.path, partial(_mark_clean, log_dir, checkpoints, logs, broker_epoch)))
        return tasks

    def close(self) -> None:
        """Give back all handles and locks, and write nothing; the next start is an unclean one."""
        for log in self.logs.values():
            log.close_handles()
        for copy in self.future_logs.copies.values():
            copy.close_handles()
        self._deletions.close_handles()
        self.logs.clear()
        for log_dir in self.dirs:
            log_dir.close()


def _mark_clean(log_dir: LogDir, checkpoints: Sequence[Checkpoint], logs: Sequence[Log], broker_epoch: int) -> None:
    for checkpoint in checkpoints:
        checkpoint.write_if_room()
    log_dir.write_clean_shutdown_marker(broker_epoch)
    log_dir.write_index_checksums({log.topic_partition: log.index_checksums() for log in logs})
