"""What the records of a batch say about themselves, found without decoding them: the check of all that is appended."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from .errors import ProtocolError
from .native import native
from .record import NO_TIMESTAMP
from .varint import decode_varint, decode_varlong

RecordRules: TypeAlias = tuple[int, int, bool]
"""What a topic asks of records: the earliest and the latest timestamp, and whether each needs a key."""

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
    found = native.scan_records(data, count, base_timestamp, rules, most_faults) if native is not None else None
    return walk_records(data, count, base_timestamp, rules, most_faults) if found is None else RecordScan(*found)


def walk_records(
    data: bytes | memoryview, count: int, base_timestamp: int, rules: RecordRules, most_faults: int
) -> RecordScan:
    """`scan_records` without compiled code."""
    earliest, latest, needs_keys = rules
    position, max_timestamp = 0, NO_TIMESTAMP
    faults: list[Fault] = []
    for index in range(count):
        size, position = decode_varint(data, position)
        if not 0 < size <= len(data) - position:
            raise ProtocolError(f"record {index} has a length of {size}, but {len(data) - position} bytes are left")
        delta, has_key = _look_into(data[position : position + size], index)
        position += size
        timestamp = base_timestamp + delta
        is_timely = max(earliest, LOWEST) <= timestamp <= min(latest, HIGHEST) or timestamp == NO_TIMESTAMP
        if is_timely:
            max_timestamp = max(max_timestamp, timestamp)
        if len(faults) < most_faults and not (is_timely and (has_key or not needs_keys)):
            faults.append((index, delta if has_key or not needs_keys else None))
    if position != len(data) or count <= 0:
        raise ProtocolError(f"{len(data) - position} bytes are left behind {count} records")
    return RecordScan(max_timestamp, faults)


def _look_into(record: bytes | memoryview, index: int) -> tuple[int, bool]:
    """The timestamp delta of a record (all of it behind its length), and whether it has a key."""
    timestamp_delta, at = decode_varlong(record, 1)
    offset_delta, at = decode_varint(record, at)
    if offset_delta != index:
        raise ProtocolError(f"record {index} has an offset delta of {offset_delta}")
    key_size, at = _pass_bytes(record, at)
    _, at = _pass_bytes(record, at)
    header_count, at = decode_varint(record, at)
    if header_count < 0:
        raise ProtocolError(f"record {index} has {header_count} headers")
    for _ in range(header_count):
        name_size, at = _pass_bytes(record, at)
        if name_size < 0:
            raise ProtocolError(f"record {index} has a header without a key")
        _, at = _pass_bytes(record, at)
    if at != len(record):
        raise ProtocolError(f"record {index} has {len(record)} bytes, but its fields have {at}")
    return timestamp_delta, key_size >= 0


def _pass_bytes(record: bytes | memoryview, position: int) -> tuple[int, int]:
    """The size of a field at `position`, negative for null, and the position behind it."""
    size, position = decode_varint(record, position)
    if size > len(record) - position:
        raise ProtocolError(f"a field of {size} bytes in a record of {len(record)}")
    return size, position + max(size, 0)
