"""Finding the batch that contains an offset by hopping over batch headers, in the bytes that a reader gets anyway."""

from dataclasses import dataclass

from ..protocol.record import LEAST_SIZES
from ..protocol.record_batch import BATCH_HEADER, LOG_OVERHEAD
from .file_records import FileRecords, batch_position
from .filesystem import Sendable

HEADER_FRONT_SIZE = BATCH_HEADER.at("base_timestamp")
_header_front = BATCH_HEADER.reader("base_offset", "length", "magic", "last_offset_delta")
_MIN_READ = 8192
SCANNED_READ = 65536


@dataclass(slots=True)
class BatchScan:
    """The parameters of one read from a segment's file: the wanted offset and the limits."""

    records: FileRecords
    offset: int
    max_length: int
    end_position: int
    min_one_message: bool
    hard_limit: bool
    """Whether a first batch that is larger than `max_length` is given in part; else nothing of it is."""
    as_file_slice: bool
    """Whether a large stretch is given as a `FileSlice`, to be sent without being read."""

    def read_from(self, position: int, index_interval_bytes: int) -> tuple[Sendable, int] | None:
        """Return the bytes from the batch that contains the offset, and their position, scanning from `position`.

        `position` is the start of a batch. A small read scans the bytes that it returns. A large read locates its batch
        first: the index may lead to the batch before a large one, and reading a megabyte that the caller does not need
        costs more than one more call. Raises `CorruptSegmentError` if no whole batch begins at a position.
        """
        length, offset, end_position = _MIN_READ, self.offset, self.end_position
        if self.max_length <= SCANNED_READ:
            length = max(self.max_length + index_interval_bytes, _MIN_READ)
        unpack = _header_front
        while position < end_position:
            data = self.records.pread(min(length, end_position - position), position)
            at, last_start, left = 0, len(data) - HEADER_FRONT_SIZE, end_position - position
            while at <= last_start:
                base, size, magic, delta = unpack(data, at)
                size += LOG_OVERHEAD
                last = base + delta if magic == 2 else base
                if last < base or not 0 <= magic <= 2 or not LEAST_SIZES[magic] <= size <= left - at:
                    break
                if last >= offset:
                    return self._cut(data, at, position + at, size)
                at += size
            else:
                if at:
                    position += at
                    continue
            # Either an empty message of magic 0 at the end, which is smaller than the loop's minimum, or not a batch.
            batch = batch_position(data, at, position + at, end_position)
            if batch.last_offset >= offset:
                return self._cut(data, at, batch.position, batch.size)
            position = batch.position + batch.size
        return None

    def _cut(self, data: bytes, at: int, position: int, size: int) -> tuple[Sendable, int]:
        """Return the part of `data` from `at` on that a reader gets, where a batch of `size` bytes starts at
        `position`.
        """
        wanted = min(self.max_length, self.end_position - position)
        if size > wanted and not self.hard_limit:
            wanted = size if self.min_one_message else 0
        if len(data) - at < wanted:
            return (self.records.slice if self.as_file_slice else self.records.pread)(wanted, position), position
        if at == 0 and len(data) <= wanted:
            return data, position
        return memoryview(data)[at : at + wanted], position
