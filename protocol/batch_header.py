"""The 61-byte header of a record batch (format v2, KIP-98), and where its fields stand.

    0  i64 base offset          · 8  i32 size of what follows · 12 i32 partition leader epoch · 16 i8  magic 2
    17 u32 CRC-32C of 21 … end  · 21 i16 attributes           · 23 i32 last offset delta      · 27 i64 base timestamp
    35 i64 max timestamp        · 43 i64 producer id          · 51 i16 producer epoch         · 53 i32 base sequence
    57 i32 record count         · 61 records, compressed as one stream if attributes name a codec

The CRC leaves out base offset and leader epoch, so that a broker sets both without reading the rest.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from .checksum import crc32c
from .record import CODEC_MASK, LOG_OVERHEAD, TIMESTAMP_TYPE_MASK, TimestampType

HEADER = Struct(">qiiBIhiqqqhii")
HEADER_SIZE = HEADER.size

LEADER_EPOCH_POSITION = 12
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
LAST_OFFSET_DELTA_POSITION = 23
BASE_TIMESTAMP_POSITION = 27
MAX_TIMESTAMP_POSITION = 35
PRODUCER_ID_POSITION = 43
RECORD_COUNT_POSITION = 57

TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20
DELETE_HORIZON_MASK = 0x40

_MAX_SEQUENCE = 0x7FFFFFFF
_unpack_header = HEADER.unpack_from
_new_header = tuple.__new__
_crc_field = Struct(">I")
_producer_fields = Struct(">qhi")


class BatchHeader(NamedTuple):
    """The header fields in wire order; `length` counts the bytes behind itself, `size_in_bytes` all of the batch."""

    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_in_bytes(self) -> int:
        return self.length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType((self.attributes & TIMESTAMP_TYPE_MASK) >> 3)

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_MASK != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_MASK != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the tombstones of a cleaned batch may go; then `base_timestamp` holds this instead."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_MASK else None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id >= 0

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, -1 without sequences; wraps from 2147483647 to 0."""
        if self.base_sequence < 0:
            return self.base_sequence
        return self.base_sequence + self.last_offset_delta & _MAX_SEQUENCE

    @classmethod
    def read(cls, buffer: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
        """The header at `position`, unchecked, not even the magic; struct.error if fewer than 61 bytes are left."""
        return _new_header(cls, _unpack_header(buffer, position))


def batch_crc(batch: memoryview) -> int:
    """What the CRC field of this batch (exactly its bytes) should hold."""
    return crc32c(batch[ATTRIBUTES_POSITION:])


def write_crc(batch: memoryview) -> None:
    """Recompute the CRC field after a change behind it."""
    _crc_field.pack_into(batch, CRC_POSITION, batch_crc(batch))


def stamp_producer(batch: bytearray | memoryview, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Make a finished batch one of an idempotent producer: write id, epoch and first sequence, and the CRC."""
    _producer_fields.pack_into(batch, PRODUCER_ID_POSITION, producer_id, producer_epoch, base_sequence)
    write_crc(memoryview(batch))
