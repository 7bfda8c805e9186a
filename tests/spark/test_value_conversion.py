"""Typed values are read as Spark's `from_json` and `from_avro` read them, and no value silently becomes another one."""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime, time
from decimal import Decimal
from io import BytesIO
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType, VariantType
from tests.cases import in_one_test
from tests.spark.conftest import Cluster, columns, read

from barnabas.arrow.value_formats import UnreadableValueError, ValueFormat
from barnabas.spark.rows import RowLayout, arrow_schema
from barnabas.spark.value_formats import formats_of

UNREADABLE = object()
TIMESTAMP, DATE = pa.timestamp("us", tz="UTC"), pa.date32()


def moment(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc, arg-type]


FROM_JSON: list[tuple[Any, str, Any]] = [
    (pa.int32(), "1", 1),
    (pa.int32(), "-0", 0),
    (pa.int32(), "1.5", UNREADABLE),
    (pa.int32(), "1.0", UNREADABLE),
    (pa.int32(), "1e2", UNREADABLE),
    (pa.int32(), '"1"', UNREADABLE),
    (pa.int32(), "true", UNREADABLE),
    (pa.int32(), "2147483648", UNREADABLE),
    (pa.int64(), "9223372036854775807", 2**63 - 1),
    (pa.int64(), "18446744073709551616", UNREADABLE),
    (pa.int64(), "9" * 5000, UNREADABLE),
    (pa.int16(), "32768", UNREADABLE),
    (pa.float64(), "1", 1.0),
    (pa.float64(), "1e400", float("inf")),
    (pa.float64(), "1e-400", 0.0),
    (pa.float64(), "18446744073709551616", 2.0**64),
    (pa.float64(), '"-INF"', float("-inf")),
    (pa.float64(), '"1.5"', UNREADABLE),
    (pa.float32(), "1e39", float("inf")),
    (pa.float32(), "16777217", 16777216.0),
    (pa.bool_(), "true", True),
    (pa.bool_(), "1", UNREADABLE),
    (pa.bool_(), '"true"', UNREADABLE),
    (pa.string(), "1", "1"),
    (pa.string(), "true", "true"),
    (pa.string(), '{"x": [1, "é"], "y": null}', '{"x":[1,"é"],"y":null}'),
    (pa.string(), '"\\u0000"', "\0"),
    (pa.string(), '"\\ud800"', UNREADABLE),
    (pa.string(), "12345678901234567890.10", "12345678901234567890.10"),
    (pa.binary(), '"AQI="', b"\1\2"),
    (pa.binary(), '"AQI=AQI="', b"\1\2\1\2"),
    (pa.binary(), '""', b""),
    (pa.binary(), '"AQI"', UNREADABLE),
    (pa.binary(), '"AQ I="', UNREADABLE),
    (pa.binary(), '"_-8="', UNREADABLE),
    (pa.binary(), "1", UNREADABLE),
    (pa.decimal128(5, 2), "1", Decimal("1.00")),
    (pa.decimal128(5, 2), "1.005", Decimal("1.01")),
    (pa.decimal128(5, 2), "-1.005", Decimal("-1.01")),
    (pa.decimal128(5, 2), '"1.5"', Decimal("1.50")),
    (pa.decimal128(5, 2), "999.995", UNREADABLE),
    (pa.decimal128(5, 2), "1000", UNREADABLE),
    (pa.decimal128(5, 2), "1e999999999", UNREADABLE),
    (pa.decimal128(5, 2), '"1,000.5"', UNREADABLE),
    (pa.decimal128(5, 2), '" 1.5"', UNREADABLE),
    (pa.decimal128(5, 2), '"NaN"', UNREADABLE),
    (pa.decimal128(38, 0), "9" * 38, Decimal("9" * 38)),
    (pa.decimal128(38, 0), "2.5", Decimal(3)),
    (TIMESTAMP, "1700000000", moment(2023, 11, 14, 22, 13, 20)),
    (TIMESTAMP, "-1", moment(1969, 12, 31, 23, 59, 59)),
    (TIMESTAMP, "1.5", UNREADABLE),
    (TIMESTAMP, "9223372036855", UNREADABLE),
    (TIMESTAMP, '"2024-01-02T03:04:05.123456789Z"', moment(2024, 1, 2, 3, 4, 5, 123456)),
    (TIMESTAMP, '"2024-01-02 03:04:05"', moment(2024, 1, 2, 3, 4, 5)),
    (TIMESTAMP, '"2024-1-2"', moment(2024, 1, 2)),
    (TIMESTAMP, '"2024"', moment(2024, 1, 1)),
    (TIMESTAMP, '" 2024-01 "', moment(2024, 1, 1)),
    (TIMESTAMP, '"2024-01-02T03:04:05.1+02:00"', moment(2024, 1, 2, 1, 4, 5, 100_000)),
    (TIMESTAMP, '"2024-01-02T03:04:05-0230"', moment(2024, 1, 2, 5, 34, 5)),
    (TIMESTAMP, '"2024-01-02T03:04:05 Europe/Paris"', moment(2024, 1, 2, 2, 4, 5)),
    (TIMESTAMP, '"2024-01-02T03:04:05GMT+1"', moment(2024, 1, 2, 2, 4, 5)),
    (TIMESTAMP, '"2024-02-30"', UNREADABLE),
    (TIMESTAMP, '"2024-01-02T24:00:00"', UNREADABLE),
    (TIMESTAMP, '"2024-01-02T03:04:05 ../etc"', UNREADABLE),
    (TIMESTAMP, '"1700000000"', UNREADABLE),
    (TIMESTAMP, '""', UNREADABLE),
    (pa.timestamp("us"), '"2024-01-02T03:04:05.5"', datetime(2024, 1, 2, 3, 4, 5, 500_000)),
    (pa.timestamp("us"), '"2024-01-02T03:04:05Z"', UNREADABLE),
    (pa.timestamp("us"), "1", UNREADABLE),
    (DATE, '"2024-01-02"', date(2024, 1, 2)),
    (DATE, '"2024-1"', date(2024, 1, 1)),
    (DATE, '"2024-01-02T03:04:05Z"', date(2024, 1, 2)),
    (DATE, '"1"', date(1970, 1, 2)),
    (DATE, '"2024-01-02xyz"', UNREADABLE),
    (DATE, '"2024-02-30"', UNREADABLE),
    (DATE, "19000", UNREADABLE),
    (pa.map_(pa.string(), pa.int32()), '{"x":1,"y":null}', [("x", 1), ("y", None)]),
    (pa.map_(pa.string(), pa.int32()), "{}", []),
    (pa.map_(pa.string(), pa.int32()), '{"x":1.5}', UNREADABLE),
    (pa.map_(pa.string(), pa.list_(pa.int32())), '{"x":[1,null]}', [("x", [1, None])]),
    (pa.map_(pa.string(), pa.int32()), "[1]", UNREADABLE),
    (pa.list_(pa.int32()), "[1,null]", [1, None]),
    (pa.list_(pa.int32()), "[1.5]", UNREADABLE),
    (pa.list_(pa.int32()), "1", UNREADABLE),
    (pa.struct([("b", pa.int32())]), '{"b":1,"c":2}', {"b": 1}),
    (pa.struct([("b", pa.int32())]), '{"b":1,"b":2}', {"b": 2}),
    (pa.struct([("b", pa.int32())]), '{"B":1}', {"b": None}),
    (pa.struct([("b", pa.int32())]), '{"b":1.5}', UNREADABLE),
    (pa.struct([("b", pa.int32())]), '[{"b":1}]', UNREADABLE),
]
"""A type, a JSON value, and what `from_json` of Spark 4.3 reads it as. Where Spark wraps a number, it is unreadable."""


def decode(name: str, kind: Any, values: list[bytes | None], **settings: Any) -> list[Any]:
    array = ValueFormat(name, **settings).decode(pa.array(values, pa.binary()), kind)
    array.validate(full=True)
    return array.to_pylist()  # type: ignore[no-any-return]


@in_one_test(("kind", "value", "expected"), FROM_JSON)
def test_json_is_read_as_by_from_json(kind: Any, value: str, expected: Any) -> None:
    row = pa.struct([("a", kind)])
    document = f'{{"a":{value}}}'.encode()
    good = b'{"a":null}'
    if expected is UNREADABLE:
        with pytest.raises(UnreadableValueError, match="cannot be read") as raised:
            decode("json", row, [good, document])
        assert raised.value.row == 1
        assert decode("json", row, [document, good], null_on_error=True) == [None, {"a": None}]
    else:
        assert decode("json", row, [document, good]) == [{"a": expected}, {"a": None}]


STRICTER = {"9223372036855", '"\\ud800"', "12345678901234567890.10"}
"""Spark wraps the first around, reads the second as a question mark, and the third by way of a double."""


@pytest.mark.verify
@pytest.mark.timeout(280)
def test_the_expected_values_are_those_of_spark(spark: Any) -> None:
    from pyspark.sql import functions
    from pyspark.sql.pandas.types import from_arrow_type

    cases = [case for case in FROM_JSON if case[1] not in STRICTER]
    found = []
    for index, (kind, value, _) in enumerate(cases):
        schema = StructType([StructField("a", from_arrow_type(kind)), StructField("bad", StringType())])
        options = {"columnNameOfCorruptRecord": "bad"}
        found.append(functions.from_json(functions.lit(f'{{"a":{value}}}'), schema, options).alias(str(index)))
    table = spark.range(1).select(*found).toArrow()
    for index, (kind, value, expected) in enumerate(cases):
        row = table.column(str(index)).to_pylist()[0]
        if expected is UNREADABLE:
            assert row["bad"] is not None, (kind, value)
        else:
            assert row == {"a": expected, "bad": None}, (kind, value)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (b"", None),
        (b" \n", None),
        (b"null", None),
        (b'{"a":1} rest', {"a": 1}),
        (b'{"a":1}{"a":2}', {"a": 1}),
        (b'{"a":1},"x":2', {"a": 1}),
        (b'{"b":' + b"[" * 400 + b"]" * 400 + b',"a":1}', {"a": 1}),
        (b'{"a":1', UNREADABLE),
        (b'{"a":1,}', UNREADABLE),
        (b"1", UNREADABLE),
        (b"[]", UNREADABLE),
        (b'\xef\xbb\xbf{"a":1}', UNREADABLE),
        (b'{"b":"\t","a":1}', UNREADABLE),
        (b'{"b":"\xff","a":1}', UNREADABLE),
        (b'{"m":' + b"[" * 100_000 + b"]" * 100_000 + b',"a":1.5}', UNREADABLE),
        (b"[" * 1_000_000, UNREADABLE),
    ],
)
def test_documents_are_read_each_for_itself(document: bytes, expected: Any) -> None:
    kind = pa.struct([("a", pa.int32())])
    found = decode("json", kind, [b'{"a":7}', document, b'{"a":8}', None], null_on_error=True)
    assert found == [{"a": 7}, None if expected is UNREADABLE else expected, {"a": 8}, None]
    if expected is UNREADABLE:
        with pytest.raises(UnreadableValueError):
            decode("json", kind, [document])


def test_no_document_reaches_into_the_next() -> None:
    """Two documents in one value and one over two values would be as many objects as values."""
    kind = pa.struct([("a", pa.int32())])
    values: list[bytes | None] = [b'{"a":1}}\n{"value":{"a":2}', b'{"b":"', b'","a":3}', b'{"a":4}']
    assert decode("json", kind, values, null_on_error=True) == [{"a": 1}, None, None, {"a": 4}]


@pytest.mark.parametrize("name", ["string", "json"])
def test_text_that_is_not_utf_8_cannot_be_read(name: str) -> None:
    assert decode(name, pa.string(), [b"\xff", b"x", None], null_on_error=True) == [None, "x", None]
    with pytest.raises(UnreadableValueError, match="cannot be read"):
        decode(name, pa.string(), [b"x", b"a\xff"])


def avro(schema: Any, value: Any) -> bytes:
    body = BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), value)
    return body.getvalue()


LONG = {"type": "long"}
FROM_AVRO: list[tuple[Any, Any, Any, Any]] = [
    ({"type": "string", "logicalType": "uuid"}, UUID(int=5), pa.string(), str(UUID(int=5))),
    ({"type": "int", "logicalType": "time-millis"}, time(1, 2, 3, 4000), pa.int32(), 3_723_004),
    ({**LONG, "logicalType": "time-micros"}, time(1, 2, 3, 4), pa.int64(), 3_723_000_004),
    ({**LONG, "logicalType": "time-micros"}, time(1, 2, 3, 4), pa.time64("us"), time(1, 2, 3, 4)),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
        Decimal("1.5"),
        pa.decimal128(5, 2),
        Decimal("1.50"),
    ),
    (
        {"type": "fixed", "name": "f", "size": 4, "logicalType": "decimal", "precision": 9, "scale": 2},
        Decimal("-1.55"),
        pa.decimal128(9, 2),
        Decimal("-1.55"),
    ),
    ({"type": "fixed", "name": "f", "size": 3}, b"abc", pa.binary(), b"abc"),
    ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, "B", pa.string(), "B"),
    ({"type": "int", "logicalType": "date"}, date(2024, 1, 2), DATE, date(2024, 1, 2)),
    ({**LONG, "logicalType": "timestamp-millis"}, moment(2024, 1, 2), TIMESTAMP, moment(2024, 1, 2)),
    (
        {**LONG, "logicalType": "local-timestamp-micros"},
        datetime(2024, 1, 2),
        pa.timestamp("us"),
        datetime(2024, 1, 2),
    ),
    ({"type": "map", "values": "int"}, {"x": 1}, pa.map_(pa.string(), pa.int32()), [("x", 1)]),
    ({"type": "array", "items": ["null", "int"]}, [1, None], pa.list_(pa.int32()), [1, None]),
    (["int", "long"], 7, pa.int64(), 7),
    (["float", "double"], 7.5, pa.float64(), 7.5),
    (
        ["null", "int", "string"],
        "x",
        pa.struct([("member0", pa.int32()), ("member1", pa.string())]),
        {"member0": None, "member1": "x"},
    ),
    ("bytes", b"\xff", pa.binary(), b"\xff"),
    ("double", 1.5, pa.int32(), UNREADABLE),
    ("double", 1.0, pa.int64(), UNREADABLE),
    ("double", 1e300, pa.float32(), UNREADABLE),
    ("long", 2**40, pa.int32(), UNREADABLE),
    ("long", 1, TIMESTAMP, UNREADABLE),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
        Decimal("1.55"),
        pa.decimal128(5, 1),
        UNREADABLE,
    ),
]
"""A schema, a value, the type that `from_avro` of Spark gives for the schema (before 4.2 and since), and its value."""


@in_one_test(("schema", "value", "kind", "expected"), FROM_AVRO)
def test_avro_is_read_as_by_from_avro(schema: Any, value: Any, kind: Any, expected: Any) -> None:
    data, text = avro(schema, value), json.dumps(schema)
    if expected is UNREADABLE:
        with pytest.raises(UnreadableValueError):
            decode("avro", kind, [data], avro_schema=text)
        assert decode("avro", kind, [data], avro_schema=text, null_on_error=True) == [None]
    else:
        assert decode("avro", kind, [data, None], avro_schema=text) == [expected, None]


@pytest.mark.parametrize("name", ["avro", "confluent-avro"])
def test_damaged_avro_becomes_null(name: str) -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "s", "type": "string"},
            {"name": "l", "type": {"type": "array", "items": "long"}},
            {"name": "m", "type": {"type": "map", "values": "double"}},
            {"name": "d", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "n", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        ],
    }
    value = {"s": "text", "l": [1, 2, 3], "m": {"k": 1.5}, "d": moment(2024, 1, 2), "n": Decimal("1.25")}
    sound = avro(schema, value)
    chance = random.Random(7)
    damaged: list[bytes | None] = []
    for _ in range(2000):
        data = bytearray(sound)
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        damaged.append(bytes(data[: chance.randrange(len(data) + 1)] if chance.random() < 0.3 else data))
    kind = pa.struct(
        [
            ("s", pa.string()),
            ("l", pa.list_(pa.int64())),
            ("m", pa.map_(pa.string(), pa.float64())),
            ("d", TIMESTAMP),
            ("n", pa.decimal128(9, 2)),
        ]
    )
    head = b"\0\0\0\0\1" if name == "confluent-avro" else b""
    values = [head + data for data in [*damaged, sound, b""] if data is not None]
    settings = {"avro_schema": json.dumps(schema), "null_on_error": True}
    array = ValueFormat(name, **settings).decode(pa.array([*values, b""], pa.binary()), kind)  # type: ignore[arg-type]
    array.validate(full=True)
    assert array.is_valid()[-3].as_py() and not array.is_valid()[-1].as_py()
    assert array.null_count > 200


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "record", "name": "L", "fields": [{"name": "n", "type": ["null", "L"]}]}, "contains itself"),
        ({"type": "array", "items": "null"}, "have no size"),
        ({"type": "array", "items": {"type": "record", "name": "E", "fields": []}}, "have no size"),
        ({"type": "record"}, "is not a valid Avro schema"),
        ("no-such-type", "is not a valid Avro schema"),
    ],
)
def test_avro_schemas_whose_values_have_no_bound_are_refused(schema: Any, message: str) -> None:
    """A value of a hundred kilobytes would end the process, or a value of nine bytes fill its memory."""
    with pytest.raises(ValueError, match=message):
        formats_of({"valueFormat": "avro", "avroSchema": json.dumps(schema)})


def test_types_that_no_value_can_have_are_refused_when_the_query_is_planned() -> None:
    formats = formats_of({"valueFormat": "json"})
    with pytest.raises(ValueError, match="column 'value': values cannot be read as variant"):
        RowLayout(StructType([StructField("value", columns(a=VariantType()))]), formats)


def test_an_unreadable_value_is_named_by_its_record(cluster: Cluster) -> None:
    cluster.broker.create_topic("t", 1)
    cluster.produce("t", [{"value": b'{"a": 1}'}, {"value": b'{"a": 1.5}'}])
    options = cluster.options("t", valueFormat="json")
    with pytest.raises(ValueError, match=r"value of t-0 at offset 1: .*cannot be read: '1.5' \(number\)"):
        read(options, columns(value=columns(a=int)))
    assert read({**options, "valueErrors": "null"}, columns(value=columns(a=int)))[1] == {"value": None}


def test_maps_in_json(cluster: Cluster) -> None:
    from pyspark.sql.types import LongType, MapType

    cluster.broker.create_topic("t", 1)
    cluster.produce("t", [{"value": b'{"a": 1, "b": 2}'}])
    kind: Any = MapType(StringType(), LongType())
    assert read(cluster.options("t", valueFormat="json"), columns(value=kind)) == [{"value": [("a", 1), ("b", 2)]}]
    assert arrow_schema(columns(value=kind)).field("value").type == pa.map_(pa.string(), pa.int64())
