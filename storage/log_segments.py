"""The segments of a log, ordered by base offset."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import overload

from .filesystem import FileSystem
from .log_segment import LogSegment
from .segment_files import DELETED_SUFFIX


class LogSegments:
    """Kafka's LogSegments. Never empty in an open log; the last segment is the active segment.

    Removals sync the directory; after renames the caller syncs it.
    """

    __slots__ = ("_base_offsets", "_by_base_offset", "_directory", "_fs")

    def __init__(self, directory: str, fs: FileSystem) -> None:
        self._directory = directory
        self._fs = fs
        self._base_offsets: list[int] = []
        self._by_base_offset: dict[int, LogSegment] = {}

    def __len__(self) -> int:
        return len(self._base_offsets)

    @overload
    def __getitem__(self, slot: int) -> LogSegment: ...

    @overload
    def __getitem__(self, slot: slice) -> list[LogSegment]: ...

    def __getitem__(self, slot: int | slice) -> LogSegment | list[LogSegment]:
        """Return a segment by its number, the oldest first."""
        bases = self._base_offsets[slot]
        return (
            [self._by_base_offset[base] for base in bases] if isinstance(bases, list) else self._by_base_offset[bases]
        )

    def __iter__(self) -> Iterator[LogSegment]:
        """Oldest first, over a snapshot."""
        return iter([self._by_base_offset[base] for base in self._base_offsets])

    def add(self, segment: LogSegment) -> None:
        assert segment.base_offset not in self._by_base_offset, f"two segments at {segment.base_offset}"
        insort(self._base_offsets, segment.base_offset)
        self._by_base_offset[segment.base_offset] = segment

    def remove(self, segment: LogSegment) -> None:
        self._base_offsets.remove(segment.base_offset)
        del self._by_base_offset[segment.base_offset]

    def remove_files(self, removed: list[LogSegment]) -> None:
        """Take segments out of the log and unlink their files durably. Raises OSError.

        Newest first, each durably before the next: a crash at any time leaves segments without a hole.
        """
        for segment in reversed(removed):
            self.remove(segment)
            for path in segment.files.existing_paths():
                self._fs.unlink(path)
            self._fs.fsync_dir(self._directory)

    def rename_to_deleted(self, removed: list[LogSegment], other_paths: list[str]) -> list[str]:
        """Take segments out of the log and mark their files, and some others, as to be deleted; the new paths.

        Raises OSError. The files are left for a while, as readers may be using them. The names are not durable yet.
        """
        paths = []
        for segment in removed:
            self.remove(segment)
            segment.change_suffix(DELETED_SUFFIX)
            paths += segment.files.existing_paths()
        for path in filter(self._fs.exists, other_paths):
            self._fs.rename(path, path + DELETED_SUFFIX)
            paths.append(path + DELETED_SUFFIX)
        return paths

    def moved_to(self, directory: str) -> None:
        """Use another path: the directory has been renamed."""
        self._directory = directory
        for segment in self:
            segment.moved_to(directory)

    @property
    def base_offsets(self) -> list[int]:
        return list(self._base_offsets)

    @property
    def first(self) -> LogSegment:
        return self._by_base_offset[self._base_offsets[0]]

    @property
    def last(self) -> LogSegment:
        return self._by_base_offset[self._base_offsets[-1]]

    @property
    def size_in_bytes(self) -> int:
        return sum(segment.size for segment in self._by_base_offset.values())

    def floor(self, offset: int) -> LogSegment | None:
        """Return the segment with the greatest base offset at or below `offset`."""
        slot = bisect_right(self._base_offsets, offset) - 1
        return self._by_base_offset[self._base_offsets[slot]] if slot >= 0 else None

    def higher(self, offset: int) -> LogSegment | None:
        """Return the segment with the smallest base offset above `offset`."""
        slot = bisect_right(self._base_offsets, offset)
        return self._by_base_offset[self._base_offsets[slot]] if slot < len(self._base_offsets) else None

    def from_offset(self, offset: int) -> list[LogSegment]:
        """Return the segment that may hold `offset`, and all later ones, in order."""
        slot = max(bisect_right(self._base_offsets, offset) - 1, 0)
        return [self._by_base_offset[base] for base in self._base_offsets[slot:]]

    def wholly_below(self, offset: int) -> list[LogSegment]:
        """Return the segments after which another one begins at or below `offset`, in order."""
        slot = max(bisect_right(self._base_offsets, offset) - 1, 0)
        return [self._by_base_offset[base] for base in self._base_offsets[:slot]]

    def between(self, start: int, end: int) -> list[LogSegment]:
        """Return the segments that may hold offsets in [start, end), in order."""
        slot = max(bisect_right(self._base_offsets, start) - 1, 0)
        return [self._by_base_offset[base] for base in self._base_offsets[slot : bisect_left(self._base_offsets, end)]]
