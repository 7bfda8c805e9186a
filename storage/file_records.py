"""The `.log` file of a segment: record batches one after the other, appended at the end and read by position."""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from ..protocol.record_batch import LOG_OVERHEAD, MAGIC_POSITION, Batch, iter_batches
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


def batch_position(buffer: bytes | memoryview, at: int, position: int) -> BatchPosition:
    """Read a batch header at `at` in `buffer`, which lies at `position` of the file. Raises `CorruptSegmentError`."""
    base_offset, length, leader_epoch = _PREFIX.unpack_from(buffer, at)
    magic = buffer[at + MAGIC_POSITION]
    if length + LOG_OVERHEAD < SMALLEST_BATCH or magic > 2:
        raise CorruptSegmentError(f"no record batch at position {position}: length {length}, magic {magic}")
    size = length + LOG_OVERHEAD
    if magic == 2:
        delta, _, max_timestamp = _V2_FIELDS.unpack_from(buffer, at + _V2_FIELDS_POSITION)
        return BatchPosition(position, size, base_offset, base_offset + delta, max_timestamp, leader_epoch)
    timestamp = _V1_TIMESTAMP.unpack_from(buffer, at + _V1_TIMESTAMP_POSITION)[0] if magic else -1
    return BatchPosition(position, size, base_offset, base_offset, timestamp, -1)


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

    def batch_positions(self, position: int = 0, end: int | None = None) -> Iterator[BatchPosition]:
        """Hop over batch headers from `position` on, reading as little as that takes.

        A batch that is cut off by `end` (default: `size`) is left out. Raises `CorruptSegmentError`.
        """
        end = self.size if end is None else end
        chunk, chunk_start = b"", position
        while position + SMALLEST_BATCH <= end:
            at = position - chunk_start
            if at + _HEADER_PREFIX_SIZE > len(chunk) and chunk_start + len(chunk) < end:
                chunk, chunk_start, at = self.pread(_HEADER_CHUNK, position), position, 0
            if chunk[at + MAGIC_POSITION] == 2 and at + _HEADER_PREFIX_SIZE > len(chunk):
                return
            batch = batch_position(chunk, at, position)
            position += batch.size
            if position > end:
                return
            yield batch

    def batches(self, position: int = 0, end: int | None = None) -> Iterator[tuple[int, Batch]]:
        """(position, batch) of every whole batch from `position` on, data included.

        Raises ProtocolError at the first place where no batch can begin.
        """
        end = self.size if end is None else end
        length = _DATA_CHUNK
        while position < end:
            chunk = self.pread(min(length, end - position), position)
            consumed = 0
            for batch in iter_batches(chunk):
                yield position + consumed, batch
                consumed += batch.size
            if consumed:
                position += consumed
                length = _DATA_CHUNK
            elif len(chunk) < length or len(chunk) == end - position:
                return
            else:
                length = max(length * 2, LOG_OVERHEAD + _PREFIX.unpack_from(chunk)[1])

    def close_handle(self) -> None:
        """Give the descriptor back; the next use opens the file again."""
        if self._file is not None:
            self._file.close()
            self._file = None
