"""Making the logs of new partitions: where, and in which order, so that no crash gives one the offsets of another."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from uuid import UUID

from ..common.room_logger import room_logger
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.topic_partition import TopicPartition
from .errors import FILE_ERRORS, PASSING
from .filesystem import FileSystem
from .found_logs import FoundLogs
from .held_logs import HeldLogs
from .lane_task import LaneTask
from .log import Log
from .log_checkpoints import LogCheckpoints
from .log_config import LogConfig
from .log_dir import CLEANER_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, LogDir

logger = room_logger("storage")


class LogCreation:
    """The creation of logs, on the thread that owns the logs; its tasks run on the lane of the directory."""

    def __init__(
        self,
        held: HeldLogs,
        found: FoundLogs,
        checkpoints: LogCheckpoints,
        fs: FileSystem,
        open_new_log: Callable[..., Log],
    ) -> None:
        self._held = held
        self._found = found
        self._checkpoints = checkpoints
        self._fs = fs
        self._open_new_log = open_new_log
        self._prepared: dict[TopicPartition, tuple[LogDir, UUID]] = {}
        """The directories and topic ids of folders that are durable, but whose logs have not been opened yet."""

    def get_or_create_log(
        self,
        topic_partition: TopicPartition,
        *,
        topic_id: UUID | None = None,
        config: LogConfig | None = None,
        is_new: bool = False,
    ) -> Log:
        """Return the log of a partition; create it in the online directory with the fewest partitions if there is none.

        When this returns, a new log survives a power loss. `is_new` asserts that the partition cannot have a log in a
        directory that is offline. Raises KAFKA_STORAGE_ERROR, and INCONSISTENT_TOPIC_ID if the folder belongs to
        another topic of the same name.
        """
        log = self._held.get_log(topic_partition)
        if log is not None:
            if topic_id is not None:
                log.assign_topic_id(topic_id)
            if config is not None:
                log.config = config  # the log may have been opened before its topic's settings were known
            return log
        if not is_new and len(self._held.online_dirs) < len(self._held.dirs):
            message = f"Can't create log for {topic_partition} because log directories are offline: it may be there"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)
        self._check_no_stray(topic_partition)
        log_dir, prepared_id = self._prepared.pop(topic_partition, (None, None))
        if log_dir is not None and log_dir.is_online and topic_id is not None and topic_id == prepared_id:
            return self._open_prepared(log_dir, topic_partition, topic_id, config)
        for log_dir in self._dirs_by_load():
            path = f"{log_dir.path}/{topic_partition}"
            was_there = self._fs.exists(path)
            if was_there and not self._fs.is_dir(path):
                logger.warning("cannot create a log for %s in %s: a file has that name", topic_partition, log_dir.path)
                continue
            try:
                return self._create_log(log_dir, topic_partition, topic_id, config)
            except OSError as error:
                if error.errno not in PASSING + FILE_ERRORS or not log_dir.is_in_place():
                    self._held.fail_log_dir(log_dir.path, error)
                    continue
                # A full disk, or a file with the folder's name, does not affect the other logs of the directory.
                logger.warning("cannot create a log for %s in %s: %s", topic_partition, log_dir.path, error)
                if not was_there and self._fs.is_dir(path):
                    self._held.on_disk(log_dir, partial(log_dir.remove_log, path))
            finally:
                self._checkpoints.arriving.pop(topic_partition, None)
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"No log directory could store {topic_partition}")

    def _check_no_stray(self, topic_partition: TopicPartition) -> None:
        for log_dir in self._held.dirs:
            path = f"{log_dir.path}/{topic_partition}"
            if path in self._found.strays:
                raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{path} cannot be used: {self._found.strays[path]}")

    def _dirs_by_load(self) -> list[LogDir]:
        return sorted(self._held.dirs_for_new_logs, key=lambda log_dir: log_dir.partition_count)

    def _create_log(
        self, log_dir: LogDir, topic_partition: TopicPartition, topic_id: UUID | None, config: LogConfig | None
    ) -> Log:
        self._begin_anew(log_dir, [topic_partition])()
        log = self._found.open_log(
            f"{log_dir.path}/{topic_partition}",
            config=config or self._found.config_for(topic_partition.topic),
            recovery_point=0,
            log_start_offset=0,
            clean_shutdown=True,
            topic_id=topic_id,
        )
        self._fs.fsync_dir(log.path)
        self._fs.fsync_dir(log_dir.path)
        self._held.add(topic_partition, log, log_dir)
        return log

    def _open_prepared(
        self, log_dir: LogDir, topic_partition: TopicPartition, topic_id: UUID, config: LogConfig | None
    ) -> Log:
        log = self._open_new_log(
            f"{log_dir.path}/{topic_partition}",
            config=config or self._found.config_for(topic_partition.topic),
            topic_id=topic_id,
        )
        self._held.add(topic_partition, log, log_dir)
        self._checkpoints.arriving.pop(topic_partition, None)
        return log

    def preparation_tasks(self, topic_ids: Mapping[TopicPartition, UUID]) -> list[LaneTask]:
        """Create and sync folders of new partitions together, so that `get_or_create_log` need not wait for disks.

        If a task fails, `get_or_create_log` creates its partitions and reports the error.
        """
        wanted = [one for one in topic_ids if one not in self._held.dir_of and one not in self._held.offline]
        per_dir: dict[str, list[TopicPartition]] = {}
        by_path = {log_dir.path: log_dir for log_dir in self._held.dirs_for_new_logs}
        counts = {path: log_dir.partition_count for path, log_dir in by_path.items()}
        if not wanted:
            return []
        if len(counts) == 1:  # the usual case, without a search for the emptiest directory
            per_dir = dict.fromkeys(counts, wanted)
        elif counts:
            for topic_partition in wanted:
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
        self._prepared.update({key: (log_dir, topic_ids[key]) for key in log_dir.make_folders(topic_ids)})

    def _begin_anew(self, log_dir: LogDir, topic_partitions: Iterable[TopicPartition]) -> Callable[[], None]:
        """Prepare the creation of partitions: their recovery starts at 0, and older offsets of their names are dropped.

        A deleted log's offsets must never be applied to a new log of the same name: a recovery point beyond its data
        would skip recovery, a start offset beyond its end would discard it. An old high watermark may remain, as it is
        held within the log's ends. The returned function updates the checkpoints, on any thread; it raises `OSError`.
        It leaves the entries of other partitions in the files unchanged, so that the loop need not collect them.
        """
        new = list(topic_partitions)
        self._checkpoints.arriving.update(dict.fromkeys(new, (log_dir, None)))
        return partial(_begin_anew_in, log_dir, new, log_dir.moment())


def _begin_anew_in(log_dir: LogDir, new: Sequence[TopicPartition], moment: int) -> None:
    log_dir.change_checkpoint(RECOVERY_POINT_CHECKPOINT, dict.fromkeys(new, 0), moment)
    log_dir.change_checkpoint(LOG_START_OFFSET_CHECKPOINT, dict.fromkeys(new), moment)
    log_dir.change_checkpoint(CLEANER_CHECKPOINT, dict.fromkeys(new), moment)
