"""A table in a DuckDB database. Rows and offsets are written in one transaction.

DuckDB lets one process at a time open a database that is written. The file is open only during a commit, so that other
programs can read it between commits, and a commit waits while another program has it open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb
import pyarrow as pa

from . import host
from .column_renames import ColumnRename
from .offsets import TableOffsets
from .parquet_files import TableSettings
from .sink import Committed, TableConflictError
from .table_types import check_names, stored_schema

_OFFSETS = "barnabas_offsets"
_LOCK_WAIT_S = 30.0
"""Seconds for which a commit waits while another program has the database open."""
_WRITE_BYTES = 4 << 20
"""Decoded bytes of one INSERT."""
_MEMORY_BYTES = 48 << 20
"""DuckDB's memory for rows of up to 16 KB. It is not all that DuckDB uses: rows in Arrow are not counted."""
_VECTOR_ROWS = 2048
"""Rows of which DuckDB has all values in memory when a checkpoint writes the last row group of a table again."""


class DuckDBTable:
    """The table, without partitions."""

    most_bytes = 16 << 20
    """DuckDB keeps the rows of a transaction in memory, and during a checkpoint a row group of about 120,000 rows."""

    def __init__(self, path: Path, table: str, settings: TableSettings) -> None:
        if settings.partition_by:
            raise ValueError("a DuckDB table cannot be partitioned")
        self._path = path
        self._table = table
        self._schema: Any = None
        self._offsets: TableOffsets | None = None
        self._connection: Any = None
        self._waiting: list[Any] = []
        self._waiting_bytes = self._rows = 0
        self._memory_bytes = _MEMORY_BYTES

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()

    def _open(self) -> Any:
        """Return the connection, in a transaction. Raises OSError if another program keeps the database open."""
        if self._connection is None:
            deadline = host.monotonic() + _LOCK_WAIT_S
            while True:
                try:
                    config: dict[str, Any] = {"memory_limit": f"{self._memory_bytes}B", "threads": 1}
                    self._connection = duckdb.connect(str(self._path), config=config)
                    break
                except duckdb.IOException as error:
                    if "lock" not in str(error) or host.monotonic() > deadline:
                        raise OSError(f"{self._path}: {' '.join(str(error).split())}") from None
                    host.pause(0.1)
            self._connection.execute("SET TimeZone = 'UTC'")
            self._connection.execute("SET enable_progress_bar = false")  # it is printed on stdout after two seconds
            self._connection.execute("BEGIN")
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._waiting, self._waiting_bytes, self._rows = [], 0, 0

    def load(self) -> TableOffsets | None:
        self._close()
        self._schema = self._offsets = None
        if not self._path.exists():
            return None
        connection = self._open()
        try:
            self._schema = self._read_schema(connection)
            if self._schema is not None:
                rows = connection.execute(f"SELECT count(*) FROM {_quoted(self._table)}").fetchall()[0][0]
                self._make_room(self._path.stat().st_size / max(rows, 1))
            self._offsets = self._read_offsets(connection)
            if self._schema is not None and self._offsets is None:
                raise ValueError(f"{self._path}: table {self._table!r} exists and was not written by this command")
        finally:
            self._close()
        return self._offsets if self._offsets is not None and self._offsets.offsets else None

    def _read_schema(self, connection: Any) -> Any:
        found = connection.execute(
            "SELECT 1 FROM information_schema.tables WHERE table_schema = 'main' AND table_name = ?", [self._table]
        ).fetchall()
        if not found:
            return None
        rows = connection.sql(f"SELECT * FROM {_quoted(self._table)} LIMIT 0")
        return stored_schema(rows.to_arrow_table().schema)

    def _read_offsets(self, connection: Any) -> TableOffsets | None:
        tables = "SELECT 1 FROM information_schema.tables WHERE table_schema = 'main' AND table_name = ?"
        if not connection.execute(tables, [_OFFSETS]).fetchall():
            return None
        rows = connection.execute(f"SELECT offsets FROM {_OFFSETS} WHERE table_name = ?", [self._table]).fetchall()
        return TableOffsets.of_text(rows[0][0]) if rows else None

    def schema(self) -> Any:
        return self._schema

    def rename(self, renames: Sequence[ColumnRename]) -> None:
        connection = self._open()
        for one in renames:
            path = ".".join(_quoted(part) for part in one.path)
            connection.execute(f"ALTER TABLE {_quoted(self._table)} RENAME COLUMN {path} TO {_quoted(one.name)}")
        connection.execute("COMMIT")
        connection.execute("BEGIN")
        self._schema = self._read_schema(connection)

    def prepare(self, schema: Any) -> Any:
        schema = stored_schema(schema)
        check_names(schema, "DuckDB")
        connection = self._open()
        if self._schema is None:
            connection.register("new_rows", schema.empty_table())
            connection.execute(f"CREATE TABLE {_quoted(self._table)} AS SELECT * FROM new_rows")
            connection.execute(f"CREATE TABLE IF NOT EXISTS {_OFFSETS} (table_name TEXT PRIMARY KEY, offsets TEXT)")
            connection.execute(f"INSERT INTO {_OFFSETS} VALUES (?, ?)", [self._table, TableOffsets().to_text()])
            self._offsets = TableOffsets()
        else:
            self._evolve(connection, schema)
        connection.execute("COMMIT")
        connection.execute("BEGIN")
        self._schema = schema
        return schema

    def _evolve(self, connection: Any, schema: Any) -> None:
        for field in schema:
            index = self._schema.get_field_index(field.name)
            if index >= 0 and self._schema.field(index).type == field.type:
                continue
            kind = _duckdb_type(connection, field)
            change = f"ADD COLUMN {_quoted(field.name)}" if index < 0 else f"ALTER COLUMN {_quoted(field.name)} TYPE"
            connection.execute(f"ALTER TABLE {_quoted(self._table)} {change} {kind}")

    def write(self, batch: Any) -> None:
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= _WRITE_BYTES:
            self._insert()

    def _make_room(self, row_bytes: float) -> None:
        """Raise DuckDB's memory if rows of this size need more."""
        needed = int(row_bytes * _VECTOR_ROWS * 1.5)
        if needed > self._memory_bytes:
            self._memory_bytes = needed
            if self._connection is not None:
                self._connection.execute(f"SET memory_limit = '{needed}B'")

    def _insert(self) -> None:
        if not self._waiting:
            return
        rows = pa.Table.from_batches(self._waiting)
        self._make_room(self._waiting_bytes / rows.num_rows)
        connection = self._open()
        connection.register("new_rows", rows)
        connection.execute(f"INSERT INTO {_quoted(self._table)} BY NAME SELECT * FROM new_rows")
        connection.unregister("new_rows")
        self._rows += rows.num_rows
        self._waiting, self._waiting_bytes = [], 0

    def upsert(self, rows: Iterator[Any], keys: Any, key: str) -> None:
        connection = self._open()
        connection.register("old_keys", pa.table({"old_key": keys}))
        table, name = _quoted(self._table), _quoted(key)
        connection.execute(f"DELETE FROM {table} USING old_keys WHERE {table}.{name} = old_keys.old_key")
        connection.unregister("old_keys")
        for batch in rows:
            self.write(batch)

    def commit(self, offsets: TableOffsets) -> Committed:
        self._insert()
        connection, rows = self._open(), self._rows
        if self._read_offsets(connection) != self._offsets:
            raise TableConflictError(f"{self._path}: the offsets of table {self._table!r} have changed")
        connection.execute(f"UPDATE {_OFFSETS} SET offsets = ? WHERE table_name = ?", [offsets.to_text(), self._table])
        connection.execute("COMMIT")
        self._close()
        self._offsets = offsets
        return Committed(rows, 1 if rows else 0, 0)

    def discard(self) -> None:
        self._close()

    def maintain(self, is_due: Callable[[], bool] = lambda: False) -> int:
        """Return 0: DuckDB merges its own row groups."""
        return 0


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _duckdb_type(connection: Any, field: Any) -> str:
    """Return DuckDB's name of a type, as it derives it from a column of Arrow."""
    connection.register("one_column", pa.schema([field]).empty_table())
    (row,) = connection.execute("DESCRIBE SELECT * FROM one_column").fetchall()
    connection.unregister("one_column")
    return str(row[1])
