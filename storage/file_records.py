"""The `.log` file of a segment: record batches one after the other, appended at the end and read by position."""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from ..protocol.errors import ProtocolError
from ..protocol.record_batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC_POSITION, Batch, iter_batches
from .errors import CorruptSegmentError
from .filesystem import File, FileSystem, Sendable, write_all

_PREFIX = Struct(">qii")
_V2_FIELDS = Struct(">iqq")
_V2_FIELDS_POSITION = 23
_V1_TIMESTAMP = Struct(">q")
_V1_TIMESTAMP_POSITION = 18
_HEADER_PREFIX_SIZE = 43
SMALLEST_BATCH = 26
"""Bytes of an empty message of magic 0."""
_SMALLEST_SIZES = (SMALLEST_BATCH, 34, HEADER_SIZE)
"""By magic."""
_HEADER_CHUNK = 64 * 1024
_DATA_CHUNK = 1024 * 1024
_LENT_BYTES = 64 * 1024
"""Copying less than this twice is cheaper than the calls it takes to send it from the file."""


class BatchPosition(NamedTuple):
    """What the first 43 bytes of a batch say, of any format, and where it lies in the file."""

    position: int
    size: int
    base_offset: int
    """Of a compressed batch of magic 0 or 1: its last offset, as its first one is known only inside."""
    last_offset: int
    max_timestamp: int
    leader_epoch: int
    """-1 for magic 0 and 1."""


def batch_position(buffer: bytes | memoryview, at: int, position: int, end: int) -> BatchPosition:
    """Read the header at `at` in `buffer`, which lies at `position` of a file whose batches end at `end`.

    Raises `CorruptSegmentError` where no whole batch begins: a length that no batch has or that leads beyond the end.
    """
    left = len(buffer) - at
    if left >= SMALLEST_BATCH:
        base_offset, length, leader_epoch = _PREFIX.unpack_from(buffer, at)
        size = length + LOG_OVERHEAD
        magic = buffer[at + MAGIC_POSITION]
        if magic <= 2 and _SMALLEST_SIZES[magic] <= size <= end - position:
            if magic < 2:
                timestamp = _V1_TIMESTAMP.unpack_from(buffer, at + _V1_TIMESTAMP_POSITION)[0] if magic else -1
                return BatchPosition(position, size, base_offset, base_offset, timestamp, -1)
            if left >= _HEADER_PREFIX_SIZE:
                delta, _, max_timestamp = _V2_FIELDS.unpack_from(buffer, at + _V2_FIELDS_POSITION)
                if delta >= 0:
                    return BatchPosition(position, size, base_offset, base_offset + delta, max_timestamp, leader_epoch)
    raise CorruptSegmentError(f"no whole record batch begins at position {position}, {end - position} before the end")


class FileRecords:
    """Kafka's FileRecords. One writer; `size` is how much of the file counts, however long the file is.

    Layout: entries of format v0, v1 or v2 and nothing else; a preallocated file ends in zeros until it is closed.
    A crash can leave anything behind the last sync: shorter, zeros, torn or reordered sectors. Only length and CRC of
    each batch decide what is kept (`LogSegment.recover`).
    """

    __slots__ = ("_file", "_fs", "path", "size")

    def __init__(self, path: str, fs: FileSystem, size: int | None = None) -> None:
        """`size` saves asking the file system, where the caller knows it."""
        self.path = path
        self._fs = fs
        self._file: File | None = None
        self.size = fs.size(path) if size is None else size

    @property
    def file(self) -> File:
        """The open file; opened at the first use, since a log has many segments that nobody reads."""
        file = self._file
        if file is None:
            file = self._file = self._fs.open(self.path)
        return file

    def append(self, records: bytes | bytearray | memoryview) -> None:
        """Write at the end. On `OSError` the file is as long as before, or, if that failed too, `size` still is.

        Raises OSError. Short writes are continued until the disk refuses.
        """
        position = self.size
        file = self._file or self.file
        length = len(records)
        try:
            written = file.pwrite(records, position)
            if written != length:
                write_all(file, memoryview(records)[written:], position + written)
        except OSError:
            file.truncate(position)
            raise
        self.size = position + length

    def pread(self, length: int, position: int) -> bytes:
        """At most `length` bytes from `position`, never beyond `size`."""
        end = self.size - position
        return (self._file or self.file).pread(length if length < end else end, position)

    def lend(self, length: int, position: int) -> Sendable:
        """The same for somebody who sends it on; a large stretch stays in the file."""
        if length < _LENT_BYTES:
            return self.pread(length, position)
        return self.file.lend(min(length, self.size - position), position)

    def truncate_to(self, size: int) -> None:
        """Cut to `size` bytes; not yet durable."""
        self.file.truncate(size)
        self.size = size

    def preallocate(self, size: int) -> None:
        """Reserve disk space up to `size` bytes; they read as zeros and do not count."""
        if size > self.size:
            self.file.fallocate(self.size, size - self.size)

    def trim(self) -> None:
        """Give preallocated space back."""
        if self.file.size() != self.size:
            self.file.truncate(self.size)

    def batch_positions(self, position: int = 0) -> Iterator[BatchPosition]:
        """Hop over batch headers from `position` on, reading as little as that takes.

        Raises `CorruptSegmentError` at the first place where no whole batch begins.
        """
        end = self.size
        chunk, chunk_start = b"", position
        while position < end:
            at = position - chunk_start
            if at + _HEADER_PREFIX_SIZE > len(chunk) and chunk_start + len(chunk) < end:
                chunk, chunk_start, at = self.pread(_HEADER_CHUNK, position), position, 0
            batch = batch_position(chunk, at, position, end)
            position += batch.size
            yield batch

    def batches(self, position: int = 0, end: int | None = None) -> Iterator[tuple[int, Batch]]:
        """(position, batch) of every batch from `position` to `end` (default: `size`), data included.

        Raises `CorruptSegmentError` at the first place where no whole batch begins.
        """
        end = self.size if end is None else end
        while position < end:
            chunk = self.pread(min(_DATA_CHUNK, end - position), position)
            first = batch_position(chunk, 0, position, end)
            if first.size > len(chunk):
                chunk = self.pread(first.size, position)
            start = position
            try:
                for batch in iter_batches(chunk):
                    yield position, batch
                    position += batch.size
            except ProtocolError as error:
                raise CorruptSegmentError(f"no record batch begins at position {position}: {error}") from error
            if position == start:
                raise CorruptSegmentError(f"the file ends inside the record batch at position {position}")

    def close_handle(self) -> None:
        """Give the descriptor back; the next use opens the file again."""
        if self._file is not None:
            self._file.close()
            self._file = None
