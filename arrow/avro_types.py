"""The type of Arrow for a schema of Avro, as Spark's `from_avro` chooses it, with fixed sizes and times kept."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

_PRIMITIVES = {
    "null": pa.null(), "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "bytes": pa.binary(), "string": pa.string(),
}  # fmt: skip
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("us", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("string", "uuid"): pa.string(),
}


def avro_type(schema: Any, named: dict[str, Any] | None = None) -> Any:
    """Return the type of a schema that fastavro has parsed.

    A union of several types is a struct with a member for each. `parse_avro_schema` rejects recursive schemas.
    """
    named = {} if named is None else named
    if isinstance(schema, list):
        members = [avro_type(branch, named) for branch in schema if branch != "null"]
        if len(members) <= 1:
            return members[0] if members else pa.null()
        return pa.struct([pa.field(f"member{i}", member) for i, member in enumerate(members)])
    if isinstance(schema, str):
        return _PRIMITIVES[schema] if schema in _PRIMITIVES else named[schema]
    kind, logical = schema["type"], schema.get("logicalType")
    if isinstance(kind, dict | list):
        return avro_type(kind, named)
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = int(schema["precision"]), int(schema.get("scale", 0))
        found = pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
        return _remember(schema, found, named)
    if (kind, logical) in _LOGICAL:
        return _LOGICAL[kind, logical]
    match kind:
        case "record" | "error":
            fields = [pa.field(field["name"], avro_type(field["type"], named)) for field in schema["fields"]]
            return _remember(schema, pa.struct(fields), named)
        case "enum":
            return _remember(schema, pa.string(), named)
        case "fixed":
            return _remember(schema, pa.binary(), named)
        case "array":
            return pa.list_(avro_type(schema["items"], named))
        case "map":
            return pa.map_(pa.string(), avro_type(schema["values"], named))
    return avro_type(kind, named)


def _remember(schema: Any, kind: Any, named: dict[str, Any]) -> Any:
    if "name" in schema:
        named[schema["name"]] = kind
    return kind
