"""Appends that involve message formats v0 and v1: checks, offset assignment in place, and rebuilding where it must be.

Clients from 0.8 to 0.10 produce these. Today's log format is v2, so their messages usually become one record batch; a
log of format v0 or v1 keeps them, and then a v1 wrapper whose inner offsets are 0, 1, 2, … needs only its own header
changed (KIP-31), while every other wrapper has to be unpacked and built again.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..protocol.compression import Compression
from ..protocol.errors import ErrorCode, KafkaError, ProtocolError
from ..protocol.legacy_records import MESSAGE_V1, V1_OVERHEAD, LegacyBatch, build_message_set, write_message_crc
from ..protocol.record import CODEC_MASK, MAGIC_POSITION, NO_TIMESTAMP, TIMESTAMP_TYPE_MASK, Record, TimestampType
from ..protocol.record_batch import RecordBatch, RecordBatchBuilder, iter_batches
from .validation_result import (
    MOST_OLD_BYTES,
    AppendRequest,
    RecordErrors,
    ValidationResult,
    nothing_appended,
    too_many_records,
)


def validate_legacy(records: memoryview, request: AppendRequest) -> ValidationResult:
    """Check v0 or v1 messages and give them offsets, in the log's format. Raises as `validate_and_assign`."""
    packed = records[MAGIC_POSITION + 1] & CODEC_MASK
    request.check_weight(len(records), 0 if packed else MOST_OLD_BYTES)
    if records.readonly:
        records = memoryview(bytearray(records))
    magic, codec = _check_batches(records, request)
    target_codec = request.target_codec(codec)
    if magic == request.target_magic and codec == target_codec and (magic == 1 or codec == Compression.NONE):
        result = _assign_in_place(records, codec, request)
        if result is not None:
            return result
    checked = _checked_records(records, request)
    if request.target_magic == 2:
        return _rebuild_as_v2(checked, codec, len(records), request)
    return _rebuild_as_messages(checked, codec, len(records), request)


def convert_from_v2(batch: RecordBatch, request: AppendRequest) -> ValidationResult:
    """Turn a checked v2 batch into messages for a log of format v0 or v1; headers are lost."""
    if batch.is_transactional or batch.header.has_producer_id:
        message = f"Idempotent and transactional records cannot be used with magic version {request.target_magic}"
        raise KafkaError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, message)
    if request.target_codec(batch.codec) == Compression.ZSTD:
        message = f"zstd cannot be used with magic version {request.target_magic}"
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, message)
    return _rebuild_as_messages(
        batch.records(max_size=request.max_decompressed_size(batch.size)), batch.codec, batch.size, request
    )


def _check_batches(records: memoryview, request: AppendRequest) -> tuple[int, int]:
    """Hold the messages outside wrappers against each other and the topic; their magic and codec."""
    magic = codec = -1
    for batch in iter_batches(records):
        if magic < 0:
            magic, codec = batch.magic, batch.codec
        elif batch.magic != magic:
            raise _invalid(f"Batch magic {batch.magic} is not the same as the first batch's magic {magic}")
        elif codec != Compression.NONE or batch.codec != Compression.NONE:
            raise _invalid("Compressed outer record has more than one batch")
        if batch.size > request.config.max_message_bytes:
            message = f"A message of {batch.size} bytes exceeds the maximum of {request.config.max_message_bytes}"
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, message)
        if not batch.is_valid:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "Message is corrupt (stored crc does not match)")
    if codec > Compression.LZ4:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {codec} in a message of magic {magic}")
    return magic, codec


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)


def _checked_records(records: memoryview, request: AppendRequest) -> Iterator[Record]:
    """All records, each checked for key and timestamp; the first batch with a fault raises all its faults at once."""
    for batch in iter_batches(records):
        errors = RecordErrors(request)
        if batch.timestamp_type == TimestampType.LOG_APPEND_TIME:
            errors.refuse_log_append_time()
            errors.raise_if_any()
        index = 0
        try:
            for record in batch.records(max_size=request.max_decompressed_size(batch.size)):
                errors.check(record, index)
                index += 1
                if index > request.max_record_count:
                    raise too_many_records(request)
                yield record
        except ProtocolError as error:
            raise _invalid(str(error)) from error
        if index == 0:
            raise _invalid("Compressed message without records inside")
        errors.raise_if_any()


def _append_time(request: AppendRequest) -> int | None:
    return request.now_ms if request.config.message_timestamp_type == "LogAppendTime" else None


def _rebuild_as_v2(records: Iterator[Record], codec: int, packed_size: int, request: AppendRequest) -> ValidationResult:
    target_codec, append_time = request.target_codec(codec), _append_time(request)
    limit = request.max_decompressed_size(packed_size)
    builder = RecordBatchBuilder(
        codec=target_codec,
        level=request.compression_level(target_codec),
        base_offset=request.base_offset,
        partition_leader_epoch=request.leader_epoch,
        log_append_time=append_time,
    )
    for record in records:
        timestamp = record.timestamp if append_time is None else append_time
        builder.append(record.key, record.value, (), timestamp)
        if builder.size > limit:
            raise _too_large(builder.size, request)
    built = builder.build()
    if len(built) > request.config.max_message_bytes:
        raise _too_large(len(built), request)
    return _result(memoryview(bytearray(built)), len(builder), builder.max_timestamp, request)


def _rebuild_as_messages(
    records: Iterator[Record], codec: int, packed_size: int, request: AppendRequest
) -> ValidationResult:
    target_codec, append_time = request.target_codec(codec), _append_time(request)
    limit, size = request.max_decompressed_size(packed_size), 0
    renumbered: list[Record] = []
    max_timestamp = NO_TIMESTAMP
    for record in records:
        timestamp = record.timestamp if append_time is None else append_time
        max_timestamp = max(max_timestamp, timestamp)
        renumbered.append(Record(request.base_offset + len(renumbered), timestamp, record.key, record.value))
        size += V1_OVERHEAD + len(record.key or b"") + len(record.value or b"")
        if size > limit:
            raise _too_large(size, request)
    built = build_message_set(
        renumbered,
        magic=request.target_magic,
        codec=target_codec,
        level=request.compression_level(target_codec),
        timestamp_type=TimestampType.CREATE_TIME if append_time is None else TimestampType.LOG_APPEND_TIME,
    )
    if target_codec != Compression.NONE and len(built) > request.config.max_message_bytes:
        raise _too_large(len(built), request)
    if request.target_magic == 0:
        max_timestamp = NO_TIMESTAMP
    return _result(memoryview(bytearray(built)), len(renumbered), max_timestamp, request)


def _too_large(size: int, request: AppendRequest) -> KafkaError:
    message = f"The converted records have {size} bytes, more than the maximum of {request.config.max_message_bytes}"
    return KafkaError(ErrorCode.MESSAGE_TOO_LARGE, message)


def _assign_in_place(records: memoryview, codec: int, request: AppendRequest) -> ValidationResult | None:
    """Change only what is outside compression; None, and nothing changed, if inner offsets are not 0, 1, 2, …"""
    count, max_timestamp, consecutive = 0, NO_TIMESTAMP, True
    for record in _checked_records(records, request):
        consecutive = consecutive and (codec == Compression.NONE or record.offset == count)
        max_timestamp = max(max_timestamp, record.timestamp)
        count += 1
    if not consecutive:
        return None
    append_time = _append_time(request)
    end, offset = 0, request.base_offset
    for batch in iter_batches(records):
        assert isinstance(batch, LegacyBatch)
        # A wrapper takes the offset of the last message inside, and their largest timestamp.
        offset_of_batch = offset if codec == Compression.NONE else request.base_offset + count - 1
        MESSAGE_V1.patch(batch.view, offset=offset_of_batch)
        if batch.magic == 1:
            _stamp(batch, batch.max_timestamp if codec == Compression.NONE else max_timestamp, append_time)
        offset, end = offset + 1, batch.position + batch.size
    if append_time is not None and request.target_magic == 1:
        max_timestamp = append_time
    return _result(records[:end], count, max_timestamp, request)


def _stamp(batch: LegacyBatch, timestamp: int, append_time: int | None) -> None:
    attributes = batch.attributes
    if append_time is not None:
        attributes, timestamp = attributes | TIMESTAMP_TYPE_MASK, append_time
    if (attributes, timestamp) != (batch.attributes, batch.max_timestamp):
        MESSAGE_V1.patch(batch.view, attributes=attributes, timestamp=timestamp)
        write_message_crc(batch.view)


def _result(records: memoryview, count: int, max_timestamp: int, request: AppendRequest) -> ValidationResult:
    if count == 0:
        return nothing_appended()
    append_time = _append_time(request)
    return ValidationResult(
        records,
        request.base_offset,
        request.base_offset + count - 1,
        count,
        max_timestamp,
        NO_TIMESTAMP if append_time is None else append_time,
    )
