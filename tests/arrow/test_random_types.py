"""Types by chance: what a column holds is what fastavro, protobuf and pyarrow's reader of JSON read from the values."""

from __future__ import annotations

import base64
import datetime
import io
import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import json as arrow_json

from barnabas.arrow import Avro, Json, Protobuf
from barnabas.arrow.value_types import format_of

LONGS = st.integers(-(2**63), 2**63 - 1)
INTS = st.integers(-(2**31), 2**31 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
FLOATS = st.floats(width=32, allow_nan=False)
DOUBLES = st.floats(allow_nan=False)
NAIVE = st.datetimes(datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30))
MOMENTS = NAIVE.map(lambda at: at.replace(tzinfo=datetime.UTC))
EXAMPLES = settings(max_examples=50, deadline=None)


def decoded(given_format: Any, values: list[bytes | None]) -> Any:
    """The column of these values."""
    kind, reader = format_of(given_format, "value", ["t"])
    assert reader is not None
    array = reader.decode(pa.array(values, pa.binary()), kind, None)
    array.validate(full=True)
    assert array.type == kind
    return array


def milliseconds(at: Any) -> Any:
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    return st.integers(-most, most).map(lambda number: Decimal(number).scaleb(-scale))


# Avro


@dataclass
class AvroType:
    """A schema, whose names follow from `number`, and its values; `size` is the least number of bytes of a value."""

    schema: Any
    values: st.SearchStrategy[Any]
    size: int = 1


_numbers = itertools.count()


def name() -> str:
    return f"N{next(_numbers)}"


def logical(kind: str, logical_type: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical_type, **more}


def avro_leaves() -> st.SearchStrategy[AvroType]:
    plain = {
        "null": st.none(), "boolean": st.booleans(), "int": INTS, "long": LONGS, "float": FLOATS, "double": DOUBLES,
        "bytes": st.binary(max_size=9), "string": TEXTS,
    }  # fmt: skip
    found = [st.just(AvroType(kind, values, 0 if kind == "null" else 1)) for kind, values in plain.items()]
    for kind, logical_type, values in (
        ("int", "date", st.dates()),
        ("int", "time-millis", st.times().map(milliseconds)),
        ("long", "time-micros", st.times()),
        ("long", "timestamp-millis", MOMENTS.map(milliseconds)),
        ("long", "timestamp-micros", MOMENTS),
        ("long", "local-timestamp-millis", NAIVE.map(milliseconds)),
        ("long", "local-timestamp-micros", NAIVE),
        ("string", "uuid", st.uuids()),
    ):
        found.append(st.just(AvroType(logical(kind, logical_type), values)))
    scales = st.integers(1, 38).flatmap(lambda p: st.tuples(st.just(p), st.integers(0, p)))
    found.append(
        scales.map(lambda s: AvroType(logical("bytes", "decimal", precision=s[0], scale=s[1]), decimals(s[0], s[1])))
    )
    found.append(
        st.builds(lambda: AvroType({"type": "enum", "name": name(), "symbols": ["A", "B"]}, st.sampled_from("AB")))
    )
    found.append(
        st.integers(1, 9).map(
            lambda n: AvroType({"type": "fixed", "name": name(), "size": n}, st.binary(min_size=n, max_size=n), n)
        )
    )
    found.append(
        st.builds(
            lambda: AvroType(
                {"type": "fixed", "name": name(), "size": 8, "logicalType": "decimal", "precision": 18, "scale": 4},
                decimals(18, 4),
            )
        )
    )
    found.append(st.just(AvroType(["null", "long", "string"], st.none() | LONGS | TEXTS)))
    return st.one_of(found)


def avro_record(fields: list[AvroType]) -> AvroType:
    named = {f"f{i}": field for i, field in enumerate(fields)}
    schema = {"type": "record", "name": name(), "fields": [{"name": n, "type": f.schema} for n, f in named.items()]}
    return AvroType(schema, st.fixed_dictionaries({n: f.values for n, f in named.items()}), sum(f.size for f in fields))


def avro_types() -> st.SearchStrategy[AvroType]:
    def around(inner: st.SearchStrategy[AvroType]) -> st.SearchStrategy[AvroType]:
        return st.one_of(
            st.lists(inner, min_size=1, max_size=4).map(avro_record),
            inner.filter(lambda one: one.size > 0).map(
                lambda one: AvroType({"type": "array", "items": one.schema}, st.lists(one.values, max_size=3))
            ),
            inner.map(
                lambda one: AvroType(
                    {"type": "map", "values": one.schema}, st.dictionaries(TEXTS, one.values, max_size=3)
                )
            ),
            inner.filter(lambda one: one.schema != "null" and not isinstance(one.schema, list)).map(
                lambda one: AvroType(["null", one.schema], st.none() | one.values)
            ),
        )

    return st.recursive(avro_leaves(), around, max_leaves=6)


def as_in_arrow(value: Any, schema: Any) -> Any:
    """What fastavro reads, as Arrow gives it back: UUIDs are text, maps pairs, unions of several types structs."""
    if isinstance(schema, list):
        branches = [branch for branch in schema if branch != "null"]
        if value is None or len(branches) == 1:
            return None if value is None else as_in_arrow(value, branches[0])
        return {"member0": value if type(value) is int else None, "member1": value if type(value) is str else None}
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record":
        return {field["name"]: as_in_arrow(value[field["name"]], field["type"]) for field in schema["fields"]}
    if kind == "array":
        return [as_in_arrow(item, schema["items"]) for item in value]
    if kind == "map":
        return [(key, as_in_arrow(item, schema["values"])) for key, item in value.items()]
    return str(value) if isinstance(value, UUID) else value


@EXAMPLES
@given(st.data())
def test_avro_of_any_schema(data: st.DataObject) -> None:
    one = data.draw(avro_types())
    values = data.draw(st.lists(one.values, max_size=4))
    parsed = fastavro.parse_schema(json.loads(json.dumps(one.schema)))
    written = []
    for value in values:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, value)
        written.append(stream.getvalue())
    read = [fastavro.schemaless_reader(io.BytesIO(text), parsed, None) for text in written]
    found = decoded(Avro(one.schema), [*written, None]).to_pylist()
    assert found == [*(as_in_arrow(value, one.schema) for value in read), None]


# JSON


@dataclass
class JsonType:
    """A type of Arrow, its values as Arrow gives them back, and how they are written as JSON."""

    kind: Any
    values: st.SearchStrategy[Any]
    write: Any = json.dumps
    is_plain: bool = True
    """Whether Arrow's reader of JSON has the type."""


def whole_numbers(kind: Any) -> st.SearchStrategy[int]:
    signed = pa.types.is_signed_integer(kind)
    most = 2 ** (kind.bit_width - signed) - 1
    return st.integers(-most - 1 if signed else 0, most)


def json_leaves() -> st.SearchStrategy[JsonType]:
    signed = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
    unsigned = [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
    found = [st.just(JsonType(kind, whole_numbers(kind))) for kind in signed]
    found += [st.just(JsonType(kind, whole_numbers(kind), is_plain=False)) for kind in unsigned]
    found += [
        st.just(JsonType(pa.float64(), DOUBLES.filter(math.isfinite))),
        st.just(JsonType(pa.float32(), FLOATS.filter(math.isfinite))),
        st.just(JsonType(pa.bool_(), st.booleans())),
        st.just(JsonType(pa.string(), TEXTS)),
        st.just(
            JsonType(
                pa.binary(), st.binary(max_size=9), lambda v: json.dumps(base64.b64encode(v).decode()), is_plain=False
            )
        ),
        st.just(JsonType(pa.date32(), st.dates(), lambda v: json.dumps(v.isoformat()), is_plain=False)),
        st.just(JsonType(pa.timestamp("us", tz="UTC"), MOMENTS, lambda v: json.dumps(v.isoformat()), is_plain=False)),
        st.just(JsonType(pa.timestamp("us"), NAIVE, lambda v: json.dumps(v.isoformat()), is_plain=False)),
        st.integers(1, 38)
        .flatmap(lambda p: st.tuples(st.just(p), st.integers(0, p)))
        .map(lambda s: JsonType(pa.decimal128(*s), decimals(*s), lambda v: f"{v:f}", is_plain=False)),
    ]
    return st.one_of(found)


def optional(one: JsonType, value: Any) -> str:
    return "null" if value is None else str(one.write(value))


def json_object(fields: list[JsonType]) -> JsonType:
    named = {f"f{i}": field for i, field in enumerate(fields)}

    def write(value: dict[str, Any]) -> str:
        return "{" + ",".join(f'"{n}": {optional(named[n], item)}' for n, item in value.items()) + "}"

    values = st.fixed_dictionaries({n: st.none() | field.values for n, field in named.items()})
    kind = pa.struct([pa.field(n, field.kind) for n, field in named.items()])
    return JsonType(kind, values, write, all(field.is_plain for field in fields))


def json_types() -> st.SearchStrategy[JsonType]:
    def around(inner: st.SearchStrategy[JsonType]) -> st.SearchStrategy[JsonType]:
        return st.one_of(
            st.lists(inner, min_size=1, max_size=4).map(json_object),
            inner.map(
                lambda one: JsonType(
                    pa.list_(one.kind),
                    st.lists(st.none() | one.values, max_size=3),
                    lambda items: "[" + ", ".join(optional(one, item) for item in items) + "]",
                    one.is_plain,
                )
            ),
            inner.map(
                lambda one: JsonType(
                    pa.map_(pa.string(), one.kind),
                    st.dictionaries(TEXTS, st.none() | one.values, max_size=3).map(lambda pairs: list(pairs.items())),
                    lambda pairs: "{" + ", ".join(f"{json.dumps(k)}: {optional(one, v)}" for k, v in pairs) + "}",
                    False,
                )
            ),
        )

    return st.recursive(json_leaves(), around, max_leaves=6)


@EXAMPLES
@given(st.data())
def test_json_of_any_type(data: st.DataObject) -> None:
    one = data.draw(json_types())
    values = data.draw(st.lists(one.values, min_size=1, max_size=4))
    texts = [one.write(value) for value in values]
    found = decoded(Json(one.kind), [text.encode() for text in texts])
    assert found.to_pylist() == values
    if one.is_plain:
        options = arrow_json.ParseOptions(explicit_schema=pa.schema([pa.field("value", one.kind)]))
        lines = "".join(f'{{"value": {text}}}\n' for text in texts)
        table = arrow_json.read_json(io.BytesIO(lines.encode()), parse_options=options)
        assert found.to_pylist() == table["value"].to_pylist()


# Protobuf

pytest.importorskip("google.protobuf", reason="pip install 'barnabas[dev]'")
from google.protobuf import descriptor_pb2  # noqa: E402

F = descriptor_pb2.FieldDescriptorProto
SCALARS: dict[int, st.SearchStrategy[Any]] = {
    **dict.fromkeys((F.TYPE_INT32, F.TYPE_SINT32, F.TYPE_SFIXED32), INTS),
    **dict.fromkeys((F.TYPE_INT64, F.TYPE_SINT64, F.TYPE_SFIXED64), LONGS),
    **dict.fromkeys((F.TYPE_UINT32, F.TYPE_FIXED32), st.integers(0, 2**32 - 1)),
    **dict.fromkeys((F.TYPE_UINT64, F.TYPE_FIXED64), st.integers(0, 2**64 - 1)),
    F.TYPE_FLOAT: FLOATS,
    F.TYPE_DOUBLE: DOUBLES,
    F.TYPE_BOOL: st.booleans(),
    F.TYPE_STRING: TEXTS,
    F.TYPE_BYTES: st.binary(max_size=9),
    F.TYPE_ENUM: st.integers(0, 3),
}
KEYS = (F.TYPE_INT32, F.TYPE_INT64, F.TYPE_UINT64, F.TYPE_BOOL, F.TYPE_STRING)
SHAPES = ("one", "optional", "repeated", "map", "oneof")


@dataclass
class ProtobufField:
    """A field: the number of its scalar type or a nested message, and its shape."""

    kind: Any
    shape: str
    key: int = 0


def messages() -> st.SearchStrategy[list[ProtobufField]]:
    scalar = st.sampled_from(sorted(SCALARS))

    def of(kinds: st.SearchStrategy[Any]) -> st.SearchStrategy[list[ProtobufField]]:
        return st.lists(
            st.builds(ProtobufField, kinds, st.sampled_from(SHAPES), st.sampled_from(KEYS)), min_size=1, max_size=5
        )

    return st.recursive(of(scalar), lambda inner: of(scalar | inner), max_leaves=3)


def describe(message: Any, fields: list[ProtobufField], path: str) -> None:
    """Fill a descriptor, whose full name is `path`."""
    choices = [i for i, field in enumerate(fields) if field.shape == "oneof"]
    if choices:
        message.oneof_decl.add(name="choice")
    for i, field in enumerate(fields):
        one = message.field.add(name=f"f{i}", number=i + 1, label=F.LABEL_OPTIONAL)
        target = one
        if field.shape == "map":
            entry = message.nested_type.add(name=f"F{i}Entry")
            entry.options.map_entry = True
            entry.field.add(name="key", number=1, label=F.LABEL_OPTIONAL, type=field.key)
            target = entry.field.add(name="value", number=2, label=F.LABEL_OPTIONAL)
            one.type, one.type_name, one.label = F.TYPE_MESSAGE, f"{path}.F{i}Entry", F.LABEL_REPEATED
        if isinstance(field.kind, list):
            nested = message.nested_type.add(name=f"M{i}")
            describe(nested, field.kind, f"{path}.M{i}")
            target.type, target.type_name = F.TYPE_MESSAGE, f"{path}.M{i}"
        elif field.kind == F.TYPE_ENUM:
            target.type, target.type_name = F.TYPE_ENUM, ".Color"
        else:
            target.type = field.kind
        if field.shape == "repeated":
            one.label = F.LABEL_REPEATED
        elif field.shape == "oneof":
            one.oneof_index = 0
    for i, field in enumerate(fields):
        if field.shape == "optional" and not isinstance(field.kind, list):
            message.oneof_decl.add(name=f"_f{i}")
            message.field[i].proto3_optional = True
            message.field[i].oneof_index = len(message.oneof_decl) - 1


def descriptors(fields: list[ProtobufField]) -> bytes:
    file = descriptor_pb2.FileDescriptorProto(name="random.proto", syntax="proto3")
    describe(file.message_type.add(name="Random"), fields, ".Random")
    color = file.enum_type.add(name="Color")
    for number, symbol in enumerate(("NONE", "RED")):
        color.value.add(name=symbol, number=number)
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


def fill(draw: Any, message: Any, fields: list[ProtobufField]) -> None:
    """Set some of the fields by chance."""
    for i, field in enumerate(fields):
        at = f"f{i}"
        is_message = isinstance(field.kind, list)
        count = draw(st.integers(0, 2 if field.shape in ("map", "repeated") else 1))
        for _ in range(count):
            if field.shape == "map":
                key = draw(SCALARS[field.key])
                if is_message:
                    fill(draw, getattr(message, at)[key], field.kind)
                else:
                    getattr(message, at)[key] = draw(SCALARS[field.kind])
            elif field.shape == "repeated":
                if is_message:
                    fill(draw, getattr(message, at).add(), field.kind)
                else:
                    getattr(message, at).append(draw(SCALARS[field.kind]))
            elif is_message:
                getattr(message, at).SetInParent()
                fill(draw, getattr(message, at), field.kind)
            else:
                setattr(message, at, draw(SCALARS[field.kind]))


def as_struct(message: Any, fields: list[ProtobufField]) -> dict[str, Any]:
    """What the library has in a message, as Arrow gives it back."""

    def one(value: Any, field: ProtobufField) -> Any:
        if isinstance(field.kind, list):
            return as_struct(value, field.kind)
        return ("NONE", "RED", "2", "3")[value] if field.kind == F.TYPE_ENUM else value

    def items() -> Iterator[tuple[str, Any]]:
        for i, field in enumerate(fields):
            at = f"f{i}"
            value = getattr(message, at)
            can_be_absent = field.shape in ("optional", "oneof") or isinstance(field.kind, list)
            if field.shape == "map":
                yield at, {key: one(value[key], field) for key in value}
            elif field.shape == "repeated":
                yield at, [one(item, field) for item in value]
            else:
                yield at, None if can_be_absent and not message.HasField(at) else one(value, field)

    return dict(items())


def without_order(value: Any, fields: list[ProtobufField]) -> Any:
    """Maps, which Arrow gives back as pairs, as dicts."""
    if value is None:
        return None
    found = {}
    for i, field in enumerate(fields):
        item = value[f"f{i}"]
        nested = field.kind if isinstance(field.kind, list) else None
        if field.shape == "map":
            item = {key: without_order(one, nested) if nested else one for key, one in item}
        elif field.shape == "repeated":
            item = [without_order(one, nested) if nested else one for one in item]
        elif nested:
            item = without_order(item, nested)
        found[f"f{i}"] = item
    return found


@EXAMPLES
@given(st.data())
def test_protobuf_of_any_message(data: st.DataObject) -> None:
    from google.protobuf import descriptor_pool, message_factory

    fields = data.draw(messages())
    described = descriptors(fields)
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(described).file:
        pool.Add(file)
    make = message_factory.GetMessageClass(pool.FindMessageTypeByName("Random"))
    written = [make() for _ in range(data.draw(st.integers(0, 3)))]
    for message in written:
        fill(data.draw, message, fields)
    texts = [message.SerializeToString() for message in written]
    found = decoded(Protobuf(described, "Random"), [*texts, None]).to_pylist()
    assert found.pop() is None
    read = [make.FromString(text) for text in texts]
    assert [without_order(row, fields) for row in found] == [as_struct(message, fields) for message in read]
