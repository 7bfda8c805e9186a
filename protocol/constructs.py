"""Messages, headers and frames described with `construct`, apart from the compiled codecs.

The description interprets the same message data in the plainest way. Tests hold the compiled and hand-written
codecs against it, and tools read damaged or unknown bytes with it. It is far too slow for requests.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import construct as c

from .primitives import SCALARS, CompactLength, Counted, Optional, Sized, WithTaggedFields
from .schema import Field, Message, Primitive, bytes_, fields_of, flexible_of, record_bytes, string


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


Frame = c.Prefixed(c.Int32sb, c.GreedyBytes)


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
    nullable = version in field.nullable or field.element is record_bytes
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
