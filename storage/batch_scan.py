"""Finding the batch that contains an offset by hopping over batch headers, in the bytes that a reader gets anyway."""

from dataclasses import dataclass
from struct import Struct

from ..protocol.record_batch import MAGIC_POSITION
from .file_records import SMALLEST_BATCH, FileRecords
from .filesystem import Sendable

HEADER_FRONT_SIZE = 27
_HEADER_FRONT = Struct(">qi4xb6xi")
_MIN_READ = 8192
SCANNED_READ = 65536


@dataclass(slots=True)
class BatchScan:
    """One read: what is wanted of a segment's file, and how much of it."""

    records: FileRecords
    offset: int
    max_length: int
    end_position: int
    min_one_message: bool
    lend: bool
    """Whether the reader sends the bytes on, so that many of them may stay in the file."""

    def read_from(self, position: int, index_interval_bytes: int) -> tuple[Sendable, int] | None:
        """Bytes from the batch that contains the offset on, and their position, scanning from a batch at `position`.

        A small read scans inside the bytes that are read anyway. A large one looks for its batch first: behind a large
        batch the index leads to the one before, and a megabyte read in vain costs more than one more call.
        """
        length, offset, end_position = _MIN_READ, self.offset, self.end_position
        if self.max_length <= SCANNED_READ:
            length = max(self.max_length + index_interval_bytes, _MIN_READ)
        unpack = _HEADER_FRONT.unpack_from
        while position < end_position:
            data = self.records.pread(min(length, end_position - position), position)
            at, last_start = 0, len(data) - HEADER_FRONT_SIZE
            while at <= last_start:
                base, size, magic, delta = unpack(data, at)
                size += 12
                if (base + delta if magic == 2 else base) >= offset:
                    return self._cut(data, at, position + at, size)
                at += size
            is_end = position + len(data) >= end_position
            if is_end and at == len(data) - SMALLEST_BATCH and data[at + MAGIC_POSITION] == 0:
                # An empty message of magic 0 is smaller than what the loop looks at, and none can follow it here.
                return self._cut(data, at, position + at, SMALLEST_BATCH)
            if at == 0:
                return None
            position += at
        return None

    def _cut(self, data: bytes, at: int, position: int, size: int) -> tuple[Sendable, int]:
        """The part of `data` from `at` on that a reader gets, where a batch of `size` bytes starts at `position`."""
        wanted = min(self.max_length, self.end_position - position)
        if self.min_one_message and size > wanted:
            wanted = size
        if len(data) - at < wanted:
            return (self.records.lend if self.lend else self.records.pread)(wanted, position), position
        if at == 0 and len(data) <= wanted:
            return data, position
        return memoryview(data)[at : at + wanted], position
