"""Looking for a record inside a batch."""

from __future__ import annotations

from collections.abc import Iterable

from ..protocol.record_batch import Batch, RecordBatch
from .time_index import TimestampOffset

MANY = 1000
"""Records are decoded one by one up to here. A batch may hold a million, for which others would wait half a second."""


def first_not_older(batch: Batch, timestamp: int, starting_offset: int) -> TimestampOffset | None:
    """The first record at or above `starting_offset` that is not older than `timestamp`.

    Raises ProtocolError and KafkaError as `RecordBatch.records`.
    """
    times = _in_columns(batch) if isinstance(batch, RecordBatch) and batch.header.record_count > MANY else None
    for found_timestamp, offset in times or ((record.timestamp, record.offset) for record in batch.records()):
        if found_timestamp >= timestamp and offset >= starting_offset:
            return TimestampOffset(found_timestamp, offset)
    return None


def _in_columns(batch: RecordBatch) -> Iterable[tuple[int, int]] | None:
    """Timestamp and offset of each record; None for records that cannot be read."""
    # Few brokers ever see such a batch, and those whose cleaner is another process need none of this.
    from ..protocol.batch_run import BatchRun, Stop
    from .cleaning.batch_walk import decompressed

    run = BatchRun()
    run.start(decompressed(batch))
    if run.scan(0, special=0, check_crc=False) != (len(run.buffer), Stop.END):
        return None
    records = run.records
    return zip(records.timestamps[: records.count], records.offsets[: records.count], strict=True)
