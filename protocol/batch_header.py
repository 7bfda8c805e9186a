"""The 61-byte header of a record batch (format v2, KIP-98), which precedes its records, one stream if there is a
codec.
"""

from __future__ import annotations

from typing import NamedTuple

from .checksum import crc32c
from .layouts import Int8, Int16, Int32, Int64, Layout, Uint32
from .record import CODEC_MASK, LOG_OVERHEAD, TIMESTAMP_TYPE_MASK, TimestampType

TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20
DELETE_HORIZON_MASK = 0x40

_MAX_SEQUENCE = 0x7FFFFFFF
_new_header = tuple.__new__


class BatchHeader(NamedTuple):
    """The header fields in wire order; `length` counts the bytes after itself, `size_in_bytes` the whole batch."""

    base_offset: Int64
    length: Int32
    partition_leader_epoch: Int32
    magic: Int8
    crc: Uint32
    """CRC-32C of all bytes after it: a broker sets base offset and leader epoch without reading the rest."""
    attributes: Int16
    """Bits 0 to 2 codec, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon."""
    last_offset_delta: Int32
    base_timestamp: Int64
    max_timestamp: Int64
    producer_id: Int64
    producer_epoch: Int16
    base_sequence: Int32
    record_count: Int32

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
        """Return the time from which tombstones of a cleaned batch may be removed; `base_timestamp` then contains
        it.
        """
        return self.base_timestamp if self.attributes & DELETE_HORIZON_MASK else None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id >= 0

    @property
    def last_sequence(self) -> int:
        """Return the sequence of the last record, -1 without sequences; wraps from 2147483647 to 0."""
        if self.base_sequence < 0:
            return self.base_sequence
        return self.base_sequence + self.last_offset_delta & _MAX_SEQUENCE

    @classmethod
    def read(cls, buffer: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
        """Read the header at `position` without any check, even of the magic; struct.error if fewer than 61 bytes
        remain.
        """
        return _new_header(cls, BATCH_HEADER.values(buffer, position))


BATCH_HEADER = Layout(BatchHeader)
HEADER = BATCH_HEADER.struct
HEADER_SIZE = BATCH_HEADER.size
CRC_POSITION = BATCH_HEADER.at("crc")
ATTRIBUTES_POSITION = BATCH_HEADER.at("attributes")
_PRODUCER_POSITION = BATCH_HEADER.at("producer_id")
_crc = BATCH_HEADER.span("crc", "crc")
_producer_fields = BATCH_HEADER.span("producer_id", "base_sequence")


def batch_crc(batch: memoryview) -> int:
    """Return the correct value of the CRC field of this batch (exactly its bytes)."""
    return crc32c(batch[ATTRIBUTES_POSITION:])


def write_crc(batch: memoryview) -> None:
    """Recompute the CRC field after a change."""
    _crc.pack_into(batch, CRC_POSITION, batch_crc(batch))


def stamp_producer(batch: bytearray | memoryview, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Write producer id, epoch and first sequence into a finished batch, and update its CRC."""
    _producer_fields.pack_into(batch, _PRODUCER_POSITION, producer_id, producer_epoch, base_sequence)
    write_crc(memoryview(batch))
