"""Validation of v2 batches: what clients may send, what is patched, what is refused and how."""

import random
import subprocess
import sys
from dataclasses import replace
from errno import EIO
from struct import pack_into
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import in_one_test
from tests.hostile.damaged_batches import DAMAGES

from barnabas.protocol import compression
from barnabas.protocol.compression import Compression
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.legacy_records import build_message_set
from barnabas.protocol.record import Record, TimestampType, max_plain_size
from barnabas.protocol.record_batch import (
    ControlType,
    RecordBatch,
    RecordBatchBuilder,
    control_batch,
    iter_batches,
    write_crc,
)
from barnabas.storage.errors import NO_HANDLE
from barnabas.storage.log_config import LogConfig
from barnabas.storage.log_validator import (
    CLIENT_RULES,
    COORDINATOR_RULES,
    REPLICATION_RULES,
    AppendContext,
    AppendRules,
    HeavyRecordsError,
    RecordValidationError,
    ValidationResult,
    validate_messages_and_assign_offsets,
)

NOW = 1_700_000_000_000
RULES = AppendRules()
PLAIN = LogConfig()
COMPACTED = LogConfig(cleanup_policy="compact")
APPEND_TIME = LogConfig(message_timestamp_type="LogAppendTime")
HOUR = 3_600_000


def batch_of(count: int = 3, *, key: bytes | None = b"key", codec: int = 0, **builder_options: Any) -> bytearray:
    builder = RecordBatchBuilder(codec=codec, **builder_options)
    for i in range(count):
        builder.append(key, b"value%d" % i, [("h", None)], NOW + i)
    return bytearray(builder.build())


def patched(data: bytearray, position: int, layout: str, value: int) -> bytearray:
    pack_into(layout, data, position, value)
    write_crc(memoryview(data))
    return data


def validate(
    data: bytes | bytearray, config: LogConfig = PLAIN, rules: AppendRules = RULES, **options: Any
) -> ValidationResult:
    arguments: dict[str, Any] = {"base_offset": 1000, "now_ms": NOW, "leader_epoch": 9} | options
    return validate_messages_and_assign_offsets(memoryview(data), rules, config=config, **arguments)


def refusal(data: bytes | bytearray, config: LogConfig = PLAIN, **options: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        validate(data, config, **options)
    return caught.value.code


def only(records: bytes | bytearray | memoryview) -> RecordBatch:
    (batch,) = iter_batches(records)
    assert isinstance(batch, RecordBatch) and batch.is_valid and batch.size == len(records)
    return batch


def contents(records: bytes | bytearray | memoryview) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for batch in iter_batches(records) for record in batch.records()]


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("config", [PLAIN, COMPACTED, LogConfig(message_timestamp_before_max_ms=HOUR)])
def test_accepted_in_place(codec: Compression, config: LogConfig) -> None:
    data = batch_of(codec=codec)
    before = bytes(data)
    result = validate(data, config)
    assert isinstance(result.records, memoryview) and result.records.obj is data
    batch = only(result.records)
    assert bytes(data)[16:] == before[16:]
    assert (batch.base_offset, batch.partition_leader_epoch) == (1000, 9)
    assert (result.first_offset, result.last_offset, result.record_count) == (1000, 1002, 3)
    assert (result.max_timestamp, result.log_append_time_ms) == (NOW + 2, -1)
    assert batch.codec == codec
    assert list(result.producer_batches) == [] == list(result.epoch_starts)


WITHOUT_FILES = """
import os, resource, sys
from barnabas.protocol.errors import KafkaError
from barnabas.storage.log_config import LogConfig
from barnabas.storage.log_validator import CLIENT_RULES, validate_messages_and_assign_offsets

def appended():
    try:
        terms = {"base_offset": 0, "now_ms": NOW, "leader_epoch": 0, "config": LogConfig()}
        return validate_messages_and_assign_offsets(memoryview(bytearray(data)), CLIENT_RULES, **terms).record_count
    except KafkaError as error:
        return error.code.name

NOW, data = int(sys.argv[1]), sys.stdin.buffer.read()
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
held = []
try:
    while True:
        held.append(os.dup(0))
except OSError:
    first = appended()
while held:
    os.close(held.pop())
print(first, appended())
"""


@pytest.mark.parametrize("codec", [Compression.LZ4, Compression.ZSTD])
def test_a_codec_that_cannot_be_loaded_for_want_of_files_is_loaded_with_the_next_batch(codec: Compression) -> None:
    command = [sys.executable, "-c", WITHOUT_FILES, str(NOW)]
    done = subprocess.run(command, input=bytes(batch_of(codec=codec)), capture_output=True, timeout=60, check=True)
    assert done.stdout.split() == [b"KAFKA_STORAGE_ERROR", b"3"]


@pytest.mark.parametrize("failure", [OSError(EIO, "not now"), ImportError("cannot open shared object file")])
def test_what_keeps_a_codec_from_being_loaded_says_nothing_about_a_disk(
    monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    data = batch_of(codec=Compression.ZSTD)

    def fails(*_: object) -> None:
        raise failure

    with monkeypatch.context() as patch:
        compression._module.cache_clear()
        patch.setattr(compression, "import_module", fails)
        assert refusal(data) is ErrorCode.KAFKA_STORAGE_ERROR
        with pytest.raises(OSError, match="cannot be loaded") as caught:
            list(only(data).records())
        assert caught.value.errno in NO_HANDLE
    assert validate(data).record_count == 3


def test_the_fast_path_and_the_careful_one_agree() -> None:
    # Memory that cannot be written to sends a batch the careful way round.
    for options in ({}, {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}):
        fields: dict[str, Any] = dict(options)
        one, other = validate(batch_of(**fields)), validate(bytes(batch_of(**fields)))
        assert bytes(one.records) == bytes(other.records)
        without: dict[str, Any] = {"records": b"", "producer_batches": ()}
        assert one._replace(**without) == other._replace(**without)
        headers = [[batch.header for batch in result.producer_batches] for result in (one, other)]
        assert headers[0] == headers[1] and len(headers[0]) == len(options) // 4


def test_a_buffer_that_cannot_be_written_is_copied() -> None:
    for codec in (0, 1):
        data = bytes(batch_of(codec=codec))
        assert only(validate(data).records).base_offset == 1000
        assert only(data).base_offset == 0


def test_producer_batches_carry_their_final_offsets() -> None:
    for codec in (0, 3):
        data = batch_of(codec=codec, producer_id=5, producer_epoch=6, base_sequence=7)
        (batch,) = validate(data).producer_batches
        assert (batch.base_offset, batch.last_offset, batch.producer_id) == (1000, 1002, 5)
        assert (batch.base_sequence, batch.last_sequence) == (7, 9)


def test_log_append_time() -> None:
    for codec in (0, 4):
        result = validate(batch_of(codec=codec), APPEND_TIME, now_ms=NOW + 777)
        batch = only(result.records)
        assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
        assert [record.timestamp for record in batch.records()] == [NOW + 777] * 3
        assert (result.max_timestamp, result.log_append_time_ms) == (NOW + 777, NOW + 777)
        assert batch.codec == codec


@in_one_test("source", list(Compression))
@in_one_test("wanted", list(Compression))
@in_one_test("config", [PLAIN, APPEND_TIME])
def test_compression_type(source: Compression, wanted: Compression, config: LogConfig) -> None:
    data = batch_of(50, codec=source, producer_id=5, producer_epoch=6, base_sequence=7)
    expected = contents(data)
    result = validate(data, replace(config, compression_type=wanted.config_name))
    batch = only(result.records)
    assert batch.codec == wanted
    assert contents(result.records) == expected
    assert [record.offset for record in batch.records()] == list(range(1000, 1050))
    assert [list(record.headers) for record in batch.records()] == [[("h", None)]] * 50
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (5, 6, 7)
    assert (result.records.obj is data) == (source == wanted)  # type: ignore[union-attr]


def test_compression_levels_are_those_of_the_topic() -> None:
    data = RecordBatchBuilder()
    for i in range(2000):
        data.append(b"%d" % (i * 7919 % 1000), b"%d" % (i * i % 977), (), NOW)
    sizes = {
        len(validate(data.build(), LogConfig(compression_type="gzip", compression_gzip_level=level)).records)
        for level in (1, 9)
    }
    assert len(sizes) == 2


@pytest.mark.parametrize(
    ("position", "layout", "value"),
    [
        (0, ">q", 5),  # base offset
        (23, ">i", 1),  # last offset delta
        (23, ">i", -1),
        (57, ">i", 0),  # record count
        (57, ">i", -3),
        (57, ">i", 4),
        (21, ">h", 0x20),  # a control batch
        (21, ">h", 0x10),  # transactional without a producer id
        (43, ">q", 5),  # a producer id without a sequence
    ],
)
@pytest.mark.parametrize("codec", [0, 1])
def test_invalid_batches(position: int, layout: str, value: int, codec: int) -> None:
    if position == 21:
        value |= codec
    data = patched(batch_of(codec=codec), position, layout, value)
    assert refusal(data) is ErrorCode.INVALID_RECORD


def test_count_and_deltas_that_agree_with_each_other_but_not_with_the_records() -> None:
    data = patched(patched(batch_of(codec=1), 57, ">i", 4), 23, ">i", 3)
    assert refusal(data) is ErrorCode.INVALID_RECORD
    gap = RecordBatchBuilder(codec=1)
    gap.append(b"k", b"v", (), NOW)
    gap.append(b"k", b"v", (), NOW, offset=2)
    assert refusal(patched(bytearray(gap.build()), 23, ">i", 1)) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("config", [PLAIN, COMPACTED])
def test_crc(config: LogConfig) -> None:
    data = batch_of()
    data[-1] ^= 1
    assert refusal(data, config) is ErrorCode.CORRUPT_MESSAGE
    assert refusal(data, rules=REPLICATION_RULES, base_offset=0) is ErrorCode.CORRUPT_MESSAGE


def test_impossible_sizes_and_magics() -> None:
    for position, layout, value in ((8, ">i", 5), (8, ">i", -1), (8, ">i", 20), (16, ">b", 3), (16, ">b", -1)):
        data = batch_of()
        pack_into(layout, data, position, value)
        assert refusal(data) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("garbage", [b"", b"garbage" * 20])
@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_right_crc_over_what_cannot_be_decompressed(codec: int, garbage: bytes) -> None:
    data = batch_of()[:61] + garbage
    pack_into(">i", data, 8, len(data) - 12)
    assert refusal(patched(data, 21, ">h", codec)) is ErrorCode.INVALID_RECORD


def test_unknown_codec_and_early_zstd() -> None:
    assert refusal(patched(batch_of(), 21, ">h", 5)) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    zstd = batch_of(codec=4)
    assert refusal(zstd, rules=AppendRules(allows_zstd=False)) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert only(validate(batch_of(codec=4)).records).codec == 4


def test_how_many_batches() -> None:
    two = batch_of() + batch_of()
    assert refusal(two, rules=CLIENT_RULES) is ErrorCode.INVALID_RECORD
    assert refusal(two) is ErrorCode.INVALID_RECORD
    old = build_message_set([Record(0, NOW, b"k", b"v")], magic=1)
    assert refusal(old, rules=CLIENT_RULES) is ErrorCode.INVALID_RECORD
    assert refusal(b"", rules=CLIENT_RULES) is ErrorCode.INVALID_RECORD
    for nothing in (b"", bytes(batch_of()[:50])):
        result = validate(nothing)
        assert (result.first_offset, result.last_offset, result.record_count, len(result.records)) == (-1, -1, 0, 0)


def test_a_cut_entry_behind_the_batch_is_trimmed() -> None:
    data = batch_of() + batch_of()[:40]
    assert only(validate(data, rules=CLIENT_RULES).records).last_offset == 1002


def test_max_message_bytes() -> None:
    data = batch_of()
    assert refusal(data, LogConfig(max_message_bytes=len(data) - 1)) is ErrorCode.MESSAGE_TOO_LARGE
    assert validate(data, LogConfig(max_message_bytes=len(data))).record_count == 3
    packed = RecordBatchBuilder(codec=1)
    packed.append(None, bytes(10_000), (), NOW)
    small = LogConfig(max_message_bytes=1000)
    assert validate(packed.build(), small).record_count == 1
    # The same records under the topic's codec do not fit any more.
    assert refusal(packed.build(), replace(small, compression_type="uncompressed")) is ErrorCode.MESSAGE_TOO_LARGE


def test_decompression_bomb() -> None:
    bomb = RecordBatchBuilder(codec=4)
    bomb.append(None, bytes(1 << 20), (), NOW)
    assert refusal(bomb.build(), LogConfig(max_message_bytes=2000)) is ErrorCode.MESSAGE_TOO_LARGE


def test_a_small_batch_expands_no_further_where_large_ones_are_taken() -> None:
    limits = LogConfig(max_message_bytes=500_000_000)
    for codec in (1, 4):
        for size, is_taken in ((23 << 20, True), (25 << 20, False)):
            bomb = RecordBatchBuilder(codec=codec)
            bomb.append(None, bytes(size), (), NOW)
            data = bomb.build()
            assert len(data) < 1 << 20
            if is_taken:
                assert validate(data, limits).record_count == 1
            else:
                assert refusal(data, limits) is ErrorCode.MESSAGE_TOO_LARGE


def test_more_records_than_anybody_would_pack_into_one_batch() -> None:
    builder = RecordBatchBuilder(codec=4)
    for _ in range(100_001):
        builder.append(None, None)
    data = builder.build()
    assert len(data) < 100_000
    assert validate(data, LogConfig(max_message_bytes=200_000)).record_count == 100_001
    assert refusal(data, LogConfig(max_message_bytes=100_000)) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", [0, 2])
def test_keyless_records_on_a_compacted_topic(codec: int) -> None:
    builder = RecordBatchBuilder(codec=codec)
    for key in (b"a", None, b"", None):
        builder.append(key, b"v", (), NOW)
    with pytest.raises(RecordValidationError) as caught:
        validate(builder.build(), COMPACTED)
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in caught.value.record_errors] == [1, 3]
    assert validate(builder.build()).record_count == 4


@pytest.mark.parametrize("codec", [0, 4])
def test_create_time_limits(codec: int) -> None:
    limits = LogConfig(message_timestamp_before_max_ms=HOUR, message_timestamp_after_max_ms=HOUR)
    builder = RecordBatchBuilder(codec=codec)
    for timestamp in (NOW, NOW - HOUR, NOW - HOUR - 1, NOW + HOUR, NOW + HOUR + 1, -1):
        builder.append(b"k", b"v", (), timestamp)
    with pytest.raises(RecordValidationError) as caught:
        validate(builder.build(), limits)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in caught.value.record_errors] == [2, 4]
    with pytest.raises(RecordValidationError) as caught:
        validate(builder.build(), LogConfig(message_timestamp_after_max_ms=HOUR))
    assert [index for index, _ in caught.value.record_errors] == [4]
    append_time = replace(limits, message_timestamp_type="LogAppendTime")
    assert validate(builder.build(), append_time).record_count == 6


def test_records_without_timestamps_pass_any_limit() -> None:
    builder = RecordBatchBuilder()
    builder.append(b"k", b"v")
    assert validate(builder.build(), LogConfig(message_timestamp_before_max_ms=1)).max_timestamp == -1


def test_errors_are_named_up_to_a_thousand() -> None:
    with pytest.raises(RecordValidationError) as caught:
        validate(batch_of(5000, key=None, codec=1), COMPACTED)
    assert len(caught.value.record_errors) == 1000


@pytest.mark.parametrize("codec", [0, 1])
def test_clients_may_not_claim_log_append_time(codec: int) -> None:
    for config in (PLAIN, APPEND_TIME):
        data = batch_of(codec=codec, log_append_time=NOW)
        assert refusal(data, config) is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("wrong", [NOW + 50_000, NOW - 50_000, -1])
def test_a_wrong_max_timestamp_is_corrected(wrong: int) -> None:
    for codec, config in ((0, PLAIN), (1, PLAIN), (4, PLAIN), (0, COMPACTED)):
        result = validate(patched(batch_of(codec=codec), 35, ">q", wrong), config)
        assert only(result.records).max_timestamp == NOW + 2 == result.max_timestamp


def test_coordinator_may_write_markers() -> None:
    marker = control_batch(ControlType.ABORT, producer_id=5, producer_epoch=1, coordinator_epoch=2, timestamp=NOW - 10)
    for config in (PLAIN, COMPACTED, LogConfig(compression_type="zstd")):
        result = validate(bytearray(marker), config, rules=COORDINATOR_RULES)
        batch = only(result.records)
        assert (batch.base_offset, batch.partition_leader_epoch, batch.codec) == (1000, 9, 0)
        (noted,) = result.producer_batches
        assert noted.is_control and noted.base_offset == 1000
    assert refusal(marker) is ErrorCode.INVALID_RECORD


def test_replication_keeps_what_the_leader_gave() -> None:
    first = batch_of(3, base_offset=10, partition_leader_epoch=2, producer_id=7, producer_epoch=0, base_sequence=0)
    second = batch_of(2, base_offset=20, partition_leader_epoch=2, codec=1)
    third = bytearray(
        control_batch(
            ControlType.COMMIT,
            producer_id=7,
            producer_epoch=0,
            coordinator_epoch=1,
            timestamp=NOW,
            base_offset=22,
            partition_leader_epoch=5,
        )
    )
    old = build_message_set([Record(30, NOW + 99, b"k", b"v"), Record(31, NOW, b"k", b"v")], magic=1, codec=1)
    data = bytes(first + second + third + old + batch_of()[:30])
    result = validate(data, base_offset=10, rules=REPLICATION_RULES)
    assert bytes(result.records) == data[:-30]
    assert (result.first_offset, result.last_offset) == (10, 31)
    assert result.max_timestamp == NOW + 99
    assert list(result.epoch_starts) == [(2, 10), (5, 22)]
    assert [batch.base_offset for batch in result.producer_batches] == [10, 22]
    assert validate(data, base_offset=8, rules=REPLICATION_RULES).first_offset == 10
    assert refusal(data, base_offset=11, rules=REPLICATION_RULES) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert refusal(bytes(second + first), base_offset=0, rules=REPLICATION_RULES) is ErrorCode.UNKNOWN_SERVER_ERROR


CONFIGS = [
    PLAIN,
    COMPACTED,
    APPEND_TIME,
    LogConfig(compression_type="lz4"),
    LogConfig(message_timestamp_before_max_ms=HOUR, message_timestamp_after_max_ms=HOUR),
]


@given(
    st.randoms(use_true_random=False),
    st.sampled_from(list(Compression)),
    st.sampled_from(CONFIGS),
    st.sampled_from([RULES, COORDINATOR_RULES, REPLICATION_RULES]),
    st.booleans(),
)
def test_mutated_batches_are_refused_or_stay_readable(
    rng: random.Random, codec: Compression, config: LogConfig, rules: AppendRules, mend_crc: bool
) -> None:
    data = batch_of(rng.randrange(1, 30), codec=codec)
    for _ in range(rng.randrange(1, 4)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    if mend_crc:
        write_crc(memoryview(data))
    try:
        result = validate(data, config, rules=rules)
    except KafkaError:
        return
    for batch in iter_batches(result.records):
        assert batch.is_valid
        if rules is not REPLICATION_RULES:
            assert (batch.base_offset, batch.last_offset) == (result.first_offset, result.last_offset)


@in_one_test("name", DAMAGES)
@in_one_test("rules", [RULES, COORDINATOR_RULES])
def test_damage(name: str, rules: AppendRules) -> None:
    wrong = DAMAGES[name]
    for codec in Compression:
        for config in (PLAIN, COMPACTED, APPEND_TIME, LogConfig(compression_type="snappy")):
            data = wrong.batch(codec)
            error = wrong.error
            if name == "a key of -2" and config is COMPACTED and rules is RULES:
                error = ErrorCode.INVALID_RECORD
            if error is not ErrorCode.NONE and (error is not ErrorCode.INVALID_TIMESTAMP or rules is RULES):
                assert refusal(data, config, rules=rules) is error, (codec, config)
                continue
            batch = only(validate(data, config, rules=rules).records)
            assert [record.offset for record in batch.records()] == [1000, 1001, 1002]
            assert batch.max_timestamp == (NOW if config is APPEND_TIME else wrong.base_timestamp)


@pytest.mark.parametrize("codec", [0, 4])
def test_a_refused_timestamp_gives_the_code_whatever_else_is_wrong(codec: int) -> None:
    limits = replace(COMPACTED, message_timestamp_after_max_ms=HOUR)
    builder = RecordBatchBuilder(codec=codec)
    for key, timestamp in ((None, NOW), (b"k", NOW + HOUR + 1), (None, NOW + HOUR + 2)):
        builder.append(key, b"v", (), timestamp)
    with pytest.raises(RecordValidationError) as caught:
        validate(builder.build(), limits)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in caught.value.record_errors] == [0, 1, 2]
    assert [("key" in why, "range" in why) for _, why in caught.value.record_errors] == [
        (True, False),
        (False, True),
        (True, False),
    ]


@pytest.mark.parametrize("max_message_bytes", [0, 1_000_000, 5 << 20, 64 << 20, 100 << 20, 2**31 - 1])
def test_readers_open_whatever_was_taken(max_message_bytes: int) -> None:
    for packed in (61, 1 << 20, (2 << 20) + 1, 4 << 20, 64 << 20, max_message_bytes):
        if packed <= max_message_bytes:
            context = AppendContext(RULES, 0, 0, LogConfig(max_message_bytes=max_message_bytes), 0)
            assert context.max_decompressed_size(packed) <= max_plain_size(packed)


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec != Compression.NONE])
def test_a_decompressed_record_beyond_the_maximum_is_rejected_in_kafkas_words(codec: Compression) -> None:
    # Attributes, two deltas, the lengths of key, value and header key, the counts: 9 bytes beside key, value, header.
    size = len(b"key" + b"value0" + b"h") + 9
    data = batch_of(40, codec=codec)
    for most in (size + 1, size + 1000, 5000):
        config = LogConfig(max_decompressed_message_bytes=most)
        assert validate(batch_of(40, codec=codec), config).record_count == 40
    with pytest.raises(KafkaError) as refused:
        validate(data, LogConfig(max_decompressed_message_bytes=size - 1))
    assert refused.value.code is ErrorCode.INVALID_RECORD
    expected = f"Invalid record size: {size} exceeds the configured maximum record size of {size - 1}."
    assert refused.value.message == expected
    with pytest.raises(HeavyRecordsError):
        heavy = batch_of(3000, codec=codec)
        rules = AppendRules(raises_if_heavy=True)
        validate(heavy, LogConfig(max_decompressed_message_bytes=size + 9), rules)


def test_the_maximum_of_decompressed_records_does_not_concern_plain_batches() -> None:
    assert validate(batch_of(3), LogConfig(max_decompressed_message_bytes=1)).record_count == 3
