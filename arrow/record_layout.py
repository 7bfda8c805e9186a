"""The columns of records, and the conversion of the records of one partition to record batches of a schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute

from ..protocol.topic_partition import TopicPartition
from .arrow_columns import (
    binary_array,
    constant_array,
    find_unfit_times,
    header_array,
    int_array,
    time_array,
)
from .record_table import Ints, RecordTable
from .value_formats import UnreadableValueError, ValueFormat

HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
COLUMNS: dict[str, Any] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("ms", tz="UTC"),
    "timestamp_type": pa.int8(),
    "headers": HEADERS_TYPE,
}
"""The columns of every record. `timestamp_type` is 0 for the producer's time, 1 for the broker's, -1 for none."""
ERROR_COLUMNS = {"key_error": "key", "value_error": "value"}
"""Columns with the reason why a key or value is unreadable, null for readable ones."""


class RecordLayout:
    """Builds record batches of a schema, whose columns are fields of records or are built by the caller.

    `fields` maps other names of columns to the names in `COLUMNS`. A key or value that its format cannot read, and a
    time that does not fit into its type, is an error unless `null_on_error`; the message ends with `time_remedy`.
    Used by one thread.
    """

    def __init__(
        self,
        schema: Any,
        formats: Mapping[str, ValueFormat],
        *,
        null_on_error: bool = False,
        fields: Mapping[str, str] | None = None,
        time_remedy: str = "",
    ) -> None:
        self.schema = schema
        self._formats = formats
        self._null_on_error = null_on_error
        self._time_remedy = time_remedy
        self._columns = [(field.name, (fields or {}).get(field.name, field.name), field.type) for field in schema]
        self._constants: dict[str, tuple[Any, Any]] = {}

    @property
    def wants_headers(self) -> bool:
        return "headers" in self.schema.names

    def batch(
        self, columns: RecordTable, partition: TopicPartition, extra: Callable[[str, Any], Any] | None = None
    ) -> Any:
        """Build one record batch; `extra` builds the columns that are not fields of a record, by name and type.

        Raises ValueError with the partition and the offset of an unreadable key, value or time.
        """
        failures: dict[str, dict[int, str]] = {}
        arrays = [
            self._array(name, source, kind, columns, partition, extra, failures)
            for name, source, kind in self._columns
            if source not in ERROR_COLUMNS
        ]
        for index, (_, source, _) in enumerate(self._columns):
            if source in ERROR_COLUMNS:
                arrays.insert(index, _reasons(failures.get(ERROR_COLUMNS[source], {}), len(columns)))
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(columns), pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _array(
        self,
        name: str,
        source: str,
        kind: Any,
        columns: RecordTable,
        partition: TopicPartition,
        extra: Any,
        failures: dict[str, dict[int, str]],
    ) -> Any:
        match source:
            case "key" | "value":
                return self._bytes(source, kind, columns, partition, failures)
            case "topic":
                return self._constant(name, partition.topic, len(columns), kind)
            case "partition":
                return self._constant(name, partition.partition, len(columns), kind)
            case "offset":
                return int_array(columns.offsets, kind)
            case "timestamp":
                return self._times(kind, columns, partition)
            case "timestamp_type":
                return int_array(columns.timestamp_types, kind)
            case "headers":
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

    def _bytes(
        self,
        name: str,
        kind: Any,
        columns: RecordTable,
        partition: TopicPartition,
        failures: dict[str, dict[int, str]],
    ) -> Any:
        binary = binary_array(columns.data, columns.keys if name == "key" else columns.values)
        decoder = self._formats.get(name)
        if decoder is None:
            return binary
        failed: dict[int, str] = failures.setdefault(name, {})
        try:
            return decoder.decode(binary, kind, failed if self._null_on_error else None)
        except UnreadableValueError as error:
            raise ValueError(f"{name} of {partition} at offset {columns.offsets[error.row]}: {error}") from error

    def _times(self, kind: Any, columns: RecordTable, partition: TopicPartition) -> Any:
        if kind.unit == "ms" or not len(unfit := find_unfit_times(columns.timestamps)):
            return time_array(columns.timestamps, kind)
        if not self._null_on_error:
            first = unfit[0]
            raise ValueError(
                f"timestamp of {partition} at offset {columns.offsets[first]}: {columns.timestamps[first]} ms exceed "
                f"a timestamp in microseconds; is it in nanoseconds? {self._time_remedy}"
            )
        milliseconds = columns.timestamps.copy()
        milliseconds[unfit] = 0
        is_unfit: Ints = np.zeros(len(columns), bool)
        is_unfit[unfit] = True
        return compute.if_else(pa.array(is_unfit), pa.scalar(None, kind), time_array(milliseconds, kind))


def _reasons(failed: Mapping[int, str], count: int) -> Any:
    if not failed:
        return pa.nulls(count, pa.string())
    return pa.array([failed.get(row) for row in range(count)], pa.string())
