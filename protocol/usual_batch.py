"""Validation and offset assignment of the most frequent form of batches in one step."""

from __future__ import annotations

from .batch_header import BATCH_HEADER, CONTROL_MASK, HEADER_SIZE, TRANSACTIONAL_MASK, BatchHeader, batch_crc
from .errors import ProtocolError
from .native import native
from .record import CODEC_MASK, TIMESTAMP_TYPE_MASK
from .record_scan import RecordRules, walk_records


def validate_and_stamp_py(
    records: memoryview,
    plain: bytes | memoryview | None,
    place: tuple[int, int],
    max_size: int,
    rules: RecordRules,
) -> tuple[int, int, int] | None:
    """Write `place`, base offset and leader epoch, into `records` if no other change or error is necessary.

    The condition: one whole batch of format v2 of at most `max_size` bytes, with the producer's timestamps, not a
    control batch unless the rules permit a transaction's marker, and all parts are valid: CRC, header, and every record
    (`record_scan`) by the rules. `plain` are the decompressed records of a compressed batch; None for an uncompressed
    one. Returns record count, largest timestamp and producer id; None, without a change, for other batches, which
    `log_validator` examines. `validate_and_stamp` is this function, compiled if available.
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
        or not _has_valid_producer(header, may_end=rules[3])
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


def _has_valid_producer(header: BatchHeader, *, may_end: bool) -> bool:
    """Return whether producer and sequence match the kind of the batch."""
    if header.attributes & CONTROL_MASK:
        return may_end and header.has_producer_id
    return header.base_sequence >= 0 if header.has_producer_id else not header.attributes & TRANSACTIONAL_MASK


validate_and_stamp = validate_and_stamp_py if native is None else native.validate_and_stamp
