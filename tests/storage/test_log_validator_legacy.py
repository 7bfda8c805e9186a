"""Validation of v0 and v1 messages: up-conversion, offsets in place or by rebuilding, logs of old formats."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import in_one_test

from barnabas.protocol.compression import Compression, compress
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.legacy_records import LegacyBatch, build_message_set, encode_message, write_message_crc
from barnabas.protocol.record import Record, TimestampType
from barnabas.protocol.record_batch import RecordBatch, RecordBatchBuilder, iter_batches
from barnabas.storage.log_config import LogConfig
from barnabas.storage.log_validator import (
    AppendRules,
    RecordValidationError,
    ValidationResult,
    validate_messages_and_assign_offsets,
)

NOW = 1_700_000_000_000
PLAIN = LogConfig()
APPEND_TIME = LogConfig(message_timestamp_type="LogAppendTime")
OLD_CODECS = [codec for codec in Compression if codec != Compression.ZSTD]
TIMESTAMPS = [NOW + 5, NOW, NOW + 9, NOW + 1]


def some_records(count: int = 4) -> list[Record]:
    return [Record(i, TIMESTAMPS[i % 4], b"key%d" % i, b"value%d" % i) for i in range(count)]


def message_set(magic: int, codec: int = 0, count: int = 4) -> bytearray:
    return bytearray(build_message_set(some_records(count), magic=magic, codec=codec))


def validate(data: bytes | bytearray, config: LogConfig = PLAIN, **options: Any) -> ValidationResult:
    arguments: dict[str, Any] = {"base_offset": 1000, "now_ms": NOW, "leader_epoch": 9} | options
    return validate_messages_and_assign_offsets(memoryview(data), AppendRules(), config=config, **arguments)


def batch_of_v2() -> bytes:
    builder = RecordBatchBuilder()
    builder.append(b"k", b"v", (), NOW)
    return builder.build()


def refusal(data: bytes | bytearray, config: LogConfig = PLAIN, **options: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        validate(data, config, **options)
    return caught.value.code


def read_all(records: bytes | bytearray | memoryview) -> list[Record]:
    assert all(batch.is_valid for batch in iter_batches(records))
    return [record for batch in iter_batches(records) for record in batch.records()]


def expected_records(magic: int, append_time: int | None = None) -> list[Record]:
    return [
        record._replace(
            offset=1000 + record.offset,
            timestamp=append_time if append_time is not None else record.timestamp if magic else -1,
        )
        for record in some_records()
    ]


@in_one_test("magic", [0, 1])
@in_one_test("codec", OLD_CODECS)
@in_one_test("wanted", ["producer", "uncompressed", "zstd"])
def test_old_messages_become_one_batch(magic: int, codec: Compression, wanted: str) -> None:
    config = LogConfig(compression_type=wanted)
    result = validate(message_set(magic, codec), config)
    (batch,) = iter_batches(result.records)
    assert isinstance(batch, RecordBatch) and batch.partition_leader_epoch == 9
    assert read_all(result.records) == expected_records(magic)
    assert batch.codec == {"producer": codec, "uncompressed": 0, "zstd": 4}[wanted]
    assert (result.first_offset, result.last_offset, result.record_count) == (1000, 1003, 4)
    assert result.max_timestamp == (NOW + 9 if magic else -1) == batch.max_timestamp
    assert batch.producer_id == batch.base_sequence == -1 and not result.producer_batches


@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_get_the_append_time(magic: int) -> None:
    result = validate(message_set(magic, 2), APPEND_TIME, now_ms=NOW + 77)
    assert read_all(result.records) == expected_records(magic, NOW + 77)
    assert (result.max_timestamp, result.log_append_time_ms) == (NOW + 77, NOW + 77)
    (batch,) = iter_batches(result.records)
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME


@pytest.mark.parametrize("config", [PLAIN, APPEND_TIME])
@pytest.mark.parametrize(
    ("magic", "codec", "in_place"), [(0, 0, True), (1, 0, True), (1, 1, True), (1, 3, True), (0, 1, False)]
)
def test_a_log_of_the_same_old_format(config: LogConfig, magic: int, codec: int, in_place: bool) -> None:
    data = message_set(magic, codec)
    result = validate(data, config, target_magic=magic)
    assert (result.records.obj is data) == in_place  # type: ignore[union-attr]
    append_time = NOW if config is APPEND_TIME and magic == 1 else None
    assert read_all(result.records) == expected_records(magic, append_time)
    assert {batch.magic for batch in iter_batches(result.records)} == {magic}
    assert (result.first_offset, result.last_offset, result.record_count) == (1000, 1003, 4)
    if magic == 1 and config is PLAIN:
        assert result.max_timestamp == NOW + 9


def test_in_place_and_rebuilt_wrappers_read_the_same() -> None:
    in_place = validate(message_set(1, 1), target_magic=1)
    inner = build_message_set([record._replace(offset=0) for record in some_records()], magic=1)
    muddled = bytearray(encode_message(3, 0, None, compress(1, inner), magic=1, attributes=1))
    rebuilt = validate(muddled, target_magic=1)
    assert rebuilt.records.obj is not muddled  # type: ignore[union-attr]
    assert read_all(rebuilt.records) == read_all(in_place.records) == expected_records(1)
    assert validate(muddled).record_count == 4


@pytest.mark.parametrize("wrapper_offset", [0, 3, 12345])
def test_the_wrappers_own_offset_does_not_matter_if_inner_ones_are_right(wrapper_offset: int) -> None:
    inner = build_message_set(some_records(), magic=1)
    data = bytearray(encode_message(wrapper_offset, -1, None, compress(2, inner), magic=1, attributes=2))
    result = validate(data, target_magic=1)
    assert read_all(result.records) == expected_records(1)
    (batch,) = iter_batches(result.records)
    # The wrapper's timestamp was wrong and became the largest inside.
    assert batch.max_timestamp == NOW + 9


@pytest.mark.parametrize("source", [0, 1, 2])
@pytest.mark.parametrize("target", [0, 1])
@pytest.mark.parametrize("wanted", ["producer", "lz4", "uncompressed"])
def test_conversion_between_formats(source: int, target: int, wanted: str) -> None:
    if source == 2:
        builder = RecordBatchBuilder(codec=1)
        for record in some_records():
            builder.append(record.key, record.value, [("lost", b"x")], record.timestamp)
        data = bytearray(builder.build())
    else:
        data = message_set(source, 1)
    result = validate(data, LogConfig(compression_type=wanted), target_magic=target)
    assert read_all(result.records) == expected_records(min(source, target))
    codecs = {batch.codec for batch in iter_batches(result.records)}
    assert codecs == {{"producer": 1, "lz4": 3, "uncompressed": 0}[wanted]}


def test_what_an_old_log_cannot_hold() -> None:
    builder = RecordBatchBuilder(producer_id=1, producer_epoch=0, base_sequence=0)
    builder.append(b"k", b"v", (), NOW)
    assert refusal(builder.build(), target_magic=1) is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    zstd = RecordBatchBuilder(codec=4)
    zstd.append(b"k", b"v", (), NOW)
    assert refusal(zstd.build(), target_magic=1) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    as_zstd = LogConfig(compression_type="zstd")
    assert refusal(message_set(1), as_zstd, target_magic=1) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_crc_of_outer_and_inner_messages() -> None:
    data = message_set(1)
    data[-1] ^= 1
    assert refusal(data) is ErrorCode.CORRUPT_MESSAGE
    inner = message_set(1)
    inner[-1] ^= 1
    wrapper = encode_message(3, 0, None, compress(1, inner), magic=1, attributes=1)
    assert refusal(wrapper) is ErrorCode.CORRUPT_MESSAGE


def test_messages_that_do_not_go_together() -> None:
    assert refusal(message_set(1) + message_set(0)) is ErrorCode.INVALID_RECORD
    assert refusal(message_set(1, 1) + message_set(1)) is ErrorCode.INVALID_RECORD
    assert refusal(message_set(1) + message_set(1, 1)) is ErrorCode.INVALID_RECORD
    assert refusal(message_set(1, 1) + message_set(1, 1)) is ErrorCode.INVALID_RECORD
    empty = encode_message(0, 0, None, compress(1, b""), magic=1, attributes=1)
    assert refusal(empty) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("target_magic", [0, 1, 2])
@pytest.mark.parametrize("magic", [0, 1])
def test_what_is_inside_a_wrapper_has_its_format(magic: int, target_magic: int) -> None:
    others = [encode_message(0, NOW, b"k", b"v", magic=1 - magic), bytes(batch_of_v2())]
    for inner in others:
        wrapper = encode_message(0, NOW, None, compress(1, inner, magic=magic), magic=magic, attributes=1)
        assert refusal(wrapper, target_magic=target_magic) is ErrorCode.INVALID_RECORD


def test_codecs_that_old_messages_do_not_have() -> None:
    inner = build_message_set(some_records(), magic=1)
    wrapper = encode_message(3, 0, None, compress(4, inner), magic=1, attributes=4)
    assert refusal(wrapper) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("target_magic", [1, 2])
def test_keys_and_timestamps(codec: int, target_magic: int) -> None:
    records = [Record(i, NOW + i * 1000, None if i == 2 else b"k", b"v") for i in range(4)]
    data = build_message_set(records, magic=1, codec=codec)
    with pytest.raises(RecordValidationError) as caught:
        validate(data, LogConfig(cleanup_policy="compact"), target_magic=target_magic)
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in caught.value.record_errors] == [2 if codec else 0]
    with pytest.raises(RecordValidationError) as caught:
        validate(data, LogConfig(message_timestamp_after_max_ms=1500), target_magic=target_magic)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in caught.value.record_errors] == ([2, 3] if codec else [0])


def test_clients_may_not_claim_log_append_time() -> None:
    data = build_message_set(some_records(), magic=1, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert refusal(data) is ErrorCode.INVALID_TIMESTAMP
    assert refusal(data, APPEND_TIME, target_magic=1) is ErrorCode.INVALID_TIMESTAMP


def test_sizes() -> None:
    one = LogConfig(max_message_bytes=90)
    assert validate(message_set(1, count=1), one).record_count == 1
    assert refusal(build_message_set([Record(0, NOW, None, bytes(100))], magic=1), one) is ErrorCode.MESSAGE_TOO_LARGE
    # Each message is small enough, the batch they become is not.
    assert refusal(message_set(1, count=200), LogConfig(max_message_bytes=1000)) is ErrorCode.MESSAGE_TOO_LARGE
    bomb = build_message_set([Record(0, NOW, None, bytes(1 << 20))], magic=1, codec=1)
    assert refusal(bomb, LogConfig(max_message_bytes=2000)) is ErrorCode.MESSAGE_TOO_LARGE


def test_a_cut_message_at_the_end_is_trimmed() -> None:
    data = message_set(1)[:-3]
    for target_magic in (1, 2):
        assert read_all(validate(data, target_magic=target_magic).records) == expected_records(1)[:3]


def test_a_buffer_that_cannot_be_written_is_copied() -> None:
    data = bytes(message_set(1))
    assert read_all(validate(data, target_magic=1).records) == expected_records(1)
    assert [record.offset for record in read_all(data)] == [0, 1, 2, 3]


@given(
    st.randoms(use_true_random=False),
    st.sampled_from([0, 1]),
    st.sampled_from([0, 1, 2]),
    st.sampled_from(OLD_CODECS),
    st.booleans(),
)
def test_mutated_messages_are_refused_or_stay_readable(
    rng: random.Random, magic: int, target_magic: int, codec: Compression, mend_crc: bool
) -> None:
    data = message_set(magic, codec, rng.randrange(1, 10))
    for _ in range(rng.randrange(1, 4)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    try:
        if mend_crc:
            for batch in iter_batches(data):
                if isinstance(batch, LegacyBatch):
                    write_message_crc(batch.view)
        result = validate(data, target_magic=target_magic)
    except (KafkaError, ValueError):
        return
    records = read_all(result.records)
    assert [record.offset for record in records] == list(range(1000, 1000 + result.record_count))


@pytest.mark.parametrize("magic", [0, 1])
def test_an_inner_message_beyond_the_maximum_is_rejected(magic: int) -> None:
    size = len(encode_message(0, NOW, b"key0", b"value0", magic=magic)) - 12
    data = message_set(magic, codec=Compression.GZIP)
    assert refusal(data, LogConfig(max_decompressed_message_bytes=size - 1)) is ErrorCode.INVALID_RECORD
    assert validate(data, LogConfig(max_decompressed_message_bytes=size)).record_count == 4
    plain = message_set(magic)
    assert validate(plain, LogConfig(max_decompressed_message_bytes=1)).record_count == 4
