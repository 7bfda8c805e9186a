"""Stored batches for readers that know only older formats: Fetch 0 and 1 get v0 messages, Fetch 2 and 3 get v1."""

from __future__ import annotations

from ..protocol.compression import Compression
from ..protocol.errors import ErrorCode, KafkaError, ProtocolError
from ..protocol.legacy_records import build_message_set
from ..protocol.record import ENTRY_FRONT, LOG_OVERHEAD, TimestampType
from ..protocol.record_batch import Batch, iter_batches

_TOO_LARGE = ENTRY_FRONT.struct.pack(-1, 0x7FFFFFFF, 0, 0)[:LOG_OVERHEAD]
"""The beginning of a message that no reader has room for."""


def down_convert(records: bytes | bytearray | memoryview, target_magic: int, *, fetch_offset: int) -> bytes:
    """`records` as messages of format `target_magic` (0 or 1), with their offsets and codecs.

    Control batches and record headers have no place in these formats and are left out, as are uncompressed records
    below `fetch_offset`. If records were given but nothing remains, the answer is the beginning of a message that
    would be huge: the reader then reports a message too large, where an empty answer would make it ask for ever.

    Raises KafkaError: UNSUPPORTED_COMPRESSION_TYPE for zstd, CORRUPT_MESSAGE for bytes that are no records.
    """
    view = memoryview(records)
    try:
        parts = [
            part for batch in iter_batches(view) if (part := _down_convert_batch(batch, target_magic, fetch_offset))
        ]
    except ProtocolError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    if not parts and len(view):
        return _TOO_LARGE
    return b"".join(parts)


def _down_convert_batch(batch: Batch, target_magic: int, fetch_offset: int) -> bytes | memoryview:
    if batch.is_control:
        return b""
    if batch.codec == Compression.ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd records for a reader of format v{target_magic}")
    if batch.magic <= target_magic:
        return batch.view
    compressed = batch.codec != Compression.NONE
    return build_message_set(
        (record for record in batch.records() if compressed or record.offset >= fetch_offset),
        magic=target_magic,
        codec=batch.codec,
        timestamp_type=batch.timestamp_type if batch.magic else TimestampType.CREATE_TIME,
    )
