"""What a log has written and not yet synced, and the flushes that are under way.

A `FlushTask` is one flush of a log: what was open and unsynced when it began, to be synced on any thread.
"""

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from .checkpoint_file import content_of
from .errors import NO_HANDLE, PASSING, FlushPostponedError
from .filesystem import File, FileSystem, TemporaryFile
from .leader_epochs import FILE_NAME as EPOCHS_FILE_NAME
from .leader_epochs import LeaderEpochCache
from .log_segment import LogSegment


class FlushTask:
    """Begun and completed by the log on its own thread; only `run` and `run_together` may go to another.

    Order: old segments with their indexes, producer snapshots, the active segment, leader epochs, at last the names in
    the directory. Nothing counts as flushed before all of it is, so a crash in between finds the old recovery point.
    """

    __slots__ = (
        "_directory_of",
        "_epochs",
        "_fs",
        "directory",
        "epoch_lines",
        "files",
        "give_up",
        "is_done",
        "sync_directory",
        "up_to_offset",
    )

    def __init__(
        self,
        fs: FileSystem,
        directory_of: Callable[[], str],
        *,
        up_to_offset: int,
        files: list[File],
        epoch_lines: list[str] | None,
        sync_directory: bool,
        give_up: Callable[[], None],
    ) -> None:
        self._fs = fs
        self._directory_of = directory_of
        self.directory = directory_of()
        self._epochs = TemporaryFile(fs, f"{self.directory}/{EPOCHS_FILE_NAME}")
        self.up_to_offset = up_to_offset
        """Everything below is on disk once this is done; lowered if the log is truncated meanwhile."""
        self.files = files
        self.epoch_lines = epoch_lines
        self.sync_directory = sync_directory
        self.give_up = give_up
        """The directory has failed, and nothing is synced there any more: no handle stays open for that."""
        self.is_done = False

    @property
    def has_only_files(self) -> bool:
        """Whether all there is to do is to sync `files`, which can be done in any other way, too."""
        return self.epoch_lines is None and not self.sync_directory

    def run(self) -> None:
        """Make it durable. Raises as `run_together`."""
        run_together([self])

    def write(self) -> None:
        """First step: write what is not written yet."""
        if self.epoch_lines is not None:
            with self._unless_deleted():
                self._epochs.write(content_of(self.epoch_lines))

    def sync(self) -> None:
        """Second step: sync the files."""
        for file in self.files:
            file.fdatasync()
        if self.epoch_lines is not None:
            with self._unless_deleted():
                self._epochs.sync()

    def rename(self) -> None:
        """Third step: give what was written anew its name."""
        if self.epoch_lines is not None:
            with self._unless_deleted():
                self._epochs.rename()

    def sync_names(self) -> None:
        """Last step: make the names durable."""
        if self.sync_directory or self.epoch_lines is not None:
            with self._unless_deleted():
                self._fs.fsync_dir(self.directory)

    @contextmanager
    def _unless_deleted(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            # The partition is being deleted and its directory has its last name already: nothing of it has to last.
            if self._directory_of() == self.directory:
                raise


def run_together(tasks: Sequence[FlushTask]) -> None:
    """Flush several logs at once, step by step: a journal that is written for one file is written for all.

    Raises `FlushPostponedError` if space or handles were lacking: the same tasks may be run again later. Raises any
    other OSError if the disk failed, after which it is not to be trusted any more.
    """
    passing: Sequence[int] = PASSING
    try:
        for task in tasks:
            task.write()
        # From here on no space is needed, so a full disk is one that lost what it had taken.
        passing = NO_HANDLE
        for task in tasks:
            task.sync()
        for task in tasks:
            task.rename()
        for task in tasks:
            task.sync_names()
    except OSError as error:
        if error.errno in passing:
            raise FlushPostponedError(error.errno, str(error)) from error
        raise


class UnsyncedFiles:
    """Collects for a flush, and keeps handles open while one runs on another thread.

    A closed handle's number may be given to another file at once; so closing waits for the end of a flush. It also
    waits while files are renamed, as nothing can be opened meanwhile. Flushes complete in the order in which they
    began, as a later one counts on the earlier.
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
            give_up=self._give_up,
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

    def _give_up(self) -> None:
        self._flushes.clear()
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
        self.not_rolled(segment)
        self.close(segment.close_handles)

    def not_rolled(self, segment: LogSegment) -> None:
        """The segment goes, or is the active one again: rolled once more it would be here twice, and go once."""
        if segment in self.rolled:
            self.rolled.remove(segment)

    def close_snapshots(self) -> None:
        for snapshot in self.snapshots:
            self.close(snapshot.close)
        self.snapshots = []

    def truncated_to(self, offset: int) -> None:
        """What is appended from `offset` on is not what the flushes under way cover."""
        self.recovery_point = min(self.recovery_point, offset)
        for task in self._flushes:
            task.up_to_offset = min(task.up_to_offset, offset)
