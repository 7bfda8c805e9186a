"""Every entry of a log, and of the files next to it, described with `construct`, the readers of `barnabas dump-log`.

Fixed-width fields are from the layouts; other fields are tables in this module. Compressed data remain bytes. Tests
compare the productive builders and readers with these.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import construct as c

from .batch_header import BATCH_HEADER
from .file_layouts import (
    OFFSET_INDEX_ENTRY,
    SNAPSHOT_ENTRY,
    SNAPSHOT_HEADER,
    TIME_INDEX_ENTRY,
    TRANSACTION_INDEX_ENTRY,
)
from .layouts import Layout
from .legacy_records import MESSAGE_V0, MESSAGE_V1, message_bounds
from .record_batch_builder import CONTROL_RECORD_KEY as CONTROL_RECORD_KEY_LAYOUT
from .record_batch_builder import END_TRANSACTION_MARKER as END_TRANSACTION_MARKER_LAYOUT
from .record_batch_builder import ControlType

_CODES = {"b": c.Int8sb, "B": c.Int8ub, "h": c.Int16sb, "i": c.Int32sb, "I": c.Int32ub, "q": c.Int64sb}


def _fields(layout: Layout[Any], **instead: c.Construct) -> list[c.Construct]:
    """Return the fields of a layout, some of them with another reader."""
    return [name / instead.get(name, _CODES[code]) for name, code in layout.fields.items()]


_LONGEST_VARINT = 10


def _sum(groups: list[int]) -> int:
    value = sum((group & 127) << 7 * place for place, group in enumerate(groups))
    return value >> 1 ^ -(value & 1)


Varint = c.ExprAdapter(
    c.RepeatUntil(lambda byte, found, _: byte < 128 or len(found) == _LONGEST_VARINT, c.Byte),
    decoder=lambda groups, _: _sum(groups),
    encoder=lambda value, _: list(c.ZigZag.build(value)),
)
"""Zigzag varint of up to 64 bits; `construct`'s own has no limit."""

_Bytes = c.Struct("length" / Varint, "data" / c.If(c.this.length >= 0, c.Bytes(c.this.length)))
"""A varint length, -1 for null, and its bytes."""

RECORD_HEADER = c.Struct("key" / _Bytes, "value" / _Bytes)

RECORD = c.Struct(
    "length" / Varint,
    "start" / c.Tell,
    "attributes" / c.Int8sb,
    "timestamp_delta" / Varint,
    "offset_delta" / Varint,
    "key" / _Bytes,
    "value" / _Bytes,
    "headers" / c.PrefixedArray(Varint, RECORD_HEADER),
    "end" / c.Tell,
    c.Check(lambda this: this._building or this.end - this.start == this.length),
)
"""One record of format v2 inside an uncompressed or decompressed batch."""

BATCH_ATTRIBUTES = c.BitStruct(
    "unused" / c.BitsInteger(9),
    "has_delete_horizon" / c.Flag,
    "is_control" / c.Flag,
    "is_transactional" / c.Flag,
    "is_log_append_time" / c.Flag,
    "codec" / c.BitsInteger(3),
)

RECORD_BATCH = c.Struct(
    *_fields(BATCH_HEADER, magic=c.Const(2, c.Int8sb), attributes=BATCH_ATTRIBUTES), "records" / c.GreedyBytes
)
"""A batch of format v2, complete or truncated; `records` is `RECORD`, `record_count` times, with the codec."""

MESSAGE_ATTRIBUTES = c.BitStruct("unused" / c.BitsInteger(4), "is_log_append_time" / c.Flag, "codec" / c.BitsInteger(3))

_Nullable = c.Struct("length" / c.Int32sb, "data" / c.If(c.this.length >= 0, c.Bytes(c.this.length)))


def _message(layout: Layout[Any], magic: int) -> c.Construct:
    header = _fields(layout, magic=c.Const(magic, c.Int8sb), attributes=MESSAGE_ATTRIBUTES)
    return c.Struct(*header, "key" / _Nullable, "value" / _Nullable, c.Terminated)


MESSAGES = (_message(MESSAGE_V0, 0), _message(MESSAGE_V1, 1))
"""A message of format v0, and one of v1; with a codec, `value` is the compressed set of the messages inside."""

CONTROL_RECORD_KEY = c.Struct(*_fields(CONTROL_RECORD_KEY_LAYOUT, type=c.Enum(c.Int16sb, ControlType)))
END_TRANSACTION_MARKER = c.Struct(*_fields(END_TRANSACTION_MARKER_LAYOUT))

OFFSET_INDEX = c.GreedyRange(c.Struct(*_fields(OFFSET_INDEX_ENTRY)))
TIME_INDEX = c.GreedyRange(c.Struct(*_fields(TIME_INDEX_ENTRY)))
TRANSACTION_INDEX = c.GreedyRange(c.Struct(*_fields(TRANSACTION_INDEX_ENTRY)))
PRODUCER_SNAPSHOT = c.Struct(
    "header" / c.Struct(*_fields(SNAPSHOT_HEADER)), "entries" / c.GreedyRange(c.Struct(*_fields(SNAPSHOT_ENTRY)))
)
"""Whole files; a truncated entry at the end is omitted."""


def parse_records(data: bytes, count: int) -> Iterator[Any]:
    """Read `count` uncompressed records, which must fill `data`.

    Raises construct.ConstructError at the first invalid one, or if bytes remain after them.
    """
    position = 0
    for _ in range(count):
        length = max(Varint.parse(data[position : position + _LONGEST_VARINT]), 0)
        record = RECORD.parse(data[position : position + _LONGEST_VARINT + length])
        yield record
        position += record.end
    if position < len(data):
        raise c.TerminatedError(f"{len(data) - position} bytes after the last record")


def parse_messages(data: bytes) -> Iterator[Any]:
    """Read all messages of a set, without decompression.

    Raises ProtocolError or construct.ConstructError at the first invalid one.
    """
    for start, end in message_bounds(memoryview(data)):
        yield c.Select(*MESSAGES).parse(data[start:end])
