"""Encoding and decoding of records of format v2, the decompressed part of a batch after its header.

varint length of the rest · i8 attributes (0) · varlong timestamp delta · varint offset delta · varint key length (-1
null) · key · varint value length (-1 null) · value · varint header count · per header: varint key length · key (UTF-8)
· varint value length (-1 null) · value
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .errors import ProtocolError
from .native import native
from .record import Headers, Record
from .varint import decode_varint, decode_varlong, encode_varint

MIN_RECORD_SIZE = 7
_TABLE_SIZE = 1024
_VARINT = tuple(encode_varint(value) for value in range(_TABLE_SIZE))
_NULL = b"\x01"  # varint -1
NO_HEADERS = b"\x00"
"""The end of a record without headers."""


def encode_record(
    offset_delta: int, timestamp_delta: int, key: bytes | None, value: bytes | None, headers: Headers = ()
) -> bytes:
    """Encode one record with its length. About 1 µs for a small one."""
    head = (
        b"\x00"
        + (_VARINT[timestamp_delta] if 0 <= timestamp_delta < _TABLE_SIZE else encode_varint(timestamp_delta))
        + (_VARINT[offset_delta] if offset_delta < _TABLE_SIZE else encode_varint(offset_delta))
    )
    if key is None:
        head += _NULL
    else:
        size = len(key)
        head += (_VARINT[size] if size < _TABLE_SIZE else encode_varint(size)) + key
    if value is None:
        head += _NULL
        value = b""
    else:
        size = len(value)
        head += _VARINT[size] if size < _TABLE_SIZE else encode_varint(size)
    tail = encode_headers(headers) if headers else b"\x00"
    size = len(head) + len(value) + len(tail)
    return (_VARINT[size] if size < _TABLE_SIZE else encode_varint(size)) + head + value + tail


class RecordRun(NamedTuple):
    """Records that differ in key and value only, to be encoded many at a time.

    There are as many keys as values, or none (None). `headers` are bytes, as of `encode_headers`.
    """

    keys: list[bytes | None] | None
    values: list[bytes | None]
    headers: bytes
    timestamp: int


def encode_records(
    run: RecordRun, first: int, *, offset_delta: int, timestamp_delta: int, room: int
) -> tuple[bytes, int]:
    """Encode the records of a run from its `first` on that fit into `room` (-1: all), and return their number."""
    place = (first, offset_delta, timestamp_delta)
    if native is not None:
        return native.encode_records(run.keys, run.values, run.headers, place, room)
    return encode_records_here(run.keys, run.values, run.headers, place, room)


def encode_records_here(
    keys: list[bytes | None] | None,
    values: list[bytes | None],
    headers: bytes,
    place: tuple[int, int, int],
    room: int,
) -> tuple[bytes, int]:
    """`encode_records` without compiled code; `place` is the index of the first, its offset delta and timestamp
    delta.
    """
    first, delta, timestamp_delta = place
    parts: list[bytes] = []
    size = 0
    for i in range(first, len(values)):
        bare = encode_record(delta, timestamp_delta, None if keys is None else keys[i], values[i])
        if headers != NO_HEADERS:
            body = bare[len(encode_varint(decode_varint(bare, 0)[0])) : -len(NO_HEADERS)] + headers
            bare = encode_varint(len(body)) + body
        size += len(bare)
        if 0 <= room < size:
            break
        parts.append(bare)
        delta += 1
    return b"".join(parts), len(parts)


def encode_headers(headers: Headers) -> bytes:
    """Encode the header count and the headers of one record."""
    parts = [encode_varint(len(headers))]
    for name, value in headers:
        key = name.encode()
        parts += (encode_varint(len(key)), key)
        if value is None:
            parts.append(_NULL)
        else:
            parts += (encode_varint(len(value)), value)
    return b"".join(parts)


class RecordParts(NamedTuple):
    """Positions of the parts of one record in its buffer; a size of -1 is null."""

    timestamp_delta: int
    offset_delta: int
    key_start: int
    key_size: int
    value_start: int
    value_size: int
    headers_start: int
    end: int


def locate_record(data: bytes | memoryview, position: int, limit: int) -> RecordParts:
    """Locate the record at `position`, without its headers, as compiled code and Kafka's DefaultRecord do.

    Raises ProtocolError unless a record ends at `limit` or before.
    """
    attributes_at, timestamp_delta, at, end = locate_front(data, position, limit)
    offset_delta, at = decode_varint(data, at)
    key_start, key_size, at = locate_bytes(data, at, end)
    value_start, value_size, at = locate_bytes(data, at, end)
    if at >= end:
        raise ProtocolError(f"a record of {end - attributes_at} bytes has longer fields")
    return RecordParts(timestamp_delta, offset_delta, key_start, key_size, value_start, value_size, at, end)


def locate_front(data: bytes | memoryview, position: int, limit: int) -> tuple[int, int, int, int]:
    """Return the position of a record's attributes, which are unused, and its timestamp delta.

    Then the position after them, and the end of the record. Raises ProtocolError if that is after `limit`.
    """
    length, start = decode_varint(data, position)
    if not MIN_RECORD_SIZE - 1 <= length <= limit - start:
        raise ProtocolError(f"a record of {length} bytes, but {limit - start} remain")
    timestamp_delta, at = decode_varlong(data, start + 1)
    return start, timestamp_delta, at, start + length


def locate_bytes(data: bytes | memoryview, position: int, limit: int) -> tuple[int, int, int]:
    """Read a varint size, -1 for null, and its bytes: return their start, their size, and the position after them."""
    size, start = decode_varint(data, position)
    if size > limit - start:
        raise ProtocolError(f"a field of {size} bytes, but {limit - start} remain")
    return start, max(size, -1), start + max(size, 0)


def locate_headers(data: bytes | memoryview, position: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield start and size of the key and of the value of each header. Raises ProtocolError unless they end the
    record.
    """
    count, at = decode_varint(data, position)
    if not 0 <= count <= (end - at) // 2:
        raise ProtocolError(f"a record with {count} headers in {end - at} bytes")
    for _ in range(count):
        key_start, key_size, at = locate_bytes(data, at, end)
        if key_size < 0:
            raise ProtocolError("a header without a key")
        value_start, value_size, at = locate_bytes(data, at, end)
        yield key_start, key_size, value_start, value_size
    if at != end:
        raise ProtocolError(f"a record has {end - at} bytes after its headers")


def decode_records(
    data: bytes, position: int, count: int, *, base_offset: int, base_timestamp: int, append_time: int | None
) -> tuple[list[Record], int]:
    """Decode the next `count` records from `position` on; return them and the position after them.

    With `append_time` every record has that timestamp. Raises ProtocolError for invalid bytes.
    """
    if native is not None:
        found = native.decode_records(data, position, count, base_offset, base_timestamp, append_time, Record)
        if found is not None:
            return found
    return decode_records_here(
        data, position, count, base_offset=base_offset, base_timestamp=base_timestamp, append_time=append_time
    )


def decode_records_here(
    data: bytes, position: int, count: int, *, base_offset: int, base_timestamp: int, append_time: int | None
) -> tuple[list[Record], int]:
    """`decode_records` without compiled code."""
    records = []
    for _ in range(count):
        found = locate_record(data, position, len(data))
        headers = [
            (data[key : key + key_size].decode(errors="replace"), _some(data, value, value_size))
            for key, key_size, value, value_size in locate_headers(data, found.headers_start, found.end)
        ]
        timestamp = base_timestamp + found.timestamp_delta if append_time is None else append_time
        key = _some(data, found.key_start, found.key_size)
        value = _some(data, found.value_start, found.value_size)
        records.append(Record(base_offset + found.offset_delta, timestamp, key, value, headers or ()))
        position = found.end
    return records, position


def _some(data: bytes, start: int, size: int) -> bytes | None:
    return None if size < 0 else data[start : start + size]
