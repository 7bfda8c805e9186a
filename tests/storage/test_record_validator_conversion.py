"""Down-conversion for readers of v0 and v1."""

import pytest

from barnabas.protocol.compression import Compression
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.legacy_records import build_message_set
from barnabas.protocol.record import Record, TimestampType
from barnabas.protocol.record_batch import ControlType, RecordBatchBuilder, control_batch, iter_batches
from barnabas.storage.record_conversion import WRAPPED_RECORDS, ConversionBudget, down_convert

NOW = 1_700_000_000_000
MARKER = control_batch(
    ControlType.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=NOW, base_offset=13
)
OLD_CODECS = [codec for codec in Compression if codec != Compression.ZSTD]


def batch_of(base_offset: int, count: int, codec: int = 0, log_append_time: int | None = None) -> bytes:
    builder = RecordBatchBuilder(base_offset=base_offset, codec=codec, log_append_time=log_append_time)
    for i in range(count):
        builder.append(b"k%d" % i, None if i == 1 else b"v%d" % i, [("lost", b"x")], NOW + i)
    return builder.build()


def read_all(data: bytes) -> list[Record]:
    assert all(batch.is_valid for batch in iter_batches(data))
    return [record for batch in iter_batches(data) for record in batch.records()]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_records_keep_offsets_codec_and_if_possible_timestamps(magic: int, codec: Compression) -> None:
    data = batch_of(10, 3, codec) + MARKER + batch_of(14, 2, codec)
    converted = down_convert(data, magic, fetch_offset=10)
    assert {(batch.magic, batch.codec) for batch in iter_batches(converted)} == {(magic, codec)}
    expected = [
        Record(base + i, NOW + i if magic else -1, b"k%d" % i, None if i == 1 else b"v%d" % i)
        for base, count in ((10, 3), (14, 2))
        for i in range(count)
    ]
    assert read_all(converted) == expected


def test_uncompressed_records_below_the_fetch_offset_are_skipped() -> None:
    assert [record.offset for record in read_all(down_convert(batch_of(10, 5), 1, fetch_offset=12))] == [12, 13, 14]
    packed = down_convert(batch_of(10, 5, 1), 1, fetch_offset=12)
    assert [record.offset for record in read_all(packed)] == [10, 11, 12, 13, 14]


def test_gaps_of_compaction_survive() -> None:
    for codec in (0, 3):
        builder = RecordBatchBuilder(base_offset=100, codec=codec)
        for offset in (102, 105, 109):
            builder.append(b"k", b"v", (), NOW, offset=offset)
        for magic in (0, 1):
            converted = read_all(down_convert(builder.build(), magic, fetch_offset=100))
            assert [record.offset for record in converted] == [102, 105, 109]


@pytest.mark.parametrize("codec", [0, 2])
def test_log_append_time(codec: int) -> None:
    converted = down_convert(batch_of(10, 3, codec, log_append_time=NOW + 5), 1, fetch_offset=10)
    assert {batch.timestamp_type for batch in iter_batches(converted)} == {TimestampType.LOG_APPEND_TIME}
    assert {record.timestamp for record in read_all(converted)} == {NOW + 5}


def test_what_is_old_enough_stays_as_it_is() -> None:
    records = [Record(7, NOW, b"k", b"v"), Record(8, NOW, b"k", b"w")]
    for codec in OLD_CODECS:
        v0, v1 = (build_message_set(records, magic=magic, codec=codec) for magic in (0, 1))
        assert down_convert(v0, 0, fetch_offset=7) == v0 == down_convert(v0, 1, fetch_offset=7)
        assert down_convert(v1, 1, fetch_offset=7) == v1
        assert read_all(down_convert(v1, 0, fetch_offset=7)) == [r._replace(timestamp=-1) for r in records]


def test_zstd_has_no_old_form() -> None:
    with pytest.raises(KafkaError) as caught:
        down_convert(batch_of(0, 1, Compression.ZSTD), 1, fetch_offset=0)
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_nothing_left_is_not_nothing_there() -> None:
    assert down_convert(b"", 1, fetch_offset=0) == b""
    for data in (MARKER, batch_of(0, 1)[:-1], batch_of(0, 3)):
        stub = down_convert(data, 1, fetch_offset=5)
        # To an old reader this is the start of a message larger than its fetch size.
        assert int.from_bytes(stub[8:12], "big") > len(data)
        assert list(iter_batches(stub)) == []


def test_a_cut_batch_at_the_end_is_dropped() -> None:
    data = batch_of(0, 2) + batch_of(2, 2)[:-1]
    assert [record.offset for record in read_all(down_convert(data, 1, fetch_offset=0))] == [0, 1]


def test_damage_is_reported() -> None:
    data = bytearray(batch_of(0, 2))
    data[8:12] = (3).to_bytes(4, "big")
    with pytest.raises(KafkaError) as caught:
        down_convert(bytes(data), 1, fetch_offset=0)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def expanding(base_offset: int, size: int = 100_000, codec: int = Compression.GZIP) -> bytes:
    """One record that is far smaller in its batch."""
    builder = RecordBatchBuilder(base_offset=base_offset, codec=codec)
    builder.append(None, bytes(size), (), NOW)
    return builder.build()


def offsets_of(data: bytes) -> list[int]:
    return [record.offset for record in read_all(data)]


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_conversion_stops_at_a_batch_by_the_decompressed_bytes_of_all_partitions(codec: Compression) -> None:
    data = b"".join(expanding(offset, codec=codec) for offset in range(5))
    budget = ConversionBudget(350_000)
    assert offsets_of(down_convert(data, 1, fetch_offset=0, budget=budget)) == [0, 1, 2]
    assert budget.left < 50_000
    small = batch_of(0, 2)
    assert down_convert(data, 1, fetch_offset=0, budget=budget) == b""
    assert offsets_of(down_convert(small, 1, fetch_offset=0, budget=budget)) == [0, 1]


def test_conversion_counts_the_heads_of_messages() -> None:
    builder = RecordBatchBuilder(codec=Compression.GZIP)
    for _ in range(1000):
        builder.append(None, b"", (), NOW)
    budget = ConversionBudget(1 << 20)
    down_convert(builder.build(), 1, fetch_offset=0, budget=budget)
    assert (1 << 20) - budget.left >= 1000 * (34 + 7)


@pytest.mark.parametrize("magic", [0, 1])
def test_conversion_always_makes_progress(magic: int) -> None:
    data = b"".join(expanding(offset) for offset in range(5))
    position, found = 0, list[int]()
    for offset in range(5):
        found += offsets_of(down_convert(data[position:], magic, fetch_offset=offset, budget=ConversionBudget(1)))
        position += len(expanding(offset))
    assert found == [0, 1, 2, 3, 4]
    # A batch of which nothing is left for this reader uses up the budget, and is no progress.
    for left_out in (batch_of(0, 2), MARKER):
        answer = down_convert(left_out + expanding(20), magic, fetch_offset=19, budget=ConversionBudget(1))
        assert offsets_of(answer) == [20]


def test_batches_before_one_that_cannot_be_converted_are_given_and_its_error_comes_with_the_next_fetch() -> None:
    damaged = bytearray(batch_of(2, 2))
    damaged[57:61] = (99).to_bytes(4, "big")
    for bad in (batch_of(2, 1, Compression.ZSTD), bytes(damaged), expanding(2, 65 << 20)):
        assert offsets_of(down_convert(batch_of(0, 2) + bad, 1, fetch_offset=0)) == [0, 1]
        with pytest.raises(KafkaError):
            down_convert(bad, 1, fetch_offset=2, budget=ConversionBudget(1 << 20))


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_a_batch_of_very_many_records_becomes_several_messages(codec: Compression) -> None:
    builder = RecordBatchBuilder(base_offset=7, codec=codec)
    for i in range(2 * WRAPPED_RECORDS + 1):
        builder.append(None, b"v", (), NOW + i)
    converted = down_convert(builder.build(), 1, fetch_offset=7)
    sizes = [sum(1 for _ in one.records()) for one in iter_batches(converted)]
    if codec:
        assert sizes == [WRAPPED_RECORDS, WRAPPED_RECORDS, 1]
    assert [(one.offset, one.timestamp) for one in read_all(converted)] == [
        (7 + i, NOW + i) for i in range(2 * WRAPPED_RECORDS + 1)
    ]
