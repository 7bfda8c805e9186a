"""Records of format v2 to bytes and back: the part of a batch behind its header, once it is decompressed.

varint length of the rest · i8 attributes (0) · varlong timestamp delta · varint offset delta
· varint key length (-1 null) · key · varint value length (-1 null) · value
· varint header count · per header: varint key length · key (UTF-8) · varint value length (-1 null) · value
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from .errors import ProtocolError
from .native import native
from .record import Headers, Record
from .varint import decode_unsigned, decode_varint, encode_varint

MIN_RECORD_SIZE = 7
_TABLE_SIZE = 1024
_VARINT = tuple(encode_varint(value) for value in range(_TABLE_SIZE))
_NULL = b"\x01"  # varint -1
_new_record = tuple.__new__
_HUGE = 1 << 64
_five_bytes = Struct("5B").unpack_from


# The first indexes whose offset deltas take two, three and four bytes; `_hop_alike` is for those of two and three.
_FIRST_ALIKE, _LONG_DELTAS, _LONGER_DELTAS = 1 << 6, 1 << 13, 1 << 20


def _hops(length_bytes: int) -> list[int]:
    """Bytes from the start of a record to the next, by the bytes of its length, little-endian; 0 for an unusual one."""
    if length_bytes == 1:
        return [0 if size & 1 or size < 14 or size > 127 else 1 + size // 2 for size in range(256)]
    hops = [0] * 0x8000
    for high in range(1, 128):
        hops[high << 8 | 128 : (high + 1) << 8 : 2] = range(2 + 64 * high, 2 + 64 * high + 64)
    return hops


_ALIKE = {
    (length_bytes, stamp_bytes, delta_bytes): (
        Struct(f"<{' BH'[length_bytes]}x{' BH'[stamp_bytes]}B{' BH'[delta_bytes - 1]}").unpack_from,
        hops,
    )
    for length_bytes, hops in ((1, _hops(1)), (2, _hops(2)))
    for stamp_bytes in (1, 2)
    for delta_bytes in (2, 3)
}
"""Bytes of a record's length, timestamp and offset delta -> what reads them, the last in two parts; hops."""


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
        try:
            headers.append((name.decode(), value))
        except UnicodeDecodeError:
            raise ProtocolError("header key is not UTF-8") from None
    return headers, position


def scan_records(data: bytes | memoryview, count: int, *, max_keyless: int = 0) -> RecordScan:
    """Walk over `count` records that have to fill `data`, with offset deltas 0, 1, 2, …, without decoding them.

    Hops from length to length: keys, values and headers are not looked into, but up to `max_keyless` records without
    a key are noted. Raises ProtocolError if the count, a length or an offset delta is wrong.
    """
    # The compiled walk says of wrong records only that they are: the one in Python says what is wrong.
    found = native.scan_records(data, count, max_keyless) if native is not None else None
    return walk_records(data, count, max_keyless) if found is None else RecordScan(*found)


def walk_records(data: bytes | memoryview, count: int, max_keyless: int) -> RecordScan:
    """`scan_records` without compiled code.

    About 0.4 µs a record: hence one unpack for all that follows the length, and the usual sizes of both varints told
    apart by hand. Records with the timestamp of the one before, as most have in a busy batch, are hopped over by
    `_hop_alike`.
    """
    position, lowest, highest, last_stamp, index = 0, _HUGE, -_HUGE, -1, 0
    keyless: list[int] = []
    try:
        while index < count:
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
            # Timestamp delta, offset delta and key length: a record has at least five bytes here.
            stamp, b, c, d, e = _five_bytes(data, position)
            if stamp < 128 and (b < 128 or c < 128):
                if b < 128:
                    delta, key = b, c
                else:
                    delta, key = b & 127 | c << 7, d
            elif stamp > 127 and b < 128 and (c < 128 or d < 128):
                stamp = stamp & 127 | b << 7
                if c < 128:
                    delta, key = c, d
                else:
                    delta, key = c & 127 | d << 7, e
            else:
                stamp, delta, key, _ = _long_head(data, position)
            if delta != index + index or size & 1 or end < position + 5:
                raise ProtocolError(f"record {index} has a wrong offset delta or an impossible length")
            if key == 1 and len(keyless) < max_keyless:
                keyless.append(index)
            if stamp != last_stamp:
                last_stamp = stamp
                stamp = (stamp >> 1) ^ -(stamp & 1)
                if stamp > highest:
                    highest = stamp
                if stamp < lowest:
                    lowest = stamp
                position, index = end, index + 1
            elif index + 1 < _FIRST_ALIKE or max_keyless:
                position, index = end, index + 1
            else:
                position, index = _hop_alike(data, end, index + 1, count, stamp)
    except (IndexError, struct_error):
        raise ProtocolError(f"fewer than the {count} records of the header") from None
    if position != len(data):
        raise ProtocolError("records do not end where the batch ends")
    return RecordScan(lowest, highest, keyless)


def _hop_alike(data: bytes | memoryview, position: int, index: int, count: int, stamp: int) -> tuple[int, int]:
    """Hop over records from `index` on as long as they have the (zigzag) timestamp delta `stamp` and a usual length.

    Only the first byte of the offset deltas counts up, for 64 records at a time, so that the expected bytes of
    timestamp and offset are compared as they stand and nothing is put together: a third of the time of the walk above.
    """
    delta_bytes = 2 if index < _LONG_DELTAS else 3
    last = min(count, _LONG_DELTAS if delta_bytes == 2 else _LONGER_DELTAS)
    if index >= last or stamp >= 1 << 14:
        return position, index
    stamp_bytes = 1
    if stamp > 127:
        stamp_bytes, stamp = 2, stamp & 127 | 128 | stamp >> 7 << 8
    unpack, hops = _ALIKE[1 if data[position] < 128 else 2, stamp_bytes, delta_bytes]
    while index < last:
        first = index * 2 & 127 | 128
        rest = index >> 6 if delta_bytes == 2 else index >> 6 & 127 | 128 | index >> 13 << 8
        expected_deltas = range(first, min(256, first + 2 * (last - index)), 2)
        for expected in expected_deltas:
            size, found, delta, delta_rest = unpack(data, position)
            if delta != expected or delta_rest != rest or found != stamp or size > 0x7FFF or not (hop := hops[size]):
                return position, index + (expected - first) // 2
            position += hop
        index += len(expected_deltas)
    return position, index


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
