"""The row of the source, and the conversion of the records of one partition to Arrow batches of the requested
columns.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute
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

from ..arrow.arrow_columns import (
    binary_array,
    constant_array,
    find_unfit_times,
    header_array,
    int_array,
    time_array,
)
from ..arrow.record_table import Ints, RecordTable
from ..arrow.value_conversion import converter
from ..arrow.value_formats import UnreadableValueError, ValueFormat
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
        self._arrow_schema = arrow_schema(schema)
        self._formats = formats
        self._null_on_error = null_on_error
        self._constants: dict[str, tuple[Any, Any]] = {}
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
                    converter(self._arrow_schema.field(field.name).type)
                except ValueError as error:
                    raise ValueError(f"column {field.name!r}: {error}") from None

    @property
    def wants_headers(self) -> bool:
        return "headers" in self.schema.fieldNames()

    def batch(
        self, columns: RecordTable, partition: TopicPartition, extra: Callable[[str, Any], Any] | None = None
    ) -> Any:
        """Build one Arrow batch; `extra` builds the columns that are not fields of a record, by name and type."""
        schema = self._arrow_schema
        arrays = [self._array(field.name, field.type, columns, partition, extra) for field in schema]
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(columns), pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _array(self, name: str, kind: Any, columns: RecordTable, partition: TopicPartition, extra: Any) -> Any:
        if name in ("key", "value"):
            return self._bytes(name, kind, columns, partition)
        if name == "topic":
            return self._constant(name, partition.topic, len(columns), kind)
        if name == "partition":
            return self._constant(name, partition.partition, len(columns), kind)
        if name == "offset":
            return int_array(columns.offsets, kind)
        if name == "timestamp":
            return self._times(kind, columns, partition)
        if name == "timestampType":
            return int_array(columns.timestamp_types, kind)
        if name == "headers":
            assert columns.heads is not None
            return header_array(columns.data, columns.heads, kind)
        return extra(name, kind)

    def _constant(self, name: str, value: Any, count: int, kind: Any) -> Any:
        """Return a slice of the longest array of this value so far."""
        known, array = self._constants.get(name, (None, ()))
        if known != value or len(array) < count:
            array = constant_array(value, count, kind)
            self._constants[name] = value, array
        return array[:count]

    def _bytes(self, name: str, kind: Any, columns: RecordTable, partition: TopicPartition) -> Any:
        binary = binary_array(columns.data, columns.keys if name == "key" else columns.values)
        decoder = self._formats.get(name)
        if decoder is None:
            return binary
        try:
            return decoder.decode(binary, kind)
        except UnreadableValueError as error:
            raise ValueError(f"{name} of {partition} at offset {columns.offsets[error.row]}: {error}") from error

    def _times(self, kind: Any, columns: RecordTable, partition: TopicPartition) -> Any:
        unfit = find_unfit_times(columns.timestamps)
        if not len(unfit):
            return time_array(columns.timestamps, kind)
        if not self._null_on_error:
            first = unfit[0]
            raise ValueError(
                f"timestamp of {partition} at offset {columns.offsets[first]}: {columns.timestamps[first]} ms exceed "
                "a timestamp in microseconds; is it in nanoseconds? Set option valueErrors to null to read it as "
                "null."
            )
        milliseconds = columns.timestamps.copy()
        milliseconds[unfit] = 0
        is_unfit: Ints = np.zeros(len(columns), bool)
        is_unfit[unfit] = True
        return compute.if_else(pa.array(is_unfit), pa.scalar(None, kind), time_array(milliseconds, kind))


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
