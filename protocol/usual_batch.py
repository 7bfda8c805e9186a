"""The batches that most producers send, checked and given their place in the log in one step."""

from __future__ import annotations

from .batch_header import BATCH_HEADER, CONTROL_MASK, HEADER_SIZE, TRANSACTIONAL_MASK, BatchHeader, batch_crc
from .errors import ProtocolError
from .native import native
from .record import CODEC_MASK, TIMESTAMP_TYPE_MASK
from .record_scan import RecordRules, walk_records


def take_batch_here(
    records: memoryview,
    plain: bytes | memoryview | None,
    place: tuple[int, int],
    max_size: int,
    rules: RecordRules,
) -> tuple[int, int, int] | None:
    """Write `place`, base offset and leader epoch, into `records` if nothing else has to be changed or answered.

    That is: they are one whole batch of format v2 of at most `max_size` bytes, with the producer's timestamps, no
    control batch unless the rules allow a transaction's marker, and all of it is right: CRC, header, and every record
    (`record_scan`) by the rules. `plain` are the records of a compressed batch, opened; None says that it is not
    compressed.
    Returns record count, largest timestamp and producer id; None, and nothing changed, for anything else, which is for
    `record_validator` to look at more closely. `take_batch` is this function, compiled if that is to be had.
    """
    if not HEADER_SIZE < len(records) <= max_size or records.readonly:
        return None
    header = BatchHeader.read(records)
    if (
        header.magic != 2
        or header.size_in_bytes != len(records)
        or header.base_offset != 0
        or header.attributes & TIMESTAMP_TYPE_MASK
        or bool(header.attributes & CODEC_MASK) != (plain is not None)
        or header.record_count != header.last_offset_delta + 1
        or not _is_of_whom_may_write(header, may_end=rules[3])
        or header.crc != batch_crc(records)
    ):
        return None
    data = records[HEADER_SIZE:] if plain is None else plain
    try:
        scan = walk_records(data, header.record_count, header.base_timestamp, rules, 1)
    except ProtocolError:
        return None
    if scan.faults or scan.max_timestamp != header.max_timestamp:
        return None
    BATCH_HEADER.patch(records, base_offset=place[0], partition_leader_epoch=place[1])
    return header.record_count, header.max_timestamp, header.producer_id


def _is_of_whom_may_write(header: BatchHeader, *, may_end: bool) -> bool:
    """Whether producer and sequence belong to what the batch is."""
    if header.attributes & CONTROL_MASK:
        return may_end and header.has_producer_id
    return header.base_sequence >= 0 if header.has_producer_id else not header.attributes & TRANSACTIONAL_MASK


take_batch = take_batch_here if native is None else native.take_batch
