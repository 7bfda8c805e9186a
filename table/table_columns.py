"""The columns of a table of records: the fields of decoded values, and the record's own columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from ..arrow.record_layout import COLUMNS, HEADERS_TYPE
from ..arrow.value_types import Format, RegistryValues, column_formats
from .column_renames import ColumnRename, find_renames
from .table_types import merge_schemas, stored_schema

OnError: TypeAlias = Literal["stop", "column", "topic"]
ERROR, RAW_VALUE, RAW_KEY = "error", "raw_value", "raw_key"
"""Columns of unreadable records with `on_error="column"`: the reason, and the bytes."""


@dataclass(frozen=True)
class ColumnSettings:
    """Formats of keys and values, and the choice of columns.

    The fields of a value that is a struct are columns, unless `nest` is true. `prefix` is put before the names of the
    other columns: key, topic, partition, offset, timestamp, headers.
    """

    key: Format = "binary"
    value: Format = "binary"
    prefix: str = ""
    nest: bool = False
    topic: bool = False
    headers: bool = False
    on_error: OnError = "stop"


class TableColumns:
    """The columns of the records of topics, with the present schema of the registry if there is one.

    Raises ValueError for an invalid format, and OSError if a registry does not respond.
    """

    def __init__(self, settings: ColumnSettings, topics: Sequence[str], table: Any = None) -> None:
        """Read the schemas. `table` has the columns of the existing table, which remain fields of values."""
        self._types, self.formats = column_formats(settings.key, settings.value, topics)
        self._is_flat = pa.types.is_struct(self._types["value"]) and not settings.nest
        self.settings = settings = self._with_columns_of(settings, table)
        self.renames = list(self._find_renames(table)) if table is not None else []
        """Columns of the table that have other names in the latest schema."""
        if self._is_flat and table is not None and isinstance(settings.value, RegistryValues):
            self._keep_fields(table)
        self.layout = pa.schema([pa.field(name, kind) for name, kind in self._layout_types().items()])
        """The columns that are decoded from records."""
        self.schema = stored_schema(pa.schema(list(self._fields())))
        """The columns of the table."""

    def _with_columns_of(self, settings: ColumnSettings, table: Any) -> ColumnSettings:
        """Return the settings with the columns `topic` and `headers` if the table has them, as a table of Spark has."""
        fields = {one.name for one in self._types["value"]} if self._is_flat else set()
        own = () if table is None else [name for name in table.names if name not in fields]
        return replace(
            settings,
            topic=settings.topic or settings.prefix + "topic" in own,
            headers=settings.headers or settings.prefix + "headers" in own,
        )

    def _keep_fields(self, table: Any) -> None:
        """Decode the fields that the table has and the latest schema lacks: older records contain them."""
        latest = pa.schema(list(self._types["value"]))
        renamed = {one.path[0] for one in self.renames if len(one.path) == 1}
        missing = [one for one in self._fields_of(table) if one.name not in latest.names and one.name not in renamed]
        self._types["value"] = pa.struct([*latest, *missing])

    def _fields_of(self, table: Any) -> list[Any]:
        """Return the columns of the table that are fields of values."""
        own = {self.settings.prefix + name for name in (*COLUMNS, ERROR, RAW_VALUE, RAW_KEY)}
        return [one for one in table if one.name not in own]

    def _find_renames(self, table: Any) -> Iterator[ColumnRename]:
        for column, form in self.formats.items():
            shown = self.settings.prefix + column
            if column == "value" and self._is_flat:
                yield from find_renames((), pa.struct(self._fields_of(table)), self._types[column], form.names)
            elif shown in table.names:
                yield from find_renames((shown,), table.field(shown).type, self._types[column], form.names)

    def _layout_types(self) -> dict[str, Any]:
        kinds = {"key": self._types["key"], "value": self._types["value"]}
        kinds |= {name: COLUMNS[name] for name in ("topic", "partition", "offset")}
        kinds["timestamp"] = pa.timestamp("us", tz="UTC")
        if self.settings.headers:
            kinds["headers"] = HEADERS_TYPE
        if self.settings.on_error != "stop":
            kinds |= {f"{name}_error": pa.string() for name in self.formats}
        return kinds

    @property
    def own_names(self) -> dict[str, str]:
        """Return the record's own columns that the table has (partition, offset, …), by their names in the table."""
        s = self.settings
        names = ["partition", "offset", "timestamp", "key"]
        names = (["topic"] if s.topic else []) + names + (["headers"] if s.headers else [])
        names += [] if self._is_flat else ["value"]
        return {s.prefix + name: name for name in names}

    def _fields(self) -> list[Any]:
        prefix = self.settings.prefix
        fields = [pa.field(shown, self.layout.field(name).type) for shown, name in self.own_names.items()]
        if self.settings.on_error == "column":
            fields.append(pa.field(prefix + ERROR, pa.string()))
            fields += [pa.field(prefix + name, pa.binary()) for name in (RAW_KEY, RAW_VALUE)]
        if self._is_flat:
            taken = {field.name for field in fields}
            for field in self._types["value"]:
                if field.name in taken:
                    raise ValueError(
                        f"values have a field {field.name!r}, which is also a column of records. Set a prefix for the "
                        "columns of records"
                    )
                fields.append(field)
        return fields

    def rows(self, batch: Any, failures: Any = None) -> Any:
        """Return decoded records as rows of the table; `failures` has the columns of unreadable records."""
        arrays, fields = [], []
        for shown, name in self.own_names.items():
            arrays.append(batch.column(batch.schema.get_field_index(name)))
            fields.append(pa.field(shown, arrays[-1].type))
        for name, array in (failures or {}).items():
            arrays.append(array)
            fields.append(pa.field(self.settings.prefix + name, array.type))
        if self._is_flat:
            value = batch.column(batch.schema.get_field_index("value"))
            arrays += value.flatten()
            fields += list(value.type)
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def merged(self, table: Any) -> Any:
        """Return the columns of the table together with these columns. Raises ValueError for incompatible types."""
        return self.schema if table is None else merge_schemas(table, self.schema)
