"""Records of format v2 to bytes and back: the part of a batch behind its header, once it is decompressed.

varint length of the rest · i8 attributes (0) · varlong timestamp delta · varint offset delta
· varint key length (-1 null) · key · varint value length (-1 null) · value
· varint header count · per header: varint key length · key (UTF-8) · varint value length (-1 null) · value
"""

from __future__ import annotations

from typing import NamedTuple

from .errors import ProtocolError
from .record import Headers, Record
from .varint import decode_varint, decode_varlong, encode_varint

MIN_RECORD_SIZE = 7
_TABLE_SIZE = 1024
_VARINT = tuple(encode_varint(value) for value in range(_TABLE_SIZE))
_NULL = b"\x01"  # varint -1
_new_record = tuple.__new__
_HUGE = 1 << 64


class RecordScan(NamedTuple):
    """What one walk over the records of a batch finds: the range of timestamp deltas, and who has no key."""

    lowest_timestamp_delta: int
    highest_timestamp_delta: int
    keyless: list[int]


def encode_record(
    offset_delta: int, timestamp_delta: int, key: bytes | None, value: bytes | None, headers: Headers = ()
) -> bytes:
    """The bytes of one record, its own length in front. About 1 µs for a small one."""
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


def encode_headers(headers: Headers) -> bytes:
    """The header count and the headers of one record."""
    parts = [encode_varint(len(headers))]
    for name, value in headers:
        key = name.encode()
        parts += (encode_varint(len(key)), key)
        if value is None:
            parts.append(_NULL)
        else:
            parts += (encode_varint(len(value)), value)
    return b"".join(parts)


def decode_records(
    data: bytes, position: int, count: int, *, base_offset: int, base_timestamp: int, append_time: int | None
) -> tuple[list[Record], int]:
    """The next `count` records from `position` on, and the position behind them.

    With `append_time` every record gets that timestamp. Raises ProtocolError if the bytes are no such records.
    """
    records: list[Record] = []
    append = records.append
    try:
        for _ in range(count):
            size = data[position]
            position += 1
            if size > 127:
                size, position = decode_varint(data, position - 1)
            else:
                size = (size >> 1) ^ -(size & 1)
            end = position + size
            position += 1  # attributes, always 0 so far
            timestamp = data[position]
            position += 1
            if timestamp > 127:
                timestamp, position = decode_varlong(data, position - 1)
            else:
                timestamp = (timestamp >> 1) ^ -(timestamp & 1)
            delta = data[position]
            position += 1
            if delta > 127:
                delta, position = decode_varint(data, position - 1)
            else:
                delta = (delta >> 1) ^ -(delta & 1)
            key_size = data[position]
            position += 1
            if key_size > 127:
                key_size, position = decode_varint(data, position - 1)
            else:
                key_size = (key_size >> 1) ^ -(key_size & 1)
            if key_size < 0:
                key = None
            else:
                key = data[position : position + key_size]
                position += key_size
            value_size = data[position]
            position += 1
            if value_size > 127:
                value_size, position = decode_varint(data, position - 1)
            else:
                value_size = (value_size >> 1) ^ -(value_size & 1)
            if value_size < 0:
                value = None
            else:
                value = data[position : position + value_size]
                position += value_size
            headers: Headers = ()
            if data[position]:
                headers, position = _decode_headers(data, position, end)
            else:
                position += 1
            if position != end:
                raise ProtocolError(f"record of {size} bytes does not end where its length says")
            timestamp = base_timestamp + timestamp if append_time is None else append_time
            append(_new_record(Record, (base_offset + delta, timestamp, key, value, headers)))
    except IndexError:
        raise ProtocolError("records end in the middle of a record") from None
    return records, position


def _decode_headers(data: bytes, position: int, end: int) -> tuple[Headers, int]:
    count, position = decode_varint(data, position)
    if not 0 <= count <= (end - position) // 2:
        raise ProtocolError(f"record with {count} headers in {end - position} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, position = decode_varint(data, position)
        if size < 0 or position + size > end:
            raise ProtocolError(f"header key of {size} bytes")
        name = data[position : position + size]
        position += size
        size, position = decode_varint(data, position)
        value = None if size < 0 else data[position : position + size]
        position += max(size, 0)
        if position > end:
            raise ProtocolError(f"header value of {size} bytes")
        try:
            headers.append((name.decode(), value))
        except UnicodeDecodeError:
            raise ProtocolError("header key is not UTF-8") from None
    return headers, position


def scan_records(data: bytes, count: int) -> RecordScan:
    """Walk over `count` records that have to fill `data`, with offset deltas 0, 1, 2, …, without decoding them.

    Hops from length to length: keys, values and headers are not looked into. Raises ProtocolError if the count, a
    length or an offset delta is wrong. About 0.25 µs a record.
    """
    position, lowest, highest = 0, _HUGE, -_HUGE
    last_stamp = -1
    keyless: list[int] = []
    try:
        for index in range(count):
            size = data[position]
            position += 1
            if size > 127:
                if data[position] < 128:
                    size = size & 127 | data[position] << 7
                    position += 1
                else:
                    size, position = decode_varint(data, position - 1)
                    size <<= 1
            end = position + (size >> 1)
            stamp = data[position + 1]
            position += 2
            if stamp > 127:
                stamp, position = decode_varlong(data, position - 1)
                if stamp > highest:
                    highest = stamp
                if stamp < lowest:
                    lowest = stamp
            elif stamp != last_stamp:
                last_stamp = stamp
                stamp = (stamp >> 1) ^ -(stamp & 1)
                if stamp > highest:
                    highest = stamp
                if stamp < lowest:
                    lowest = stamp
            delta = data[position]
            position += 1
            if delta > 127:
                if data[position] < 128:
                    delta = delta & 127 | data[position] << 7
                    position += 1
                else:
                    delta, position = decode_varint(data, position - 1)
                    delta <<= 1
            if delta != index + index:
                raise ProtocolError(f"record {index} does not have offset delta {index}")
            if data[position] == 1:
                keyless.append(index)
            if position >= end or size & 1:
                raise ProtocolError(f"record {index} has an impossible length")
            position = end
    except IndexError:
        raise ProtocolError(f"fewer than the {count} records of the header") from None
    if position != len(data):
        raise ProtocolError("records do not end where the batch ends")
    return RecordScan(lowest, highest, keyless)
