"""Records of format v2 to bytes and back: the part of a batch behind its header, once it is decompressed.

varint length of the rest · i8 attributes (0) · varlong timestamp delta · varint offset delta
· varint key length (-1 null) · key · varint value length (-1 null) · value
· varint header count · per header: varint key length · key (UTF-8) · varint value length (-1 null) · value
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error

from .errors import ProtocolError
from .record import Headers, Record
from .varint import decode_unsigned, decode_varint, encode_varint

MIN_RECORD_SIZE = 7
_TABLE_SIZE = 1024
_VARINT = tuple(encode_varint(value) for value in range(_TABLE_SIZE))
_NULL = b"\x01"  # varint -1
_new_record = tuple.__new__
_five_bytes = Struct("5B").unpack_from


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
    try:
        return _decode_records(
            data, position, count, base_offset, base_timestamp=base_timestamp, append_time=append_time
        )
    except (IndexError, struct_error):
        raise ProtocolError("records end in the middle of a record") from None


def _decode_records(
    data: bytes, position: int, count: int, base_offset: int, *, base_timestamp: int, append_time: int | None
) -> tuple[list[Record], int]:
    """About 0.8 µs for a small record: hence the usual sizes of varints told apart by hand, and no call in between."""
    records: list[Record] = []
    append = records.append
    for _ in range(count):
        size = data[position]
        if size < 128:
            position += 2
        elif data[position + 1] < 128:
            size = size & 127 | data[position + 1] << 7
            position += 3
        else:
            size, position = decode_unsigned(data, position)
            position += 1
        end = position + (size >> 1) - 1
        stamp, delta, key_size, d, e = _five_bytes(data, position)
        if stamp < 128 and delta < 128 and key_size < 128:
            position += 3
        elif stamp < 128 and key_size < 128 and d < 128:
            delta, key_size = delta & 127 | key_size << 7, d
            position += 4
        elif stamp > 127 and delta < 128 and key_size < 128 and d < 128:
            stamp, delta, key_size = stamp & 127 | delta << 7, key_size, d
            position += 4
        elif stamp > 127 and delta < 128 and d < 128 and e < 128:
            stamp, delta, key_size = stamp & 127 | delta << 7, key_size & 127 | d << 7, e
            position += 5
        else:
            stamp, delta, key_size, position = _long_head(data, position)
        key = None
        if not key_size & 1:
            start, position = position, position + (key_size >> 1)
            key = data[start:position]
        value_size = data[position]
        if value_size < 128:
            position += 1
        elif data[position + 1] < 128:
            value_size = value_size & 127 | data[position + 1] << 7
            position += 2
        else:
            value_size, position = decode_unsigned(data, position)
        value = None
        if not value_size & 1:
            start, position = position, position + (value_size >> 1)
            value = data[start:position]
        headers: Headers = ()
        if data[position]:
            headers, position = _decode_headers(data, position, end)
        else:
            position += 1
        if position != end or size & 1:
            raise ProtocolError(f"record of {size >> 1} bytes does not end where its length says")
        timestamp = base_timestamp + ((stamp >> 1) ^ -(stamp & 1)) if append_time is None else append_time
        offset = base_offset + ((delta >> 1) ^ -(delta & 1))
        append(_new_record(Record, (offset, timestamp, key, value, headers)))
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
        headers.append((name.decode(errors="replace"), value))
    return headers, position


def _long_head(data: bytes | memoryview, position: int) -> tuple[int, int, int, int]:
    """Timestamp delta, offset delta and key length at `position`, still zigzag, and the position behind them."""
    first, second, third, fourth, fifth = _five_bytes(data, position)
    if first > 127 and second > 127 and third < 128 and fourth > 127 and fifth < 128 and data[position + 5] < 128:
        stamp = first & 127 | (second & 127) << 7 | third << 14
        return stamp, fourth & 127 | fifth << 7, data[position + 5], position + 6
    stamp, position = decode_unsigned(data, position)
    delta, position = decode_unsigned(data, position)
    key_size, position = decode_unsigned(data, position)
    return stamp, delta, key_size, position
