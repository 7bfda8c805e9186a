"""Validation of the records of a batch without decoding, for all appends."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from .errors import ErrorCode, KafkaError, ProtocolError
from .native import native
from .record import NO_TIMESTAMP
from .record_codec import locate_headers, locate_record
from .varint import decode_varint

RecordRules: TypeAlias = tuple[int, int, bool, bool]
"""The rules for records: the earliest and the latest timestamp, whether each needs a key, and whether transaction
markers are permitted.
"""

Fault: TypeAlias = tuple[int, int | None]
"""Number of an invalid record in its batch and its timestamp delta, None for a missing key."""

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1


class RecordScan(NamedTuple):
    """The largest timestamp within the rules, -1 without any; and the invalid records."""

    max_timestamp: int
    faults: list[Fault]


def scan_records(
    data: bytes | memoryview, count: int, base_timestamp: int, rules: RecordRules, most_faults: int
) -> RecordScan:
    """Check `count` records that must fill `data` with offset deltas 0, 1, 2, …; return at most `most_faults` faults.

    Raises ProtocolError if there are none, or if a count, a length or an offset delta is wrong (as Kafka's
    DefaultRecord; Kafka does not require offsets without gaps in an uncompressed batch).
    """
    # The compiled scan only reports that records are invalid: the one in Python determines the reason.
    found = quick_scan(data, count, base_timestamp, rules, most_faults)
    return walk_records(data, count, base_timestamp, rules, most_faults) if found is None else found


def quick_scan(
    data: bytes | memoryview, count: int, base_timestamp: int, rules: RecordRules, most_faults: int
) -> RecordScan | None:
    """`scan_records` in compiled code; None without it, and for records that it rejects without a reason."""
    found = native.scan_records(data, count, base_timestamp, rules, most_faults) if native is not None else None
    return None if found is None else RecordScan(*found)


def walk_records(
    data: bytes | memoryview, count: int, base_timestamp: int, rules: RecordRules, most_faults: int
) -> RecordScan:
    """`scan_records` without compiled code."""
    earliest, latest, needs_keys, _ = rules
    position, max_timestamp = 0, NO_TIMESTAMP
    faults: list[Fault] = []
    for index in range(count):
        record = locate_record(data, position, len(data))
        if record.offset_delta != index:
            raise ProtocolError(f"record {index} has an offset delta of {record.offset_delta}")
        for _ in locate_headers(data, record.headers_start, record.end):
            continue
        delta, has_key, position = record.timestamp_delta, record.key_size >= 0, record.end
        timestamp = base_timestamp + delta
        is_timely = max(earliest, LOWEST) <= timestamp <= min(latest, HIGHEST) or timestamp == NO_TIMESTAMP
        if is_timely:
            max_timestamp = max(max_timestamp, timestamp)
        if len(faults) < most_faults and not (is_timely and (has_key or not needs_keys)):
            faults.append((index, delta if has_key or not needs_keys else None))
    if position != len(data) or count <= 0:
        raise ProtocolError(f"{len(data) - position} bytes remain after {count} records")
    return RecordScan(max_timestamp, faults)


def check_record_sizes(data: bytes | memoryview, most: int) -> None:
    """Raise KafkaError INVALID_RECORD if a record has more than `most` bytes, without the length in front of it.

    Records without a valid length end the check: `scan_records` rejects them. Kafka: DefaultRecord.readFrom.
    """
    position = 0
    while len(data) - position > most:
        try:
            size, position = decode_varint(data, position)
        except ProtocolError:
            return
        if size > most:
            raise oversized_record(size, most)
        if size < 0:
            return
        position += size


def oversized_record(size: int, most: int) -> KafkaError:
    """Return the error for a record that exceeds `max.decompressed.message.bytes`."""
    message = f"Invalid record size: {size} exceeds the configured maximum record size of {most}."
    return KafkaError(ErrorCode.INVALID_RECORD, message)
