"""What the records of a batch say about themselves, found without decoding them: the check of all that is appended."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from .errors import ProtocolError
from .native import native
from .record import NO_TIMESTAMP
from .record_codec import locate_headers, locate_record

RecordRules: TypeAlias = tuple[int, int, bool, bool]
"""What is asked of records: the earliest and the latest timestamp, whether each needs a key; and whether whoever writes
them may end transactions.
"""

Fault: TypeAlias = tuple[int, int | None]
"""Number of a record in its batch and the timestamp delta that breaks the rules, None for a lack of a key."""

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1


class RecordScan(NamedTuple):
    """The largest timestamp within the rules, -1 without any; which records break the rules."""

    max_timestamp: int
    faults: list[Fault]


def scan_records(
    data: bytes | memoryview, count: int, base_timestamp: int, rules: RecordRules, most_faults: int
) -> RecordScan:
    """Walk over `count` records that have to fill `data` with offset deltas 0, 1, 2, …, noting `most_faults` faults.

    Raises ProtocolError if there are none, or if a count, a length or an offset delta is wrong (Kafka's DefaultRecord
    reads them all; that offsets have no gaps is more than it asks of an uncompressed batch).
    """
    # The compiled walk says of wrong records only that they are: the one in Python says what is wrong.
    found = quick_scan(data, count, base_timestamp, rules, most_faults)
    return walk_records(data, count, base_timestamp, rules, most_faults) if found is None else found


def quick_scan(
    data: bytes | memoryview, count: int, base_timestamp: int, rules: RecordRules, most_faults: int
) -> RecordScan | None:
    """`scan_records` in compiled code; None where there is none, and for records of which it only knows that they are
    wrong.
    """
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
        raise ProtocolError(f"{len(data) - position} bytes are left behind {count} records")
    return RecordScan(max_timestamp, faults)
