"""What a log has written and not yet synced, and the flushes that are under way."""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .filesystem import File, FileSystem
from .flush_task import FlushTask
from .leader_epochs import LeaderEpochCache
from .log_segment import LogSegment


class UnsyncedFiles:
    """Collects for a flush, and keeps handles open while one runs on another thread.

    A closed handle's number may be given to another file at once; so whatever is to be closed while a flush is under
    way waits for its end, and while files get other names for the end of that, as nothing can be opened meanwhile.
    Flushes complete in the order in which they began, as a later one counts on the earlier.
    """

    __slots__ = ("_closes", "_flushes", "_fs", "_holds", "names", "recovery_point", "rolled", "snapshots")

    def __init__(self, fs: FileSystem, recovery_point: int) -> None:
        self._fs = fs
        self._flushes: list[FlushTask] = []
        self._closes: list[Callable[[], None]] = []
        self._holds = 0
        self.recovery_point = recovery_point
        """Everything below is on disk."""
        self.rolled: list[LogSegment] = []
        """Segments that were rolled since the last flush began, oldest first."""
        self.snapshots: list[File] = []
        self.names = False
        """Whether files were created in the directory since."""

    def begin(
        self, active: LogSegment, epochs: LeaderEpochCache, end_offset: int, directory_of: Callable[[], str]
    ) -> FlushTask:
        """A task that makes everything below `end_offset` durable. Raises OSError if an index cannot be written."""
        with self.held():
            files = [file for segment in self.rolled for file in segment.unsynced_files(with_indexes=True)]
            files += self.snapshots
            names = self.names or active.has_new_transactions
            files += active.unsynced_files(with_indexes=False)
        task = FlushTask(
            self._fs,
            directory_of,
            up_to_offset=end_offset,
            files=files,
            epoch_lines=epochs.lines() if epochs.is_dirty else None,
            sync_directory=names,
        )
        self._flushes.append(task)
        epochs.is_dirty = self.names = False
        self._closes += [snapshot.close for snapshot in self.snapshots]
        self._closes += [segment.close_handles for segment in self.rolled]
        self.rolled, self.snapshots = [], []
        return task

    def expect_last_flush(self) -> None:
        """The next flush is to take everything along. Raises OSError if an earlier one never came to its end."""
        if self.is_in_use:
            raise OSError(errno.EBUSY, "a flush or a swap is not over")
        self.names = True

    def complete(self, task: FlushTask) -> None:
        """`task.run` has succeeded."""
        task.is_done = True
        while self._flushes and self._flushes[0].is_done:
            self.recovery_point = max(self.recovery_point, self._flushes.pop(0).up_to_offset)
        self._close_what_may()

    def hold(self) -> None:
        """Close nothing until `release`."""
        self._holds += 1

    def release(self) -> None:
        """The end of a `hold`."""
        self._holds -= 1
        self._close_what_may()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nothing is closed inside."""
        self.hold()
        try:
            yield
        finally:
            self.release()

    def _close_what_may(self) -> None:
        if self.is_in_use:
            return
        closes, self._closes = self._closes, []
        for close in closes:
            close()

    @property
    def is_in_use(self) -> bool:
        """Whether somebody counts on the open handles."""
        return bool(self._flushes) or self._holds > 0

    def close(self, close: Callable[[], None]) -> None:
        """Close something now, or when nothing can be using it any more."""
        if self.is_in_use:
            self._closes.append(close)
        else:
            close()

    def forget(self, segment: LogSegment) -> None:
        """The segment goes: close it, and do not flush it."""
        if segment in self.rolled:
            self.rolled.remove(segment)
        self.close(segment.close_handles)

    def close_snapshots(self) -> None:
        for snapshot in self.snapshots:
            self.close(snapshot.close)
        self.snapshots = []

    def truncated_to(self, offset: int) -> None:
        """What is appended from `offset` on is not what the flushes under way cover."""
        self.recovery_point = min(self.recovery_point, offset)
        for task in self._flushes:
            task.up_to_offset = min(task.up_to_offset, offset)
