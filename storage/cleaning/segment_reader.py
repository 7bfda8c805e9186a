"""A segment's batches in buffers of some size, each beginning with a batch, however large the batches are."""

from collections.abc import Callable
from struct import Struct

from ...protocol.record import LOG_OVERHEAD, SIZE_POSITION
from ..errors import CorruptSegmentError
from ..file_records import FileRecords

_size_field = Struct(">i")


class SegmentReader:
    """Reads forward; whoever uses the buffers says how far it came, and the next one begins there."""

    def __init__(self, records: FileRecords, position: int, buffer_bytes: int, throttle: Callable[[int], None]) -> None:
        self._records = records
        self._buffer_bytes = buffer_bytes
        self._throttle = throttle
        self.position = position

    def read(self) -> bytes:
        """The next buffer, with at least one whole batch; nothing at the end. Raises `CorruptSegmentError`, OSError."""
        data = self._records.pread(self._buffer_bytes, self.position)
        left = self._records.size - self.position
        if data and len(data) < left:
            size = _first_batch_size(data)
            if size > left:
                raise self.corrupt("a batch that does not end with the segment", 0)
            if size > len(data):
                data = self._records.pread(size, self.position)
        if data:
            self._throttle(len(data))
        return data

    def advance(self, length: int) -> None:
        """So much of the last buffer is done. Raises `CorruptSegmentError` if that is nothing."""
        if length <= 0:
            raise self.corrupt("a batch that does not end with the segment", 0)
        self.position += length

    def corrupt(self, what: str, at: int) -> CorruptSegmentError:
        """The error to raise for what stands at `at` in the last buffer."""
        return CorruptSegmentError(f"{self._records.path}: {what} at position {self.position + at}")


def _first_batch_size(data: bytes) -> int:
    if len(data) < LOG_OVERHEAD:
        return LOG_OVERHEAD
    size: int = _size_field.unpack_from(data, SIZE_POSITION)[0]
    return size + LOG_OVERHEAD
