"""Earlier names of fields, by which a renamed field keeps its column.

A field of Avro lists its earlier names in `aliases`. A field of Protobuf is identified by its number, so that its
earlier names are the names of that number in earlier versions of the subject. A name that another field has now is
not an earlier name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import pyarrow as pa

from ..clients.decoding.schemas import Schema, SchemaNotFoundError, SchemaRegistry
from .field_names import FieldNames, Names
from .protobuf_values import arrow_type, message_class_of
from .value_formats import parse_avro_schema

_MOST_VERSIONS = 100
"""The number of versions of a subject that are read, the latest first. Each costs a request, again after a
new version."""


@lru_cache(maxsize=64)
def earlier_names(url: str, subject: str, latest: Schema) -> Names:
    """Return the earlier names of the fields of the latest schema of a subject. Raises OSError.

    Versions that were deleted, or that cannot be parsed, are skipped.
    """
    if latest.kind not in ("AVRO", "PROTOBUF") or (latest.kind == "AVRO" and latest.references):
        return {}
    registry, schemas = SchemaRegistry(url), [latest]
    for version in registry.versions(subject)[::-1][:_MOST_VERSIONS]:
        try:
            one = registry.at_version(subject, version)
        except (SchemaNotFoundError, ValueError):
            continue
        if one != latest and one.kind == latest.kind:
            schemas.append(one)
    if latest.kind == "AVRO":
        records = [_record_of(parsed, _named_types(parsed)) for parsed in map(_parsed, schemas)]
        return _avro_names([one for one in records if one is not None]) if records[0] is not None else {}
    return _protobuf_names([one for one in map(_descriptor, schemas) if one is not None])


# Avro


def _parsed(schema: Schema) -> Any:
    try:
        parse_avro_schema(schema.text)
        return json.loads(schema.text)
    except (ValueError, RecursionError):
        return None


def _named_types(schema: Any) -> dict[str, Any]:
    """Return the records of a schema by the last part of their names."""
    found: dict[str, Any] = {}

    def visit(one: Any) -> None:
        if isinstance(one, list):
            for each in one:
                visit(each)
        elif isinstance(one, dict):
            if isinstance(one.get("fields"), list):
                found[str(one.get("name", "")).rpartition(".")[2]] = one
                for each in one["fields"]:
                    visit(each.get("type"))
            for part in ("type", "items", "values"):
                visit(one.get(part))

    visit(schema)
    return found


_Record: TypeAlias = tuple[Mapping[str, Any], Mapping[str, Any]]
"""A record, and the named types of its schema."""


def _record_of(schema: Any, named: Mapping[str, Any]) -> _Record | None:
    """Return the record that a schema is, or has as its only type except for null, as its items, or as its values."""
    if isinstance(schema, list):
        others = [one for one in schema if one != "null"]
        return _record_of(others[0], named) if len(others) == 1 else None
    if isinstance(schema, str):
        found = named.get(schema.rpartition(".")[2])
        return None if found is None else (found, named)
    if not isinstance(schema, dict):
        return None
    if isinstance(schema.get("fields"), list):
        return schema, named
    kind = schema.get("type")
    part = {"array": "items", "map": "values"}.get(kind, "type") if isinstance(kind, str) else "type"
    return _record_of(schema.get(part), named)


def _avro_names(records: Sequence[_Record]) -> Names:
    """Return the names of the first record, the latest one; the others are its earlier versions, latest first."""
    latest, named = records[0]
    present = {one["name"] for one in latest["fields"]}
    found: dict[str, FieldNames] = {}
    for one in latest["fields"]:
        names = [one["name"], *one.get("aliases", ())]
        below = [_record_of(one["type"], named)]
        for record, others in records[1:]:
            for older in record["fields"]:
                if older["name"] in names:
                    names += older.get("aliases", ())
                    below.append(_record_of(older["type"], others))
        earlier = tuple(name for name in dict.fromkeys(names) if name not in present)
        inner = _avro_names([each for each in below if each is not None]) if below[0] is not None else {}
        if earlier or inner:
            found[one["name"]] = FieldNames(earlier, inner)
    return found


# Protobuf


def _descriptor(schema: Schema) -> Any:
    try:
        return message_class_of(schema, None).DESCRIPTOR
    except ModuleNotFoundError:
        raise
    except Exception:  # noqa: BLE001 - the library raises any exception for an invalid schema
        return None


def _protobuf_names(messages: Sequence[Any]) -> Names:
    """Return the names of the first message, the latest one; the others are its earlier versions, latest first."""
    if not messages:
        return {}
    present = {one.name for one in messages[0].fields}
    found: dict[str, FieldNames] = {}
    for one in messages[0].fields:
        older = [each for message in messages[1:] for each in _fields_with(message, one.number)]
        earlier = tuple(name for name in dict.fromkeys(each.name for each in older) if name not in present)
        below = [each for each in map(_message_of, (one, *older)) if each is not None]
        inner = _protobuf_names(below) if _message_of(one) is not None else {}
        if earlier or inner:
            found[one.name] = FieldNames(earlier, inner)
    return found


def _fields_with(message: Any, number: int) -> Iterator[Any]:
    one = message.fields_by_number.get(number)
    if one is not None:
        yield one


def _message_of(one: Any) -> Any:
    """Return the message type of a field, of its elements or of its values, if its column is a struct."""
    message = one.message_type
    if message is not None and message.GetOptions().map_entry:
        message = message.fields_by_name["value"].message_type
    if message is None:
        return None
    try:
        return message if pa.types.is_struct(arrow_type(message)) else None
    except ValueError:  # an earlier version that contains itself
        return None
