"""Stored batches for readers that know only older formats: Fetch 0 and 1 get v0 messages, Fetch 2 and 3 get v1."""

from __future__ import annotations

import sys
from itertools import islice

from ..protocol.compression import Compression
from ..protocol.errors import ErrorCode, KafkaError, ProtocolError
from ..protocol.legacy_records import V1_OVERHEAD, build_message_set
from ..protocol.record import ENTRY_FRONT, LOG_OVERHEAD, TimestampType, max_plain_size
from ..protocol.record_batch import Batch, RecordBatch, iter_batches

_TOO_LARGE = ENTRY_FRONT.struct.pack(-1, 0x7FFFFFFF, 0, 0)[:LOG_OVERHEAD]
"""The beginning of a message that no reader has room for."""
WRAPPED_RECORDS = 10_000
"""Records that are compressed together in one message. A batch may hold a million, whose messages would take hundreds
of megabytes if all of them existed together."""


class ConversionBudget:
    """The bytes that one request may have converted, over all of its partitions."""

    __slots__ = ("has_messages", "left")

    def __init__(self, most_bytes: int = sys.maxsize) -> None:
        self.left = most_bytes
        """Bytes of decompressed records, and of the heads of the messages that are made of them."""
        self.has_messages = False
        """Whether the request has messages to answer with. Until then no batch is too large: each request makes
        progress."""

    @property
    def is_used_up(self) -> bool:
        return self.has_messages and self.left <= 0

    def most_plain_bytes(self, batch: Batch) -> int:
        """Return the limit for the decompressed size of the next batch."""
        most = max_plain_size(batch.size)
        return min(most, self.left) if self.has_messages else most

    def take(self, size: int) -> bool:
        """Take `size` bytes for the next batch; return whether they were available."""
        if self.has_messages and size > self.left:
            return False
        self.left -= size
        return True


def down_convert(
    records: bytes | bytearray | memoryview,
    target_magic: int,
    *,
    fetch_offset: int,
    budget: ConversionBudget | None = None,
) -> bytes:
    """`records` as messages of format `target_magic` (0 or 1), with their offsets and codecs.

    The result ends with the batch that uses up `budget`, and before a batch that does not fit in or cannot be
    converted; the reader fetches the rest from there. Control batches and record headers have no place in these formats
    and are left out, as are uncompressed records below `fetch_offset`. If records were given but nothing remains, the
    result is the beginning of a message that would be huge: the reader then reports a message too large, where an empty
    answer would make it repeat the fetch forever. It is empty if nothing was left of the budget.

    Raises KafkaError if the first batch cannot be converted: UNSUPPORTED_COMPRESSION_TYPE for zstd, MESSAGE_TOO_LARGE
    for a batch that decompresses to more than any broker appends, CORRUPT_MESSAGE for invalid records.
    """
    budget = budget or ConversionBudget()
    view = memoryview(records)
    parts: list[bytes | memoryview] = []
    try:
        for batch in iter_batches(view):
            if batch.is_control:
                continue
            made = None if budget.is_used_up else _down_convert_batch(batch, target_magic, fetch_offset, budget)
            if made is None:
                return b"".join(parts)
            parts += made
            budget.has_messages = budget.has_messages or bool(parts)
    except (ProtocolError, KafkaError) as error:
        if parts:  # the reader fetches from the failing batch next, and is given the error then
            return b"".join(parts)
        if isinstance(error, KafkaError):
            raise
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    if not parts and len(view):
        return _TOO_LARGE
    return b"".join(parts)


def _down_convert_batch(
    batch: Batch, target_magic: int, fetch_offset: int, budget: ConversionBudget
) -> list[bytes | memoryview] | None:
    """Return one batch as messages; None if not enough is left of the budget. Raises KafkaError, ProtocolError."""
    if batch.codec == Compression.ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd records for a reader of format v{target_magic}")
    if batch.magic <= target_magic:
        return [batch.view] if budget.take(batch.size) else None
    most = budget.most_plain_bytes(batch)
    try:
        plain = batch.plain_records(max_size=most)
    except KafkaError as error:
        if error.code is ErrorCode.MESSAGE_TOO_LARGE and most < max_plain_size(batch.size):
            return None
        raise
    size = len(plain)
    if isinstance(batch, RecordBatch):
        # The head of a message is many times as large as that of a record.
        size += V1_OVERHEAD * batch.header.record_count
    if not budget.take(size):
        return None
    records = batch.records(plain=plain)
    if batch.codec == Compression.NONE:
        records = (record for record in records if record.offset >= fetch_offset)
    timestamp_type = batch.timestamp_type if batch.magic else TimestampType.CREATE_TIME
    made: list[bytes | memoryview] = []
    while some := list(islice(records, WRAPPED_RECORDS)):
        made.append(build_message_set(some, magic=target_magic, codec=batch.codec, timestamp_type=timestamp_type))
    return made
