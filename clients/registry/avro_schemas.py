"""Avro: Apache's own library reads schemas and says whether one reads what another has written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.constants import PRIMITIVE_TYPES
from avro.errors import AvroException
from avro.name import Names
from avro.schema import Schema, make_avsc_object

_ORDER = (
    "type",
    "name",
    "namespace",
    "doc",
    "symbols",
    "items",
    "values",
    "fields",
    "size",
    "default",
    "order",
    "aliases",
)
"""Of what Java's Schema.toString writes of a type and a field."""
_FIELD_ORDER = ("name", "type", "doc", "default", "order", "aliases")


class AvroSchema:
    """A schema that was read."""

    def __init__(self, text: str, imported: Mapping[str, str]) -> None:
        """`imported` are texts of what it refers to, each behind those that it refers to. Raises ValueError."""
        try:
            names = Names()
            for other in imported.values():
                make_avsc_object(json.loads(other), names)
            said = json.loads(text)
            self._schema: Schema = make_avsc_object(said, names)
            self.text = json.dumps(_canonical(said), separators=(",", ":"), ensure_ascii=False)
        except (AvroException, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from None

    @property
    def identity(self) -> str:
        """The same for the same schema in other words."""
        return self.text

    def cannot_read(self, written: AvroSchema) -> list[str]:
        """Why data of the other one cannot be read by this one."""
        result = ReaderWriterCompatibilityChecker().get_compatibility(self._schema, written._schema)
        if result.compatibility is SchemaCompatibilityType.compatible:
            return []
        kinds = ", ".join(sorted({kind.name.upper() for kind in result.incompatibilities}))
        return [f"{kinds}: {'; '.join(sorted(result.messages))} at {', '.join(sorted(result.locations))}"]


def _canonical(schema: Any) -> Any:
    """As Java's Schema.toString orders it: one text for one schema, whoever wrote it."""
    if isinstance(schema, list):
        return [_canonical(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    kind = schema.get("type")
    if set(schema) == {"type"} and isinstance(kind, str) and kind in PRIMITIVE_TYPES:
        return kind
    said = dict(schema)
    if isinstance(kind, dict | list):
        said["type"] = _canonical(kind)
    for name in ("items", "values"):
        if name in said:
            said[name] = _canonical(said[name])
    if isinstance(said.get("fields"), list):
        said["fields"] = [_field(field) for field in said["fields"]]
    return _ordered(said, _ORDER)


def _field(field: Any) -> Any:
    return _ordered({**field, "type": _canonical(field.get("type"))}, _FIELD_ORDER)


def _ordered(said: Mapping[str, Any], order: tuple[str, ...]) -> dict[str, Any]:
    return {name: said[name] for name in (*order, *said) if name in said}
