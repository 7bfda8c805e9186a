"""Typed columns hold what the reference libraries say: fastavro, protobuf, and pyarrow's reader of JSON."""

from __future__ import annotations

import datetime
import io
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import httpx
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import json as arrow_json
from tests.arrow.conftest import folder_of

from barnabas import Broker
from barnabas.arrow import Avro, Json, Protobuf, RegistryValues, read_folder, read_topic
from barnabas.arrow.value_types import format_of
from barnabas.clients.decoding.schemas import Schema
from barnabas.clients.decoding.worker import descriptors_of
from barnabas.protocol.record_batch import RecordBatchBuilder

LONGS = st.integers(-(2**63), 2**63 - 1)
INTS = st.integers(-(2**31), 2**31 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
FLOATS = st.floats(width=32, allow_nan=False)
DOUBLES = st.floats(allow_nan=False)
MOMENTS = st.datetimes(datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30), timezones=st.just(datetime.UTC))


def decoded(given_format: Any, values: list[bytes | None], errors: str = "raise") -> Any:
    """The column of these values."""
    kind, reader = format_of(given_format, "value", ["t"])
    assert reader is not None
    failures: dict[int, str] | None = None if errors == "raise" else {}
    array = reader.decode(pa.array(values, pa.binary()), kind, failures)
    array.validate(full=True)
    assert array.type == kind
    return array


# Avro

AVRO = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "b", "type": "boolean"},
        {"name": "i", "type": "int"},
        {"name": "l", "type": "long"},
        {"name": "f", "type": "float"},
        {"name": "d", "type": "double"},
        {"name": "s", "type": "string"},
        {"name": "y", "type": "bytes"},
        {"name": "o", "type": ["null", "long"]},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "x", "type": {"type": "fixed", "name": "X", "size": 4}},
        {"name": "a", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "m", "type": {"type": "map", "values": "int"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "clock", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "n", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3}},
        {"name": "u", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "in", "type": {"type": "record", "name": "In", "fields": [{"name": "p", "type": "X"}]}},
    ],
}
AVRO_VALUES = st.fixed_dictionaries(
    {
        "b": st.booleans(),
        "i": INTS,
        "l": LONGS,
        "f": FLOATS,
        "d": DOUBLES,
        "s": TEXTS,
        "y": st.binary(max_size=9),
        "o": st.none() | LONGS,
        "e": st.sampled_from("AB"),
        "x": st.binary(min_size=4, max_size=4),
        "a": st.lists(st.none() | TEXTS, max_size=3),
        "m": st.dictionaries(TEXTS, INTS, max_size=3),
        "day": st.dates(),
        "at": MOMENTS,
        "ms": MOMENTS.map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)),
        "clock": st.times(),
        "n": st.integers(-(10**12) + 1, 10**12 - 1).map(lambda n: Decimal(n).scaleb(-3)),
        "u": st.uuids(),
        "in": st.fixed_dictionaries({"p": st.binary(min_size=4, max_size=4)}),
    }
)
PARSED = fastavro.parse_schema(json.loads(json.dumps(AVRO)))


def avro_bytes(value: Any, schema: Any = PARSED) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, value)
    return stream.getvalue()


def plain(value: Any) -> Any:
    """As Arrow gives it back: a UUID as text, a map as pairs."""
    if isinstance(value, UUID):
        return str(value)
    return value


@settings(max_examples=60, deadline=None)
@given(st.lists(st.none() | AVRO_VALUES, max_size=4))
def test_avro_is_what_fastavro_reads(values: list[Any]) -> None:
    written = [None if value is None else avro_bytes(value) for value in values]
    read = [None if data is None else fastavro.schemaless_reader(io.BytesIO(data), PARSED, None) for data in written]
    expected = [None if one is None else {name: plain(value) for name, value in one.items()} for one in read]
    for one in expected:
        if one is not None:
            one["m"] = list(one["m"].items())
    assert decoded(Avro(AVRO), written).to_pylist() == expected


def test_a_union_of_records_is_known_by_its_fields() -> None:
    first = {"type": "record", "name": "First", "fields": [{"name": "a", "type": "int"}]}
    second = {"type": "record", "name": "Second", "fields": [{"name": "b", "type": "string"}]}
    schema = [first, second, "null", "long"]
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    values = [avro_bytes(one, parsed) for one in ({"b": "x"}, {"a": 5}, 7)]
    found = decoded(Avro(schema), values).to_pylist()
    assert found == [
        {"member0": None, "member1": {"b": "x"}, "member2": None},
        {"member0": {"a": 5}, "member1": None, "member2": None},
        {"member0": None, "member1": None, "member2": 7},
    ]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]},
        {"type": "array", "items": "null"},
        {"type": "nothing"},
        "{",
    ],
)
def test_schemas_of_avro_that_are_refused(schema: Any) -> None:
    with pytest.raises(ValueError, match=r"contains itself|no size|not a valid Avro schema"):
        format_of(Avro(schema), "value", ["t"])


# Protobuf

PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
enum Color { NONE = 0; RED = 1; }
message Order {
  message Line { string sku = 1; uint32 count = 2; }
  int32 i = 1; int64 l = 2; uint32 u = 3; uint64 ul = 4; sint32 si = 5; sint64 sl = 6;
  fixed32 f32 = 7; fixed64 f64 = 8; sfixed32 s32 = 9; sfixed64 s64 = 10;
  float f = 11; double d = 12; bool b = 13; string s = 14; bytes y = 15; Color color = 16;
  optional int32 o = 17; repeated int64 many = 18; repeated Line lines = 19; Line line = 20;
  map<string, int32> m = 21; map<int64, Line> by_id = 22;
  oneof choice { string word = 23; int32 number = 24; }
  google.protobuf.Timestamp at = 25; google.protobuf.Duration took = 26;
  google.protobuf.StringValue maybe = 27; google.protobuf.Struct free = 28;
}
message Tree { Tree left = 1; }
"""
ORDER = Protobuf(PROTO, "Order")


def order_class() -> Any:
    from barnabas.arrow.protobuf_values import message_class_of

    return message_class_of(Schema("PROTOBUF", PROTO), "Order")


ORDERS = st.fixed_dictionaries(
    {},
    optional={
        "i": INTS, "l": LONGS, "u": st.integers(0, 2**32 - 1), "ul": st.integers(0, 2**64 - 1), "si": INTS, "sl": LONGS,
        "f32": st.integers(0, 2**32 - 1), "f64": st.integers(0, 2**64 - 1), "s32": INTS, "s64": LONGS,
        "f": FLOATS, "d": DOUBLES, "b": st.booleans(), "s": TEXTS, "y": st.binary(max_size=9),
        "color": st.integers(0, 3),
        "o": INTS, "many": st.lists(LONGS, max_size=3),
        "lines": st.lists(st.fixed_dictionaries({"sku": TEXTS, "count": st.integers(0, 9)}), max_size=2),
        "line": st.fixed_dictionaries({"sku": TEXTS}), "m": st.dictionaries(TEXTS, INTS, max_size=2),
        "word": TEXTS,
    },
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(ORDERS, max_size=4))
def test_protobuf_is_what_its_library_reads(values: list[dict[str, Any]]) -> None:
    cls = order_class()
    messages = [cls(**value) for value in values]
    found = decoded(ORDER, [message.SerializeToString() for message in messages]).to_pylist()
    for message, row in zip(messages, found, strict=True):
        for name in ("i", "l", "u", "ul", "si", "sl", "f32", "f64", "s32", "s64", "f", "d", "b", "s", "y"):
            assert row[name] == getattr(message, name), name
        assert row["color"] == {0: "NONE", 1: "RED"}.get(message.color, str(message.color))
        assert row["o"] == (message.o if message.HasField("o") else None)
        assert row["word"] == (message.word if message.HasField("word") else None) and row["number"] is None
        assert row["many"] == list(message.many) and dict(row["m"]) == dict(message.m)
        assert row["lines"] == [{"sku": line.sku, "count": line.count} for line in message.lines]
        assert row["line"] == ({"sku": message.line.sku, "count": 0} if message.HasField("line") else None)


def test_well_known_types_of_protobuf() -> None:
    cls = order_class()
    at = datetime.datetime(2026, 11, 29, 12, 0, 0, 123456, tzinfo=datetime.UTC)
    message = cls()
    message.maybe.SetInParent()
    message.at.seconds, message.at.nanos = int(at.timestamp()), 123_456_789
    message.took.seconds, message.took.nanos = -1, -500_000_000
    message.free["a"] = [1, None, "é"]
    message.by_id[2**40].sku = "x"
    (row,) = decoded(ORDER, [message.SerializeToString()]).to_pylist()
    assert row["at"] == at and row["took"] == datetime.timedelta(seconds=-1.5) and row["maybe"] == ""
    assert json.loads(row["free"]) == {"a": [1, None, "é"]} and dict(row["by_id"]) == {2**40: {"sku": "x", "count": 0}}
    (empty,) = decoded(ORDER, [b""]).to_pylist()
    assert (empty["at"], empty["maybe"], empty["i"], empty["many"]) == (None, None, 0, [])


def test_forms_of_a_schema_of_protobuf(tmp_path: Path) -> None:
    (tmp_path / "order.proto").write_text(PROTO)
    data = order_class()(i=7).SerializeToString()
    for schema in (tmp_path / "order.proto", str(tmp_path / "order.proto"), descriptors_of(PROTO, ()), order_class()):
        assert decoded(Protobuf(schema), [data]).to_pylist()[0]["i"] == 7
    framed = b"\0\0\0\0\1\0" + data
    assert decoded(Protobuf(PROTO, "shop.Order", framed=True), [framed]).to_pylist()[0]["i"] == 7
    assert decoded(Protobuf(PROTO, "shop.Order.Line"), [b"\x10\x05"]).to_pylist() == [{"sku": "", "count": 5}]
    with pytest.raises(ValueError, match="Tree contains itself"):
        format_of(Protobuf(PROTO, "Tree"), "value", ["t"])
    with pytest.raises(ValueError, match="no message Nothing"):
        format_of(Protobuf(PROTO, "Nothing"), "value", ["t"])
    with pytest.raises(ValueError, match="invalid schema of Protobuf"):
        format_of(Protobuf("message {"), "value", ["t"])


# JSON

JSON_TYPE = pa.struct(
    [
        pa.field("i", pa.int32()),
        pa.field("l", pa.int64()),
        pa.field("d", pa.float64()),
        pa.field("b", pa.bool_()),
        pa.field("s", pa.string()),
        pa.field("a", pa.list_(pa.int64())),
        pa.field("o", pa.struct([pa.field("x", pa.string())])),
    ]
)
DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "i": st.none() | INTS, "l": st.none() | LONGS, "d": st.none() | DOUBLES.filter(math.isfinite),
        "b": st.none() | st.booleans(), "s": st.none() | TEXTS, "a": st.none() | st.lists(LONGS, max_size=3),
        "o": st.none() | st.fixed_dictionaries({"x": TEXTS}), "unknown": INTS,
    },
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(DOCUMENTS, min_size=1, max_size=5), st.booleans())
def test_json_is_what_arrow_reads(documents: list[dict[str, Any]], only_ascii: bool) -> None:
    texts = [json.dumps(document, ensure_ascii=only_ascii).encode() for document in documents]
    options = arrow_json.ParseOptions(explicit_schema=pa.schema(list(JSON_TYPE)), unexpected_field_behavior="ignore")
    table = arrow_json.read_json(io.BytesIO(b"\n".join(texts)), parse_options=options)
    assert decoded(Json(JSON_TYPE), list(texts)).to_pylist() == table.to_pylist()
    # The conversion value by value, which a type that Arrow's parser lacks selects, agrees.
    wider = pa.struct([*JSON_TYPE, pa.field("y", pa.binary())])
    rows = decoded(Json(wider), list(texts)).to_pylist()
    assert [{name: row[name] for name in row if name != "y"} for row in rows] == table.to_pylist()


# Errors


def folder_with(root: Path, values: list[bytes | None]) -> str:
    builder = RecordBatchBuilder(base_offset=40)
    for i, value in enumerate(values):
        builder.append(None, value, [], 1, 40 + i)
    folder_of(root, (40, builder.build()), name="orders-3")
    return str(root)


GOOD, BAD = b'{"i": 1}', b'{"i": \n"x"}'


def test_an_unreadable_value_is_one_line_with_its_place(tmp_path: Path) -> None:
    path = folder_with(tmp_path, [GOOD, GOOD, BAD])
    with pytest.raises(ValueError, match=r"value of orders-3 at offset 42: value .* cannot be read: ") as told:
        read_folder(path, value=Json(JSON_TYPE)).to_table()
    assert "\n" not in str(told.value)


def test_unreadable_values_are_null_or_explained(tmp_path: Path) -> None:
    path = folder_with(tmp_path, [GOOD, BAD, None, b"\xff", GOOD])
    nulls = read_folder(path, value=Json(JSON_TYPE), errors="null").to_table()
    assert [row and row["i"] for row in nulls["value"].to_pylist()] == [1, None, None, None, 1]
    explained = read_folder(path, value=Json(JSON_TYPE), errors="column")
    assert explained.schema.names[-1] == "value_error"
    reasons = explained.to_table()["value_error"].to_pylist()
    assert [reason is None for reason in reasons] == [True, False, True, False, True]
    assert "is not a whole number" in reasons[1]
    only = read_folder(path, value=Json(JSON_TYPE), errors="column", columns=["offset", "value_error"])
    with pytest.raises(ValueError, match="errors: invalid value"):
        read_folder(path, errors="ignore")  # type: ignore[arg-type]
    assert only.to_table()["value_error"].to_pylist() == reasons


@pytest.mark.parametrize(
    "given_format",
    ["xml", 7, Json(pa.float16()), Json(pa.timestamp("ns")), Json(pa.large_string()), Avro("int", type=pa.float16())],
)
def test_formats_that_are_none(given_format: Any) -> None:
    with pytest.raises(ValueError, match="value: "):
        format_of(given_format, "value", ["t"])


@pytest.mark.parametrize(
    ("given_format", "value"),
    [
        (Json(JSON_TYPE), b'{"i":' + b"[" * 100_000),
        (Json(pa.list_(pa.int64())), b"[" * 1_000_000),
        (Json(pa.struct([pa.field("m", pa.map_(pa.string(), pa.decimal128(38, 0)))])), b'{"m":{"a":1e999999999}}'),
        (Json(pa.int64()), b"9" * 1_000_000),
        (Avro({"type": "array", "items": "long"}), b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f" + b"\0" * 20),
        (Avro("string"), b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        (Avro({"type": "map", "values": "bytes"}), b"\xff" * 40),
        (ORDER, b"\xff" * 1000),
        (ORDER, b"\x9a\x01\xff\xff\xff\xff\x07"),
        (Protobuf(PROTO, "Order", framed=True), b"\0\0\0\0\1" + b"\xfe\xff\xff\xff\x0f"),
    ],
)
def test_hostile_values_cost_little_and_are_errors(given_format: Any, value: bytes) -> None:
    assert decoded(given_format, [value, None], errors="null").to_pylist() == [None, None]


# A registry


def test_types_come_from_a_registry() -> None:
    schema = {"type": "record", "name": "Flight", "fields": [{"name": "tail", "type": "string"}]}
    proto = 'syntax = "proto3"; message F { int64 big = 1; optional string tail = 2; }'
    with Broker(topics=["a", "p", "none"], schema_registry=True) as broker:
        url = broker.schema_registry_url
        numbers = {}
        for topic, body in {
            "a": {"schema": json.dumps(schema)},
            "p": {"schema": proto, "schemaType": "PROTOBUF"},
        }.items():
            answer = httpx.post(f"{url}/subjects/{topic}-value/versions", json=body, timeout=60)
            numbers[topic] = b"\0" + int(answer.json()["id"]).to_bytes(4, "big")
        broker.produce("a", [numbers["a"] + b"\x04N7"])
        broker.produce("p", [numbers["p"] + b"\0\x08" + b"\xff" * 9 + b"\x01"])
        avro = read_topic(broker.bootstrap, "a", value=RegistryValues(url))
        assert avro.schema.field("value").type == pa.struct([pa.field("tail", pa.string())])
        assert avro.to_table()["value"].to_pylist() == [{"tail": "N7"}]
        protobuf = read_topic(broker.bootstrap, "p", value=RegistryValues(url))
        assert protobuf.to_table()["value"].to_pylist() == [{"big": -1, "tail": None}]
        text = read_topic(broker.bootstrap, ["a", "p"], value=RegistryValues(url, type=pa.string())).to_table()
        assert sorted(map(json.loads, text["value"].to_pylist()), key=str) == [{"big": "-1"}, {"tail": "N7"}]
        with pytest.raises(ValueError, match="no subject 'none-value'"):
            read_topic(broker.bootstrap, "none", value=RegistryValues(url))
        with pytest.raises(ValueError, match="different types"):
            read_topic(broker.bootstrap, ["a", "p"], value=RegistryValues(url))
        with pytest.raises(OSError, match=r"127\.0\.0\.1:1"):
            read_topic(broker.bootstrap, "a", value=RegistryValues("http://127.0.0.1:1"))
