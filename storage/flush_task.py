"""One group flush of a log: what was open and unsynced when it began, to be synced on any thread."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from .checkpoint_file import content_of
from .errors import NO_HANDLE, PASSING, FlushPostponedError
from .filesystem import File, FileSystem, TemporaryFile
from .leader_epochs import FILE_NAME as EPOCHS_FILE_NAME


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
        self.is_done = False

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
