"""The time index of a segment: from which offset on records as young as a timestamp may be found."""

from bisect import bisect_left
from typing import ClassVar, NamedTuple

from ..protocol.file_layouts import TIME_INDEX_ENTRY
from .errors import CorruptIndexError
from .index_file import IndexFile

_ENTRY = TIME_INDEX_ENTRY.struct

NO_TIMESTAMP = -1
_TIMESTAMPS = 2**63
_RELATIVE_OFFSETS = 2**31
"""A value above all values in entries."""


class TimestampOffset(NamedTuple):
    """A timestamp in ms, and the offset of its record."""

    timestamp: int
    offset: int


class TimeIndex(IndexFile):
    """`<base offset>.timeindex`: Kafka's TimeIndex.

    Layout: `TimeIndexEntry`. Meaning of an entry: no record up to this offset has a later timestamp than this one, and
    the batch ending at the offset was the first to reach it. Timestamps strictly increase, offsets do not decrease.
    One slot is reserved, so that the final maximum can always be written when the segment is rolled or closed.
    Writers, crashes, recovery: see `IndexFile`.
    """

    __slots__ = ("last_entry",)

    ENTRY_SIZE: ClassVar[int] = _ENTRY.size
    RESERVED: ClassVar[int] = 1

    last_entry: TimestampOffset
    """The last entry, or (-1, base offset) if there is none."""

    def maybe_append(self, timestamp: int, offset: int, *, use_reserved_slot: bool = False) -> bool:
        """Add an entry if `timestamp` is above the last one; returns whether it was added.

        Raises `CorruptIndexError` if the offset is below the last one's, or the index is full.
        """
        last_timestamp, last_offset = self.last_entry
        if timestamp <= last_timestamp:
            return False
        if offset < last_offset and self.entries:
            raise CorruptIndexError(f"{self.path}: offset {offset} after {last_offset}")
        if self.entries >= (self.max_entries if use_reserved_slot else self.full_at):
            raise CorruptIndexError(f"{self.path}: append to a full index of {self.entries} entries")
        self._pending += _ENTRY.pack(timestamp, offset - self.base_offset)
        self.entries += 1
        self.last_entry = TimestampOffset(timestamp, offset)
        return True

    def lookup(self, target_timestamp: int) -> TimestampOffset:
        """Return the greatest entry at or below `target_timestamp`, or (-1, base offset): scan forward from its offset.

        Raises OSError, and `CorruptIndexError` where entries that the search meets do not increase.
        """
        low, high = 0, self.entries
        least = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        greatest = TimestampOffset(_TIMESTAMPS, self.base_offset + _RELATIVE_OFFSETS)
        while low < high:
            middle = (low + high) // 2
            found = self.entry(middle)
            if not (least.timestamp < found.timestamp < greatest.timestamp):
                raise CorruptIndexError(f"{self.path}: {found} between {least} and {greatest}")
            if not (least.offset <= found.offset <= greatest.offset):
                raise CorruptIndexError(f"{self.path}: {found} between {least} and {greatest}")
            if found.timestamp <= target_timestamp:
                low, least = middle + 1, found
            else:
                high, greatest = middle, found
        return least

    def entry(self, slot: int) -> TimestampOffset:
        buffer, position = self._locate(slot)
        timestamp, relative = _ENTRY.unpack_from(buffer, position)
        return TimestampOffset(timestamp, self.base_offset + relative)

    def truncate_to(self, offset: int) -> None:
        """Remove every entry at or above `offset`."""
        self._truncate_to_entries(bisect_left(range(self.entries), offset, key=lambda slot: self.entry(slot).offset))

    def sanity_check(self) -> None:
        IndexFile.sanity_check(self)
        if self.entries < 2:
            return
        last_two = list(_ENTRY.iter_unpack(self._last_entries(2)))
        if last_two[1][0] <= last_two[0][0] or last_two[1][1] < last_two[0][1]:
            raise CorruptIndexError(f"{self.path}: entries {last_two} do not increase")

    def check_entries(self) -> None:
        """Look at all of them. Raises `CorruptIndexError` if any could not have been written."""
        IndexFile.sanity_check(self)
        before = (0, 0)
        for entry in _ENTRY.iter_unpack(self._last_entries(self.entries)):
            if entry[0] <= before[0] or entry[1] < before[1]:
                raise CorruptIndexError(f"{self.path}: {entry} after {before}")
            before = entry

    def _load_last_entry(self) -> None:
        last = self._last_entries(1)
        timestamp, relative = _ENTRY.unpack(last) if last else (NO_TIMESTAMP, 0)
        self.last_entry = TimestampOffset(timestamp, self.base_offset + relative)
