"""The files of a log that a start has recovered, until they are durable."""

from dataclasses import dataclass

from .checkpoint_file import content_of
from .filesystem import File, FileSystem, TemporaryFile
from .leader_epochs import LeaderEpochCache
from .log_segment import LogSegment
from .log_segments import LogSegments


@dataclass(slots=True)
class RecoveredFiles:
    """The files of one log that recovery has checked or changed. Used by one thread at a time.

    Either `sync` makes them durable, or `write`, a sync of the disk, `rename`, and another sync of the disk if `rename`
    returns True. A crash before that may leave any part of the changes, and the next start recovers the log from the
    same recovery point: a checkpoint must not contain a higher one yet.
    """

    fs: FileSystem
    path: str
    checked: list[LogSegment]
    segments: LogSegments
    """The present segments of the log; checked segments may have been removed."""
    epochs: LeaderEpochCache

    @property
    def _must_write_epochs(self) -> bool:
        """Whether the file of the epochs must be durable before a checkpoint contains a higher recovery point.

        Not if the log is small and has a single segment: the next flush or roll writes the epochs. Until then a start
        after another kill finds them in this segment, in Kafka as well. Creating the files of ten thousand new
        partitions would take several seconds.
        """
        return self.epochs.is_dirty and not (len(self.segments) == 1 and self.segments.last.is_small)

    def _remaining(self) -> list[LogSegment]:
        present = set(self.segments)
        return [segment for segment in self.checked if segment in present]

    def _unsynced_files(self, segment: LogSegment) -> list[File]:
        """Return the files to sync; without the indexes of an active segment whose entries are only in memory."""
        may_wait = segment is self.segments.last and segment.indexes.is_unwritten
        return segment.unsynced_files(with_indexes=not may_wait)

    def sync(self) -> None:
        """Make the files durable. Raises OSError."""
        for segment in self._remaining():
            for file in self._unsynced_files(segment):
                file.fsync()
            segment.close_handles()
        if self._must_write_epochs:
            self.epochs.flush()
        self.fs.fsync_dir(self.path)

    def write(self) -> None:
        """Write the parts that are only in memory, the epochs under a temporary name, and close files. Raises
        OSError.
        """
        for segment in self._remaining():
            self._unsynced_files(segment)
            segment.close_handles()
        if self._must_write_epochs:
            TemporaryFile(self.fs, self.epochs.path).write(content_of(self.epochs.lines()))

    def rename(self) -> bool:
        """Give the epochs that `write` has written their name; return whether there were any. Raises OSError."""
        if not self._must_write_epochs:
            return False
        TemporaryFile(self.fs, self.epochs.path).rename()
        self.epochs.is_dirty = False
        return True
