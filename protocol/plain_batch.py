"""The batch that most producers send, checked and given its place in the log in one step."""

from __future__ import annotations

from .batch_header import BATCH_HEADER, CONTROL_MASK, HEADER_SIZE, TRANSACTIONAL_MASK, BatchHeader, batch_crc
from .errors import ProtocolError
from .native import native
from .record import CODEC_MASK, TIMESTAMP_TYPE_MASK
from .record_scan import RecordRules, walk_records

_NOT_PLAIN = CODEC_MASK | TIMESTAMP_TYPE_MASK | CONTROL_MASK


def take_plain_batch_here(
    records: memoryview, base_offset: int, leader_epoch: int, max_size: int, rules: RecordRules
) -> tuple[int, int, int] | None:
    """Write base offset and leader epoch into `records` if nothing else has to be changed, answered or refused.

    That is: they are one whole batch of format v2 of at most `max_size` bytes, uncompressed, with the producer's
    timestamps, no control batch, and all of it is right: CRC, header, and every record (`record_scan`) by the rules.
    Returns record count, largest timestamp and producer id; None, and nothing changed, for anything else, which is for
    `record_validator` to look at more closely. `take_plain_batch` is this function, compiled if that is to be had.
    """
    if not HEADER_SIZE < len(records) <= max_size or records.readonly:
        return None
    header = BatchHeader.read(records)
    if (
        header.magic != 2
        or header.size_in_bytes != len(records)
        or header.base_offset != 0
        or header.attributes & _NOT_PLAIN
        or header.record_count != header.last_offset_delta + 1
        or (header.base_sequence < 0 if header.has_producer_id else header.attributes & TRANSACTIONAL_MASK)
        or header.crc != batch_crc(records)
    ):
        return None
    try:
        scan = walk_records(records[HEADER_SIZE:], header.record_count, header.base_timestamp, rules, 1)
    except ProtocolError:
        return None
    if scan.faults or scan.max_timestamp != header.max_timestamp:
        return None
    BATCH_HEADER.patch(records, base_offset=base_offset, partition_leader_epoch=leader_epoch)
    return header.record_count, header.max_timestamp, header.producer_id


take_plain_batch = take_plain_batch_here if native is None else native.take_plain_batch
