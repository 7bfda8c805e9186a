"""The files of a log with unsynced writes, and the flushes that are in progress.

A `FlushTask` is one flush of a log: the files that were open and unsynced at its start, to be synced on any thread.
"""

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from .checkpoint_file import content_of
from .errors import FILE_ERRORS, NO_HANDLE, PASSING, FlushPostponedError
from .filesystem import File, FileSystem, TemporaryFile
from .leader_epochs import FILE_NAME as EPOCHS_FILE_NAME
from .leader_epochs import LeaderEpochCache
from .log_segment import LogSegment
from .producer_state import ProducerSnapshot


class FlushTask:
    """Created and completed by the log on its own thread; only `run` and `run_together` may run on another thread.

    Order: the content of producer snapshots and leader epochs is written, then synced with the data and indexes of old
    segments and of the active one; then both get their names, and at last the names in the directory are synced.
    Nothing counts as flushed before all of it is, so after a crash in between the old recovery point applies.
    """

    __slots__ = (
        "_directory_of",
        "_epochs",
        "directory",
        "epoch_lines",
        "failure",
        "files",
        "fs",
        "give_up",
        "is_done",
        "snapshots",
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
        snapshots: list[ProducerSnapshot],
        epoch_lines: list[str] | None,
        sync_directory: bool,
        give_up: Callable[[], None],
    ) -> None:
        self.fs = fs
        self._directory_of = directory_of
        self.directory = directory_of()
        self._epochs = TemporaryFile(fs, f"{self.directory}/{EPOCHS_FILE_NAME}")
        self.up_to_offset = up_to_offset
        """Everything below is on disk once this is done; a truncation of the log lowers it."""
        self.files = files
        self.snapshots = snapshots
        self.epoch_lines = epoch_lines
        self.sync_directory = sync_directory
        self.give_up = give_up
        """Called when the directory has failed and nothing is synced there any more, to close the handles."""
        self.is_done = False
        self.failure: OSError | None = None
        """The error about this log's own files that ended the flush: its offsets never count as flushed."""

    @property
    def has_only_files(self) -> bool:
        """Return whether the flush only needs to sync `files`, which the caller may then do in another way."""
        return self.epoch_lines is None and not self.sync_directory and not self.snapshots

    def run(self) -> None:
        """Make everything durable. Raises as `run_together`, and its own `failure`."""
        run_together([self])
        if self.failure is not None:
            raise self.failure

    def write(self) -> None:
        """First step: write the new files under temporary names."""
        for snapshot in self.snapshots:
            with self._unless_deleted():
                snapshot.write(self.directory)
        if self.epoch_lines is not None:
            with self._unless_deleted():
                self._epochs.write(content_of(self.epoch_lines))

    def sync(self) -> None:
        """Second step: sync the files."""
        for file in self.files:
            file.fdatasync()
        for snapshot in self.snapshots:
            with self._unless_deleted():
                snapshot.sync()
        if self.epoch_lines is not None:
            with self._unless_deleted():
                self._epochs.sync()

    def check_writeback(self) -> None:
        """Second step after a sync of the whole disk: raise the errors that `sync` would raise."""
        for file in self.files:
            file.check_writeback()

    def rename(self) -> None:
        """Third step: rename the new files."""
        for snapshot in self.snapshots:
            with self._unless_deleted():
                snapshot.rename()
        if self.epoch_lines is not None:
            with self._unless_deleted():
                self._epochs.rename()

    def sync_names(self) -> None:
        """Last step: make the names durable."""
        if self.sync_directory or self.epoch_lines is not None or self.snapshots:
            with self._unless_deleted():
                self.fs.fsync_dir(self.directory)

    @contextmanager
    def _unless_deleted(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            # The partition is being deleted and its directory was renamed: its files need not be durable.
            if self._directory_of() == self.directory:
                raise


def run_together(tasks: Sequence[FlushTask], *, disk: str = "") -> None:
    """Flush several logs together, step by step: a journal commit for one file covers the others.

    With `disk`, the path of the logs' directory, syncs of the whole disk replace syncs of files and directories if
    the system has such a sync. They also write all other dirty data, so they are for very many logs.

    A log whose files were deleted or replaced gets its `failure`, and the others are flushed. Raises
    `FlushPostponedError` if disk space or file handles were lacking: the same tasks may be run again later. Raises any
    other OSError if the disk failed, after which its content must not be trusted.
    """
    passing: Sequence[int] = PASSING
    try:
        _step(tasks, FlushTask.write)
        # The next steps need no space: a full disk now means that the disk has lost bytes that it had accepted.
        passing = NO_HANDLE
        by_disk = bool(disk) and tasks[0].fs.sync_disk(disk)
        _step(tasks, FlushTask.check_writeback if by_disk else FlushTask.sync)
        _step(tasks, FlushTask.rename)
        if not (by_disk and tasks[0].fs.sync_disk(disk)):
            _step(tasks, FlushTask.sync_names)
    except OSError as error:
        if error.errno in passing:
            raise FlushPostponedError(error.errno, str(error)) from error
        raise


def _step(tasks: Sequence[FlushTask], step: Callable[[FlushTask], None]) -> None:
    for task in tasks:
        if task.failure is None:
            try:
                step(task)
            except OSError as error:
                if error.errno not in FILE_ERRORS:
                    raise
                task.failure = error


class UnsyncedFiles:
    """Collects the files for the next flush, and keeps handles open while a flush runs on another thread.

    The system may reuse a closed handle's number immediately, so closing waits for the end of a flush. It also waits
    while files are renamed, because nothing can be opened during that time. Flushes complete in the order in which
    they began, because a later one relies on the earlier ones.
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
        self.snapshots: list[ProducerSnapshot] = []
        """Snapshots that were begun since, and which the next flush writes."""
        self.names = False
        """Whether files were created in the directory since."""

    def begin(
        self, active: LogSegment, epochs: LeaderEpochCache, end_offset: int, directory_of: Callable[[], str]
    ) -> FlushTask:
        """Return a task that makes everything below `end_offset` durable.

        Raises OSError if an index cannot be written.
        """
        with self.held():
            files = [file for segment in self.rolled for file in segment.unsynced_files(with_indexes=True)]
            names = self.names or active.has_new_transactions
            files += active.unsynced_files(with_indexes=False)
        task = FlushTask(
            self._fs,
            directory_of,
            up_to_offset=end_offset,
            files=files,
            snapshots=self.snapshots,
            epoch_lines=epochs.lines() if epochs.is_dirty else None,
            sync_directory=names,
            give_up=self._give_up,
        )
        self._flushes.append(task)
        epochs.is_dirty = self.names = False
        self._closes += [segment.close_handles for segment in self.rolled]
        self.rolled, self.snapshots = [], []
        return task

    def expect_last_flush(self) -> None:
        """Prepare the final flush, which covers everything. Raises OSError if an earlier flush has not ended."""
        if self.is_in_use:
            raise OSError(errno.EBUSY, "a flush or a swap is in progress")
        self.names = True

    def complete(self, task: FlushTask) -> None:
        """Raise the recovery point after `task.run` has succeeded."""
        task.is_done = True
        while self._flushes and self._flushes[0].is_done:
            self.recovery_point = max(self.recovery_point, self._flushes.pop(0).up_to_offset)
        self._close_what_may()

    def _give_up(self) -> None:
        self._flushes.clear()
        self._close_what_may()

    def hold(self) -> None:
        """Keep all handles open until `release`."""
        self._holds += 1

    def release(self) -> None:
        """End a `hold`."""
        self._holds -= 1
        self._close_what_may()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep all handles open inside."""
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
        """Return whether a flush or a swap needs the open handles."""
        return bool(self._flushes) or self._holds > 0

    def close(self, close: Callable[[], None]) -> None:
        """Call `close` now, or when no flush or swap needs the handles."""
        if self.is_in_use:
            self._closes.append(close)
        else:
            close()

    def forget(self, segment: LogSegment) -> None:
        """Close a removed segment, and do not flush it."""
        self.not_rolled(segment)
        self.close(segment.close_handles)

    def not_rolled(self, segment: LogSegment) -> None:
        """Take a segment that is removed, or active again, out of `rolled`: rolling it again must not add it twice."""
        if segment in self.rolled:
            self.rolled.remove(segment)

    def truncated_to(self, offset: int) -> None:
        """Exclude offsets from `offset` on from the flushes in progress, because they will be written again."""
        self.recovery_point = min(self.recovery_point, offset)
        for task in self._flushes:
            task.up_to_offset = min(task.up_to_offset, offset)
