"""Kafka's LogValidator: checks record batches that are about to be appended and assigns their offsets.

Also does the checks that Kafka makes before (ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords).
A batch as most producers send it is checked and stamped in one step, `validate_and_stamp`; every other batch is either
invalid or has to be changed and takes the path of `_validate`: LogAppendTime, another codec, a wrong largest timestamp,
records of a leader, message formats v0 and v1.

Clients from 0.8 to 0.10 produce formats v0 and v1. The log format is v2, so their messages usually become one record
batch; a log of format v0 or v1 keeps them. Then a v1 wrapper whose inner offsets are 0, 1, 2, … needs only a new header
(KIP-31), and every other wrapper has to be decompressed and built again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from ..protocol.batch_header import (
    ATTRIBUTES_POSITION,
    BATCH_HEADER,
    HEADER,
    HEADER_SIZE,
    BatchHeader,
    write_crc,
)
from ..protocol.compression import (
    CODEC_BY_CONFIG_NAME,
    Compression,
    LongDecompressionError,
    Room,
    compress,
    give_back,
    look_into,
    take_room,
)
from ..protocol.errors import ErrorCode, KafkaError, ProtocolError
from ..protocol.legacy_records import (
    MESSAGE_V1,
    V1_OVERHEAD,
    LegacyBatch,
    build_message_set,
    legacy_record_size,
    write_message_crc,
)
from ..protocol.record import (
    CODEC_MASK,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    MAX_EXPANSION,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    Record,
    TimestampType,
)
from ..protocol.record_batch import Batch, RecordBatch, RecordBatchBuilder, entry_size, iter_batches
from ..protocol.record_codec import MIN_RECORD_SIZE
from ..protocol.record_scan import (
    HIGHEST,
    LOWEST,
    RecordRules,
    RecordScan,
    check_record_sizes,
    oversized_record,
    quick_scan,
    scan_records,
)
from ..protocol.replicated_batches import check_replicated_batches
from ..protocol.usual_batch import validate_and_stamp
from .log_config import LogConfig
from .producer_state import ProducerAppends

NO_OFFSET = -1
_NO_OFFSET_ABOVE = 2**63 - 1
"""An offset that no record can have, because the next offset would not fit into 63 bits."""
MAX_SYNC_DECOMPRESSED_BYTES = 4 << 20
"""The largest compressed batch, decompressed, that is checked on the event loop: some milliseconds. Few honest batches
are larger."""
MAX_SYNC_RECOMPRESSED_BYTES = 16 << 10
"""The most that is compressed on the event loop: one millisecond at levels up to `FAST_LEVEL`; higher levels take much
longer."""
FAST_LEVEL = 6
MAX_SYNC_LEGACY_BYTES = 16 << 10
"""The most of formats v0 and v1 that is checked on the event loop: about one millisecond, as Python decodes each
message."""
MAX_SYNC_FAULTY_RECORDS = 2000
"""The most records of a faulty batch that are checked on the event loop: Python decodes each of them."""
_MAX_DECOMPRESSED = 64 * 1024 * 1024
_SMALL_BATCH = 1024 * 1024
"""A smaller batch may expand as far as one of this size: no request of that size costs much more than 30 MB."""
_MIN_RECORD_LIMIT = 100_000
MAX_RECORD_ERRORS = 1000
"""A refused batch may hold millions of records; the response names the first of them."""


def _max_decompressed_size(max_message_bytes: int, packed_size: int) -> int:
    by_limit = max(max_message_bytes, min(_MAX_DECOMPRESSED, MAX_EXPANSION * max_message_bytes))
    return min(by_limit, MAX_EXPANSION * max(_SMALL_BATCH, packed_size))


def _max_record_count(max_message_bytes: int) -> int:
    return max(max_message_bytes, _MIN_RECORD_LIMIT)


@lru_cache(64)
def max_sync_decompressed_size(max_message_bytes: int) -> int:
    """Return the decompressed size up to which a compressed batch has no other possible faults than a plain one.

    Below it the records cannot be too many, expand too far or take long.
    """
    too_many = MIN_RECORD_SIZE * _max_record_count(max_message_bytes)
    return min(MAX_SYNC_DECOMPRESSED_BYTES, _max_decompressed_size(max_message_bytes, 0), too_many)


class AppendOrigin(Enum):
    """Kafka's AppendOrigin: the source of an append, which decides how strictly it is checked."""

    CLIENT = auto()
    """The strictest: every record is checked, and control batches are refused."""
    COORDINATOR = auto()
    """A coordinator of this broker, which may write control batches."""
    REPLICATION = auto()
    """The partition's leader: offsets and epochs are kept as they are."""


# Module names, because Python 3.11 takes ten times as long to find a member of an enum class.
_CLIENT, _COORDINATOR, _REPLICATION = AppendOrigin.CLIENT, AppendOrigin.COORDINATOR, AppendOrigin.REPLICATION


@dataclass(frozen=True, slots=True)
class AppendRules:
    """The rules for the records of an append, the same for all its partitions."""

    origin: AppendOrigin = AppendOrigin.CLIENT
    requires_single_v2_batch: bool = False
    """Whether the records must be exactly one batch of format v2."""
    allows_zstd: bool = True
    raises_if_heavy: bool = False
    """Whether to raise HeavyRecordsError instead of doing more than a little work on the event loop."""
    transaction_version: int = 0
    """The version of the transaction that a marker ends: from 2 on each transaction has its own epoch (KIP-1228)."""
    has_joined_batches: bool = False
    """Whether the validated records are the batches of several requests (`JointAppend`)."""


CLIENT_RULES = AppendRules(requires_single_v2_batch=True)
COORDINATOR_RULES = AppendRules(AppendOrigin.COORDINATOR, requires_single_v2_batch=True)
EPOCH_PER_TRANSACTION = 2
"""The first transaction version in which the marker of a transaction has a newer epoch than its records."""
MARKER_RULES = replace(COORDINATOR_RULES, transaction_version=EPOCH_PER_TRANSACTION)
REPLICATION_RULES = AppendRules(AppendOrigin.REPLICATION)


class AppendContext(NamedTuple):
    """Everything that the validation of one append depends on besides the records."""

    rules: AppendRules
    base_offset: int
    now_ms: int
    config: LogConfig
    leader_epoch: int
    target_magic: int = 2

    @property
    def record_rules(self) -> RecordRules:
        """The rules for single records; with LogAppendTime a timestamp only has to have 64 bits."""
        config, origin = self.config, self.rules.origin
        by_origin = config.compact and origin is _CLIENT, origin is _COORDINATOR
        if config.message_timestamp_type != "CreateTime":
            return LOWEST, HIGHEST, *by_origin
        earliest = self.now_ms - config.message_timestamp_before_max_ms
        return earliest, self.now_ms + config.message_timestamp_after_max_ms, *by_origin

    def max_decompressed_size(self, packed_size: int) -> int:
        """Return the size up to which the records of a batch of `packed_size` may expand.

        A bound on memory, of which snappy needs twice as much. Few honest batches expand so far: librdkafka's are below
        `message.max.bytes` before compression, and Java's producer splits a batch that is too large and sends it again.
        """
        return _max_decompressed_size(self.config.max_message_bytes, packed_size)

    @property
    def max_record_count(self) -> int:
        """The limit for the records of a compressed batch, which bounds the time for their validation."""
        return _max_record_count(self.config.max_message_bytes)

    def target_codec(self, source_codec: int) -> int:
        """Return the codec that the topic's `compression.type` requires."""
        name = self.config.compression_type
        return source_codec if name == "producer" else CODEC_BY_CONFIG_NAME[name]

    def compression_level(self, codec: int) -> int | None:
        """Return the topic's level for this codec; None for a codec without levels."""
        level: int | None = getattr(self.config, f"compression_{CODEC_NAMES[codec]}_level", None)
        return level

    def check_weight(self, size: int, limit: int) -> None:
        """Raise HeavyRecordsError for more than `limit` bytes on the event loop."""
        if self.rules.raises_if_heavy and size > limit:
            raise HeavyRecordsError

    def check_recompression(self, plain_size: int, codec: int) -> None:
        """Raise HeavyRecordsError if compressing `plain_size` bytes on the event loop takes long."""
        level = self.compression_level(codec) if codec else 0
        self.check_weight(plain_size, MAX_SYNC_RECOMPRESSED_BYTES if level is None or level <= FAST_LEVEL else 0)


class HeavyRecordsError(Exception):
    """The validation of these records would take milliseconds or seconds, and belongs on a lane."""


CODEC_NAMES = {int(codec): name for name, codec in CODEC_BY_CONFIG_NAME.items()}


class ValidationResult(NamedTuple):
    """Records that are ready to be written, and their properties. Without records the offsets are -1."""

    records: bytes | bytearray | memoryview
    """The caller's buffer, patched, where that is possible."""
    first_offset: int
    last_offset: int
    record_count: int
    max_timestamp: int
    log_append_time_ms: int = NO_TIMESTAMP
    producer_batches: Sequence[RecordBatch] = ()
    """The batches that carry a producer id, with their final offsets."""
    epoch_starts: Sequence[tuple[int, int]] = ()
    """(leader epoch, first offset) of replicated batches at each change of the epoch; empty for a leader's own
    append."""
    producer_appends: ProducerAppends | None = None
    """The batches of `JointAppend` that carry a producer id, which are checked already; None without any."""


def nothing_appended() -> ValidationResult:
    """Return the result for an append without a record."""
    return ValidationResult(b"", NO_OFFSET, NO_OFFSET, 0, NO_TIMESTAMP)


class RecordValidationError(KafkaError):
    """A batch refused because of some of its records; `record_errors` lists (index in the batch, why), at most 1000."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


def _too_many_records(context: AppendContext) -> KafkaError:
    """Return the error for a batch with more records than `max_record_count`."""
    message = f"The record batch has more than {context.max_record_count} records"
    return KafkaError(ErrorCode.MESSAGE_TOO_LARGE, message)


class RecordErrors:
    """The errors of the records of one batch, by Kafka's rules for keys and timestamps."""

    __slots__ = ("_code", "_errors", "_rules")

    def __init__(self, context: AppendContext) -> None:
        self._rules = context.record_rules
        self._code = ErrorCode.INVALID_RECORD
        self._errors: list[tuple[int, str]] = []

    def check(self, record: Record, index: int) -> None:
        """Check a record by the rules; a missing key is its only error."""
        earliest, latest, needs_keys, _ = self._rules
        if needs_keys and record.key is None:
            self.add_keyless(index)
        elif not earliest <= record.timestamp <= latest and record.timestamp != NO_TIMESTAMP:
            self.add_untimely(index, record.timestamp)

    def add_keyless(self, index: int) -> None:
        self._add(index, "Compacted topic cannot accept message without key")

    def add_untimely(self, index: int, timestamp: int) -> None:
        """Add a timestamp (ms) that `message.timestamp.before.max.ms` or `message.timestamp.after.max.ms` refuses."""
        self._code = ErrorCode.INVALID_TIMESTAMP
        limits = f"[{self._rules[0]}, {self._rules[1]}]"
        self._add(index, f"Timestamp {timestamp} is out of range. The timestamp should be within {limits}")

    def refuse_log_append_time(self) -> None:
        """Add the error of a client that sets LogAppendTime, which only a broker may set."""
        self._code = ErrorCode.INVALID_TIMESTAMP
        self._add(0, "Producer should not set timestamp type to LogAppendTime")

    def _add(self, index: int, message: str) -> None:
        if len(self._errors) < MAX_RECORD_ERRORS:
            self._errors.append((index, message))

    def raise_if_any(self) -> None:
        """Raise RecordValidationError with all errors, if there are any; a wrong timestamp decides its code."""
        if self._errors:
            message = "One or more records have been rejected due to invalid timestamp"
            if self._code is not ErrorCode.INVALID_TIMESTAMP:
                message = f"One or more records have been rejected: {self._errors[0][1]}"
            raise RecordValidationError(self._code, message, self._errors)


# -- format v2 -----------------------------------------------------------------------------------------------------

_CODEC_POSITION = ATTRIBUTES_POSITION + 1
_new_tuple = tuple.__new__  # the generated constructor of a NamedTuple takes twice as long


def validate_messages_and_assign_offsets(
    records: memoryview,
    rules: AppendRules,
    base_offset: int,
    now_ms: int,
    config: LogConfig,
    leader_epoch: int,
    target_magic: int = 2,
) -> ValidationResult:
    """Check `records` and give them offsets from `base_offset` on; the buffer is patched in place where possible.

    For replicated records `base_offset` is the log end offset. `target_magic` is the format of the log.
    Raises HeavyRecordsError as the rules say, without having changed the buffer; KafkaError, with the offending records
    as RecordValidationError, after which the buffer may be patched.
    """
    origin = rules.origin
    if config.stores_as_sent and target_magic == 2 and origin is not _REPLICATION:
        record_rules = (
            now_ms - config.message_timestamp_before_max_ms,
            now_ms + config.message_timestamp_after_max_ms,
            config.compact and origin is _CLIENT,
            origin is _COORDINATOR,
        )
        place = base_offset, leader_epoch
        if len(records) > HEADER_SIZE and (codec := records[_CODEC_POSITION] & CODEC_MASK):
            is_usual = rules.allows_zstd and config.compression_type == "producer" and records[MAGIC_POSITION] == 2
            taken = _take_packed_batch(records, codec, place, config, record_rules) if is_usual else None
        else:
            taken = validate_and_stamp(records, None, place, config.max_message_bytes, record_rules)
        if taken is not None:
            count, max_timestamp, producer_id = taken
            producers = (RecordBatch(records),) if producer_id >= 0 else ()
            fields = (
                records,
                base_offset,
                base_offset + count - 1,
                count,
                max_timestamp,
                NO_TIMESTAMP,
                producers,
                (),
                None,
            )
            return _new_tuple(ValidationResult, fields)
    context = AppendContext(rules, base_offset, now_ms, config, leader_epoch, target_magic)
    try:
        return _validate(records, context)
    except ProtocolError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    except OSError as error:
        # A codec's library lacks a file descriptor, which may be free when the producer sends the records again.
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error


def _take_packed_batch(
    records: memoryview, codec: int, place: tuple[int, int], config: LogConfig, rules: RecordRules
) -> tuple[int, int, int] | None:
    """Decompress a batch and call `validate_and_stamp`; return None for any fault and for a batch that takes long."""
    room, most = take_room(), config.max_message_bytes
    # Records that are together smaller than the limit of one record need no check of each.
    plain_size = min(max_sync_decompressed_size(most), config.max_decompressed_message_bytes)
    try:
        plain = look_into(codec, records[HEADER_SIZE:], room, max_size=plain_size, at_once=True)
        return validate_and_stamp(records, plain, place, most, rules)
    except (KafkaError, OSError, LongDecompressionError):
        return None
    finally:
        give_back(room)


def _crc_error() -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, "Record is corrupt (stored crc does not match)")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)


def _validate(records: memoryview, context: AppendContext) -> ValidationResult:
    if context.rules.origin is _REPLICATION:
        return _validate_replicated(records, context)
    first = next(iter_batches(records), None)
    if first is None:
        if context.rules.requires_single_v2_batch:
            raise _invalid("Produce requests of version 3 and newer must have exactly one record batch per partition")
        return nothing_appended()
    if not isinstance(first, RecordBatch):
        if context.rules.requires_single_v2_batch:
            raise _invalid("Produce requests of version 3 and newer must only contain record batches of magic 2")
        return _validate_legacy(records, context)
    if first.size < len(records) and next(iter_batches(records, first.size), None) is not None:
        raise _invalid("Only one record batch is allowed per partition")
    if first.view.readonly:
        first = RecordBatch(memoryview(bytearray(first.view)))
    return _validate_v2(first, context)


def _validate_v2(batch: RecordBatch, context: AppendContext) -> ValidationResult:
    header = batch.header
    _check_size(batch.size, context.config)
    if not batch.is_valid:
        raise _crc_error()
    if header.codec > Compression.ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown codec {header.codec}")
    if header.codec == Compression.ZSTD and not context.rules.allows_zstd:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd requires Produce version 7")
    _check_header(header, context)
    room = take_room()
    try:
        plain = _decompress(batch, room, context)
        return _validate_records(batch, plain, context)
    except ProtocolError as error:
        # The CRC was right, so no retry can mend them.
        raise _invalid(str(error)) from error
    except KafkaError as error:
        if error.code is ErrorCode.CORRUPT_MESSAGE:
            raise _invalid(error.message) from error
        raise
    finally:
        give_back(room)


def _decompress(batch: RecordBatch, room: Room, context: AppendContext) -> bytes | memoryview:
    """Return the plain records. Raises as `RecordBatch.look_into_records`, HeavyRecordsError."""
    most = context.max_decompressed_size(batch.size)
    if not context.rules.raises_if_heavy:
        return batch.look_into_records(room, max_size=most)
    try:
        return batch.look_into_records(room, max_size=min(most, MAX_SYNC_DECOMPRESSED_BYTES), at_once=True)
    except LongDecompressionError:
        raise HeavyRecordsError from None
    except KafkaError as error:
        if error.code is ErrorCode.MESSAGE_TOO_LARGE and most > MAX_SYNC_DECOMPRESSED_BYTES:
            raise HeavyRecordsError from None
        raise


def _validate_records(batch: RecordBatch, plain: bytes | memoryview, context: AppendContext) -> ValidationResult:
    header = batch.header
    if header.record_count > len(plain) // MIN_RECORD_SIZE:
        raise _invalid(f"{header.record_count} records do not fit into {len(plain)} bytes")
    if header.record_count > context.max_record_count:
        raise _too_many_records(context)
    most = context.config.max_decompressed_message_bytes
    if header.codec and len(plain) > most:
        context.check_weight(header.record_count, MAX_SYNC_FAULTY_RECORDS)
        check_record_sizes(plain, most)
    if header.record_count > MAX_SYNC_FAULTY_RECORDS and context.rules.raises_if_heavy:
        found = quick_scan(plain, header.record_count, header.base_timestamp, context.record_rules, MAX_RECORD_ERRORS)
        if found is None:
            raise HeavyRecordsError
        scan = found
    else:
        scan = scan_records(plain, header.record_count, header.base_timestamp, context.record_rules, MAX_RECORD_ERRORS)
    _check_records(header, scan, context)
    if context.target_magic < 2:
        context.check_weight(len(plain), MAX_SYNC_LEGACY_BYTES)
        return _convert_from_v2(batch, context)
    target_codec = context.target_codec(header.codec)
    # Markers keep their codec: readers of the log look into them, and one record does not gain by compression.
    if target_codec != header.codec and not header.is_control:
        context.check_recompression(len(plain), target_codec)
        batch = _recompressed(batch, plain, target_codec, context)
    return _assign(batch, scan, context)


def _check_size(size: int, config: LogConfig) -> None:
    if size > config.max_message_bytes:
        message = f"The record batch size of {size} bytes exceeds the maximum of {config.max_message_bytes}"
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, message)


def _check_header(header: BatchHeader, context: AppendContext) -> None:
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
        if context.rules.origin is _CLIENT:
            raise _invalid("Clients are not allowed to write control records")
    elif header.has_producer_id and header.base_sequence < 0 and context.rules.origin is _CLIENT:
        raise _invalid(f"Invalid sequence number {header.base_sequence} in batch of producer id {header.producer_id}")
    if header.is_transactional and not header.has_producer_id:
        raise _invalid("Transactional record batch without a producer id")


def _check_records(header: BatchHeader, scan: RecordScan, context: AppendContext) -> None:
    """Raise RecordValidationError for a type of timestamps that clients may not choose, and for records that break
    the topic's rules.
    """
    if context.rules.origin is not _CLIENT:
        return
    errors = RecordErrors(context)
    if header.attributes & TIMESTAMP_TYPE_MASK:
        errors.refuse_log_append_time()
        errors.raise_if_any()
    for index, timestamp_delta in scan.faults:
        if timestamp_delta is None:
            errors.add_keyless(index)
        else:
            errors.add_untimely(index, header.base_timestamp + timestamp_delta)
    errors.raise_if_any()


def _recompressed(batch: RecordBatch, plain: bytes | memoryview, codec: int, context: AppendContext) -> RecordBatch:
    """Return the same batch with its records under another codec; offsets, deltas and timestamps need no change."""
    payload = plain
    if codec != Compression.NONE:
        payload = compress(codec, plain, level=context.compression_level(codec))
    _check_size(HEADER_SIZE + len(payload), context.config)
    header = batch.header
    fields = header._replace(
        length=HEADER_SIZE - LOG_OVERHEAD + len(payload), attributes=header.attributes & ~CODEC_MASK | codec
    )
    view = memoryview(bytearray(HEADER_SIZE + len(payload)))
    HEADER.pack_into(view, 0, *fields)
    view[HEADER_SIZE:] = payload
    write_crc(view)
    return RecordBatch(view)


def _assign(batch: RecordBatch, scan: RecordScan, context: AppendContext) -> ValidationResult:
    """Patch offsets, leader epoch and, if they are not right already, the timestamp fields into the batch."""
    header, view = batch.header, batch.view
    append_time = NO_TIMESTAMP
    attributes, max_timestamp = header.attributes, scan.max_timestamp
    if context.config.message_timestamp_type == "LogAppendTime":
        append_time = max_timestamp = context.now_ms
        attributes |= TIMESTAMP_TYPE_MASK
    if (attributes, max_timestamp) != (header.attributes, header.max_timestamp):
        BATCH_HEADER.patch(view, attributes=attributes, max_timestamp=max_timestamp)
        write_crc(view)
    BATCH_HEADER.patch(view, base_offset=context.base_offset, partition_leader_epoch=context.leader_epoch)
    return ValidationResult(
        view,
        context.base_offset,
        context.base_offset + header.last_offset_delta,
        header.record_count,
        max_timestamp,
        append_time,
        producer_batches=(RecordBatch(view),) if header.has_producer_id else (),
    )


def _validate_replicated(records: memoryview, context: AppendContext) -> ValidationResult:
    """Check that records from the leader, which has validated them, are complete and continue this log.

    A batch whose leader epoch is newer than the followed epoch ends them: it is fetched again from the next leader.
    Raises KafkaError CORRUPT_MESSAGE, UNKNOWN_SERVER_ERROR for offsets that do not follow each other.
    """
    # It ends before the first batch of an older format, with a newer leader epoch, or that is invalid.
    usual = check_replicated_batches(records, context.base_offset, context.leader_epoch)
    end, first_offset, last_offset, count, max_timestamp, producer_positions, epoch_starts = usual
    expected = last_offset + 1 if end else context.base_offset
    producer_batches = [RecordBatch(records[at : at + entry_size(records, at)], at) for at in producer_positions]
    for batch in iter_batches(records, end):
        if not batch.is_valid:
            raise _crc_error()
        if isinstance(batch, RecordBatch) and batch.partition_leader_epoch > context.leader_epoch >= 0:
            break
        base_offset = batch.base_offset
        if not expected <= base_offset <= batch.last_offset < _NO_OFFSET_ABOVE:
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


# -- formats v0 and v1 ----------------------------------------------------------------------------------------------


def _validate_legacy(records: memoryview, context: AppendContext) -> ValidationResult:
    """Check v0 or v1 messages and give them offsets, in the format of the log. Errors as in the public function."""
    packed = records[MAGIC_POSITION + 1] & CODEC_MASK
    context.check_weight(len(records), 0 if packed else MAX_SYNC_LEGACY_BYTES)
    if records.readonly:
        records = memoryview(bytearray(records))
    magic, codec = _check_batches(records, context)
    target_codec = context.target_codec(codec)
    if magic == context.target_magic and codec == target_codec and (magic == 1 or codec == Compression.NONE):
        result = _assign_in_place(records, codec, context)
        if result is not None:
            return result
    checked = _checked_records(records, context)
    if context.target_magic == 2:
        return _rebuild_as_v2(checked, codec, len(records), context)
    return _rebuild_as_messages(checked, codec, len(records), context)


def _convert_from_v2(batch: RecordBatch, context: AppendContext) -> ValidationResult:
    """Turn a checked v2 batch into messages for a log of format v0 or v1; headers are lost."""
    if batch.is_transactional or batch.header.has_producer_id:
        message = f"Idempotent and transactional records cannot be used with magic version {context.target_magic}"
        raise KafkaError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, message)
    if context.target_codec(batch.codec) == Compression.ZSTD:
        message = f"zstd cannot be used with magic version {context.target_magic}"
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, message)
    return _rebuild_as_messages(
        batch.records(max_size=context.max_decompressed_size(batch.size)), batch.codec, batch.size, context
    )


def _check_batches(records: memoryview, context: AppendContext) -> tuple[int, int]:
    """Check the messages outside wrappers, and return their magic and codec."""
    magic = codec = -1
    for batch in iter_batches(records):
        if magic < 0:
            magic, codec = batch.magic, batch.codec
        elif batch.magic != magic:
            raise _invalid(f"Batch magic {batch.magic} is not the same as the first batch's magic {magic}")
        elif codec != Compression.NONE or batch.codec != Compression.NONE:
            raise _invalid("Compressed outer record has more than one batch")
        if batch.size > context.config.max_message_bytes:
            message = f"A message of {batch.size} bytes exceeds the maximum of {context.config.max_message_bytes}"
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, message)
        if not batch.is_valid:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "Message is corrupt (stored crc does not match)")
    if codec > Compression.LZ4:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {codec} in a message of magic {magic}")
    return magic, codec


def _checked_records(records: memoryview, context: AppendContext) -> Iterator[Record]:
    """Yield all records, each checked for key and timestamp; the first batch with a fault raises all its faults
    together.
    """
    most = context.config.max_decompressed_message_bytes
    for batch in iter_batches(records):
        errors = RecordErrors(context)
        if batch.timestamp_type == TimestampType.LOG_APPEND_TIME:
            errors.refuse_log_append_time()
            errors.raise_if_any()
        index = 0
        try:
            for record in batch.records(max_size=context.max_decompressed_size(batch.size)):
                if batch.codec and (size := legacy_record_size(record, batch.magic)) > most:
                    raise oversized_record(size, most)
                errors.check(record, index)
                index += 1
                if index > context.max_record_count:
                    raise _too_many_records(context)
                yield record
        except ProtocolError as error:
            raise _invalid(str(error)) from error
        if index == 0:
            raise _invalid("Compressed message without records inside")
        errors.raise_if_any()


def _append_time(context: AppendContext) -> int | None:
    return context.now_ms if context.config.message_timestamp_type == "LogAppendTime" else None


def _rebuild_as_v2(records: Iterator[Record], codec: int, packed_size: int, context: AppendContext) -> ValidationResult:
    target_codec, append_time = context.target_codec(codec), _append_time(context)
    limit = context.max_decompressed_size(packed_size)
    builder = RecordBatchBuilder(
        codec=target_codec,
        level=context.compression_level(target_codec),
        base_offset=context.base_offset,
        partition_leader_epoch=context.leader_epoch,
        log_append_time=append_time,
    )
    for record in records:
        timestamp = record.timestamp if append_time is None else append_time
        builder.append(record.key, record.value, (), timestamp)
        if builder.size > limit:
            raise _too_large(builder.size, context)
    built = builder.build()
    if len(built) > context.config.max_message_bytes:
        raise _too_large(len(built), context)
    return _result(memoryview(bytearray(built)), len(builder), builder.max_timestamp, context)


def _rebuild_as_messages(
    records: Iterator[Record], codec: int, packed_size: int, context: AppendContext
) -> ValidationResult:
    target_codec, append_time = context.target_codec(codec), _append_time(context)
    limit, size = context.max_decompressed_size(packed_size), 0
    renumbered: list[Record] = []
    max_timestamp = NO_TIMESTAMP
    for record in records:
        timestamp = record.timestamp if append_time is None else append_time
        max_timestamp = max(max_timestamp, timestamp)
        renumbered.append(Record(context.base_offset + len(renumbered), timestamp, record.key, record.value))
        size += V1_OVERHEAD + len(record.key or b"") + len(record.value or b"")
        if size > limit:
            raise _too_large(size, context)
    built = build_message_set(
        renumbered,
        magic=context.target_magic,
        codec=target_codec,
        level=context.compression_level(target_codec),
        timestamp_type=TimestampType.CREATE_TIME if append_time is None else TimestampType.LOG_APPEND_TIME,
    )
    if target_codec != Compression.NONE and len(built) > context.config.max_message_bytes:
        raise _too_large(len(built), context)
    if context.target_magic == 0:
        max_timestamp = NO_TIMESTAMP
    return _result(memoryview(bytearray(built)), len(renumbered), max_timestamp, context)


def _too_large(size: int, context: AppendContext) -> KafkaError:
    message = f"The converted records have {size} bytes, more than the maximum of {context.config.max_message_bytes}"
    return KafkaError(ErrorCode.MESSAGE_TOO_LARGE, message)


def _assign_in_place(records: memoryview, codec: int, context: AppendContext) -> ValidationResult | None:
    """Change only the headers outside compression; None, and nothing changed, if inner offsets are not 0, 1, 2, …"""
    count, max_timestamp, consecutive = 0, NO_TIMESTAMP, True
    for record in _checked_records(records, context):
        consecutive = consecutive and (codec == Compression.NONE or record.offset == count)
        max_timestamp = max(max_timestamp, record.timestamp)
        count += 1
    if not consecutive:
        return None
    append_time = _append_time(context)
    end, offset = 0, context.base_offset
    for batch in iter_batches(records):
        assert isinstance(batch, LegacyBatch)
        # A wrapper takes the offset of the last message inside, and their largest timestamp.
        offset_of_batch = offset if codec == Compression.NONE else context.base_offset + count - 1
        MESSAGE_V1.patch(batch.view, offset=offset_of_batch)
        if batch.magic == 1:
            _stamp(batch, batch.max_timestamp if codec == Compression.NONE else max_timestamp, append_time)
        offset, end = offset + 1, batch.position + batch.size
    if append_time is not None and context.target_magic == 1:
        max_timestamp = append_time
    return _result(records[:end], count, max_timestamp, context)


def _stamp(batch: LegacyBatch, timestamp: int, append_time: int | None) -> None:
    attributes = batch.attributes
    if append_time is not None:
        attributes, timestamp = attributes | TIMESTAMP_TYPE_MASK, append_time
    if (attributes, timestamp) != (batch.attributes, batch.max_timestamp):
        MESSAGE_V1.patch(batch.view, attributes=attributes, timestamp=timestamp)
        write_message_crc(batch.view)


def _result(records: memoryview, count: int, max_timestamp: int, context: AppendContext) -> ValidationResult:
    if count == 0:
        return nothing_appended()
    append_time = _append_time(context)
    return ValidationResult(
        records,
        context.base_offset,
        context.base_offset + count - 1,
        count,
        max_timestamp,
        NO_TIMESTAMP if append_time is None else append_time,
    )


# -- heavy records --------------------------------------------------------------------------------------------------

Validate: TypeAlias = Callable[[memoryview, AppendRules, int, int, LogConfig, int, int], ValidationResult]
"""`validate_messages_and_assign_offsets`, or the `LaneValidation` that has done its work."""


class LaneValidation:
    """The validation of heavy records as a job for a lane: any thread calls `run` once, then an append calls this."""

    def __init__(self, records: memoryview, context: AppendContext) -> None:
        self._records = records
        self._context = context
        self._result: ValidationResult | KafkaError = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "not validated")

    def run(self) -> None:
        """Check the records, however long it takes."""
        # A copy, because the buffer is patched: where the result cannot be used, the append needs the original bytes.
        records = memoryview(bytearray(self._records))
        context = self._context
        rules = replace(context.rules, raises_if_heavy=False)
        try:
            self._result = validate_messages_and_assign_offsets(records, *context._replace(rules=rules))
        except KafkaError as error:
            self._result = error.as_result()

    def __call__(
        self,
        records: memoryview,
        rules: AppendRules,
        base_offset: int,
        now_ms: int,
        config: LogConfig,
        leader_epoch: int,
        target_magic: int,
    ) -> ValidationResult:
        """Return or raise the result of `run` if the log has not changed since, else validate again."""
        validated = self._context
        if validated != (rules, base_offset, validated.now_ms, config, leader_epoch, target_magic):
            return validate_messages_and_assign_offsets(
                records, rules, base_offset, now_ms, config, leader_epoch, target_magic
            )
        if isinstance(self._result, KafkaError):
            raise self._result
        return self._result
