"""Entries of a log or a records field, of any format, as views; import this module for all formats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from .batch_header import (
    ATTRIBUTES_POSITION,
    BATCH_HEADER,
    CONTROL_MASK,
    CRC_POSITION,
    DELETE_HORIZON_MASK,
    HEADER,
    HEADER_SIZE,
    TRANSACTIONAL_MASK,
    BatchHeader,
    batch_crc,
    stamp_producer,
    write_crc,
)
from .compression import Compression, Room, decompress, look_into
from .errors import ProtocolError
from .legacy_records import LegacyBatch
from .record import (
    CODEC_MASK,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    MIN_ENTRY_HEADER_SIZE,
    TIMESTAMP_TYPE_MASK,
    Headers,
    Record,
    TimestampType,
    entry_size,
    max_plain_size,
)
from .record_batch_builder import (
    ControlType,
    EndMarker,
    RecordBatchBuilder,
    control_batch,
    parse_control_key,
    parse_end_marker,
)
from .record_codec import MIN_RECORD_SIZE, decode_records

__all__ = [
    "ATTRIBUTES_POSITION",
    "BATCH_HEADER",
    "CODEC_MASK",
    "CONTROL_MASK",
    "CRC_POSITION",
    "DELETE_HORIZON_MASK",
    "HEADER",
    "HEADER_SIZE",
    "LOG_OVERHEAD",
    "MAGIC_POSITION",
    "MIN_ENTRY_HEADER_SIZE",
    "TIMESTAMP_TYPE_MASK",
    "TRANSACTIONAL_MASK",
    "Batch",
    "BatchHeader",
    "ControlType",
    "EndMarker",
    "Headers",
    "LegacyBatch",
    "Record",
    "RecordBatch",
    "RecordBatchBuilder",
    "TimestampType",
    "batch_crc",
    "control_batch",
    "entry_size",
    "iter_batches",
    "parse_control_key",
    "parse_end_marker",
    "stamp_producer",
    "write_crc",
]

# Records are decoded in steps, so that the records of a batch that expands a thousandfold never exist together.
_DECODE_STEP = 1024


class RecordBatch:
    """A batch of format v2 at `position` of some buffer; `view` is exactly its bytes, `header` its fields."""

    __slots__ = ("_end_marker", "header", "position", "view")

    magic = 2

    def __init__(self, view: memoryview, position: int = 0) -> None:
        if len(view) < HEADER_SIZE:
            raise ProtocolError(f"record batch of {len(view)} bytes")
        self.view = view
        self.position = position
        self.header = BatchHeader.read(view)

    @property
    def size(self) -> int:
        """Return the bytes of the whole batch."""
        return len(self.view)

    @property
    def base_offset(self) -> int:
        return self.header.base_offset

    @property
    def last_offset(self) -> int:
        return self.header.last_offset

    @property
    def partition_leader_epoch(self) -> int:
        return self.header.partition_leader_epoch

    @property
    def max_timestamp(self) -> int:
        return self.header.max_timestamp

    @property
    def attributes(self) -> int:
        return self.header.attributes

    @property
    def codec(self) -> int:
        return self.header.codec

    @property
    def timestamp_type(self) -> TimestampType:
        return self.header.timestamp_type

    @property
    def producer_id(self) -> int:
        return self.header.producer_id

    @property
    def producer_epoch(self) -> int:
        return self.header.producer_epoch

    @property
    def base_sequence(self) -> int:
        return self.header.base_sequence

    @property
    def last_sequence(self) -> int:
        return self.header.last_sequence

    @property
    def is_transactional(self) -> bool:
        return self.header.is_transactional

    @property
    def is_control(self) -> bool:
        return self.header.is_control

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.header.delete_horizon_ms

    @property
    def end_marker(self) -> EndMarker | None:
        """Return the transaction marker, cached; None for any other batch. Raises as `records`."""
        try:
            return self._end_marker
        except AttributeError:
            record = next(self.records(), None) if self.is_control else None
            self._end_marker: EndMarker | None = None if record is None else parse_end_marker(record.key, record.value)
            return self._end_marker

    @property
    def is_valid(self) -> bool:
        """Return whether the CRC matches."""
        return batch_crc(self.view) == self.header.crc

    def plain_records(self, *, max_size: int | None = None) -> bytes:
        """Return the bytes after the header, decompressed; KafkaError if that fails or would exceed `max_size`
        bytes.
        """
        payload = self.view[HEADER_SIZE:]
        codec = self.header.codec
        if codec == Compression.NONE:
            return bytes(payload)
        return decompress(codec, payload, max_size=max_plain_size(self.size) if max_size is None else max_size)

    def look_into_records(self, room: Room, *, max_size: int, at_once: bool = False) -> bytes | memoryview:
        """Return as `plain_records`, valid until `room` is used again or returned; `at_once` as for `look_into`."""
        payload = self.view[HEADER_SIZE:]
        codec = self.header.codec
        if codec == Compression.NONE:
            return payload
        return look_into(codec, payload, room, max_size=max_size, at_once=at_once)

    def records(self, *, max_size: int | None = None, plain: bytes | None = None) -> Iterator[Record]:
        """Yield the records, decoded on demand; `plain` is `plain_records` if the caller has it.

        Raises ProtocolError for malformed records or a wrong count, KafkaError as `plain_records`.
        """
        header, position = self.header, 0
        data = self.plain_records(max_size=max_size) if plain is None else plain
        left = header.record_count
        if not 0 <= left <= len(data) // MIN_RECORD_SIZE:
            raise ProtocolError(f"record batch with {left} records in {len(data)} bytes")
        append_time = header.max_timestamp if header.attributes & TIMESTAMP_TYPE_MASK else None
        while left:
            step = min(left, _DECODE_STEP)
            records, position = decode_records(
                data,
                position,
                step,
                base_offset=header.base_offset,
                base_timestamp=header.base_timestamp,
                append_time=append_time,
            )
            left -= step
            yield from records
        if position != len(data):
            raise ProtocolError(f"{len(data) - position} bytes after the last record of a batch")


Batch: TypeAlias = RecordBatch | LegacyBatch


def iter_batches(buffer: bytes | bytearray | memoryview, position: int = 0) -> Iterator[Batch]:
    """Yield the entries from `position` on, of any format; a truncated entry at the end is omitted.

    Only headers are read. Raises ProtocolError for an invalid size or magic.
    """
    view = memoryview(buffer)
    total = len(view)
    while position + MIN_ENTRY_HEADER_SIZE <= total:
        end = position + entry_size(view, position)
        if end > total:
            return
        entry = view[position:end]
        is_newest = entry[MAGIC_POSITION] == RecordBatch.magic
        yield RecordBatch(entry, position) if is_newest else LegacyBatch(entry, position)
        position = end
