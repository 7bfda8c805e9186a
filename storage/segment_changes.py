"""Removal and replacement of segments: list, unsynced files, readers and snapshots change together."""

from collections.abc import Sequence

from .log_reader import LogReader
from .log_segment import LogSegment
from .log_segments import LogSegments
from .producer_state import ProducerStateManager
from .unsynced_files import UnsyncedFiles


class SegmentChanges:
    """Changes the set of segments and keeps all state about segments consistent. Only on the log's own thread.

    All methods raise OSError.
    """

    __slots__ = ("_producer_state", "_reader", "_segments", "_unsynced")

    def __init__(
        self, segments: LogSegments, unsynced: UnsyncedFiles, reader: LogReader, producer_state: ProducerStateManager
    ) -> None:
        self._segments = segments
        self._unsynced = unsynced
        self._reader = reader
        self._producer_state = producer_state

    def remove_files(self, removed: list[LogSegment]) -> None:
        """Take segments out of the log and unlink their files, newest first."""
        self._forget(removed)
        self._segments.remove_files(removed)

    def cut(self, offset: int, now_ms: int) -> LogSegment:
        """Remove everything at or above `offset`, durably; return the active segment.

        Later segments are removed first, each with its name synced, then the remaining segment is cut and synced:
        after a crash at any moment, no removed record reappears after new records.
        """
        self.remove_files([segment for segment in self._segments if segment.base_offset > offset])
        active = self._segments.last
        active.indexes.run_in_steps = None  # it is written to again, and a rebuild may have read the removed part
        self._unsynced.not_rolled(active)
        active.truncate_to(offset, now_ms)
        with self._unsynced.held():
            active.flush(indexes_may_wait=True)
        return active

    def rename_to_deleted(self, removed: list[LogSegment]) -> list[str]:
        """Take segments and their snapshots out of the log; the paths of the renamed files, to be unlinked later."""
        self._forget(removed)
        return self._segments.rename_to_deleted(removed, self._forget_snapshots(removed))

    def replace(self, new: Sequence[LogSegment], old: Sequence[int]) -> tuple[list[LogSegment], list[str]]:
        """Replace the segments with the base offsets `old` by new ones, in memory, and keep all handles open.

        Returns the old segments, and the paths of the snapshots that nothing starts at any more.
        """
        wanted, kept = set(old), {segment.base_offset for segment in new}
        replaced = [segment for segment in self._segments if segment.base_offset in wanted]
        assert len(replaced) == len(wanted), f"segments {sorted(wanted)} are not all there"
        assert self._segments.last not in replaced, "the active segment is not replaced"
        self._unsynced.hold()
        self._forget(replaced)
        for segment in replaced:
            self._segments.remove(segment)
        for segment in new:
            self._segments.add(segment)
        return replaced, self._forget_snapshots([s for s in replaced if s.base_offset not in kept])

    def release(self) -> None:
        """Allow handles to be closed again, because the names of the new segments are final."""
        self._unsynced.release()

    def _forget(self, segments: Sequence[LogSegment]) -> None:
        for segment in segments:
            segment.indexes.run_in_steps = None  # which ends a rebuild: its files would outlive the segment
            self._unsynced.forget(segment)
        self._reader.forget()

    def _forget_snapshots(self, segments: Sequence[LogSegment]) -> list[str]:
        paths = [self._producer_state.forget_snapshot(segment.base_offset) for segment in segments]
        return [path for path in paths if path is not None]
