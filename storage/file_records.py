"""The `.log` file of a segment: record batches one after the other, appended at the end and read by position."""

from collections.abc import Iterator
from struct import error as struct_error
from typing import NamedTuple

from ..protocol.errors import ProtocolError
from ..protocol.legacy_records import MESSAGE_V0, MESSAGE_V1
from ..protocol.record import NO_PARTITION_LEADER_EPOCH, NO_TIMESTAMP
from ..protocol.record_batch import BATCH_HEADER, MAGIC_POSITION, Batch, entry_size, iter_batches
from .errors import CorruptSegmentError
from .filesystem import File, FileSystem, Sendable, write_all

_v2_fields = BATCH_HEADER.reader("base_offset", "partition_leader_epoch", "last_offset_delta", "max_timestamp")
_v1_fields = MESSAGE_V1.reader("offset", "timestamp")
_v0_fields = MESSAGE_V0.reader("offset")
_HEADER_PREFIX_SIZE = BATCH_HEADER.at("producer_id")
_MAX_OFFSET = 2**63 - 1
_HEADER_CHUNK = 64 * 1024
_DATA_CHUNK = 1024 * 1024
_MIN_SLICE_BYTES = 64 * 1024
"""Copying less than this twice is cheaper than the calls it takes to send it from the file."""


class BatchPosition(NamedTuple):
    """The header fields of a batch of any format, and its position in the file."""

    position: int
    size: int
    base_offset: int
    """The first offset; of a compressed batch of magic 0 or 1 the last one, since its header has no first offset."""
    last_offset: int
    max_timestamp: int
    leader_epoch: int
    """-1 for magic 0 and 1."""


def batch_position(buffer: bytes | memoryview, at: int, position: int, end: int) -> BatchPosition:
    """Read the header at `at` in `buffer`, which starts at `position` of a file whose batches end at `end`.

    Raises `CorruptSegmentError` if no whole batch begins there: the length is impossible or exceeds the end, or the
    offsets decrease or exceed the largest offset.
    """
    try:
        size = entry_size(buffer, at)
        last_offset, max_timestamp, leader_epoch = -1, NO_TIMESTAMP, NO_PARTITION_LEADER_EPOCH
        match buffer[at + MAGIC_POSITION]:
            case 0:
                (base_offset,) = (last_offset,) = _v0_fields(buffer, at)
            case 1:
                base_offset, max_timestamp = _v1_fields(buffer, at)
                last_offset = base_offset
            case _:
                base_offset, leader_epoch, last_delta, max_timestamp = _v2_fields(buffer, at)
                last_offset = base_offset + last_delta
    except (ProtocolError, struct_error) as error:
        raise CorruptSegmentError(f"no record batch begins at position {position}: {error}") from error
    if size > end - position or not base_offset <= last_offset <= _MAX_OFFSET:
        raise CorruptSegmentError(f"no whole record batch of {size} bytes at position {position}, the end is {end}")
    return BatchPosition(position, size, base_offset, last_offset, max_timestamp, leader_epoch)


class FileRecords:
    """Kafka's FileRecords. One writer; `size` is the length of the valid part, which may be less than the file's.

    Layout: entries of format v0, v1 or v2 and nothing else; a preallocated file ends in zeros until it is closed.
    A crash can leave any bytes after the last sync: a shorter file, zeros, torn or reordered sectors. Only the length
    and the CRC of each batch decide whether it is kept (`LogSegment.recover`).
    """

    __slots__ = ("_file", "_fs", "path", "size")

    def __init__(self, path: str, fs: FileSystem, size: int | None = None) -> None:
        """`size` saves a call of the file system if the caller has the size already."""
        self.path = path
        self._fs = fs
        self._file: File | None = None
        self.size = fs.size(path) if size is None else size

    @property
    def file(self) -> File:
        """The open file; opened at the first use, because most segments of a log are never read."""
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
        """Return at most `length` bytes from `position`, never beyond `size`."""
        end = self.size - position
        return (self._file or self.file).pread(length if length < end else end, position)

    def slice(self, length: int, position: int) -> Sendable:
        """Return the bytes as `pread`, but a large range as a `FileSlice`, which is sent without being read."""
        if length < _MIN_SLICE_BYTES:
            return self.pread(length, position)
        return self.file.slice(min(length, self.size - position), position)

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

    def batch_at(self, position: int) -> BatchPosition:
        """Return the header of the batch at `position`.

        Raises OSError, `CorruptSegmentError` if no batch begins there.
        """
        return batch_position(self.pread(_HEADER_PREFIX_SIZE, position), 0, position, self.size)

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
