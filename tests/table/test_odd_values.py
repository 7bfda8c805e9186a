"""Names that differ in case only, times of far years, numbers that are none, and nulls in nested values."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from tests.table.conftest import FORMATS, location, produce, rows_of
from tests.table.test_follow import follow

from barnabas import Broker
from barnabas.arrow import Avro, Json
from barnabas.arrow.client import BlockingClient, ClientSettings
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.record_batch import RecordBatchBuilder
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.table.parquet_files import TableSettings
from barnabas.table.partitioning import parse_partitioning
from barnabas.table.table_columns import ColumnSettings

BY_DAY = TableSettings(partition_by=parse_partitioning("day(timestamp)"))
DAY_MS = 86_400_000
YEAR_1, YEAR_9999 = -62_135_596_800_000, 253_402_300_799_000


def produce_at(broker: Broker, topic: str, *times: int) -> None:
    """Write records of these times to partition 0: clients refuse some of them, and the broker does not."""
    builder = RecordBatchBuilder()
    for time in times:
        builder.append(b"k", b"v", (), time)
    tp = TopicPartition(topic, 0)
    data = PartitionProduceData(index=0, records=builder.build())
    request = ProduceRequest(
        transactional_id=None,
        acks=1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    with BlockingClient(ClientSettings(broker.bootstrap, {}, "test")) as client:
        client.refresh([topic])
        answer = client.connection(client.leader(tp)).ask(request, highest=11)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    ("schema", "names"),
    [
        (pa.schema([("a", pa.int64()), ("A", pa.int64())]), "'a' and 'A'"),
        (pa.schema([("Key", pa.int64())]), "'key' and 'Key'"),
        (pa.schema([("s", pa.list_(pa.struct([("x", pa.int64()), ("X", pa.int64())])))]), "'x' and 'X'"),
    ],
)
def test_names_that_differ_in_case_only(
    broker: Broker, topic: str, tmp_path: Path, kind: str, schema: Any, names: str
) -> None:
    to = location(kind, tmp_path)
    produce(broker, topic, [{"key": b"k", "value": b'{"a": 1, "A": 2, "Key": 3, "s": [{"x": 4, "X": 5}]}'}])
    columns = ColumnSettings(value=Json(schema))
    if kind in ("delta", "duckdb"):
        with pytest.raises(ValueError, match=f"columns {names} differ in case only"):
            follow(broker, topic, to, columns=columns)
        return
    assert follow(broker, topic, to, columns=columns) == 1
    if kind == "iceberg":  # DuckDB, which reads the other one, changes the names
        (row,) = rows_of(to)
        expected = {"a": 1, "A": 2, "Key": 3, "s": [{"x": 4, "X": 5}]}
        assert {name: row[name] for name in schema.names} == {name: expected[name] for name in schema.names}


@pytest.mark.parametrize("kind", FORMATS)
def test_times_before_1970_and_at_the_ends_of_the_calendar(
    broker: Broker, topic: str, tmp_path: Path, kind: str
) -> None:
    to, times = location(kind, tmp_path), [-1, -2, YEAR_1, 0, YEAR_9999]
    produce_at(broker, topic, *times)
    assert follow(broker, topic, to, None if kind == "duckdb" else BY_DAY) == len(times)
    rows = sorted(rows_of(to), key=lambda row: row["offset"])
    assert [round(row["timestamp"].timestamp() * 1000) for row in rows] == times


@pytest.mark.parametrize("kind", FORMATS)
def test_times_of_years_with_five_digits(broker: Broker, topic: str, tmp_path: Path, kind: str) -> None:
    """As of a producer that writes microseconds: they are stored, but are in no partition."""
    to = location(kind, tmp_path)
    produce_at(broker, topic, 0, YEAR_9999 + DAY_MS, 1_700_000_000_000_000)
    if kind != "duckdb":
        with pytest.raises(ValueError, match=rf"record of {topic}-0 at offset 1: partition by day\(timestamp\)"):
            follow(broker, topic, to, BY_DAY)
        to = location(kind, tmp_path / "other")
        (tmp_path / "other").mkdir()
    assert follow(broker, topic, to) == 3
    assert follow(broker, topic, to) == 0


@pytest.mark.parametrize("kind", FORMATS)
def test_numbers_that_are_none(broker: Broker, topic: str, tmp_path: Path, kind: str) -> None:
    to, numbers = location(kind, tmp_path), [math.nan, math.inf, -math.inf, -0.0, 1.5]
    fields = [{"name": "x", "type": "double"}, {"name": "y", "type": "float"}]
    schema = {"type": "record", "name": "Numbers", "fields": fields}
    for number in numbers:
        data = io.BytesIO()
        fastavro.schemaless_writer(data, fastavro.parse_schema(schema), {"x": number, "y": number})
        produce(broker, topic, [{"value": data.getvalue(), "partition": 0}])
    assert follow(broker, topic, to, columns=ColumnSettings(value=Avro(schema))) == len(numbers)
    rows = sorted(rows_of(to), key=lambda row: row["offset"])
    assert [repr(row["x"]) for row in rows] == [repr(row["y"]) for row in rows] == [repr(one) for one in numbers]


@pytest.mark.parametrize("kind", FORMATS)
def test_nulls_in_nested_values(broker: Broker, topic: str, tmp_path: Path, kind: str) -> None:
    """Also in rows that were written before fields were added within lists and structs."""
    to = location(kind, tmp_path)
    first = pa.schema([("s", pa.struct([("x", pa.int32())])), ("l", pa.list_(pa.struct([("x", pa.int32())])))])
    more = [("x", pa.int32()), ("z", pa.list_(pa.struct([("w", pa.string())])))]
    second = pa.schema([("s", pa.struct(more)), ("l", pa.list_(pa.struct(more)))])
    old = [b'{"s": {"x": 1}, "l": [{"x": 1}, null, {"x": null}]}', b'{"s": null, "l": []}', b"{}"]
    new = [b'{"s": {"z": [null, {"w": null}]}, "l": [{"x": 2, "z": [{"w": "a"}]}, null]}', b'{"s": {}, "l": []}']
    produce(broker, topic, [{"value": one, "partition": 0} for one in old] + [{"key": b"k", "partition": 0}])
    follow(broker, topic, to, columns=ColumnSettings(value=Json(first)))
    produce(broker, topic, [{"value": one, "partition": 0} for one in new])
    if kind == "delta":
        with pytest.raises(ValueError, match="the type of a column of Delta cannot be changed"):
            follow(broker, topic, to, columns=ColumnSettings(value=Json(second)))
        return
    assert follow(broker, topic, to, columns=ColumnSettings(value=Json(second))) == 2
    rows = sorted(rows_of(to), key=lambda row: row["offset"])
    # pyiceberg reads a null in place of a list as an empty one.
    same = without_empty_lists if kind == "iceberg" else list
    structs: list[Any] = [{"x": 1, "z": None}, None, None, None]
    structs += [{"x": None, "z": [None, {"w": None}]}, {"x": None, "z": None}]
    assert same([row["s"] for row in rows]) == same(structs)
    lists = [[{"x": 1, "z": None}, None, {"x": None, "z": None}], [], None, None]
    lists += [[{"x": 2, "z": [{"w": "a"}]}, None], []]
    assert same([row["l"] for row in rows]) == same(lists)


def without_empty_lists(value: Any) -> Any:
    """The same with None instead of empty lists."""
    if isinstance(value, list):
        return [without_empty_lists(one) for one in value] or None
    return {name: without_empty_lists(one) for name, one in value.items()} if isinstance(value, dict) else value
