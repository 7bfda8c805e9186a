"""A segment's batches in buffers of some size, each beginning with a batch, however large the batches are."""

from collections.abc import Callable

from ...protocol.errors import ProtocolError
from ...protocol.record import MIN_ENTRY_HEADER_SIZE, entry_size
from ..errors import CorruptSegmentError
from ..file_records import FileRecords


class SegmentReader:
    """Reads a segment forward in buffers. The caller reports with `advance` how much of a buffer it has processed."""

    def __init__(self, records: FileRecords, position: int, buffer_bytes: int, throttle: Callable[[int], None]) -> None:
        self._records = records
        self._buffer_bytes = buffer_bytes
        self._throttle = throttle
        self.position = position

    def read(self) -> bytes:
        """Return the next buffer, with at least one whole batch; nothing at the end.

        Raises `CorruptSegmentError`, OSError.
        """
        data = self._records.pread(self._buffer_bytes, self.position)
        left = self._records.size - self.position
        if data and len(data) < left:
            size = self._first_batch_size(data)
            if size > left:
                raise self.corrupt("a batch that exceeds the segment", 0)
            if size > len(data):
                data = self._records.pread(size, self.position)
        if data:
            self._throttle(len(data))
        return data

    def _first_batch_size(self, data: bytes) -> int:
        if len(data) < MIN_ENTRY_HEADER_SIZE:
            return MIN_ENTRY_HEADER_SIZE
        try:
            return entry_size(data, 0)
        except ProtocolError as error:
            raise self.corrupt("no record batch", 0) from error

    def advance(self, length: int) -> None:
        """Mark `length` bytes of the last buffer as processed. Raises `CorruptSegmentError` if `length` is 0."""
        if length <= 0:
            raise self.corrupt("a batch that exceeds the segment", 0)
        self.position += length

    def corrupt(self, what: str, at: int) -> CorruptSegmentError:
        """Return the error to raise for invalid bytes at `at` in the last buffer."""
        return CorruptSegmentError(f"{self._records.path}: {what} at position {self.position + at}")
