"""A table as a folder of Parquet files, with a manifest that is replaced as a whole by each commit.

`_barnabas_table.json` lists the files of the table, its columns and its offsets. A commit has three steps: the new
files are written to `_pending/` and synced; the manifest is replaced, which is the moment of the commit; the new files
are renamed into the folder. A follower that starts finishes the third step of an interrupted commit, and deletes the
pending files of an interrupted first step. Readers of `*.parquet` in the folder, such as DuckDB, Polars and Spark,
therefore never see a record twice, and `read_manifest` returns the files of one commit.

A folder that `barnabas spark export` has written is continued: its finished files and its offsets become the manifest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import pyarrow as pa
from pyarrow import compute, parquet

from . import host
from .column_renames import ColumnRename
from .offsets import TableOffsets
from .parquet_files import FileMerge, ParquetFiles, TableSettings, WrittenFile, files_of_merge
from .partitioning import PartitionField, partition_field_of
from .sink import MOST_BYTES, Committed
from .spark_export import SPARK_FIELDS, read_export, retire_sink_log, take_over
from .table_types import fit_batch, merge_schemas, stored_schema

MANIFEST = "_barnabas_table.json"
_PENDING, _SUFFIX = "_pending", ".pending"
_LOCK = "_barnabas_lock"
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
_MOST_ROWS = 65_536
"""Rows that are decoded at a time."""


@dataclass(frozen=True)
class FolderManifest:
    """One state of the table. `files` has the rows and bytes of each data file, by its path in the folder."""

    offsets: TableOffsets
    schema: Any
    files: Mapping[str, tuple[int, int]]
    partition_by: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    """Files of the previous state that a merge or an upsert has replaced, and that are deleted after the commit."""

    def to_bytes(self) -> bytes:
        schema = self.schema.serialize().to_pybytes().hex()
        return json.dumps(
            {
                "offsets": json.loads(self.offsets.to_text()),
                "schema": schema,
                "partitionBy": self.partition_by,
                "files": {name: list(counts) for name, counts in self.files.items()},
                "replaced": self.replaced,
            },
            indent=1,
        ).encode()

    @classmethod
    def of_bytes(cls, data: bytes) -> FolderManifest:
        """Parse the file. Raises ValueError."""
        try:
            value = json.loads(data)
            return cls(
                TableOffsets.of_text(json.dumps(value["offsets"])),
                pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(value["schema"]))),
                {name: (int(rows), int(size)) for name, (rows, size) in value["files"].items()},
                tuple(value["partitionBy"]),
                tuple(value["replaced"]),
            )
        except (ValueError, KeyError, TypeError, pa.ArrowInvalid) as error:
            raise ValueError(f"{MANIFEST}: invalid content: {error}") from None


def read_manifest(folder: Path) -> FolderManifest:
    """Return the current state of a table. Raises FileNotFoundError, ValueError."""
    return FolderManifest.of_bytes((folder / MANIFEST).read_bytes())


class ParquetTable:
    """The folder. One process writes it: `__enter__` of a second one raises ValueError."""

    most_bytes = MOST_BYTES

    def __init__(self, folder: Path, settings: TableSettings) -> None:
        self._folder = folder
        self._settings = settings
        self._manifest: FolderManifest | None = None
        self._fields = settings.partition_by
        self._stack = ExitStack()
        self._files: ParquetFiles | None = None
        self._rewritten: list[str] = []
        self._merge: FileMerge | None = None

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            self._stack.enter_context(host.locked(self._folder / _LOCK))
        except BlockingIOError:
            raise ValueError(f"{self._folder}: another process writes to this table") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()
        self._stack.close()

    def load(self) -> TableOffsets | None:
        """Finish or drop an interrupted commit, and read the manifest."""
        self.discard()
        try:
            self._manifest = read_manifest(self._folder)
        except FileNotFoundError:
            self._manifest = self._begun_by_spark()
        if self._manifest is None:
            host.remove_folder(self._folder / _PENDING)
            if any(self._folder.glob("*.parquet")):
                raise ValueError(f"{self._folder}: it has Parquet files, but no {MANIFEST}") from None
            return None
        found = self._manifest.partition_by
        if not self._settings.partition_by:
            is_spark = found == tuple(field.name for field in SPARK_FIELDS)
            schema = self._manifest.schema
            self._fields = SPARK_FIELDS if is_spark else tuple(partition_field_of(name, schema) for name in found)
        elif found != tuple(field.name for field in self._fields):
            raise ValueError(f"{self._folder}: the table is partitioned by {', '.join(found) or 'no column'}")
        retire_sink_log(self._folder, self._manifest.files)
        self._finish(self._manifest)
        return self._manifest.offsets

    def _begun_by_spark(self) -> FolderManifest | None:
        export = read_export(self._folder)
        if export is None:
            return None
        files, schema = {}, pa.schema([pa.field("topic", pa.string())])
        for name in export.files:
            footer = parquet.read_metadata(self._folder / name)
            files[name] = (footer.num_rows, (self._folder / name).stat().st_size)
            schema = merge_schemas(schema, stored_schema(_instants(footer.schema.to_arrow_schema())))
        manifest = FolderManifest(export.offsets, schema, files, tuple(field.name for field in SPARK_FIELDS))
        take_over(self._folder)
        host.replace_file(self._folder / MANIFEST, manifest.to_bytes())
        return manifest

    def schema(self) -> Any:
        return None if self._manifest is None else self._manifest.schema

    def rename(self, renames: Sequence[ColumnRename]) -> None:
        """Keep the columns: their names are stored only in the files."""

    def prepare(self, schema: Any) -> Any:
        schema = stored_schema(schema)
        for field in self._fields:
            field.check(schema)
        if self._manifest is None:
            self._manifest = FolderManifest(TableOffsets(), schema, {}, tuple(field.name for field in self._fields))
        elif self._manifest.schema != schema:
            old = self._manifest
            self._manifest = FolderManifest(old.offsets, schema, old.files, old.partition_by, old.replaced)
        return schema

    def write(self, batch: Any) -> None:
        if self._files is None:
            self._files = self._new_files(batch.schema)
        self._files.write(batch)

    def _new_files(self, schema: Any) -> ParquetFiles:
        return ParquetFiles(self._create, schema, self._settings, partition_by=self._fields)

    def _create(self, name: str, values: tuple[Any, ...]) -> Any:
        path = self._pending(name)
        path.parent.mkdir(exist_ok=True)
        return path.open("wb")

    def _pending(self, name: str) -> Path:
        """Return the path of a file before its commit, which a pattern such as `**/*.parquet` does not match."""
        return self._folder / _PENDING / (name + _SUFFIX)

    def upsert(self, rows: Iterator[Any], keys: Any, key: str) -> None:
        """Rewrite the files that have one of the keys without their rows, and add the new rows."""
        assert self._manifest is not None
        if self._fields is SPARK_FIELDS:
            raise ValueError(f"{self._folder}: upsert does not support a table that Spark has created")
        for name in self._manifest.files:
            path = self._folder / name
            found = rows_without(partial(batches_of, path), key, keys)
            if found is not None:
                self._rewritten.append(name)
                for batch in found:
                    self.write(fit_batch(batch, self._manifest.schema))
        for batch in rows:
            self.write(batch)

    def commit(self, offsets: TableOffsets) -> Committed:
        assert self._manifest is not None
        written = self._files.finish() if self._files is not None else []
        rewritten = self._rewritten
        # From here on the files may be part of the table, also if the replacement of the manifest reports an error.
        self._files, self._rewritten = None, []
        if self._merge is not None and not set(rewritten).isdisjoint(self._merge.replaced):
            self._discard_merge()
        return self._replace(written, offsets, rewritten)

    def _replace(self, written: list[WrittenFile], offsets: TableOffsets, replaced: Sequence[str]) -> Committed:
        """Sync the pending files and replace the manifest."""
        assert self._manifest is not None
        for one in written:
            host.sync_file(self._pending(one.name))
        if written:
            host.sync_file(self._folder / _PENDING)
        new = {self._final_name(one): (one.rows, one.size) for one in written}
        kept = {name: counts for name, counts in self._manifest.files.items() if name not in set(replaced)}
        self._manifest = FolderManifest(
            offsets, self._manifest.schema, {**kept, **new}, self._manifest.partition_by, tuple(replaced)
        )
        host.replace_file(self._folder / MANIFEST, self._manifest.to_bytes())
        self._finish(self._manifest)
        return Committed(sum(one.rows for one in written), len(written), sum(one.size for one in written))

    def _final_name(self, one: WrittenFile) -> str:
        return "/".join([*hive_directories(self._fields, one.values), one.name])

    def _finish(self, manifest: FolderManifest) -> None:
        """Delete replaced files, rename committed ones into the folder, and drop all others that are pending."""
        for name in manifest.replaced:
            (self._folder / name).unlink(missing_ok=True)
        pending = self._folder / _PENDING
        left = {path.name.removesuffix(_SUFFIX): path for path in pending.iterdir()} if pending.is_dir() else {}
        for name, _ in self._merge.files.names() if self._merge is not None else ():
            left.pop(name, None)
        folders = set()
        for name in manifest.files if left else ():
            path = left.pop(name.rpartition("/")[2], None)
            if path is not None:
                target = self._folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                path.rename(target)
                folders.add(target.parent)
        for folder in folders:
            host.sync_file(folder)
        for path in left.values():
            path.unlink()

    def discard(self) -> None:
        self._discard_merge()
        if self._files is not None:
            self._unlink(self._files)
        self._files, self._rewritten = None, []

    def _discard_merge(self) -> None:
        if self._merge is not None:
            self._unlink(self._merge.files)
        self._merge = None

    def _unlink(self, files: ParquetFiles) -> None:
        for name, _ in files.discard():
            self._pending(name).unlink(missing_ok=True)

    def maintain(self, is_due: Callable[[], bool] = lambda: False) -> int:
        """Merge the small files of a partition; readers of `*.parquet` may miss their rows for a moment."""
        if self._manifest is None:
            return 0
        if self._merge is None:
            self._merge = self._begin_merge(self._manifest)
        if self._merge is None:
            return 0
        try:
            written = self._merge.run(is_due)
        except BaseException:
            self._discard_merge()
            raise
        if written is None:
            return 0
        names, self._merge = self._merge.replaced, None
        self._replace(written, self._manifest.offsets, names)
        return len(names)

    def _begin_merge(self, manifest: FolderManifest) -> FileMerge | None:
        if not self._settings.merge_at:
            return None
        small: dict[str, list[str]] = {}
        for name, (_, size) in manifest.files.items():
            # Files of Spark do not contain the columns of partitions, which are in their paths only.
            is_own = name.rpartition("/")[2].startswith("barnabas-")
            if is_own and size < self._settings.target_bytes // 2:
                small.setdefault(name.rpartition("/")[0], []).append(name)
        names = max(small.values(), key=len, default=[])
        if len(names) < self._settings.merge_at:
            return None
        names = files_of_merge(names, lambda name: manifest.files[name][1], self._settings.target_bytes)
        schema = manifest.schema
        batches = (fit_batch(batch, schema) for name in names for batch in batches_of(self._folder / name))
        return FileMerge(names, batches, self._new_files(schema))


def hive_directories(fields: tuple[PartitionField, ...], values: tuple[Any, ...]) -> list[str]:
    """Return the directories of a partition, such as `timestamp_day=2024-05-01`."""
    return [
        f"{field.name}={_HIVE_NULL if value is None else quote(str(value), safe=' ')}"
        for field, value in zip(fields, values, strict=True)
    ]


def _instants(schema: Any) -> Any:
    """Return the columns that Spark has written with a time zone: its old format of times has none."""
    kind = pa.timestamp("us", tz="UTC")
    return pa.schema([field.with_type(kind) if pa.types.is_timestamp(field.type) else field for field in schema])


def rows_without(read: Callable[[list[str] | None], Iterator[Any]], key: str, keys: Any) -> Iterator[Any] | None:
    """Return the rows of a file whose key is not one of these; None if it has none of them.

    `read` yields the rows of the file, of all columns or of some.
    """
    # Each lookup builds a hash table of all keys, so the second read uses the results of the first: one bit per row.
    others = [compute.invert(compute.is_in(batch.column(key), value_set=keys)) for batch in read([key])]
    is_kept = pa.chunked_array(others, pa.bool_())
    if compute.all(is_kept).as_py():
        return None
    return _kept(read(None), is_kept)


def _kept(batches: Iterator[Any], is_kept: Any) -> Iterator[Any]:
    start = 0
    for batch in batches:
        yield batch.filter(is_kept.slice(start, batch.num_rows).combine_chunks())
        start += batch.num_rows


def batches_of(path: Any, columns: list[str] | None = None) -> Iterator[Any]:
    """Yield the rows of a file in parts of about one megabyte."""
    with parquet.ParquetFile(path) as file:
        yield from read_parts(file, columns)


def read_parts(file: Any, columns: list[str] | None = None) -> Iterator[Any]:
    """Yield the rows of an open file, in parts of an eighth of a row group, which for the files of a follower is about
    one megabyte; of some columns in larger parts.
    """
    for group in range(file.num_row_groups):
        rows = file.metadata.row_group(group).num_rows
        size = _MOST_ROWS if columns is not None else min(_MOST_ROWS, max(64, rows // 8))
        yield from file.iter_batches(size, row_groups=[group], columns=columns, use_threads=False)
