"""The row of the source, and the conversion of the records of one partition to Arrow batches of the requested
columns.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ..arrow.record_layout import RecordLayout
from ..arrow.record_table import RecordTable
from ..arrow.value_conversion import converter
from ..arrow.value_formats import ValueFormat
from ..protocol.topic_partition import TopicPartition
from .value_formats import formatted_type

HEADERS_TYPE = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
ROW = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
"""Spark's Kafka row, without headers."""


def default_row(formats: Mapping[str, ValueFormat], *, headers: bool) -> StructType:
    """Return the default schema."""
    fields = [StructField(f.name, formatted_type(formats.get(f.name), f.dataType)) for f in ROW.fields]
    return StructType([*fields, StructField("headers", HEADERS_TYPE)] if headers else fields)


def arrow_schema(schema: StructType) -> Any:
    """Return the Arrow schema that Spark compares batches with; the function differs between Spark versions."""
    if "timezone" in inspect.signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)


class RowLayout:
    """Builds batches of `schema`, the user's choice of columns. Raises ValueError for an unknown column."""

    def __init__(
        self,
        schema: StructType,
        formats: Mapping[str, ValueFormat],
        extra: Mapping[str, DataType] | None = None,
        *,
        null_on_error: bool = False,
    ) -> None:
        self.schema = schema
        self._layout = RecordLayout(
            arrow_schema(schema),
            formats,
            null_on_error=null_on_error,
            fields={"timestampType": "timestamp_type"},
            time_remedy="Set option valueErrors to null to read it as null.",
        )
        known = {f.name: f.dataType for f in ROW.fields} | {"headers": HEADERS_TYPE} | dict(extra or {})
        for field in schema.fields:
            if field.name not in known:
                raise ValueError(f"unknown column {field.name!r}. Expected one of {', '.join(known)}")
            allowed = formatted_type(formats.get(field.name), known[field.name])
            is_free = field.name in formats and formats[field.name].is_structured
            if field.dataType != allowed and not is_free:
                raise ValueError(
                    f"column {field.name!r} is {allowed.simpleString()}, not {field.dataType.simpleString()}"
                )
            if is_free:
                try:
                    _check_type(field.dataType)
                    converter(self._layout.schema.field(field.name).type)
                except ValueError as error:
                    raise ValueError(f"column {field.name!r}: {error}") from None

    @property
    def wants_headers(self) -> bool:
        return "headers" in self.schema.fieldNames()

    def batch(
        self, columns: RecordTable, partition: TopicPartition, extra: Callable[[str, Any], Any] | None = None
    ) -> Any:
        """Build one Arrow batch; `extra` builds the columns that are not fields of a record, by name and type."""
        return self._layout.batch(columns, partition, extra)


def _check_type(kind: DataType) -> None:
    """Raise ValueError for a type of Spark whose Arrow type belongs to another type."""
    if kind.typeName() == "variant":
        raise ValueError("values cannot be read as variant: read them as string, and use parse_json")
    inner = [field.dataType for field in kind.fields] if isinstance(kind, StructType) else []
    if isinstance(kind, ArrayType):
        inner = [kind.elementType]
    if isinstance(kind, MapType):
        inner = [kind.keyType, kind.valueType]
    for each in inner:
        _check_type(each)
