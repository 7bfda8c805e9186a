"""Record batches, records and old messages described with `construct`: a second reading beside the code in service.

Tests hold the builders and readers against these, and they show the formats field by field. What is compressed stays
bytes.
"""

from __future__ import annotations

from typing import Any

import construct as c

_Bytes = c.Struct("length" / c.ZigZag, "data" / c.If(c.this.length >= 0, c.Bytes(c.this.length)))
"""A varint length, -1 for null, and so many bytes."""

RECORD_HEADER = c.Struct("key" / _Bytes, "value" / _Bytes)

RECORD = c.Struct(
    "length" / c.ZigZag,
    "start" / c.Tell,
    "attributes" / c.Int8sb,
    "timestamp_delta" / c.ZigZag,
    "offset_delta" / c.ZigZag,
    "key" / _Bytes,
    "value" / _Bytes,
    "headers" / c.PrefixedArray(c.ZigZag, RECORD_HEADER),
    "end" / c.Tell,
    c.Check(lambda this: this._building or this.end - this.start == this.length),
)
"""One record of format v2 inside a batch whose records are not, or no longer, compressed."""

BATCH_ATTRIBUTES = c.BitStruct(
    "unused" / c.BitsInteger(9),
    "has_delete_horizon" / c.Flag,
    "is_control" / c.Flag,
    "is_transactional" / c.Flag,
    "is_log_append_time" / c.Flag,
    "codec" / c.BitsInteger(3),
)

RECORD_BATCH = c.Struct(
    "base_offset" / c.Int64sb,
    "length" / c.Int32sb,
    "partition_leader_epoch" / c.Int32sb,
    "magic" / c.Const(2, c.Int8sb),
    "crc" / c.Int32ub,
    "attributes" / BATCH_ATTRIBUTES,
    "last_offset_delta" / c.Int32sb,
    "base_timestamp" / c.Int64sb,
    "max_timestamp" / c.Int64sb,
    "producer_id" / c.Int64sb,
    "producer_epoch" / c.Int16sb,
    "base_sequence" / c.Int32sb,
    "record_count" / c.Int32sb,
    "records" / c.Bytes(c.this.length - 49),
)
"""A batch of format v2; `records` is what `RECORD` describes, `record_count` times, under the codec."""

_Nullable = c.Struct("length" / c.Int32sb, "data" / c.If(c.this.length >= 0, c.Bytes(c.this.length)))

MESSAGE_ATTRIBUTES = c.BitStruct("unused" / c.BitsInteger(4), "is_log_append_time" / c.Flag, "codec" / c.BitsInteger(3))

MESSAGE = c.Struct(
    "offset" / c.Int64sb,
    "size" / c.Int32sb,
    "crc" / c.Int32ub,
    "magic" / c.OneOf(c.Int8sb, (0, 1)),
    "attributes" / MESSAGE_ATTRIBUTES,
    "timestamp" / c.If(c.this.magic == 1, c.Int64sb),
    "key" / _Nullable,
    "value" / _Nullable,
)
"""A message of format v0 or v1; with a codec, `value` is the compressed set of the messages inside."""

CONTROL_RECORD_KEY = c.Struct(
    "version" / c.Int16sb,
    "type"
    / c.Enum(
        c.Int16sb,
        ABORT=0,
        COMMIT=1,
        LEADER_CHANGE=2,
        SNAPSHOT_HEADER=3,
        SNAPSHOT_FOOTER=4,
        KRAFT_VERSION=5,
        KRAFT_VOTERS=6,
    ),
)

END_TRANSACTION_MARKER = c.Struct("version" / c.Int16sb, "coordinator_epoch" / c.Int32sb)


def parse_records(data: bytes, count: int) -> list[Any]:
    """`count` records, not compressed, that have to fill `data`; construct.ConstructError if they do not."""
    return list(c.FocusedSeq("records", "records" / RECORD[count], c.Terminated).parse(data))


def parse_messages(data: bytes) -> list[Any]:
    """All messages of a set, not decompressed; construct.ConstructError if the last one is cut."""
    stream_end, messages, position = len(data), [], 0
    while position < stream_end:
        message = MESSAGE.parse(data[position:])
        messages.append(message)
        position += 12 + message.size
    return messages
