"""Looking for a record inside a batch."""

from __future__ import annotations

from collections.abc import Iterable
from operator import sub

from ..protocol.legacy_records import legacy_record_size
from ..protocol.record_batch import BATCH_HEADER, CODEC_MASK, HEADER_SIZE, LOG_OVERHEAD, Batch, RecordBatch
from ..protocol.record_scan import check_record_sizes, oversized_record
from ..protocol.varint import encode_varint
from .log_config import LARGEST_RECORD
from .time_index import TimestampOffset

MANY = 1000
"""Records are decoded one by one up to here. A batch may hold a million, for which others would wait half a second."""


def first_not_older(batch: Batch, timestamp: int, starting_offset: int, most: int) -> TimestampOffset | None:
    """Return the first record at or above `starting_offset` that is not older than `timestamp`.

    Raises ProtocolError and KafkaError as `RecordBatch.records`, and as `check_sizes` for a maximum of `most` bytes.
    """
    for found_timestamp, offset in _times(batch, most):
        if found_timestamp >= timestamp and offset >= starting_offset:
            return TimestampOffset(found_timestamp, offset)
    return None


def greatest_timestamp(batch: Batch, starting_offset: int, most: int) -> TimestampOffset | None:
    """Return the first of the records at or above `starting_offset` with the greatest timestamp. Raises as above."""
    greatest: TimestampOffset | None = None
    for timestamp, offset in _times(batch, most):
        if offset >= starting_offset and (greatest is None or timestamp > greatest.timestamp):
            greatest = TimestampOffset(timestamp, offset)
    return greatest


def check_sizes(batch: Batch, most: int) -> None:
    """Raise KafkaError INVALID_RECORD if a record of a compressed batch has more than `most` bytes.

    `most` is `max.decompressed.message.bytes`, whose default no record exceeds. Raises as `RecordBatch.records`.
    """
    if not _has_maximum(batch, most):
        return
    if isinstance(batch, RecordBatch):
        check_record_sizes(batch.plain_records(), most)
        return
    for record in batch.records():
        if (size := legacy_record_size(record, batch.magic)) > most:
            raise oversized_record(size, most)


def _has_maximum(batch: Batch, most: int) -> bool:
    return bool(batch.codec) and most < LARGEST_RECORD


def _times(batch: Batch, most: int) -> Iterable[tuple[int, int]]:
    """Timestamp and offset of each record. Raises as `first_not_older`, for an oversized record before the first."""
    if isinstance(batch, RecordBatch) and batch.header.record_count > MANY:
        times = _in_columns(batch, most)
        if times is not None:
            return times
    check_sizes(batch, most)
    return ((record.timestamp, record.offset) for record in batch.records())


def decompressed(batch: RecordBatch) -> bytes:
    """Return the batch without compression; its CRC is not updated. Raises as `RecordBatch.plain_records`."""
    records = batch.plain_records()
    header = bytearray(batch.view[:HEADER_SIZE])
    length = HEADER_SIZE + len(records) - LOG_OVERHEAD
    BATCH_HEADER.patch(header, length=length, attributes=batch.attributes & ~CODEC_MASK)
    return b"".join((header, records))


def _in_columns(batch: RecordBatch, most: int) -> Iterable[tuple[int, int]] | None:
    """Timestamp and offset of each record; None for records that cannot be read, and for oversized records."""
    # Such batches are rare, and a broker with the cleaner in another process never imports this otherwise.
    from ..protocol.batch_run import BatchRun, Stop

    run = BatchRun()
    run.start(decompressed(batch))
    if run.scan(0, special=0, check_crc=False) != (len(run.buffer), Stop.END):
        return None
    records = run.records
    if _has_maximum(batch, most):
        # In front of each record is its length. For more than `most` bytes this length is as long as that of `most`, or
        # longer.
        sizes = map(sub, records.ends[: records.count], records.starts[: records.count])
        if max(sizes) > most + len(encode_varint(most)):
            return None
    return zip(records.timestamps[: records.count], records.offsets[: records.count], strict=True)
