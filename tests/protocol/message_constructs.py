"""Messages and headers described with `construct`: a second reading of the same message data, in the plainest way.

The compiled and hand-written codecs are held against it. Strings, bytes and records are a length and the data, arrays a
count and the items. Lengths and counts are signed with -1 for null (classic), or an unsigned varint of one more with 0
for null (compact).
"""

from __future__ import annotations

from functools import cache
from typing import Any
from uuid import UUID

import construct as c

from barnabas.protocol.schema import Field, Message, Primitive, bytes_, fields_of, flexible_of, record_bytes, string

UnsignedVarint = c.VarInt
CompactLength = c.ExprAdapter(c.VarInt, decoder=lambda value, _: value - 1, encoder=lambda value, _: value + 1)
Uuid = c.ExprAdapter(c.Bytes(16), decoder=lambda raw, _: UUID(bytes=raw), encoder=lambda value, _: value.bytes)

SCALARS: dict[str, c.Construct] = {
    "bool": c.ExprAdapter(c.Int8ub, decoder=lambda value, _: value != 0, encoder=lambda value, _: int(value)),
    "int8": c.Int8sb,
    "int16": c.Int16sb,
    "int32": c.Int32sb,
    "int64": c.Int64sb,
    "uint16": c.Int16ub,
    "float64": c.Float64b,
    "uuid": Uuid,
}


class Sized(c.Construct):  # type: ignore[misc]  # construct carries no types
    """A length and as many bytes; -1 is None where that is allowed."""

    def __init__(self, length: c.Construct, *, nullable: bool, encoding: str | None = None) -> None:
        super().__init__()
        self.length = length
        self.nullable = nullable
        self.encoding = encoding

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        length = self.length._parsereport(stream, context, path)
        if length == -1 and self.nullable:
            return None
        if length < 0:
            raise c.RangeError(f"length {length}", path=path)
        data = c.stream_read(stream, length, path)
        return data.decode(self.encoding) if self.encoding else data

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        if obj is None:
            if not self.nullable:
                raise c.MappingError("null is not allowed", path=path)
            self.length._build(-1, stream, context, path)
            return obj
        data = obj.encode(self.encoding) if self.encoding else bytes(obj)
        self.length._build(len(data), stream, context, path)
        c.stream_write(stream, data, len(data), path)
        return obj


class Counted(c.Subconstruct):  # type: ignore[misc]  # construct carries no types
    """A count and as many items; -1 is None where that is allowed."""

    def __init__(self, count: c.Construct, item: c.Construct, *, nullable: bool) -> None:
        super().__init__(item)
        self.count = count
        self.nullable = nullable

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        count = self.count._parsereport(stream, context, path)
        if count == -1 and self.nullable:
            return None
        if count < 0:
            raise c.RangeError(f"count {count}", path=path)
        return c.ListContainer(self.subcon._parsereport(stream, context, path) for _ in range(count))

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        if obj is None and not self.nullable:
            raise c.MappingError("null is not allowed", path=path)
        self.count._build(-1 if obj is None else len(obj), stream, context, path)
        for item in obj or ():
            self.subcon._build(item, stream, context, path)
        return obj


class Optional(c.Subconstruct):  # type: ignore[misc]  # construct carries no types
    """A struct behind a marker byte: 1 for present; for null -1, and 0 in a tagged field."""

    def __init__(self, struct: c.Construct, *, is_tagged: bool) -> None:
        super().__init__(struct)
        self.null = 0 if is_tagged else -1

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        marker = c.Int8sb._parsereport(stream, context, path)
        return self.subcon._parsereport(stream, context, path) if marker > self.null else None

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        c.Int8sb._build(self.null if obj is None else 1, stream, context, path)
        return obj if obj is None else self.subcon._build(obj, stream, context, path)


RawTaggedFields = Counted(
    UnsignedVarint, c.Struct("tag" / UnsignedVarint, "data" / c.Prefixed(UnsignedVarint, c.GreedyBytes)), nullable=False
)


class WithTaggedFields(c.Subconstruct):  # type: ignore[misc]  # construct carries no types
    """A struct and the tag section that ends it. Known tags become fields like any other, unknown ones are dropped."""

    def __init__(self, fields: c.Construct, tagged: dict[int, tuple[str, c.Construct, Any]]) -> None:
        super().__init__(fields)
        self.tagged = tagged

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        values = self.subcon._parsereport(stream, context, path)
        for name, _, default in self.tagged.values():
            values[name] = default
        for field in RawTaggedFields._parsereport(stream, context, path):
            if field.tag in self.tagged:
                name, encoding, _ = self.tagged[field.tag]
                values[name] = encoding.parse(field.data)
        return values

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        self.subcon._build(obj, stream, context, path)
        given = [
            {"tag": tag, "data": encoding.build(obj[name])}
            for tag, (name, encoding, default) in sorted(self.tagged.items())
            if obj[name] != default
        ]
        RawTaggedFields._build(given, stream, context, path)
        return obj


@cache
def construct_for(cls: type, version: int) -> c.Construct:
    """A `construct` for one version of a top-level message; it parses to, and builds from, dicts of its fields."""
    return _struct(cls, version, version in flexible_of(cls))


@cache
def request_header(header_version: int) -> c.Construct:
    """The request header, version 0 to 2. The client id keeps its classic length in all of them."""
    fields = ["api_key" / c.Int16sb, "api_version" / c.Int16sb, "correlation_id" / c.Int32sb]
    if header_version >= 1:
        fields.append("client_id" / Sized(c.Int16sb, nullable=True, encoding="utf-8"))
    header = c.Struct(*fields)
    return WithTaggedFields(header, {}) if header_version >= 2 else header


@cache
def response_header(header_version: int) -> c.Construct:
    """The response header, version 0 or 1."""
    header = c.Struct("correlation_id" / c.Int32sb)
    return WithTaggedFields(header, {}) if header_version >= 1 else header


def to_plain(message: Any, version: int) -> dict[str, Any]:
    """The fields a message has in that version, as the dicts and lists that `construct_for` builds from."""
    return {
        field.name: _plain_value(getattr(message, field.name), version)
        for field in fields_of(type(message))
        if version in field.versions
    }


def _plain_value(value: Any, version: int) -> Any:
    if isinstance(value, Message):
        return to_plain(value, version)
    if isinstance(value, list):
        return [_plain_value(item, version) for item in value]
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


def _struct(cls: type, version: int, flexible: bool) -> c.Construct:
    plain, tagged = [], {}
    for field in fields_of(cls):
        if version not in field.versions:
            continue
        if field.tag is None:
            plain.append(field.name / _field(field, version, flexible))
        else:
            default = _plain_value(field.default(), version)
            tagged[field.tag] = (field.name, _field(field, version, flexible), default)
    struct = c.Struct(*plain)
    return WithTaggedFields(struct, tagged) if flexible else struct


def _field(field: Field, version: int, flexible: bool) -> c.Construct:
    nullable = version in field.nullable
    if field.is_array:
        item = _value(field.element, version, flexible, nullable=False)
        return Counted(CompactLength if flexible else c.Int32sb, item, nullable=nullable)
    if nullable and not isinstance(field.element, Primitive):
        return Optional(_struct(field.element, version, flexible), is_tagged=field.tag is not None)
    return _value(field.element, version, flexible, nullable=nullable)


def _value(element: Any, version: int, flexible: bool, *, nullable: bool) -> c.Construct:
    if not isinstance(element, Primitive):
        return _struct(element, version, flexible)
    if element is string:
        return Sized(CompactLength if flexible else c.Int16sb, nullable=nullable, encoding="utf-8")
    if element in (bytes_, record_bytes):
        return Sized(CompactLength if flexible else c.Int32sb, nullable=nullable)
    return SCALARS[element.name]
