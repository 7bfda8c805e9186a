"""A Delta table. The offsets are in the commit information of the log, or before the follower's first commit to a
table of `barnabas spark export` in the checkpoint of Spark's query.

Each commit also has a transaction identifier (`txn`) of the application `barnabas`, whose version increases by one. It
remains in checkpoints when the log is cleaned up, and two commits with it conflict, so that a second follower of the
same table cannot commit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from . import host
from .column_renames import ColumnRename
from .offsets import TableOffsets
from .parquet_files import FileMerge, ParquetFiles, TableSettings, WrittenFile, files_of_merge
from .parquet_table import batches_of, hive_directories, rows_without
from .partitioning import partition_field_of
from .sink import MOST_BYTES, OFFSETS_PROPERTY, Committed, TableConflictError
from .spark_export import SPARK_FIELDS, read_export, take_over
from .table_types import check_names, fit_batch, stored_schema

_APP = "barnabas"
_NUMBER = "barnabas.commit"
_HISTORY = 100
"""Entries of the log that are searched for the offsets before all entries are."""
_VACUUM_EVERY_S = 600.0
"""Seconds between two deletions of files of expired versions."""


class DeltaLakeTable:
    """The table in a folder of this machine."""

    most_bytes = MOST_BYTES

    def __init__(self, folder: Path, settings: TableSettings) -> None:
        self._folder = folder
        self._settings = settings
        self._table: DeltaTable | None = None
        self._number = 0
        self._is_export = False
        """Whether the table has commits of Spark only."""
        self._fields = settings.partition_by
        self._files: ParquetFiles | None = None
        self._replaced: list[RemoveAction] = []
        self._merge: FileMerge | None = None
        self._commits = 0
        self._vacuumed_at = host.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()

    def load(self) -> TableOffsets | None:
        self.discard()
        if not DeltaTable.is_deltatable(str(self._folder)):
            self._table = None
            return None
        self._table = DeltaTable(str(self._folder))
        names = [field.name for field in self._settings.partition_by]
        found = list(self._table.metadata().partition_columns)
        version = self._table.transaction_version(_APP)
        if names and found != names:
            raise ValueError(f"{self._folder}: the table is partitioned by {', '.join(found) or 'no column'}")
        schema = pa.schema(self._table.schema().to_arrow())
        export = read_export(self._folder)
        if export is not None and found == [field.name for field in SPARK_FIELDS]:
            self._fields = SPARK_FIELDS
        else:
            self._fields = self._settings.partition_by or tuple(partition_field_of(name, schema) for name in found)
        if version is None:
            self._number = 0
            if export is not None and self._table.transaction_version(export.query) is not None:
                self._is_export = True
                return export.offsets
            if self._table.file_uris():
                raise ValueError(f"{self._folder}: the Delta table was not written by this command")
            return None
        self._number, self._is_export = version, False
        return self._read_offsets(self._table, version)

    def _read_offsets(self, table: DeltaTable, number: int) -> TableOffsets:
        for limit in (_HISTORY, None):
            restored: int | None = None
            for entry in table.history(limit):
                if restored is not None and entry.get("version", 0) > restored:
                    continue
                if entry.get("operation") == "RESTORE":
                    restored = self._restored_version(entry)
                elif OFFSETS_PROPERTY in entry:
                    return TableOffsets.of_text(str(entry[OFFSETS_PROPERTY]))
        raise ValueError(
            f"{self._folder}: the log no longer has the last commit of the follower, number {number}, and so not its "
            "offsets. Follow the topic with a new table"
        )

    def _restored_version(self, entry: Mapping[str, Any]) -> int:
        """Return the version that a RESTORE has restored. Raises ValueError if the log no longer shows it.

        After a RESTORE by time the log has only the time, from which delta-rs finds the version again. The files of
        both versions are compared: Spark writes a local time without its time zone, and copies of a table may have
        lost the times of its log.
        """
        parameters, number = entry.get("operationParameters", {}), int(entry["version"])
        if parameters.get("version") is not None:
            return int(parameters["version"])
        time = parameters.get("datetime") or parameters.get("timestamp")
        try:
            before = DeltaTable(str(self._folder))
            before.load_as_version(_moment(str(time)))
            after = DeltaTable(str(self._folder), version=number)
            if before.version() < number and set(before.file_uris()) == set(after.file_uris()):
                return int(before.version())
        except (ValueError, DeltaError, OSError) as error:
            raise ValueError(f"{self._folder}: version {number} was restored by time, {time}: {error}") from None
        raise ValueError(
            f"{self._folder}: version {number} was restored by time, and version {before.version()} of {time} has "
            "other files, so that the offsets are unknown. Restore the table by the number of the version"
        )

    def schema(self) -> Any:
        if self._table is None:
            return None
        hidden = {field.name for field in self._fields if field.unit is not None}
        schema = stored_schema(pa.schema(self._table.schema().to_arrow()), has_times=False)
        return pa.schema([field for field in schema if field.name not in hidden])

    def rename(self, renames: Sequence[ColumnRename]) -> None:
        raise ValueError(
            f"{self._folder}: {renames[0]}, and the library deltalake cannot rename columns. Follow the topic with a "
            "new table"
        )

    def prepare(self, schema: Any) -> Any:
        schema = stored_schema(schema, has_times=False)
        check_names(schema, "Delta")
        for field in self._fields:
            field.check(schema)
        known = self.schema()
        if self._table is None:
            self._table = DeltaTable.create(
                str(self._folder),
                schema=self._with_partitions(schema),
                partition_by=[field.name for field in self._fields] or None,
            )
        elif known != schema:
            self._evolve(self._table, known, schema)
        return schema

    def _with_partitions(self, schema: Any) -> Any:
        times = [pa.field(field.name, pa.string()) for field in self._fields if field.unit is not None]
        return pa.schema([*schema, *times])

    def _evolve(self, table: DeltaTable, known: Any, schema: Any) -> None:
        """Add columns. Raises ValueError for a wider type: readers without Delta's type widening do not support it."""
        added = []
        for field in schema:
            index = known.get_field_index(field.name)
            if index < 0:
                added.append(field)
            elif known.field(index).type != field.type:
                raise ValueError(
                    f"column {field.name!r}: the Delta table has {known.field(index).type}, and the schema of the "
                    f"topic needs {field.type}: the type of a column of Delta cannot be changed"
                )
        from deltalake import Schema

        table.alter.add_columns(list(Schema.from_arrow(pa.schema(added)).fields))
        table.update_incremental()

    def write(self, batch: Any) -> None:
        if self._files is None:
            self._files = self._new_files(batch.schema)
        self._files.write(batch)

    def _new_files(self, schema: Any) -> ParquetFiles:
        # The columns of partitions are in the paths, not in the files.
        stored = [field for field in schema if field.name not in self._identities()]
        return ParquetFiles(self._create, pa.schema(stored), self._settings, partition_by=self._fields)

    def _identities(self) -> set[str]:
        return {field.source for field in self._fields if field.unit is None}

    def _create(self, name: str, values: tuple[Any, ...]) -> Any:
        path = self._folder / self._path_of(name, values)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("wb")

    def _path_of(self, name: str, values: tuple[Any, ...]) -> str:
        return "/".join([*hive_directories(self._fields, values), name])

    def upsert(self, rows: Iterator[Any], keys: Any, key: str) -> None:
        """Rewrite the files that have one of the keys without their rows, and add the new rows.

        The library's own merge holds all files with one of the keys in memory.
        """
        assert self._table is not None
        if self._fields is SPARK_FIELDS:
            raise ValueError(f"{self._folder}: upsert does not support a table that Spark has created")
        if self._has_deletion_vectors(self._table):
            raise ValueError(
                f"{self._folder}: the table has deletion vectors of another program, which an upsert cannot apply. "
                "Rewrite its data files without them, for example with REORG TABLE … APPLY (PURGE)"
            )
        schema = self.schema()
        for file in _data_files(self._table):
            found = rows_without(partial(self._batches_of, file, schema), key, keys)
            if found is not None:
                if self._merge is not None and file in self._merge.replaced:
                    self._discard_merge()
                self._replaced.append(_removal_of(file))
                for batch in found:
                    self.write(batch)
        for batch in rows:
            self.write(batch)

    def _has_deletion_vectors(self, table: DeltaTable) -> bool:
        if "deletionVectors" not in (table.protocol().reader_features or ()):
            return False
        return any(True for _ in table.deletion_vectors())

    def _batches_of(self, file: Mapping[str, Any], schema: Any, columns: list[str] | None = None) -> Iterator[Any]:
        """Yield the rows of a data file, with the columns of its partition, whose values are only in the log."""
        given = {name: file["partition"][name] for name in self._identities()}
        wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
        stored = None if columns is None else [name for name in columns if name not in given]
        for batch in batches_of(self._folder / unquote(file["path"]), stored):
            for name, value in given.items():
                array = pa.repeat(pa.scalar(value, schema.field(name).type), batch.num_rows)
                batch = batch.append_column(name, array)
            yield fit_batch(batch, wanted)

    def commit(self, offsets: TableOffsets) -> Committed:
        assert self._table is not None
        written = self._files.finish() if self._files is not None else []
        for one in written:
            host.sync_file(self._folder / self._path_of(one.name, one.values))
        properties = CommitProperties(
            custom_metadata={OFFSETS_PROPERTY: offsets.to_text(), _NUMBER: str(self._number + 1)},
            app_transactions=[Transaction(_APP, self._number + 1, host.now_ms())],
        )
        replaced = self._replaced
        # From here on the files may be part of the table, also if the commit reports an error.
        self._files, self._replaced = None, []
        try:
            if self._is_export:
                take_over(self._folder)
            self._replace(self._table, written, replaced, properties)
        except CommitFailedError as error:
            raise TableConflictError(f"{self._folder}: {error}") from error
        self._number, self._is_export = self._number + 1, False
        self._update(self._table, self._number)
        self._commits += 1
        host.sync_file(self._folder / "_delta_log")
        return Committed(sum(one.rows for one in written), len(written), sum(one.size for one in written))

    def _replace(
        self,
        table: DeltaTable,
        written: list[WrittenFile],
        replaced: list[RemoveAction],
        properties: CommitProperties,
        *,
        has_new_rows: bool = True,
    ) -> None:
        """Add files, and remove others, in one commit; without new rows for a merge, which streams then ignore."""
        added = [
            AddAction(
                self._path_of(one.name, one.values),
                one.size,
                {field.name: _partition_text(value) for field, value in zip(self._fields, one.values, strict=True)},
                host.now_ms(),
                has_new_rows,
                _statistics(one),
            )
            for one in written
        ]
        table.create_write_transaction(
            [*added, *replaced],
            mode="append",
            schema=table.schema(),
            partition_by=list(table.metadata().partition_columns) or None,
            commit_properties=properties,
        )

    def _update(self, table: DeltaTable, number: int) -> None:
        """Load the commits since the last one. Raises TableConflictError if there is one of another follower.

        The next commit would be after it, and would repeat its rows. `number` is that of the last commit of this one.
        """
        table.update_incremental()
        if (table.transaction_version(_APP) or 0) != number:
            raise TableConflictError(f"{self._folder}: another follower has written to the table")

    def discard(self) -> None:
        self._discard_merge()
        if self._files is not None:
            self._unlink(self._files)
        self._files, self._replaced = None, []

    def _discard_merge(self) -> None:
        if self._merge is not None:
            self._unlink(self._merge.files)
            self._commits = self._settings.merge_at  # the next maintenance begins another merge
        self._merge = None

    def _unlink(self, files: ParquetFiles) -> None:
        for name, values in files.discard():
            (self._folder / self._path_of(name, values)).unlink(missing_ok=True)

    def maintain(self, is_due: Callable[[], bool] = lambda: False) -> int:
        """Merge the small files of a partition, and delete files of expired versions every ten minutes.

        The files are counted every `merge_at` commits. The library's own merge uses 1.3 GB of memory for 500 MB.
        """
        if self._table is None:
            return 0
        try:
            if self._merge is None and self._settings.merge_at and self._commits >= self._settings.merge_at:
                self._merge = self._begin_merge(self._table)
            merged = self._continue_merge(self._table, self._merge, is_due) if self._merge is not None else 0
            if host.monotonic() > self._vacuumed_at + _VACUUM_EVERY_S:
                # Upserts replace files too, also in a table whose files are not merged.
                hours = max(1, round(self._settings.keep_snapshots_s / 3600))
                self._table.vacuum(retention_hours=hours, dry_run=False, enforce_retention_duration=False)
                self._update(self._table, self._number)
                self._vacuumed_at = host.monotonic()
        except CommitFailedError as error:
            raise TableConflictError(f"{self._folder}: {error}") from error
        return merged

    def _begin_merge(self, table: DeltaTable) -> FileMerge | None:
        self._commits = 0
        if self._has_deletion_vectors(table):
            return None
        small: dict[str, list[Any]] = {}
        for file in _data_files(table):
            is_own = file["path"].rpartition("/")[2].startswith("barnabas-")
            if is_own and file["size_bytes"] < self._settings.target_bytes // 2:
                small.setdefault(str(file.get("partition")), []).append(file)
        groups = sorted(small.values(), key=len)
        found = groups.pop() if groups else []
        if len(found) < self._settings.merge_at:
            return None
        merged = files_of_merge(found, lambda file: int(file["size_bytes"]), self._settings.target_bytes)
        # If as many files are left, here or in another partition, the next maintenance begins another merge.
        self._commits = max(len(found) - len(merged), len(groups[-1]) if groups else 0)
        schema = self.schema()
        batches = (batch for file in merged for batch in self._batches_of(file, schema))
        return FileMerge(merged, batches, self._new_files(schema))

    def _continue_merge(self, table: DeltaTable, merge: FileMerge, is_due: Callable[[], bool]) -> int:
        # A merge contains several versions of the table. Another program may have replaced the files in one of them, or
        # deleted rows: the library compares only commits that are newer than the loaded version.
        present = {file["path"] for file in _data_files(table)}
        if self._has_deletion_vectors(table) or not all(file["path"] in present for file in merge.replaced):
            self._discard_merge()
            return 0
        try:
            written = merge.run(is_due)
        except BaseException:
            self._discard_merge()
            raise
        if written is None:
            return 0
        self._merge = None
        for one in written:
            host.sync_file(self._folder / self._path_of(one.name, one.values))
        removed = [_removal_of(file, has_new_rows=False) for file in merge.replaced]
        # With the number of the last commit: a commit of another follower is a conflict, as for other commits.
        properties = CommitProperties(app_transactions=[Transaction(_APP, self._number, host.now_ms())])
        self._replace(table, written, removed, properties, has_new_rows=False)
        self._update(table, self._number)
        return len(merge.replaced)


def _moment(text: str) -> datetime:
    """Parse the time of a RESTORE: milliseconds since 1970 of delta-rs, or a time of Spark, which is taken as UTC.

    Raises ValueError.
    """
    if text.isdecimal():
        return datetime.fromtimestamp(int(text) / 1000, UTC)
    found = datetime.fromisoformat(text)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _data_files(table: DeltaTable) -> list[dict[str, Any]]:
    """Return the path, the size and the partition of each data file."""
    files = pa.table(table.get_add_actions())
    names = [name for name in ("path", "size_bytes", "partition") if name in files.column_names]
    return list(files.select(names).to_pylist())


def _removal_of(file: Mapping[str, Any], *, has_new_rows: bool = True) -> RemoveAction:
    values = {name: _partition_text(value) for name, value in (file.get("partition") or {}).items()}
    # The library encodes the path for the log, and returns it encoded.
    return RemoveAction(unquote(file["path"]), has_new_rows, host.now_ms(), file["size_bytes"], values)


def _partition_text(value: Any) -> str | None:
    """Return the value of a partition as the log has it."""
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _statistics(one: WrittenFile) -> str:
    """Return the number of rows, and bounds of numbers, as the log of Delta has them."""
    low: dict[str, int] = {}
    high: dict[str, int] = {}
    for index in range(one.metadata.num_columns):
        column = one.metadata.schema.column(index)
        # The types of Parquet: pyarrow fails to convert bounds such as a time after the year 9999.
        if column.physical_type not in ("INT32", "INT64") or column.logical_type.type not in ("NONE", "INT"):
            continue
        found = [one.metadata.row_group(group).column(index).statistics for group in range(one.metadata.num_row_groups)]
        if found and all(s is not None and s.has_min_max for s in found):
            low[column.path] = min(s.min for s in found)
            high[column.path] = max(s.max for s in found)
    return json.dumps({"numRecords": one.rows, "minValues": low, "maxValues": high})
