"""The offset index of a segment: where in the `.log` file an offset is to be found, one entry every few KiB."""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from ..protocol.file_layouts import OFFSET_INDEX_ENTRY
from .errors import CorruptIndexError
from .index_file import BLOCK_BYTES, IndexFile

_ENTRY = OFFSET_INDEX_ENTRY.struct
_pack = _ENTRY.pack
_OFFSET, _POSITION = 0, 1
"""The fields of an entry, by which it is found."""
_FIELD_END = 2**31
"""A value above all values in entries, whose fields are non-negative int32."""
ENTRIES_PER_BLOCK = BLOCK_BYTES // _ENTRY.size


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
            raise CorruptIndexError(f"{self.path}: offset {offset} is out of order after {self.last_offset}")
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
        """Return the greatest entry at or below `target_offset`, or (base offset, 0): start there and scan forward.

        Raises OSError, and `CorruptIndexError` where entries that the search meets do not increase.
        """
        slot = self._floor_slot(target_offset - self.base_offset)
        return OffsetPosition(self.base_offset, 0) if slot < 0 else self.entry(slot)

    def upper_bound(self, start_position: int, length: int) -> OffsetPosition | None:
        """Return the smallest entry at or beyond `start_position + length`, which a fetch cannot reach; None if there
        is none.

        Raises as `lookup`.
        """
        slot = self._first_slot_above(_POSITION, start_position + length - 1)
        return self.entry(slot) if slot < self.entries else None

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
        if self.entries < 2:
            return
        last_two = list(_ENTRY.iter_unpack(self._last_entries(2)))
        if last_two[1][0] <= last_two[0][0] or last_two[1][1] <= last_two[0][1]:
            raise CorruptIndexError(f"{self.path}: entries {last_two} do not increase")

    def check_entries(self, log_size: int) -> None:
        """Look at all of them. Raises `CorruptIndexError` if any could not have been written for `log_size` bytes."""
        IndexFile.sanity_check(self)
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
        """Return the last slot whose relative offset is at most `relative_offset`, or -1. Raises as `lookup`."""
        return self._first_slot_above(_OFFSET, relative_offset) - 1

    def _first_slot_above(self, field: int, value: int) -> int:
        """Return the first slot whose `field` is above `value`, or the number of entries. Raises as `lookup`.

        A search reads one block of the file, selected by the cached first entries of all blocks.
        """
        low, high, least, greatest = 0, self.entries, -1, _FIELD_END
        written = self._written
        if high > written:
            if value >= _ENTRY.unpack_from(self._pending, 0)[field]:
                low = written + 1
            else:
                high = written
        if low == 0 and self._block:
            # A consumer that reads a segment in order mostly needs an entry of the block of its last read.
            first, last = _ENTRY.unpack_from(self._block)[field], _ENTRY.unpack_from(self._block, -_ENTRY.size)[field]
            if first <= value < last:
                start = self._block_start // _ENTRY.size
                low, high, least, greatest = start + 1, start + len(self._block) // _ENTRY.size - 1, first, last
        if high - low > ENTRIES_PER_BLOCK:
            block, block_end = 0, -(-high // ENTRIES_PER_BLOCK)
            while block < block_end:
                middle = (block + block_end) // 2
                found = self._first_of_block(middle, field)
                # A damaged entry would lead the search astray; among the entries it meets, order costs one comparison.
                if not least < found < greatest:
                    raise CorruptIndexError(f"{self.path}: {found} between {least} and {greatest}")
                if found <= value:
                    block, least = middle + 1, found
                else:
                    block_end, greatest = middle, found
            if block == 0:
                return 0
            low, high = (block - 1) * ENTRIES_PER_BLOCK + 1, min(block * ENTRIES_PER_BLOCK, high)
        while low < high:
            middle = (low + high) // 2
            buffer, position = self._locate(middle)
            found = _ENTRY.unpack_from(buffer, position)[field]
            if not least < found < greatest:
                raise CorruptIndexError(f"{self.path}: {found} between {least} and {greatest}")
            if found <= value:
                low, least = middle + 1, found
            else:
                high, greatest = middle, found
        return low

    def _first_of_block(self, block: int, field: int) -> int:
        """Return a field of the first entry of a written block, which is read once. Raises as `lookup`."""
        firsts = self._block_firsts
        if block >= len(firsts):
            firsts.extend([-1] * (-(-self._written // ENTRIES_PER_BLOCK) - len(firsts)))
        entry = firsts[block]
        if entry == -1:
            buffer, position = self._locate(block * ENTRIES_PER_BLOCK)
            entry = firsts[block] = int.from_bytes(buffer[position : position + _ENTRY.size], "big", signed=True)
        return entry >> 32 if field == _OFFSET else entry & 0xFFFFFFFF
