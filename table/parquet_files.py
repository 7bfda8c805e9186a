"""Writes the rows of a commit as Parquet files of bounded size, by partition, with bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
from pyarrow import parquet

from . import host
from .partitioning import PartitionField, split_batch

T = TypeVar("T")

_ROW_GROUP_BYTES = 8 << 20
"""Decoded bytes at which a file gets its next row group."""
_BUFFERED_BYTES = 24 << 20
"""Decoded bytes of all files that wait for their next row groups."""
_MOST_OPEN = 32
"""Files that are open at the same time; then the one with the most rows is completed."""
DEFAULT_TARGET = 128 << 20


@dataclass(frozen=True)
class TableSettings:
    """The layout of a table's files.

    `target_bytes` is the size of a data file in bytes at which the next one begins. Files below half of it are merged
    when there are `merge_at` of them in a partition; 0 never merges. Snapshots are kept for `keep_snapshots_s` seconds.
    `options` are settings of the catalog or the object store.
    """

    partition_by: tuple[PartitionField, ...] = ()
    target_bytes: int = DEFAULT_TARGET
    compression: str = "zstd"
    merge_at: int = 32
    keep_snapshots_s: float = 86_400.0
    options: tuple[tuple[str, str], ...] = ()


class WrittenFile(NamedTuple):
    """A complete data file: the values of its partition, its rows, its bytes, and its footer as pyarrow's metadata."""

    name: str
    values: tuple[Any, ...]
    rows: int
    size: int
    metadata: Any


@dataclass
class _OpenFile:
    """A file that is being written, and rows that wait for its next row group."""

    name: str
    values: tuple[Any, ...]
    file: Any
    writer: Any
    footers: list[Any]
    rows: int = 0
    waiting: list[Any] = field(default_factory=list)
    waiting_bytes: int = 0


class ParquetFiles:
    """The files of one commit; used by one thread.

    `create(name, values)` opens a new file for writing by its name and the values of its partition.
    """

    def __init__(
        self,
        create: Callable[[str, tuple[Any, ...]], Any],
        schema: Any,
        settings: TableSettings,
        *,
        partition_by: Sequence[PartitionField],
    ) -> None:
        self._create = create
        self._schema = schema
        self._settings = settings
        self._fields = partition_by
        self._open: dict[tuple[Any, ...], _OpenFile] = {}
        self._done: list[WrittenFile] = []
        self._waiting = 0

    def write(self, batch: Any) -> None:
        """Add rows. Raises OSError."""
        for values, rows in split_batch(batch, self._fields):
            one = self._open.get(values)
            if one is None:
                if len(self._open) >= _MOST_OPEN:
                    self._close(max(self._open.values(), key=lambda each: each.rows))
                one = self._begin(values)
            if len(rows.schema) > len(self._schema):
                rows = rows.select(self._schema.names)
            one.waiting.append(rows)
            one.rows += rows.num_rows
            size = rows.nbytes
            one.waiting_bytes += size
            self._waiting += size
            if one.waiting_bytes >= _ROW_GROUP_BYTES:
                self._write_group(one)
        while self._waiting > _BUFFERED_BYTES:
            self._write_group(max(self._open.values(), key=lambda each: each.waiting_bytes))

    def finish(self) -> list[WrittenFile]:
        """Complete all files and return them."""
        for one in list(self._open.values()):
            self._close(one)
        return self._done

    def names(self) -> list[tuple[str, tuple[Any, ...]]]:
        """Return the names and partitions of all files."""
        names = [(one.name, one.values) for one in self._open.values()]
        return names + [(one.name, one.values) for one in self._done]

    def discard(self) -> list[tuple[str, tuple[Any, ...]]]:
        """Close all files without completing them; return the names and partitions of the files to delete."""
        names = self.names()
        for one in self._open.values():
            # A full disk fails both, and the other files are closed and deleted nevertheless.
            with suppress(Exception):
                one.writer.close()  # otherwise it would be closed, and fail, when it is collected
            one.writer.is_open = False
            with suppress(Exception):
                one.file.close()
        self._open.clear()
        return names

    def _begin(self, values: tuple[Any, ...]) -> _OpenFile:
        name = f"barnabas-{host.new_name()}.parquet"
        file, footers = self._create(name, values), list[Any]()
        writer = parquet.ParquetWriter(
            file,
            self._schema,
            compression=self._settings.compression,
            compression_level=1 if self._settings.compression == "zstd" else None,
            metadata_collector=footers,
            store_schema=False,
        )
        one = self._open[values] = _OpenFile(name, values, file, writer, footers)
        return one

    def _write_group(self, one: _OpenFile) -> None:
        rows = pa.Table.from_batches(one.waiting, self._schema)
        one.writer.write_table(rows, row_group_size=max(1, rows.num_rows))
        self._waiting -= one.waiting_bytes
        one.waiting, one.waiting_bytes = [], 0
        if one.file.tell() >= self._settings.target_bytes:
            self._close(one)

    def _close(self, one: _OpenFile) -> None:
        if one.waiting:
            self._write_group(one)
            if one.values not in self._open or self._open[one.values] is not one:
                return  # it has reached its size
        one.writer.close()
        size = one.file.tell()
        one.file.close()
        del self._open[one.values]  # after the last error, so that `discard` returns the file
        self._done.append(WrittenFile(one.name, one.values, one.rows, size, one.footers[0]))


def files_of_merge(files: Sequence[T], size_of: Callable[[T], int], target_bytes: int) -> list[T]:
    """Return the first files that together have `target_bytes`: more of them would only make a merge longer."""
    taken, size = list[T](), 0
    for file in files:
        if size >= target_bytes:
            break
        taken.append(file)
        size += size_of(file)
    return taken


class FileMerge:
    """Files whose rows are written to larger files in steps between commits; used by the follower's thread."""

    def __init__(self, replaced: Sequence[Any], batches: Iterator[Any], files: ParquetFiles) -> None:
        self.replaced = replaced
        self.files = files
        self._batches = batches

    def run(self, is_due: Callable[[], bool]) -> list[WrittenFile] | None:
        """Return the files if all rows are written, None if another commit is due before that. Raises OSError."""
        for batch in self._batches:
            self.files.write(batch)
            if is_due():
                return None
        return self.files.finish()
