"""One group flush of a log: what was open and unsynced when it began, to be synced on any thread."""

from collections.abc import Callable

from .checkpoint_file import write_lines
from .filesystem import File, FileSystem
from .leader_epochs import FILE_NAME as EPOCHS_FILE_NAME


class FlushTask:
    """Begun and completed by the log on its own thread; only `run` may go to another.

    Order: old segments with their indexes, producer snapshots, the active segment, leader epochs, at last the names in
    the directory. Nothing counts as flushed before all of it is, so a crash in between finds the old recovery point.
    """

    __slots__ = (
        "_directory_of",
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
        self.up_to_offset = up_to_offset
        """Everything below is on disk once this is done; lowered if the log is truncated meanwhile."""
        self.files = files
        self.epoch_lines = epoch_lines
        self.sync_directory = sync_directory
        self.is_done = False

    def run(self) -> None:
        """Sync. Raises OSError, after which the disk is not to be trusted any more."""
        for file in self.files:
            file.fdatasync()
        try:
            if self.epoch_lines is not None:
                write_lines(self._fs, f"{self.directory}/{EPOCHS_FILE_NAME}", self.epoch_lines)
            if self.sync_directory:
                self._fs.fsync_dir(self.directory)
        except FileNotFoundError:
            # The partition is being deleted and its directory has its last name already: nothing of it has to last.
            if self._directory_of() == self.directory:
                raise
