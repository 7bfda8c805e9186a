"""The segments of a log, ordered by base offset."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from .log_segment import LogSegment


class LogSegments:
    """Kafka's LogSegments. Never empty in an open log; the last one is the active segment."""

    __slots__ = ("_base_offsets", "_by_base_offset")

    def __init__(self) -> None:
        self._base_offsets: list[int] = []
        self._by_base_offset: dict[int, LogSegment] = {}

    def __len__(self) -> int:
        return len(self._base_offsets)

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
        """The segment with the greatest base offset at or below `offset`."""
        slot = bisect_right(self._base_offsets, offset) - 1
        return self._by_base_offset[self._base_offsets[slot]] if slot >= 0 else None

    def higher(self, offset: int) -> LogSegment | None:
        """The segment with the smallest base offset above `offset`."""
        slot = bisect_right(self._base_offsets, offset)
        return self._by_base_offset[self._base_offsets[slot]] if slot < len(self._base_offsets) else None

    def from_offset(self, offset: int) -> list[LogSegment]:
        """The segment that may hold `offset`, and all later ones, in order."""
        slot = max(bisect_right(self._base_offsets, offset) - 1, 0)
        return [self._by_base_offset[base] for base in self._base_offsets[slot:]]

    def between(self, start: int, end: int) -> list[LogSegment]:
        """The segments that may hold offsets in [start, end), in order."""
        slot = max(bisect_right(self._base_offsets, start) - 1, 0)
        return [self._by_base_offset[base] for base in self._base_offsets[slot : bisect_left(self._base_offsets, end)]]
