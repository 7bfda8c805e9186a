"""Fields that are renamed in the registry keep their column: by an alias of Avro, or by the number of Protobuf."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.table.conftest import location, rows_of
from tests.table.test_follow import iceberg_table

from barnabas import Broker
from barnabas.arrow import RegistryValues, read_topic
from barnabas.arrow.field_names import FieldNames, renamer
from barnabas.clients.decoding.schemas import SchemaRegistry
from barnabas.table import FollowSettings, TableFollower, open_table
from barnabas.table.column_renames import ColumnRename, find_renames
from barnabas.table.parquet_files import TableSettings
from barnabas.table.partitioning import parse_partitioning
from barnabas.table.table_columns import ColumnSettings

pytest.importorskip("jsonschema", reason="pip install 'barnabas[schema-registry]'")
KINDS = [
    "iceberg",
    pytest.param("duckdb", marks=pytest.mark.verify),
    pytest.param("parquet", marks=pytest.mark.verify),
]


@pytest.fixture(scope="module")
def registered() -> Iterator[Broker]:
    with Broker(config={"log.retention.ms": "-1"}, schema_registry=True) as broker:
        yield broker


class Topic:
    """A topic whose values have schemas of the registry."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.broker, self.name = broker, name
        broker.create_topic(name, 1)
        self.registry = SchemaRegistry(broker.schema_registry_url)
        self.columns = ColumnSettings(value=RegistryValues(broker.schema_registry_url))
        self._numbers: dict[str, int] = {}

    def _frame(self, schema: str, kind: str) -> bytes:
        if schema not in self._numbers:
            self._numbers[schema] = self.registry.register(f"{self.name}-value", schema, kind)
        return b"\0" + self._numbers[schema].to_bytes(4, "big")

    def write_avro(self, fields: list[Any], value: dict[str, Any]) -> None:
        import fastavro

        schema = {"type": "record", "name": "Flight", "fields": fields}
        data = io.BytesIO()
        fastavro.schemaless_writer(data, fastavro.parse_schema(schema), value)
        self.broker.produce(self.name, [self._frame(json.dumps(schema), "AVRO") + data.getvalue()])

    def write_protobuf(self, fields: str, message: bytes) -> None:
        schema = f'syntax = "proto3"; message Flight {{ {fields} }} message Crew {{ string CHIEF = 1; }}'
        self.broker.produce(self.name, [self._frame(schema, "PROTOBUF") + b"\0" + message])

    def follow(self, to: str, layout: TableSettings | None = None, **settings: Any) -> int:
        given = FollowSettings(self.broker.bootstrap, [self.name], columns=self.columns, **settings)
        with open_table(to, layout) as sink:
            follower = TableFollower(sink, given, is_stopping=lambda: False)
            follower.run(once=True)
            return follower.metrics.rows


@pytest.fixture
def topic(registered: Broker, request: pytest.FixtureRequest) -> Topic:
    return Topic(registered, "".join(c if c.isalnum() else "." for c in request.node.name))


def text(name: str, *aliases: str) -> dict[str, Any]:
    return {"name": name, "type": "string", "default": "", "aliases": list(aliases)}


def number(name: str, *aliases: str) -> dict[str, Any]:
    return {"name": name, "type": "long", "default": 0, "aliases": list(aliases)}


@pytest.mark.parametrize("kind", KINDS)
def test_an_alias_of_avro_renames_the_column(topic: Topic, tmp_path: Path, kind: str) -> None:
    to = location(kind, tmp_path)
    first, second = [text("tail"), number("miles")], [text("aircraft", "tail"), number("miles")]
    third = [text("plane", "aircraft"), number("miles")]  # whose earlier names are `aircraft` and `tail`
    topic.write_avro(first, {"tail": "N1", "miles": 1})
    assert topic.follow(to) == 1
    ids = {field.name: field.field_id for field in iceberg_table(tmp_path).schema().fields} if kind == "iceberg" else {}
    topic.write_avro(second, {"aircraft": "N2", "miles": 2})
    topic.write_avro(first, {"tail": "N3", "miles": 3})  # by a producer that has not been updated
    assert topic.follow(to) == 2
    topic.write_avro(third, {"plane": "N4", "miles": 4})
    topic.write_avro(first, {"tail": "N5", "miles": 5})
    assert topic.follow(to) == 2
    rows = sorted(rows_of(to), key=lambda row: row["miles"])
    if kind == "parquet":  # whose columns cannot be renamed
        shown = [row["plane"] or row["aircraft"] or row["tail"] for row in rows]
        assert [(row["tail"], row["aircraft"]) for row in rows][:2] == [("N1", None), (None, "N2")]
    else:
        shown = [row["plane"] for row in rows]
        assert not {"tail", "aircraft"} & set(rows[0])
    assert shown == ["N1", "N2", "N3", "N4", "N5"]
    if kind == "iceberg":
        found = {field.name: field.field_id for field in iceberg_table(tmp_path).schema().fields}
        assert found == {("plane" if name == "tail" else name): one for name, one in ids.items()}


@pytest.mark.parametrize("kind", KINDS[:2])
def test_a_number_of_protobuf_renames_the_column(topic: Topic, tmp_path: Path, kind: str) -> None:
    to = location(kind, tmp_path)
    topic.write_protobuf("string tail = 1; int64 miles = 2;", b"\x0a\x02N1\x10\x01")
    assert topic.follow(to) == 1
    topic.write_protobuf("string aircraft = 1; int64 miles = 2;", b"\x0a\x02N2\x10\x02")
    topic.write_protobuf("string tail = 1; int64 miles = 2;", b"\x0a\x02N3\x10\x03")
    assert topic.follow(to) == 2
    rows = sorted(rows_of(to), key=lambda row: row["miles"])
    assert [(row["aircraft"], "tail" in row) for row in rows] == [("N1", False), ("N2", False), ("N3", False)]


def test_fields_of_structs_lists_and_maps_are_renamed(topic: Topic, tmp_path: Path) -> None:
    to = location("iceberg", tmp_path)

    def fields(old: bool) -> list[Any]:
        def record(name: str) -> Any:
            return {"type": "record", "name": name, "fields": [number("n") if old else number("count", "n")]}

        return [
            {"name": "s", "type": ["null", record("S")], "default": None},
            {"name": "l", "type": {"type": "array", "items": record("L")}, "default": []},
            {"name": "m", "type": {"type": "map", "values": ["null", record("M")]}, "default": {}},
        ]

    def value(name: str, n: int) -> dict[str, Any]:
        return {"s": {name: n}, "l": [{name: n}, {name: n + 1}], "m": {"n": {name: n}, "x": None}}

    topic.write_avro(fields(old=True), value("n", 1))
    assert topic.follow(to) == 1
    topic.write_avro(fields(old=False), value("count", 11))
    topic.write_avro(fields(old=True), value("n", 21))
    assert topic.follow(to) == 2
    rows = sorted(rows_of(to), key=lambda row: row["offset"])
    found = [{"s": row["s"], "l": row["l"], "m": dict(row["m"])} for row in rows]
    assert found == [value("count", n) for n in (1, 11, 21)]


def test_upserts_and_merges_read_files_with_earlier_names(topic: Topic, tmp_path: Path) -> None:
    to = location("iceberg", tmp_path)
    layout = TableSettings(merge_at=2)
    topic.write_avro([text("tail"), number("miles")], {"tail": "N1", "miles": 1})
    topic.follow(to, layout)
    topic.write_avro([text("aircraft", "tail"), number("miles")], {"aircraft": "N2", "miles": 2})
    topic.follow(to, layout)
    with open_table(to, layout) as sink:
        sink.load()
        assert sink.maintain() == 2
    assert sorted(row["aircraft"] for row in rows_of(to)) == ["N1", "N2"]
    with open_table(to, layout) as sink:
        offsets = sink.load()
        assert offsets is not None
        schema = sink.schema()
        row = pa.RecordBatch.from_pylist([{"aircraft": "N2", "miles": 20}], schema=schema)
        sink.upsert(iter([row]), pa.array(["N2"]), "aircraft")
        sink.commit(offsets)
    assert sorted((row["aircraft"], row["miles"]) for row in rows_of(to)) == [("N1", 1), ("N2", 20)]


def test_a_column_of_partitions_is_renamed(topic: Topic, tmp_path: Path) -> None:
    to = location("iceberg", tmp_path)
    old, new = (TableSettings(partition_by=parse_partitioning(name)) for name in ("tail", "aircraft"))
    topic.write_avro([text("tail")], {"tail": "N1"})
    topic.follow(to, old)
    topic.write_avro([text("aircraft", "tail")], {"aircraft": "N2"})
    assert topic.follow(to, old) == 1
    for layout in (old, new, None):
        topic.write_avro([text("aircraft", "tail")], {"aircraft": "N3"})
        assert topic.follow(to, layout) == 1
    parts = iceberg_table(tmp_path).inspect.partitions().to_pylist()
    assert {row["partition"]["tail"]: row["record_count"] for row in parts} == {"N1": 1, "N2": 1, "N3": 3}
    assert len(rows_of(to)) == 5


def test_delta_refuses_a_rename_in_one_line(topic: Topic, tmp_path: Path) -> None:
    to = location("delta", tmp_path)
    topic.write_avro([text("tail")], {"tail": "N1"})
    topic.follow(to)
    topic.write_avro([text("aircraft", "tail")], {"aircraft": "N2"})
    with pytest.raises(ValueError, match=r"column 'tail' is named 'aircraft' in the schema.*cannot rename columns"):
        topic.follow(to)
    assert [row["tail"] for row in rows_of(to)] == ["N1"]


def test_a_topic_is_read_with_the_present_names(topic: Topic) -> None:
    topic.write_avro([text("tail")], {"tail": "N1"})
    topic.write_avro([text("aircraft", "tail")], {"aircraft": "N2"})
    rows = read_topic(topic.broker.bootstrap, topic.name, value=topic.columns.value).to_table().to_pylist()
    assert [row["value"] for row in rows] == [{"aircraft": "N1"}, {"aircraft": "N2"}]


def test_a_name_of_another_field_is_not_an_earlier_name() -> None:
    old, new = pa.struct([("a", pa.int64()), ("b", pa.int64())]), pa.struct([("b", pa.int64()), ("a", pa.int64())])
    names = {"b": FieldNames(("a",)), "a": FieldNames(("b",))}
    assert list(find_renames((), old, new, names)) == []
    more = pa.struct([("a", pa.int64()), ("c", pa.int64())])
    assert list(find_renames((), old, more, {"c": FieldNames(("a", "b"))})) == [ColumnRename(("b",), "c")]
    two = pa.struct([("c", pa.int64()), ("d", pa.int64())])
    both = {"c": FieldNames(("a",)), "d": FieldNames(("a",))}
    assert list(find_renames((), old, two, both)) == [ColumnRename(("a",), "c")], "a column is renamed once"


def test_values_without_a_renamed_field_are_left_alone() -> None:
    kind = pa.struct([("s", pa.list_(pa.struct([("new", pa.int64())])))])
    assert renamer(kind, {}) is None
    assert renamer(kind, {"other": FieldNames(("x",))}) is None
    rename = renamer(kind, {"s": FieldNames((), {"new": FieldNames(("old", "older"))})})
    assert rename is not None
    assert rename({"s": [{"older": 1}, None, {"new": 2, "old": 3}, {}]}) == {
        "s": [{"new": 1}, None, {"new": 2, "old": 3}, {}]
    }
    assert rename({"s": None}) == {"s": None} and rename({}) == {}
