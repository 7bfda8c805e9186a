"""The row of the source, and how the records of one partition become Arrow batches of the columns that are wanted."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ...protocol.topic_partition import TopicPartition
from .arrow_columns import binary_array, constant_array, header_array, int_array, time_array
from .record_table import Buffer, RecordTable, Slices
from .value_formats import ValueFormat, formatted_type

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
    """The row when the user gives no schema."""
    fields = [StructField(f.name, formatted_type(formats.get(f.name), f.dataType)) for f in ROW.fields]
    return StructType([*fields, StructField("headers", HEADERS_TYPE)] if headers else fields)


def arrow_schema(schema: StructType) -> Any:
    """The Arrow schema that Spark compares batches with; how it is asked for changed between Spark versions."""
    if "timezone" in inspect.signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)


class RowLayout:
    """Makes batches of `schema`, the user's choice of columns. Raises ValueError for a column that no record has."""

    def __init__(
        self, schema: StructType, formats: Mapping[str, ValueFormat], extra: Mapping[str, DataType] | None = None
    ) -> None:
        self.schema = schema
        self._arrow_schema = arrow_schema(schema)
        self._formats = formats
        self._constants: dict[str, tuple[Any, Any]] = {}
        known = {f.name: f.dataType for f in ROW.fields} | {"headers": HEADERS_TYPE} | dict(extra or {})
        for field in schema.fields:
            if field.name not in known:
                raise ValueError(f"no column {field.name!r}; there are {', '.join(known)}")
            allowed = formatted_type(formats.get(field.name), known[field.name])
            is_free = field.name in formats and formats[field.name].is_structured
            if field.dataType != allowed and not is_free:
                raise ValueError(
                    f"column {field.name!r} is {allowed.simpleString()}, not {field.dataType.simpleString()}"
                )

    @property
    def wants_headers(self) -> bool:
        return "headers" in self.schema.fieldNames()

    def batch(
        self, columns: RecordTable, partition: TopicPartition, extra: Callable[[str, Any], Any] | None = None
    ) -> Any:
        """One Arrow batch; `extra` makes the columns that are not a record's own, by name and type."""
        schema = self._arrow_schema
        arrays = [self._array(field.name, field.type, columns, partition, extra) for field in schema]
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(columns), pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _array(self, name: str, kind: Any, columns: RecordTable, partition: TopicPartition, extra: Any) -> Any:
        if name in ("key", "value"):
            slices = columns.keys if name == "key" else columns.values
            return self._bytes(name, kind, columns.data, slices)
        if name == "topic":
            return self._constant(name, partition.topic, len(columns), kind)
        if name == "partition":
            return self._constant(name, partition.partition, len(columns), kind)
        if name == "offset":
            return int_array(columns.offsets, kind)
        if name == "timestamp":
            return time_array(columns.timestamps, kind)
        if name == "timestampType":
            return int_array(columns.timestamp_types, kind)
        if name == "headers":
            assert columns.heads is not None
            return header_array(columns.data, columns.heads, kind)
        return extra(name, kind)

    def _constant(self, name: str, value: Any, count: int, kind: Any) -> Any:
        """A part of the longest array of this value that was made so far."""
        known, array = self._constants.get(name, (None, ()))
        if known != value or len(array) < count:
            array = constant_array(value, count, kind)
            self._constants[name] = value, array
        return array[:count]

    def _bytes(self, name: str, kind: Any, data: Buffer, slices: Slices) -> Any:
        binary = binary_array(data, slices)
        decoder = self._formats.get(name)
        return binary if decoder is None else decoder.decode(binary, kind)
