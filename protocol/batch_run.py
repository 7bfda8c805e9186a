"""Consecutive batches of format v2 in a buffer, and their records as columns.

`BatchRun.scan` has a compiled twin; this module is the specification.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct

from .batch_header import (
    CONTROL_MASK,
    HEADER_SIZE,
    TRANSACTIONAL_MASK,
    BatchHeader,
    batch_crc,
)
from .errors import ProtocolError
from .native import native
from .record import CODEC_MASK, ENTRY_FRONT, LOG_OVERHEAD, MAGIC_POSITION, TIMESTAMP_TYPE_MASK
from .record_codec import MIN_RECORD_SIZE, locate_record
from .record_columns import RecordColumns

SPECIAL = CODEC_MASK | CONTROL_MASK | TRANSACTIONAL_MASK
"""Attributes of batches that the caller handles itself."""

_ROW = 3
_ROW_SIZE = 4 * _ROW
_length = ENTRY_FRONT.reader("length")
_MIN_BATCH_ROWS = 64


class Stop(IntEnum):
    """The reason why a scan ended."""

    END = 0
    """The buffer ends, or its last batch is incomplete."""
    SPECIAL = 1
    """A batch with one of the requested attributes, or of format v0 or v1."""
    ROOM = 2
    """No more room for batches or records; between the compiled code and its caller only."""
    CORRUPT = 3
    """The bytes are not a batch, its CRC is wrong, or its records have gaps or are out of order."""


_STOPS = tuple(Stop)


class BatchRun:
    """Whole batches of `buffer`: `batch(i)` returns the position, `records` contains the rows of all of them.

    The rows of batch i begin at `first_row(i)` and end before the rows of batch i + 1.
    """

    __slots__ = ("_rows", "block", "buffer", "count", "records", "use_native")

    def __init__(self, *, use_native: bool = True) -> None:
        self.buffer: bytes = b""
        self.records = RecordColumns()
        self.count = 0
        self.block = bytearray()
        self.use_native = use_native and native is not None
        self._make_room(_MIN_BATCH_ROWS)

    def _make_room(self, rows: int) -> None:
        block = bytearray(rows * _ROW_SIZE)
        if self.count:
            block[: self.count * _ROW_SIZE] = self.block[: self.count * _ROW_SIZE]
        self.block = block
        self._rows = memoryview(block).cast("i")

    def start(self, buffer: bytes) -> None:
        """Remove all batches, and use another buffer."""
        self.buffer = buffer
        self.clear()

    def clear(self) -> None:
        """Remove all batches."""
        self.count = 0
        self.records.clear()

    def batch(self, index: int) -> tuple[int, int]:
        """Return position and size of a batch."""
        return self._rows[_ROW * index], self._rows[_ROW * index + 1]

    def first_row(self, index: int) -> int:
        """Return the row of a batch's first record; for the index after the last batch, the number of rows."""
        return self._rows[_ROW * index + 2] if index < self.count else self.records.count

    def scan(
        self, position: int, end: int | None = None, *, special: int = SPECIAL, check_crc: bool = True
    ) -> tuple[int, Stop]:
        """Add the batches from `position` on, up to a special one or `end`; return the position and the reason of the
        stop.
        """
        end = len(self.buffer) if end is None else end
        while True:
            position, reason = self._scan_on(position, end, special, check_crc)
            if reason != Stop.ROOM:
                return position, _STOPS[reason]

    def _scan_on(self, position: int, end: int, special: int, check_crc: bool) -> tuple[int, int]:
        if not self.use_native or native is None:
            return self._scan_here(position, end, special, check_crc)
        records = self.records
        position, reason, self.count, records.count, wanted = native.scan_batches(
            self.buffer, (position, end), self.block, self.count, records.block, records.capacity, records.count,
            special, check_crc,
        )  # fmt: skip
        if reason == Stop.ROOM:
            records.make_room(wanted)
            if self.count == len(self.block) // _ROW_SIZE:
                self._make_room(2 * self.count)
        return position, reason

    def _scan_here(self, position: int, end: int, special: int, check_crc: bool) -> tuple[int, int]:
        buffer = self.buffer
        view = memoryview(buffer)
        while position + LOG_OVERHEAD <= end:
            size = _length(buffer, position)[0] + LOG_OVERHEAD
            if size <= MAGIC_POSITION:
                return position, Stop.CORRUPT
            if position + size > end:
                return position, Stop.END
            magic = buffer[position + MAGIC_POSITION]
            if magic < 2:
                return position, Stop.SPECIAL
            if magic > 2 or size < HEADER_SIZE:
                return position, Stop.CORRUPT
            batch = view[position : position + size]
            header = BatchHeader.read(batch)
            if header.attributes & special:
                return position, Stop.SPECIAL
            if check_crc and batch_crc(batch) != header.crc:
                return position, Stop.CORRUPT
            if not self._add_batch(position, header):
                return position, Stop.CORRUPT
            position += size
        return position, Stop.END

    def _add_batch(self, position: int, header: BatchHeader) -> bool:
        """Add a batch with its records; return False, and add nothing, for invalid records."""
        if not 0 <= header.record_count <= (header.size_in_bytes - HEADER_SIZE) // MIN_RECORD_SIZE:
            return False
        records = self.records
        first_row = records.count
        records.make_room(header.record_count)
        if self.count == len(self.block) // _ROW_SIZE:
            self._make_room(2 * self.count)
        try:
            self._add_records(position + HEADER_SIZE, position + header.size_in_bytes, header)
        except ProtocolError:
            records.count = first_row
            return False
        self._rows[_ROW * self.count : _ROW * (self.count + 1)] = _ints(position, header.size_in_bytes, first_row)
        self.count += 1
        return True

    def _add_records(self, position: int, end: int, header: BatchHeader) -> None:
        """Raise ProtocolError for records that do not fill the batch, or are out of order."""
        append_time = header.max_timestamp if header.attributes & TIMESTAMP_TYPE_MASK else None
        least_delta = 0
        records = self.records
        for _ in range(header.record_count):
            found = locate_record(self.buffer, position, end)
            if not least_delta <= found.offset_delta <= header.last_offset_delta:
                raise ProtocolError(f"offset delta {found.offset_delta}, expected at least {least_delta}")
            row = records.count
            records.offsets[row] = as_long(header.base_offset + found.offset_delta)
            records.timestamps[row] = (
                as_long(header.base_timestamp + found.timestamp_delta) if append_time is None else append_time
            )
            records.starts[row], records.ends[row] = position, found.end
            records.key_starts[row], records.key_sizes[row] = found.key_start, found.key_size
            records.value_starts[row], records.value_sizes[row] = found.value_start, found.value_size
            records.header_starts[row] = found.headers_start
            records.count = row + 1
            least_delta, position = found.offset_delta + 1, found.end
        if position != end:
            raise ProtocolError("records do not end where the batch ends")


def _ints(*values: int) -> memoryview:
    return memoryview(Struct("=3i").pack(*values)).cast("i")


def as_long(value: int) -> int:
    """Return the value in 64 bits, as additions wrap around in other languages."""
    return (value + (1 << 63) & (1 << 64) - 1) - (1 << 63)
