"""Messages of format v0 and v1 (Kafka 0.8 to 0.10): reading, building, and compressed wrapper messages.

A header, then i32 key length (-1 null) · key · i32 value length (-1 null) · value. With compression a message set is
the value of a wrapper message without a key. A v0 wrapper's inner messages have their final offsets; the offsets in a
v1 wrapper count from 0 and end at the wrapper's own offset (KIP-31). Each message outside a wrapper counts as a batch.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from .compression import Compression, compress, decompress
from .errors import ErrorCode, KafkaError, ProtocolError
from .layouts import Int32, Int64, Layout, Uint8, Uint32
from .record import (
    CODEC_MASK,
    LEAST_SIZES,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    Record,
    TimestampType,
    entry_size,
    max_plain_size,
)


class MessageHeaderV0(NamedTuple):
    """Header of a message of format v0."""

    offset: Int64
    length: Int32
    crc: Uint32
    """CRC-32 of all bytes after it."""
    magic: Uint8
    attributes: Uint8
    """Bits 0 to 2 codec, in v1 3 timestamp type."""


class MessageHeaderV1(NamedTuple):
    """Header of a message of format v1: the same, and a timestamp in ms, -1 for none."""

    offset: Int64
    length: Int32
    crc: Uint32
    magic: Uint8
    attributes: Uint8
    timestamp: Int64


MESSAGE_V0, MESSAGE_V1 = Layout(MessageHeaderV0), Layout(MessageHeaderV1)
V1_OVERHEAD = LEAST_SIZES[1]
_front = MESSAGE_V1.span("offset", "crc")
_v0_back = MESSAGE_V0.span("magic", "attributes")
_v1_back = MESSAGE_V1.span("magic", "timestamp")
_length = Struct(">i")  # of a key or a value


def encode_message(
    offset: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
    *,
    magic: int,
    attributes: int = 0,
) -> bytes:
    """Return one message of format `magic` (0 or 1); `timestamp` is dropped in v0."""
    key_size = -1 if key is None else len(key)
    value_size = -1 if value is None else len(value)
    back = _v1_back.pack(1, attributes, timestamp) if magic else _v0_back.pack(0, attributes)
    body = b"".join((back, _length.pack(key_size), key or b"", _length.pack(value_size), value or b""))
    return _front.pack(offset, len(body) + 4, zlib.crc32(body)) + body


class LegacyBatch:
    """One message outside of any wrapper: a single record, or a wrapper with the records inside.

    Has the same properties as `RecordBatch`, so that readers of a log can treat both equally.
    """

    __slots__ = ("_body", "_timestamp", "attributes", "crc", "last_offset", "magic", "position", "size", "view")

    partition_leader_epoch = NO_PARTITION_LEADER_EPOCH
    producer_id = NO_PRODUCER_ID
    producer_epoch = NO_PRODUCER_EPOCH
    base_sequence = NO_SEQUENCE
    last_sequence = NO_SEQUENCE
    is_transactional = False
    is_control = False
    delete_horizon_ms = None

    def __init__(self, view: memoryview, position: int = 0) -> None:
        """`view` is exactly this message's bytes; `position` is its position, for the caller."""
        magic = view[MAGIC_POSITION] if len(view) > MAGIC_POSITION else 0
        if magic > 1 or len(view) < LEAST_SIZES[magic]:
            raise ProtocolError(f"message of {len(view)} bytes and magic {magic}")
        self.view = view
        self.position = position
        self.size = len(view)
        self._timestamp = NO_TIMESTAMP
        if magic:
            self._body = MESSAGE_V1.size
            self.last_offset, _, self.crc, self.magic, self.attributes, self._timestamp = MESSAGE_V1.values(view)
        else:
            self._body = MESSAGE_V0.size
            self.last_offset, _, self.crc, self.magic, self.attributes = MESSAGE_V0.values(view)

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        if self.magic == 0:
            return TimestampType.NO_TIMESTAMP
        return TimestampType((self.attributes & TIMESTAMP_TYPE_MASK) >> 3)

    @property
    def max_timestamp(self) -> int:
        """Return the timestamp of the message, for a wrapper the largest inside; -1 in v0."""
        return self._timestamp

    @property
    def base_offset(self) -> int:
        """Return the offset of the first record, for which a wrapper must be decompressed."""
        if self.codec == Compression.NONE:
            return self.last_offset
        for record in self.records():
            return record.offset
        return self.last_offset

    @property
    def is_valid(self) -> bool:
        """Return whether the CRC matches."""
        return self.crc == zlib.crc32(self.view[MAGIC_POSITION:])

    def key_and_value(self) -> tuple[bytes | None, bytes | None]:
        """Return the stored key and value, for a wrapper its null key and the compressed set; ProtocolError if
        invalid.
        """
        view, end, position = self.view, self.size, self._body
        fields: list[bytes | None] = []
        for _ in range(2):
            if position + 4 > end:
                raise ProtocolError("message is truncated inside a field")
            size: int = _length.unpack_from(view, position)[0]
            position += 4
            if size < -1 or position + max(size, 0) > end:
                raise ProtocolError(f"message field of {size} bytes")
            fields.append(None if size < 0 else bytes(view[position : position + size]))
            position += max(size, 0)
        if position != end:
            raise ProtocolError("message is longer than its fields")
        return fields[0], fields[1]

    def plain_records(self, *, max_size: int | None = None) -> bytes:
        """Return the messages inside a wrapper, decompressed; a single message unchanged. Raises as `records`."""
        if self.codec == Compression.NONE:
            return bytes(self.view)
        return self._inner_set(max_plain_size(self.size) if max_size is None else max_size)

    def records(self, *, max_size: int | None = None, plain: bytes | None = None) -> Iterator[Record]:
        """Yield the records inside, with their absolute offsets; `plain` is `plain_records` if the caller has it.

        Raises ProtocolError for malformed bytes, KafkaError if decompression fails or exceeds `max_size` bytes.
        """
        if self.codec == Compression.NONE:
            key, value = self.key_and_value()
            yield Record(self.last_offset, self._timestamp, key, value)
            return
        inner = memoryview(self.plain_records(max_size=max_size) if plain is None else plain)
        shift = self._inner_offset_shift(inner)
        append_time = self._timestamp if self.timestamp_type == TimestampType.LOG_APPEND_TIME else None
        for message in _inner_messages(inner, self.magic):
            key, value = message.key_and_value()
            timestamp = message._timestamp if append_time is None else append_time
            yield Record(message.last_offset + shift, timestamp, key, value)

    def _inner_offset_shift(self, plain: memoryview) -> int:
        """Return the difference between the absolute offsets and the offsets inside this wrapper."""
        # Offset 0 on a v1 wrapper is written by a librdkafka that does not set the field: then no shift is known.
        if self.magic == 0 or self.last_offset == 0:
            return 0
        last_inner = self.last_offset
        for start, _ in message_bounds(plain):
            last_inner = MESSAGE_V0.read(plain, start).offset
        return self.last_offset - last_inner

    def _inner_set(self, max_size: int) -> bytes:
        _, value = self.key_and_value()
        if value is None:
            raise ProtocolError("compressed message without a value")
        if self.codec > Compression.LZ4:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {self.codec} in format v{self.magic}")
        return decompress(self.codec, value, max_size=max_size, magic=self.magic)


def _inner_messages(plain: memoryview, magic: int) -> Iterator[LegacyBatch]:
    """Yield the messages of a wrapper in their stored form, each checked."""
    for start, end in message_bounds(plain):
        message = LegacyBatch(plain[start:end])
        if message.magic != magic:
            raise ProtocolError(f"message of magic {message.magic} inside a wrapper of magic {magic}")
        if message.codec != Compression.NONE:
            raise ProtocolError("compressed message inside a compressed message")
        if not message.is_valid:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "CRC of an inner message does not match")
        yield message


def write_message_crc(message: memoryview) -> None:
    """Recompute the CRC of a message (exactly its bytes) after a change."""
    MESSAGE_V0.patch(message, crc=zlib.crc32(message[MAGIC_POSITION:]))


def message_bounds(data: memoryview) -> Iterator[tuple[int, int]]:
    """Yield start and end of each message of an uncompressed set; ProtocolError unless the last one ends with the
    data.
    """
    position, total = 0, len(data)
    while position < total:
        end = position + entry_size(data, position) if position + LEAST_SIZES[0] <= total else total + 1
        if end > total:
            raise ProtocolError("message set is truncated inside a message")
        yield position, end
        position = end


def build_message_set(
    records: Iterable[Record],
    *,
    magic: int,
    codec: int = Compression.NONE,
    level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> bytes:
    """Encode records as v0 or v1 messages with their offsets; with a codec, inside one wrapper message. Headers are
    lost.
    """
    attributes = TIMESTAMP_TYPE_MASK if magic == 1 and timestamp_type == TimestampType.LOG_APPEND_TIME else 0
    items = list(records)
    if not items:
        return b""
    # Inside a v1 wrapper offsets count from the first record; in v0 they are absolute.
    origin = items[0].offset if codec != Compression.NONE and magic == 1 else 0
    inner = b"".join(
        encode_message(r.offset - origin, r.timestamp, r.key, r.value, magic=magic, attributes=attributes)
        for r in items
    )
    if codec == Compression.NONE:
        return inner
    if codec > Compression.LZ4:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {codec} in format v{magic}")
    return encode_message(
        items[-1].offset,
        max(record.timestamp for record in items),
        None,
        compress(codec, inner, level=level, magic=magic),
        magic=magic,
        attributes=attributes | codec,
    )


def legacy_record_size(record: Record, magic: int) -> int:
    """Return the size of a message of format `magic` (0 or 1) without its offset and its length field."""
    return LEAST_SIZES[magic] - LOG_OVERHEAD + len(record.key or b"") + len(record.value or b"")
