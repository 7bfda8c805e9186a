"""What the validation of an append is told, what it answers, and how it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

from ..protocol.compression import CODEC_BY_CONFIG_NAME
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.record import MAX_EXPANSION, NO_TIMESTAMP, Record
from ..protocol.record_batch import RecordBatch
from ..protocol.record_codec import MIN_RECORD_SIZE
from ..protocol.record_scan import HIGHEST, LOWEST, RecordRules
from .log_config import LogConfig

Origin: TypeAlias = Literal["client", "coordinator", "replication"]
NO_OFFSET = -1
MOST_PLAIN_BYTES = 4 << 20
"""How far a compressed batch is opened while others wait: some milliseconds. Honest ones are seldom larger."""
MOST_PACKED_BYTES = 16 << 10
"""How much is compressed anew while others wait: a millisecond at levels up to `FAST_LEVEL`; higher ones take much
longer.
"""
FAST_LEVEL = 6
MOST_OLD_BYTES = 16 << 10
"""How much of format v0 and v1 is checked while others wait: about a millisecond, as Python looks at each message."""
MOST_WRONG_RECORDS = 2000
"""How many records of a faulty batch are checked while others wait: Python looks at each."""
_MAX_DECOMPRESSED = 64 * 1024 * 1024
_SMALL_BATCH = 1024 * 1024
"""A smaller one may expand as far as this: no request of that size costs much more than thirty megabytes."""
_MIN_RECORD_LIMIT = 100_000
# A refused batch may hold millions of records; naming the first of them is enough for whoever has to find the fault.
MAX_RECORD_ERRORS = 1000


def _max_decompressed_size(max_message_bytes: int, packed_size: int) -> int:
    by_limit = max(max_message_bytes, min(_MAX_DECOMPRESSED, MAX_EXPANSION * max_message_bytes))
    return min(by_limit, MAX_EXPANSION * max(_SMALL_BATCH, packed_size))


def _max_record_count(max_message_bytes: int) -> int:
    return max(max_message_bytes, _MIN_RECORD_LIMIT)


@lru_cache(64)
def most_opened_at_once(max_message_bytes: int) -> int:
    """Up to this size, no more can be wrong with the records of a compressed batch than with any: neither that they are
    too many, nor that they expand too far or keep others waiting.
    """
    too_many = MIN_RECORD_SIZE * _max_record_count(max_message_bytes)
    return min(MOST_PLAIN_BYTES, _max_decompressed_size(max_message_bytes, 0), too_many)


class AppendRequest(NamedTuple):
    """Everything that validation goes by, beside the records themselves."""

    base_offset: int
    now_ms: int
    config: LogConfig
    leader_epoch: int
    origin: Origin
    require_single_v2_batch: bool
    allow_zstd: bool
    target_magic: int
    at_once: bool = False
    """Whether to raise HeavyRecordsError instead of doing more than a little work."""

    @property
    def rules(self) -> RecordRules:
        """What this topic asks of records; of timestamps that the broker replaces only that they have 64 bits."""
        config, origin = self.config, self.origin
        whose = config.compact and origin == "client", origin == "coordinator"
        if config.message_timestamp_type != "CreateTime":
            return LOWEST, HIGHEST, *whose
        earliest = self.now_ms - config.message_timestamp_before_max_ms
        return earliest, self.now_ms + config.message_timestamp_after_max_ms, *whose

    def max_decompressed_size(self, packed_size: int) -> int:
        """How far the records of a batch of this size may expand: a bound on memory, which snappy needs twice.

        Few honest batches expand so far: librdkafka's are below `message.max.bytes` before they are compressed, and
        Java's producer splits a batch that is too large and sends it again.
        """
        return _max_decompressed_size(self.config.max_message_bytes, packed_size)

    @property
    def max_record_count(self) -> int:
        """How many records one compressed batch may hold: a bound on the time that checking each of them takes."""
        return _max_record_count(self.config.max_message_bytes)

    def target_codec(self, source_codec: int) -> int:
        """The codec that the topic's `compression.type` asks for."""
        name = self.config.compression_type
        return source_codec if name == "producer" else CODEC_BY_CONFIG_NAME[name]

    def compression_level(self, codec: int) -> int | None:
        """The topic's level for this codec; None for a codec without levels."""
        level: int | None = getattr(self.config, f"compression_{CODEC_NAMES[codec]}_level", None)
        return level

    def check_weight(self, size: int, most: int) -> None:
        """Raises HeavyRecordsError for more than so many bytes, if somebody waits for this."""
        if self.at_once and size > most:
            raise HeavyRecordsError

    def check_recompression(self, plain_size: int, codec: int) -> None:
        """Raises HeavyRecordsError if compressing that much takes long, and somebody waits for it."""
        level = self.compression_level(codec) if codec else 0
        self.check_weight(plain_size, MOST_PACKED_BYTES if level is None or level <= FAST_LEVEL else 0)


class HeavyRecordsError(Exception):
    """Checking these records would take milliseconds or seconds, and belongs on a lane."""


CODEC_NAMES = {int(codec): name for name, codec in CODEC_BY_CONFIG_NAME.items()}


class ValidationResult(NamedTuple):
    """Records ready to be written, and what the log wants to know about them. Without records the offsets are -1."""

    records: bytes | bytearray | memoryview
    """The caller's buffer, patched, wherever that is possible."""
    first_offset: int
    last_offset: int
    record_count: int
    max_timestamp: int
    log_append_time_ms: int = NO_TIMESTAMP
    producer_batches: Sequence[RecordBatch] = ()
    """The batches that carry a producer id, with their final offsets."""
    epoch_starts: Sequence[tuple[int, int]] = ()
    """(leader epoch, first offset) of replicated batches wherever the epoch changes; a leader knows its own."""


def nothing_appended() -> ValidationResult:
    """The result for records without a record in them."""
    return ValidationResult(b"", NO_OFFSET, NO_OFFSET, 0, NO_TIMESTAMP)


class RecordValidationError(KafkaError):
    """A batch refused because of some of its records; `record_errors` lists (index in the batch, why), at most 1000."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


def too_many_records(request: AppendRequest) -> KafkaError:
    """The refusal of a batch that packs more records than `max_record_count`."""
    message = f"The record batch has more than {request.max_record_count} records"
    return KafkaError(ErrorCode.MESSAGE_TOO_LARGE, message)


class RecordErrors:
    """Collects what is wrong with the records of one batch, by Kafka's rules for keys and timestamps."""

    __slots__ = ("_code", "_errors", "_rules")

    def __init__(self, request: AppendRequest) -> None:
        self._rules = request.rules
        self._code = ErrorCode.INVALID_RECORD
        self._errors: list[tuple[int, str]] = []

    def check(self, record: Record, index: int) -> None:
        """Hold a record against the rules; of a record without a key nothing else is said."""
        earliest, latest, needs_keys, _ = self._rules
        if needs_keys and record.key is None:
            self.add_keyless(index)
        elif not earliest <= record.timestamp <= latest and record.timestamp != NO_TIMESTAMP:
            self.add_untimely(index, record.timestamp)

    def add_keyless(self, index: int) -> None:
        self._add(index, "Compacted topic cannot accept message without key")

    def add_untimely(self, index: int, timestamp: int) -> None:
        """A timestamp (ms) against `message.timestamp.before.max.ms` or `after.max.ms`."""
        self._code = ErrorCode.INVALID_TIMESTAMP
        limits = f"[{self._rules[0]}, {self._rules[1]}]"
        self._add(index, f"Timestamp {timestamp} is out of range. The timestamp should be within {limits}")

    def refuse_log_append_time(self) -> None:
        """Only a broker may say that timestamps are its own."""
        self._code = ErrorCode.INVALID_TIMESTAMP
        self._add(0, "Producer should not set timestamp type to LogAppendTime")

    def _add(self, index: int, message: str) -> None:
        if len(self._errors) < MAX_RECORD_ERRORS:
            self._errors.append((index, message))

    def raise_if_any(self) -> None:
        """Raises RecordValidationError with everything collected, if there is anything; a timestamp gives the code."""
        if self._errors:
            message = "One or more records have been rejected due to invalid timestamp"
            if self._code is not ErrorCode.INVALID_TIMESTAMP:
                message = f"One or more records have been rejected: {self._errors[0][1]}"
            raise RecordValidationError(self._code, message, self._errors)
