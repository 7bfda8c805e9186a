"""Checks what is about to be appended, record by record, and gives it offsets.

Does the work of Kafka's LogValidator and of the checks in front of it. The batches that most producers send are done
with in one step, `take_batch`. Whatever that leaves alone is either wrong or has to be changed, and lies behind
`_validate`: LogAppendTime, another codec, a wrong largest timestamp, replication, old formats.
"""

from __future__ import annotations

from ..protocol.batch_header import (
    ATTRIBUTES_POSITION,
    BATCH_HEADER,
    HEADER,
    HEADER_SIZE,
    BatchHeader,
    write_crc,
)
from ..protocol.compression import Compression, Room, compress, give_back, look_into, take_room
from ..protocol.errors import ErrorCode, KafkaError, ProtocolError
from ..protocol.record import CODEC_MASK, LOG_OVERHEAD, MAGIC_POSITION, NO_TIMESTAMP, TIMESTAMP_TYPE_MASK
from ..protocol.record_batch import Batch, RecordBatch, iter_batches
from ..protocol.record_codec import MIN_RECORD_SIZE
from ..protocol.record_scan import RecordRules, RecordScan, quick_scan, scan_records
from ..protocol.usual_batch import take_batch
from .legacy_validator import convert_from_v2, validate_legacy
from .log_config import LogConfig
from .validation_result import (
    MAX_RECORD_ERRORS,
    MOST_OLD_BYTES,
    MOST_PLAIN_BYTES,
    MOST_WRONG_RECORDS,
    AppendRequest,
    HeavyRecordsError,
    Origin,
    RecordErrors,
    RecordValidationError,
    ValidationResult,
    most_opened_at_once,
    nothing_appended,
    too_many_records,
)

__all__ = ["AppendRequest", "Origin", "RecordValidationError", "ValidationResult", "validate_and_assign"]

_CODEC_POSITION = ATTRIBUTES_POSITION + 1
_new_tuple = tuple.__new__  # the generated constructor of a NamedTuple takes twice as long


def validate_and_assign(
    records: memoryview,
    *,
    base_offset: int,
    now_ms: int,
    config: LogConfig,
    leader_epoch: int,
    origin: Origin = "client",
    require_single_v2_batch: bool = False,
    allow_zstd: bool = True,
    target_magic: int = 2,
    at_once: bool = False,
) -> ValidationResult:
    """Check `records` and give them offsets from `base_offset` on; the buffer is patched in place where possible.

    `origin` "client" is the strictest; "coordinator" may write control batches; "replication" keeps the offsets and
    epochs that the leader gave, and `base_offset` is then the log's end. `require_single_v2_batch` is the rule of
    Produce 3 and newer, `allow_zstd` that of Produce 7 and newer. `target_magic` is the format of the log.

    With `at_once` it raises HeavyRecordsError if it takes long, without having changed the buffer.
    Raises KafkaError, with the offending records as RecordValidationError; the log is untouched then, the buffer may
    be patched.
    """
    if config.stores_as_sent and target_magic == 2 and origin != "replication":
        rules = (
            now_ms - config.message_timestamp_before_max_ms,
            now_ms + config.message_timestamp_after_max_ms,
            config.compact and origin == "client",
            origin == "coordinator",
        )
        place = base_offset, leader_epoch
        if len(records) > HEADER_SIZE and (codec := records[_CODEC_POSITION] & CODEC_MASK):
            is_usual = allow_zstd and config.compression_type == "producer" and records[MAGIC_POSITION] == 2
            taken = _take_packed_batch(records, codec, place, config, rules) if is_usual else None
        else:
            taken = take_batch(records, None, place, config.max_message_bytes, rules)
        if taken is not None:
            count, max_timestamp, producer_id = taken
            producers = (RecordBatch(records),) if producer_id >= 0 else ()
            fields = records, base_offset, base_offset + count - 1, count, max_timestamp, NO_TIMESTAMP, producers, ()
            return _new_tuple(ValidationResult, fields)
    request = AppendRequest(
        base_offset, now_ms, config, leader_epoch, origin, require_single_v2_batch, allow_zstd, target_magic, at_once
    )
    try:
        return _validate(records, request)
    except ProtocolError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    except OSError as error:
        # A codec's library waits for a file descriptor; producers send again.
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error


def _take_packed_batch(
    records: memoryview, codec: int, place: tuple[int, int], config: LogConfig, rules: RecordRules
) -> tuple[int, int, int] | None:
    """`take_batch` of what may be compressed and is opened at once; None for all that has something wrong with it."""
    room, most = take_room(), config.max_message_bytes
    try:
        plain = look_into(codec, records[HEADER_SIZE:], room, max_size=most_opened_at_once(most))
        return take_batch(records, plain, place, most, rules)
    except (KafkaError, OSError):
        return None
    finally:
        give_back(room)


def _crc_error() -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, "Record is corrupt (stored crc does not match)")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)


def _validate(records: memoryview, request: AppendRequest) -> ValidationResult:
    if request.origin == "replication":
        return _validate_replicated(records, request)
    first = next(iter_batches(records), None)
    if first is None:
        if request.require_single_v2_batch:
            raise _invalid("Produce requests of version 3 and newer must have exactly one record batch per partition")
        return nothing_appended()
    if not isinstance(first, RecordBatch):
        if request.require_single_v2_batch:
            raise _invalid("Produce requests of version 3 and newer must only contain record batches of magic 2")
        return validate_legacy(records, request)
    if first.size < len(records) and next(iter_batches(records, first.size), None) is not None:
        raise _invalid("Only one record batch is allowed per partition")
    if first.view.readonly:
        first = RecordBatch(memoryview(bytearray(first.view)))
    return _validate_v2(first, request)


def _validate_v2(batch: RecordBatch, request: AppendRequest) -> ValidationResult:
    header = batch.header
    _check_size(batch.size, request.config)
    if not batch.is_valid:
        raise _crc_error()
    if header.codec > Compression.ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown codec {header.codec}")
    if header.codec == Compression.ZSTD and not request.allow_zstd:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7")
    _check_header(header, request)
    room = take_room()
    try:
        plain = _look_into(batch, room, request)
        return _validate_records(batch, plain, request)
    except ProtocolError as error:
        # The CRC was right, so no retry can mend them.
        raise _invalid(str(error)) from error
    except KafkaError as error:
        if error.code is ErrorCode.CORRUPT_MESSAGE:
            raise _invalid(error.message) from error
        raise
    finally:
        give_back(room)


def _look_into(batch: RecordBatch, room: Room, request: AppendRequest) -> bytes | memoryview:
    """The plain records. Raises as `RecordBatch.look_into_records`, HeavyRecordsError."""
    most = request.max_decompressed_size(batch.size)
    if not request.at_once or most <= MOST_PLAIN_BYTES:
        return batch.look_into_records(room, max_size=most)
    try:
        return batch.look_into_records(room, max_size=MOST_PLAIN_BYTES)
    except KafkaError as error:
        if error.code is ErrorCode.MESSAGE_TOO_LARGE:
            raise HeavyRecordsError from None
        raise


def _validate_records(batch: RecordBatch, plain: bytes | memoryview, request: AppendRequest) -> ValidationResult:
    header = batch.header
    if header.record_count > len(plain) // MIN_RECORD_SIZE:
        raise _invalid(f"{header.record_count} records do not fit into {len(plain)} bytes")
    if header.record_count > request.max_record_count:
        raise too_many_records(request)
    if header.record_count > MOST_WRONG_RECORDS and request.at_once:
        found = quick_scan(plain, header.record_count, header.base_timestamp, request.rules, MAX_RECORD_ERRORS)
        if found is None:
            raise HeavyRecordsError
        scan = found
    else:
        scan = scan_records(plain, header.record_count, header.base_timestamp, request.rules, MAX_RECORD_ERRORS)
    _check_records(header, scan, request)
    if request.target_magic < 2:
        request.check_weight(len(plain), MOST_OLD_BYTES)
        return convert_from_v2(batch, request)
    target_codec = request.target_codec(header.codec)
    # Markers stay as they are: readers of the log look into them, and one record does not gain by compression.
    if target_codec != header.codec and not header.is_control:
        request.check_recompression(len(plain), target_codec)
        batch = _recompressed(batch, plain, target_codec, request)
    return _assign(batch, scan, request)


def _check_size(size: int, config: LogConfig) -> None:
    if size > config.max_message_bytes:
        message = f"The record batch size of {size} bytes exceeds the maximum of {config.max_message_bytes}"
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, message)


def _check_header(header: BatchHeader, request: AppendRequest) -> None:
    if header.base_offset != 0:
        raise _invalid(f"The base offset of a produced record batch should be 0, but it is {header.base_offset}")
    if header.last_offset_delta < 0:
        raise _invalid(f"Batch has an invalid offset range: [0, {header.last_offset_delta}]")
    if header.record_count <= 0:
        raise _invalid(f"Invalid reported count for record batch: {header.record_count}")
    if header.record_count != header.last_offset_delta + 1:
        message = f"Inconsistent batch offset range [0, {header.last_offset_delta}] and count {header.record_count}"
        raise _invalid(message)
    if header.is_control:
        if request.origin == "client":
            raise _invalid("Clients are not allowed to write control records")
    elif header.has_producer_id and header.base_sequence < 0 and request.origin == "client":
        raise _invalid(f"Invalid sequence number {header.base_sequence} in batch of producer id {header.producer_id}")
    if header.is_transactional and not header.has_producer_id:
        raise _invalid("Transactional record batch without a producer id")


def _check_records(header: BatchHeader, scan: RecordScan, request: AppendRequest) -> None:
    """Raises RecordValidationError for a type of timestamps that clients may not choose, and for records that break
    the topic's rules.
    """
    if request.origin != "client":
        return
    errors = RecordErrors(request)
    if header.attributes & TIMESTAMP_TYPE_MASK:
        errors.refuse_log_append_time()
        errors.raise_if_any()
    for index, timestamp_delta in scan.faults:
        if timestamp_delta is None:
            errors.add_keyless(index)
        else:
            errors.add_untimely(index, header.base_timestamp + timestamp_delta)
    errors.raise_if_any()


def _recompressed(batch: RecordBatch, plain: bytes | memoryview, codec: int, request: AppendRequest) -> RecordBatch:
    """The same batch with its records under another codec; offsets, deltas and timestamps need no change."""
    payload = plain
    if codec != Compression.NONE:
        payload = compress(codec, plain, level=request.compression_level(codec))
    _check_size(HEADER_SIZE + len(payload), request.config)
    header = batch.header
    fields = header._replace(
        length=HEADER_SIZE - LOG_OVERHEAD + len(payload), attributes=header.attributes & ~CODEC_MASK | codec
    )
    view = memoryview(bytearray(HEADER_SIZE + len(payload)))
    HEADER.pack_into(view, 0, *fields)
    view[HEADER_SIZE:] = payload
    write_crc(view)
    return RecordBatch(view)


def _assign(batch: RecordBatch, scan: RecordScan, request: AppendRequest) -> ValidationResult:
    """Patch offsets, leader epoch and, if they are not right already, the timestamp fields into the batch."""
    header, view = batch.header, batch.view
    append_time = NO_TIMESTAMP
    attributes, max_timestamp = header.attributes, scan.max_timestamp
    if request.config.message_timestamp_type == "LogAppendTime":
        append_time = max_timestamp = request.now_ms
        attributes |= TIMESTAMP_TYPE_MASK
    if (attributes, max_timestamp) != (header.attributes, header.max_timestamp):
        BATCH_HEADER.patch(view, attributes=attributes, max_timestamp=max_timestamp)
        write_crc(view)
    BATCH_HEADER.patch(view, base_offset=request.base_offset, partition_leader_epoch=request.leader_epoch)
    return ValidationResult(
        view,
        request.base_offset,
        request.base_offset + header.last_offset_delta,
        header.record_count,
        max_timestamp,
        append_time,
        producer_batches=(RecordBatch(view),) if header.has_producer_id else (),
    )


def _validate_replicated(records: memoryview, request: AppendRequest) -> ValidationResult:
    """What came from the leader was checked there: here only that it arrived whole and continues this log.

    From a batch on whose leader epoch is newer than the one that is followed, nothing is taken: that is for whoever
    follows the next leader. Raises KafkaError CORRUPT_MESSAGE, UNKNOWN_SERVER_ERROR for offsets that do
    not follow each other.
    """
    expected, count, end = request.base_offset, 0, 0
    first_offset, max_timestamp = -1, NO_TIMESTAMP
    producer_batches: list[RecordBatch] = []
    epoch_starts: list[tuple[int, int]] = []
    for batch in iter_batches(records):
        if not batch.is_valid:
            raise _crc_error()
        if isinstance(batch, RecordBatch) and batch.partition_leader_epoch > request.leader_epoch >= 0:
            break
        base_offset = batch.base_offset
        if base_offset < expected or batch.last_offset < base_offset:
            message = f"Offsets {base_offset} to {batch.last_offset} do not follow {expected - 1} in order"
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message)
        if first_offset < 0:
            first_offset = base_offset
        max_timestamp = max(max_timestamp, batch.max_timestamp)
        _note_v2(batch, producer_batches, epoch_starts)
        expected, end = batch.last_offset + 1, batch.position + batch.size
        count += batch.last_offset - base_offset + 1
    if first_offset < 0:
        return nothing_appended()
    return ValidationResult(
        records[:end],
        first_offset,
        expected - 1,
        count,
        max_timestamp,
        producer_batches=producer_batches,
        epoch_starts=epoch_starts,
    )


def _note_v2(batch: Batch, producer_batches: list[RecordBatch], epoch_starts: list[tuple[int, int]]) -> None:
    if not isinstance(batch, RecordBatch):
        return
    epoch = batch.partition_leader_epoch
    if epoch >= 0 and (not epoch_starts or epoch_starts[-1][0] != epoch):
        epoch_starts.append((epoch, batch.base_offset))
    if batch.header.has_producer_id:
        producer_batches.append(batch)
