"""Decoding into columns gives what decoding record by record gives."""

import random

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType
from tests.cases import in_one_test

from barnabas.arrow.arrow_columns import binary_array, header_array
from barnabas.arrow.range_reader import decode_batches
from barnabas.arrow.record_table import PAD, Slices, columns_of_records
from barnabas.protocol.compression import Compression
from barnabas.protocol.errors import KafkaError, ProtocolError
from barnabas.protocol.legacy_records import build_message_set
from barnabas.protocol.native import native
from barnabas.protocol.record import Record
from barnabas.protocol.record_batch import RecordBatchBuilder, iter_batches
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.spark.rows import HEADERS_TYPE, ROW, RowLayout, arrow_schema

HEADERS = arrow_schema(StructType([StructField("h", HEADERS_TYPE)])).field("h").type


def some_bytes(chance: random.Random) -> bytes | None:
    size = chance.choice([-1, 0, 1, 11, 12, 13, 63, 64, 200, 9000])
    return None if size < 0 else chance.randbytes(size)


def some_batches(chance: random.Random, codec: int) -> tuple[bytes, list[Record]]:
    parts, expected, offset = [], [], chance.randrange(1 << 40)
    for _ in range(chance.randrange(1, 6)):
        append_time = chance.choice([None, None, 1_700_000_000_123])
        builder = RecordBatchBuilder(base_offset=offset, codec=codec, log_append_time=append_time)
        for _ in range(chance.randrange(1, 150)):
            offset += chance.choice([1, 1, 1, 70, 10_000])
            stamp = chance.choice([1_700_000_000_000, 1_600_000_000_000, -1])
            headers = [
                (chance.choice(["", "k", "ключ"]), some_bytes(chance)) for _ in range(chance.choice([0, 0, 1, 3]))
            ]
            key, value = some_bytes(chance), some_bytes(chance)
            builder.append(key, value, headers, stamp, offset)
            expected.append(Record(offset, append_time or stamp, key, value, headers))
        offset += 1
        parts.append(builder.build())
    return b"".join(parts), expected


def columns_as_records(data: bytes | memoryview, *, use_native: bool = True) -> list[Record]:
    found = []
    for columns, _ in decode_batches(list(iter_batches(data)), headers=True, use_native=use_native):
        assert columns.heads is not None
        keys, values = (binary_array(columns.data, s).to_pylist() for s in (columns.keys, columns.values))
        heads = header_array(columns.data, columns.heads, HEADERS).to_pylist()
        rows = zip(columns.offsets.tolist(), columns.timestamps.tolist(), keys, values, heads, strict=True)
        found += [Record(*row[:4], [(h["key"], h["value"]) for h in row[4] or ()]) for row in rows]
    return found


@in_one_test("use_native", [False, True])
@in_one_test("codec", list(Compression))
@in_one_test("seed", range(6))
def test_columns_are_the_records(seed: int, codec: Compression, use_native: bool) -> None:
    data, expected = some_batches(random.Random(seed), codec)
    assert columns_as_records(data, use_native=use_native) == expected


@in_one_test("behind", [0, 15, 16, 64])
@in_one_test("seed", range(6))
def test_batches_are_decoded_where_they_are(seed: int, behind: int) -> None:
    """Without a copy if there is room behind them, be it in the middle of a buffer."""
    data, expected = some_batches(random.Random(seed), Compression.NONE)
    buffer = bytearray(b"before" + data + b"\xff" * behind)
    view = memoryview(buffer)[6 : 6 + len(data)]
    assert columns_as_records(view) == expected
    (columns, _), *others = decode_batches(list(iter_batches(view)), headers=False)
    if native is not None and not others:
        assert (getattr(columns.data, "obj", None) is buffer) == (behind >= len(PAD))


def test_batches_with_something_between_them_are_put_together() -> None:
    data, expected = some_batches(random.Random(4), Compression.NONE)
    room = bytearray(data + bytes(100) + data + bytes(64))
    views = [memoryview(room)[: len(data)], memoryview(room)[len(data) + 100 : -64]]
    batches = [batch for view in views for batch in iter_batches(view)]
    offsets = [o for columns, _ in decode_batches(batches, headers=False) for o in columns.offsets.tolist()]
    assert offsets == 2 * [record.offset for record in expected]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4])
def test_older_formats(magic: int, codec: Compression) -> None:
    records = [Record(i, -1 if magic == 0 else 1000 + i, b"k" if i % 2 else None, b"v%d" % i) for i in range(10)]
    newer, expected = some_batches(random.Random(1), codec)
    data = newer + build_message_set(records, magic=magic, codec=codec) + newer
    assert columns_as_records(data) == [*expected, *(r._replace(headers=[]) for r in records), *expected]


@in_one_test(
    "sizes", [[], [0, 0], [-1, -1], [5] * 3, [12] * 2, [13] * 2, [300] * 4, [1, 12, 0, -1], [13, -1, 13], [0, 500, 7]]
)
@in_one_test("kind", [np.int32, np.int64])
def test_byte_strings_of_any_sizes(sizes: list[int], kind: type) -> None:
    strings = [None if size < 0 else random.Random(size).randbytes(size) for size in sizes]
    data = b"_".join([b"", *(string or b"" for string in strings), PAD])
    starts = np.cumsum([1, *(max(size, 0) + 1 for size in sizes)])[:-1]
    array = binary_array(memoryview(data), Slices(starts.astype(kind), np.array(sizes, kind)))
    array.validate(full=True)
    assert array.type == pa.binary() and array.to_pylist() == strings


def test_columns_that_repeat_a_value_follow_the_partition() -> None:
    layout = RowLayout(StructType([StructField("topic", StringType()), StructField("partition", IntegerType())]), {})
    for partition, count in [(TopicPartition("a", 1), 3), (TopicPartition("a", 1), 2), (TopicPartition("b", 0), 5)]:
        columns = columns_of_records([Record(i, 0, None, b"") for i in range(count)], 0, headers=False)
        row = {"topic": partition.topic, "partition": partition.partition}
        assert layout.batch(columns, partition).to_pylist() == [row] * count


def test_rows_between_offsets_keep_their_headers() -> None:
    data, expected = some_batches(random.Random(3), Compression.NONE)
    start, end = expected[10].offset, expected[-5].offset
    for columns, _ in decode_batches(list(iter_batches(data)), headers=True):
        cut = columns.between(start, end)
        assert cut.heads is not None
        heads = header_array(cut.data, cut.heads, HEADERS).to_pylist()
        wanted = [r for r in expected if start <= r.offset < end]
        assert cut.offsets.tolist() == [r.offset for r in wanted]
        assert [[(h["key"], h["value"]) for h in row or ()] for row in heads] == [list(r.headers) for r in wanted]


@in_one_test("use_native", [False, True])
@in_one_test("seed", range(40))
def test_bytes_that_are_no_records_are_an_error(seed: int, use_native: bool) -> None:
    chance = random.Random(seed)
    data, expected = some_batches(chance, Compression.NONE)
    broken = bytearray(data)
    broken[chance.randrange(61, len(broken))] ^= 1 << chance.randrange(8)
    try:
        found = columns_as_records(bytes(broken), use_native=use_native)
    except (ProtocolError, KafkaError):
        return
    assert len(found) == len(expected)


def test_the_row_is_what_spark_compares_with() -> None:
    schema = arrow_schema(ROW)
    assert schema.field("timestamp").type == pa.timestamp("us", tz="UTC")
    assert schema.field("value").type == pa.binary()
