"""Messages of format v0 and v1: golden bytes, wrappers, offsets and timestamps inside them, construct's opinion."""

import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol import record_constructs
from barnabas.protocol.compression import Compression, compress, decompress
from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError
from barnabas.protocol.legacy_records import LegacyBatch, build_message_set, encode_message, write_message_crc
from barnabas.protocol.record import Record, TimestampType
from barnabas.protocol.record_batch import iter_batches

OLD_CODECS = [codec for codec in Compression if codec != Compression.ZSTD]
some_bytes = st.none() | st.binary(max_size=100)


def only(data: bytes | bytearray | memoryview) -> LegacyBatch:
    (batch,) = iter_batches(data)
    assert isinstance(batch, LegacyBatch)
    return batch


def some_records(count: int) -> list[Record]:
    return [Record(i, 1000 + i, b"key%d" % i, b"value%d" % i) for i in range(count)]


def read_all(data: bytes | memoryview) -> list[Record]:
    return [record for batch in iter_batches(data) for record in batch.records()]


@pytest.mark.parametrize(
    ("magic", "body"), [(0, "00 00 00000001 6b ffffffff"), (1, "01 00 0000000000000064 00000001 6b ffffffff")]
)
def test_the_bytes_of_one_message(magic: int, body: str) -> None:
    covered = bytes.fromhex(body)
    expected = (7).to_bytes(8, "big") + (len(covered) + 4).to_bytes(4, "big")
    expected += zlib.crc32(covered).to_bytes(4, "big") + covered
    assert encode_message(7, 100, b"k", None, magic=magic) == expected


@given(
    st.lists(st.tuples(some_bytes, some_bytes, st.integers(-1, 2**62)), min_size=1, max_size=20),
    st.sampled_from([0, 1]),
    st.sampled_from(OLD_CODECS),
    st.integers(1, 2**40),
)
def test_building_reading_and_construct_agree(
    items: list[tuple[bytes | None, bytes | None, int]], magic: int, codec: Compression, base_offset: int
) -> None:
    expected = [
        Record(base_offset + i, timestamp if magic else -1, key, value)
        for i, (key, value, timestamp) in enumerate(items)
    ]
    data = build_message_set(expected, magic=magic, codec=codec)
    assert read_all(data) == expected
    assert all(batch.is_valid for batch in iter_batches(data))

    messages = list(record_constructs.parse_messages(data))
    assert b"".join(map(record_constructs.MESSAGES[magic].build, messages)) == data
    assert all(message.crc == zlib.crc32(data[16:]) for message in messages[:1] if len(messages) == 1)
    if codec != Compression.NONE:
        (wrapper,) = messages
        assert wrapper.key.data is None and wrapper.attributes.codec == codec
        assert wrapper.offset == expected[-1].offset
        assert magic == 0 or wrapper.timestamp == max(record.timestamp for record in expected)
        plain = decompress(codec, wrapper.value.data, max_size=1 << 20, magic=magic)
        messages = list(record_constructs.parse_messages(plain))
        first = 0 if magic else base_offset
        assert [message.offset for message in messages] == list(range(first, first + len(items)))
    assert [(message.key.data, message.value.data) for message in messages] == [item[:2] for item in items]
    assert magic == 0 or [message.timestamp for message in messages] == [record.timestamp for record in expected]


@pytest.mark.parametrize("codec", OLD_CODECS[1:])
def test_offsets_of_a_v1_wrapper_count_back_from_its_own(codec: Compression) -> None:
    inner = build_message_set([Record(offset, 5, None, b"v") for offset in (0, 2, 7)], magic=1)
    wrapper = encode_message(107, 5, None, compress(codec, inner), magic=1, attributes=codec)
    assert [record.offset for record in read_all(wrapper)] == [100, 102, 107]
    assert (only(wrapper).base_offset, only(wrapper).last_offset) == (100, 107)


def test_a_wrapper_with_offset_0_leaves_inner_offsets_alone() -> None:
    inner = build_message_set(some_records(3), magic=1)
    wrapper = encode_message(0, 5, None, compress(Compression.GZIP, inner), magic=1, attributes=1)
    assert [record.offset for record in read_all(wrapper)] == [0, 1, 2]


def test_offsets_inside_a_v0_wrapper_are_absolute() -> None:
    inner = build_message_set([Record(offset, -1, None, b"v") for offset in (50, 60)], magic=0)
    wrapper = encode_message(60, -1, None, compress(Compression.SNAPPY, inner), magic=0, attributes=2)
    assert [record.offset for record in read_all(wrapper)] == [50, 60]


def test_log_append_time_of_a_wrapper_wins_over_inner_timestamps() -> None:
    inner = build_message_set(some_records(3), magic=1)
    wrapper = encode_message(2, 999_999, None, compress(Compression.GZIP, inner), magic=1, attributes=1 | 8)
    assert only(wrapper).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in read_all(wrapper)] == [999_999] * 3


def test_v0_has_no_timestamps() -> None:
    batch = only(build_message_set(some_records(1), magic=0))
    assert (batch.timestamp_type, batch.max_timestamp) == (TimestampType.NO_TIMESTAMP, -1)


def test_zstd_does_not_exist_in_old_formats() -> None:
    with pytest.raises(KafkaError) as caught:
        build_message_set(some_records(1), magic=1, codec=Compression.ZSTD)
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    inner = build_message_set(some_records(1), magic=1)
    wrapper = encode_message(0, 0, None, compress(Compression.ZSTD, inner), magic=1, attributes=4)
    with pytest.raises(KafkaError) as caught:
        read_all(wrapper)
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_wrappers_that_lie() -> None:
    inner = build_message_set(some_records(2), magic=1)
    nested = encode_message(0, 0, None, compress(Compression.GZIP, inner), magic=1, attributes=1)
    flipped = bytearray(inner)
    flipped[-1] ^= 1
    for content in (nested, bytes(flipped), inner[:-1], inner + b"\0" * 5, inner[:8] + b"\xff" * 4 + inner[12:]):
        wrapper = encode_message(1, 0, None, compress(Compression.GZIP, content), magic=1, attributes=1)
        with pytest.raises((ProtocolError, KafkaError)):
            read_all(wrapper)
    with pytest.raises(ProtocolError):
        read_all(encode_message(1, 0, None, None, magic=1, attributes=1))


def test_messages_whose_fields_do_not_add_up() -> None:
    good = encode_message(0, 0, b"key", b"value", magic=1)
    for position, size in ((26, 4), (26, 2**31 - 1), (26, -2), (33, 4), (33, 6), (33, -1)):
        bad = bytearray(good)
        bad[position : position + 4] = size.to_bytes(4, "big", signed=True)
        with pytest.raises(ProtocolError):
            read_all(bytes(bad))
    with pytest.raises(ProtocolError):
        list(iter_batches(bytes(8) + (14).to_bytes(4, "big") + bytes(4) + b"\x01" + bytes(20)))


def test_bounded_decompression_of_wrappers() -> None:
    data = build_message_set([Record(0, 0, None, bytes(1 << 20))], magic=1, codec=Compression.GZIP)
    with pytest.raises(KafkaError) as caught:
        list(only(data).records(max_size=100_000))
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_crc_is_written_and_checked() -> None:
    data = bytearray(build_message_set(some_records(1), magic=1))
    data[-1] ^= 1
    assert not only(data).is_valid
    write_message_crc(memoryview(data))
    assert only(data).is_valid


@given(st.randoms(use_true_random=False), st.sampled_from([0, 1]), st.sampled_from(OLD_CODECS), st.booleans())
def test_mutated_messages_only_raise_known_errors(
    rng: random.Random, magic: int, codec: Compression, mend_crc: bool
) -> None:
    data = bytearray(build_message_set(some_records(rng.randrange(1, 20)), magic=magic, codec=codec))
    for _ in range(rng.randrange(1, 5)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    try:
        for batch in iter_batches(data):
            if mend_crc and isinstance(batch, LegacyBatch):
                write_message_crc(batch.view)
            _ = batch.is_valid, batch.base_offset, batch.max_timestamp, batch.timestamp_type
            list(batch.records(max_size=1 << 20))
    except (ProtocolError, KafkaError):
        return
