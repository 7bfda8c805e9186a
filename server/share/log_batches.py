"""Headers of the batches of a log: the records are in memory, or a slice of a file that is read in small parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...protocol.errors import ProtocolError
from ...protocol.record import LOG_OVERHEAD
from ...protocol.record_batch import HEADER_SIZE, BatchHeader, RecordBatch, iter_batches
from ...storage.filesystem import FileSlice
from .share_partition import FetchedBatch

if TYPE_CHECKING:
    from ...storage.filesystem import Sendable

READ_AHEAD_BYTES = 16 << 10
"""Bytes of a file that are read together for headers. Larger batches are skipped without being read."""
MAX_BATCHES = 2000
"""Batches of one fetch from one partition: a millisecond or two of work. The next fetch reads further batches."""
MAX_CONTROL_BATCH_BYTES = 4096
"""A larger control batch is not a transaction marker, and is not read."""
MAX_READ_BYTES = 1 << 16
"""Acquired batches up to this size are read. A connection joins the parts of a small response in memory, so that it
sends file slices in larger responses only (`network.connection.JOIN_BYTES`)."""


class LogBatch(NamedTuple):
    """A batch with its place in the records."""

    batch: FetchedBatch
    position: int
    size: int


def read_batches(records: Sendable, *, end_offset: int, max_records: int) -> list[LogBatch]:
    """Return the complete batches at the beginning of `records` that an acquisition may need, at most `MAX_BATCHES`.

    These are the batches up to `end_offset`, whose records may be acquired by other members, and the batches of
    `max_records` offsets after it, or after the beginning of the first batch. Raises OSError, and KafkaError or
    ProtocolError for batches that are damaged.
    """
    reader, found = _HeaderReader(records), list[LogBatch]()
    position = 0
    last_offset = -1
    while len(found) < MAX_BATCHES:
        header = reader.bytes_at(position, HEADER_SIZE)
        if len(header) <= LOG_OVERHEAD:
            break
        size = int.from_bytes(header[8:12]) + LOG_OVERHEAD
        if size <= LOG_OVERHEAD or position + size > len(records):
            break
        if len(header) < HEADER_SIZE or header[16] != RecordBatch.magic:
            batch = _legacy_batch(reader.bytes_at(position, size))
        else:
            batch = _batch(reader, BatchHeader.read(header), position, size)
        if not found:
            last_offset = max(end_offset, batch.base_offset - 1) + max_records
        found.append(LogBatch(batch, position, size))
        if batch.last_offset >= last_offset:
            break
        position += size
    return found


def _batch(reader: _HeaderReader, header: BatchHeader, position: int, size: int) -> FetchedBatch:
    is_abort_marker = False
    if header.is_control and size <= MAX_CONTROL_BATCH_BYTES:
        marker = RecordBatch(memoryview(reader.bytes_at(position, size))).end_marker
        is_abort_marker = marker is not None and marker.is_abort
    return FetchedBatch(
        header.base_offset,
        header.last_offset,
        header.producer_id,
        header.is_transactional,
        header.is_control,
        is_abort_marker,
    )


def _legacy_batch(data: bytes) -> FetchedBatch:
    """Return a message of a format before v2; a compressed message is decompressed for its first offset."""
    for batch in iter_batches(data):
        return FetchedBatch(batch.base_offset, batch.last_offset)
    raise ProtocolError(f"a batch of {len(data)} bytes is not complete")


class _HeaderReader:
    """Reads parts of records in ascending order."""

    def __init__(self, records: Sendable) -> None:
        self._records = records
        self._data = b""
        self._start = 0

    def bytes_at(self, position: int, length: int) -> bytes:
        """Return up to `length` bytes from `position` on, fewer at the end of the records."""
        records = self._records
        if not isinstance(records, FileSlice):
            return bytes(records[position : position + length])
        at = position - self._start
        if at < 0 or at + length > len(self._data):
            most = min(max(length, READ_AHEAD_BYTES), len(records) - position)
            self._data, self._start, at = records.read(position, most) if most > 0 else b"", position, 0
        return self._data[at : at + length]


def slice_of(records: Sendable, first: LogBatch, last: LogBatch) -> Sendable:
    """Return the part of the records from one batch to another. The records must not be used after that."""
    start, end = first.position, last.position + last.size
    if isinstance(records, FileSlice):
        if end - start <= MAX_READ_BYTES:
            return records.read(start, end - start)
        records.narrow(start, end - start)
        return records
    return records if end - start == len(records) else memoryview(records)[start:end]
