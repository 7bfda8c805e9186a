"""The offset index of a segment: where in the `.log` file an offset is to be found, one entry every few KiB."""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from ..protocol.file_layouts import OFFSET_INDEX_ENTRY
from .errors import CorruptIndexError
from .index_file import IndexFile

_ENTRY = OFFSET_INDEX_ENTRY.struct
_pack = _ENTRY.pack


class OffsetPosition(NamedTuple):
    """A batch's last offset, and the byte in the `.log` file at which that batch starts."""

    offset: int
    position: int


class OffsetIndex(IndexFile):
    """`<base offset>.index`: Kafka's OffsetIndex.

    Layout: `OffsetIndexEntry`. The offset is the **last** offset of the batch that
    starts at the position; offsets and positions strictly increase. Writers, crashes, recovery: see `IndexFile`.
    """

    __slots__ = ("last_offset", "last_position")

    ENTRY_SIZE: ClassVar[int] = _ENTRY.size

    last_offset: int
    """Offset of the last entry, or the base offset if there is none."""
    last_position: int
    """Position of the last entry, or 0."""

    def append(self, offset: int, position: int) -> None:
        """Add an entry; its offset must be above the last one's. Raises `CorruptIndexError` if it is not."""
        if offset <= self.last_offset and self.entries:
            raise CorruptIndexError(f"{self.path}: offset {offset} after {self.last_offset}")
        if self.entries >= self.full_at:
            raise CorruptIndexError(f"{self.path}: append to a full index of {self.entries} entries")
        self._pending += _pack(offset - self.base_offset, position)
        self.entries += 1
        self.last_offset, self.last_position = offset, position

    def append_many(self, entries: Sequence[tuple[int, int]]) -> None:
        """`append` (offset, position) after (offset, position), in rising order, as far as there is room."""
        entries = entries[: max(self.max_entries - self.entries, 0)]
        if entries:
            self.append(*entries[0])
            base_offset = self.base_offset
            self._pending += b"".join([_pack(offset - base_offset, position) for offset, position in entries[1:]])
            self.entries += len(entries) - 1
            self.last_offset, self.last_position = entries[-1]

    def lookup(self, target_offset: int) -> OffsetPosition:
        """The greatest entry at or below `target_offset`, or (base offset, 0): start there and scan forward."""
        slot = self._floor_slot(target_offset - self.base_offset)
        return OffsetPosition(self.base_offset, 0) if slot < 0 else self.entry(slot)

    def upper_bound(self, start_position: int, length: int) -> OffsetPosition | None:
        """The smallest entry at or beyond `start_position + length`, if there is one (what a fetch cannot reach)."""
        target = start_position + length
        low, high = 0, self.entries
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle).position < target:
                low = middle + 1
            else:
                high = middle
        return self.entry(low) if low < self.entries else None

    def entry(self, slot: int) -> OffsetPosition:
        buffer, position = self._locate(slot)
        relative, file_position = _ENTRY.unpack_from(buffer, position)
        return OffsetPosition(self.base_offset + relative, file_position)

    def truncate_to(self, offset: int) -> None:
        """Remove every entry at or above `offset`."""
        self._truncate_to_entries(self._floor_slot(offset - 1 - self.base_offset) + 1)

    def sanity_check(self) -> None:
        IndexFile.sanity_check(self)
        if self.entries and self.last_offset < self.base_offset:
            raise CorruptIndexError(f"{self.path}: last offset {self.last_offset} below base {self.base_offset}")
        last_two = list(_ENTRY.iter_unpack(self._last_entries(2)))
        if len(last_two) == 2 and (last_two[1][0] <= last_two[0][0] or last_two[1][1] <= last_two[0][1]):
            raise CorruptIndexError(f"{self.path}: entries {last_two} do not increase")

    def check_entries(self, log_size: int) -> None:
        """Look at all of them. Raises `CorruptIndexError` if any could not have been written for `log_size` bytes."""
        self.sanity_check()
        before = (-1, 0)
        for entry in _ENTRY.iter_unpack(self._last_entries(self.entries)):
            if entry[0] <= before[0] or entry[1] <= before[1]:
                raise CorruptIndexError(f"{self.path}: {entry} after {before}")
            before = entry
        if self.entries and before[1] >= log_size:
            raise CorruptIndexError(f"{self.path}: position {before[1]} in a log of {log_size} bytes")

    def _load_last_entry(self) -> None:
        last = self._last_entries(1)
        relative, self.last_position = _ENTRY.unpack(last) if last else (0, 0)
        self.last_offset = self.base_offset + relative

    def _floor_slot(self, relative_offset: int) -> int:
        """The last slot whose relative offset is at most `relative_offset`, or -1."""
        low, high = 0, self.entries
        written = self._written
        if high > written:
            if relative_offset >= _ENTRY.unpack_from(self._pending, 0)[0]:
                low = written + 1
            else:
                high = written
        while low < high:
            middle = (low + high) // 2
            buffer, position = self._locate(middle)
            if _ENTRY.unpack_from(buffer, position)[0] <= relative_offset:
                low = middle + 1
            else:
                high = middle
        return low - 1
