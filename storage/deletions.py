"""Files of deleted logs and segments, between their last name and their end."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from ..common.room_logger import room_logger
from .errors import FILE_ERRORS
from .filesystem import FileSystem
from .lane_task import LaneTask
from .log import Log
from .log_dir import LogDir
from .partition_dir import DELETE_SUFFIX, PartitionDir, marked_dir_name
from .partition_files import remove_log

DELETED_TOGETHER = 64
"""Deleted logs, or groups of segments, that are removed with one sync of their directory."""

logger = room_logger("storage")


@dataclass(slots=True)
class Deletion:
    """Files that go when their readers have had time to finish."""

    due_ms: int
    log_dir: LogDir
    remove: Callable[[], None]
    """Removes the files, not durably yet. Raises `OSError`."""
    log: Log | None = None
    """The deleted log, whose handles are given back first."""
    is_done: bool = False

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do here before the next start."""
        return self.is_done or not self.log_dir.is_online

    def close_handles(self) -> None:
        """Give the handles of a deleted log back."""
        if self.log is not None:
            self.log.close_handles()

    def run(self) -> None:
        """Remove the files. Files that cannot be removed remain until the next start. Raises `OSError`."""
        try:
            self.remove()
        except OSError as error:
            if error.errno not in FILE_ERRORS or not self.log_dir.is_in_place():
                raise
            logger.warning("deleted files cannot be removed: %s", error)
        self.is_done = True


class Deletions:
    """All deletions of a broker that are not over."""

    def __init__(self, fs: FileSystem, now_ms: Callable[[], int], random_bits: Callable[[int], int]) -> None:
        self._fs = fs
        self._now_ms = now_ms
        self._random_bits = random_bits
        self._waiting: list[Deletion] = []
        self.is_held = False
        """Whether files keep their places on the disk after their delay, because a backup is reading them."""

    def add_log(self, log: Log, log_dir: LogDir) -> None:
        """Rename the folder of a log, and remove it when its readers are done. Raises `OSError`.

        The new name is for the caller to make durable.
        """
        name = marked_dir_name(log.topic_partition, f"{self._random_bits(128):032x}", DELETE_SUFFIX)
        path = f"{log_dir.path}/{name}"
        log.rename_dir(path)
        due_ms = self._now_ms() + log.config.file_delete_delay_ms
        self._waiting.append(Deletion(due_ms, log_dir, partial(remove_log, self._fs, path), log))

    def add_files(self, paths: list[str], log_dir: LogDir, delay_ms: int) -> None:
        """Unlink files that a log no longer needs, after a delay."""
        if paths:
            self._waiting.append(Deletion(self._now_ms() + delay_ms, log_dir, partial(log_dir.unlink_all, paths)))

    def resume(self, log_dir: LogDir, partition_dirs: Iterable[PartitionDir]) -> None:
        """Continue with the folders that an earlier run of the broker renamed for deletion."""
        for partition_dir in partition_dirs:
            remove = partial(remove_log, self._fs, f"{log_dir.path}/{partition_dir.name}")
            self._waiting.append(Deletion(self._now_ms(), log_dir, remove))

    def due_tasks(self) -> list[LaneTask]:
        """Return the tasks that remove expired files, `DELETED_TOGETHER` each; failed removals are due again.

        There are none while `is_held`.
        """
        if self.is_held:
            return []
        self._waiting = [deletion for deletion in self._waiting if not deletion.is_over]
        now_ms = self._now_ms()
        due = [deletion for deletion in self._waiting if deletion.due_ms <= now_ms]
        for deletion in due:
            deletion.close_handles()
        by_dir: dict[LogDir, list[Deletion]] = {}
        for deletion in due:
            if not deletion.is_over:
                by_dir.setdefault(deletion.log_dir, []).append(deletion)
        return [
            LaneTask(log_dir.path, partial(self._remove, log_dir, waiting[start : start + DELETED_TOGETHER]))
            for log_dir, waiting in by_dir.items()
            for start in range(0, len(waiting), DELETED_TOGETHER)
        ]

    def _remove(self, log_dir: LogDir, deletions: Sequence[Deletion]) -> None:
        """Remove files of one directory, durably. Raises `OSError`."""
        for deletion in deletions:
            deletion.run()
        self._fs.fsync_dir(log_dir.path)

    def close_handles(self) -> None:
        """Give back all handles; the files are deleted at the next start."""
        for deletion in self._waiting:
            deletion.close_handles()
