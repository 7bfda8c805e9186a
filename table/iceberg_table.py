"""An Iceberg table. The offsets are in the summary of each snapshot, and in the properties of the table.

Both change in the one commit that adds the data files. The summary takes precedence over the property, so that a table
that is rolled back to an earlier snapshot continues from the offsets of that snapshot. The property is used if the
follower's snapshots have been expired after commits of other writers. A commit fails unless the snapshot that was
loaded is still the current snapshot of the table.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
from pyarrow import parquet
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import (
    DataFileStatistics,
    MetricModeTypes,
    MetricsMode,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestFile
from pyiceberg.partitioning import PartitionField as IcebergPartitionField
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, NestedField, TimestampType, TimestamptzType
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros

from . import host
from .column_renames import ColumnRename
from .offsets import TableOffsets
from .parquet_files import FileMerge, ParquetFiles, TableSettings, WrittenFile, files_of_merge
from .parquet_table import hive_directories, read_parts, rows_without
from .partitioning import UNITS, PartitionField
from .sink import MOST_BYTES, OFFSETS_PROPERTY, Committed, TableConflictError
from .table_types import fit_batch, stored_schema

_PROPERTIES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "50",
}
"""Otherwise a table with a commit every few seconds keeps all of its metadata files, and a manifest per commit."""
_ID = b"PARQUET:field_id"
_EXPIRE_EVERY_S = 60.0
"""Seconds between two searches for expired snapshots."""
_EXPIRE_SHARE = 0.05
"""Maximum share of the time that is spent on expiring snapshots."""
_MOST_EXPIRED = 1000
"""Snapshots that expire in one search; ten commits per second add 600 per minute."""


def catalog_at(where: Path | str, options: Mapping[str, str]) -> Catalog:
    """Return a catalog. Raises ValueError.

    A path is the folder of a SQLite catalog and its tables; a name is that of a catalog in pyiceberg's settings.
    """
    if isinstance(where, str):
        try:
            return load_catalog(where, **options)
        except Exception as error:
            raise ValueError(f"catalog {where!r}: {' '.join(str(error).split())}") from error
    where.mkdir(parents=True, exist_ok=True)
    from pyiceberg.catalog.sql import SqlCatalog
    from sqlalchemy.exc import OperationalError

    properties = {"uri": f"sqlite:///{where}/catalog.db", "warehouse": f"file://{where}", **options}
    try:
        return SqlCatalog("local", **properties)
    except OperationalError:  # another program has created the tables of the catalog at the same time
        return SqlCatalog("local", **properties)


class IcebergTable:
    """The table of a catalog with this name, such as `db.orders`."""

    most_bytes = MOST_BYTES

    def __init__(self, catalog: Catalog, name: str, settings: TableSettings) -> None:
        self._catalog = catalog
        self._name = name
        self._settings = settings
        self._table: Table | None = None
        self._files: ParquetFiles | None = None
        self._replaced: list[DataFile] = []
        self._merge: FileMerge | None = None
        self._fields = settings.partition_by
        self._small = 0
        """An upper bound of the number of small files in one partition."""
        self._expire_at = host.monotonic() + _EXPIRE_EVERY_S

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()

    def load(self) -> TableOffsets | None:
        self.discard()
        try:
            self._table = self._catalog.load_table(self._name)
        except NoSuchTableError:
            self._table = None
            return None
        offsets = self._read_offsets(self._table)
        self._read_partitioning(self._table)
        self._small = self._settings.merge_at  # to be counted by the next maintenance
        return offsets

    def _read_partitioning(self, table: Table) -> None:
        """Read the partitions of the table. Raises ValueError if others were requested.

        A table without partitions and without a snapshot receives the requested ones: a follower that created a table
        in two steps may have crashed between them. If the column of a partition was renamed, both of its
        names are accepted.
        """
        found = tuple(_partition_field(table, field) for field in table.spec().fields)
        wanted = self._settings.partition_by
        if not found and table.current_snapshot() is None:
            self._fields = wanted
            return
        is_same = [one.name for one in wanted] == [one.name for one in found] or [
            (one.source, one.unit) for one in wanted
        ] == [(one.source, one.unit) for one in found]
        if wanted and not is_same:
            shown = ", ".join(one.name for one in found) or "no column"
            raise ValueError(f"{self._name}: the table is partitioned by {shown}")
        self._fields = found

    def _read_offsets(self, table: Table) -> TableOffsets | None:
        snapshot = table.current_snapshot()
        while snapshot is not None:
            properties = snapshot.summary.additional_properties if snapshot.summary is not None else {}
            if OFFSETS_PROPERTY in properties:
                return TableOffsets.of_text(properties[OFFSETS_PROPERTY])
            parent = snapshot.parent_snapshot_id
            snapshot = table.snapshot_by_id(parent) if parent is not None else None
            if snapshot is None and parent is not None:  # it has expired
                text = table.properties.get(OFFSETS_PROPERTY)
                if text is not None:
                    return TableOffsets.of_text(text)
        if table.current_snapshot() is not None:
            raise ValueError(f"{self._name}: the Iceberg table was not written by this command")
        return None

    def schema(self) -> Any:
        if self._table is None:
            return None
        return stored_schema(schema_to_pyarrow(self._table.schema(), include_field_ids=False))

    def rename(self, renames: Sequence[ColumnRename]) -> None:
        """Rename the fields, which keep their ids, so that readers find their values in older files too."""
        assert self._table is not None
        self._discard_merge()
        with self._table.update_schema() as change:
            for one in renames:
                change.rename_column(one.path, one.name)
        self._read_partitioning(self._table)

    def prepare(self, schema: Any) -> Any:
        schema = stored_schema(schema)
        for field in self._fields:
            field.check(schema)
        if self._table is None:
            self._catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
            properties = {**_PROPERTIES, "write.parquet.compression-codec": self._settings.compression}
            # One transaction: after a crash there is no table, or one with its partitions.
            with self._catalog.create_table_transaction(self._name, schema, properties=properties) as transaction:
                self._partition(transaction)
            self._table = self._catalog.load_table(self._name)
        elif self.schema() != schema:
            self._discard_merge()
            with self._table.update_schema() as change:
                change.union_by_name(schema)
        if self._fields and not self._table.spec().fields:
            with self._table.transaction() as transaction:
                self._partition(transaction)
        found = self.schema()
        assert found is not None
        return found

    def _partition(self, transaction: Transaction) -> None:
        if self._fields:
            with transaction.update_spec() as spec:
                for field in self._fields:
                    spec.add_field(field.source, field.unit or "identity", field.name)

    def write(self, batch: Any) -> None:
        if self._files is None:
            self._files = self._new_files()
        self._files.write(batch)

    def _new_files(self) -> ParquetFiles:
        assert self._table is not None
        schema = _with_ids(schema_to_pyarrow(self._table.schema(), include_field_ids=True))
        return ParquetFiles(self._create, schema, self._settings, partition_by=self._fields)

    def _create(self, name: str, values: tuple[Any, ...]) -> Any:
        assert self._table is not None
        return self._table.io.new_output(self._path_of(name, values)).create()

    def _path_of(self, name: str, values: tuple[Any, ...]) -> str:
        assert self._table is not None
        name = "/".join([*hive_directories(self._fields, values), name])
        return self._table.location_provider().new_data_location(name)

    def _data_file(self, one: WrittenFile) -> DataFile:
        assert self._table is not None
        table = self._table
        schema, spec = table.schema(), table.spec()
        statistics = _statistics(one, schema, table.properties)
        values = []
        for field, by, value in zip(spec.fields, self._fields, one.values, strict=True):
            kind = schema.find_field(field.source_id).field_type
            values.append(None if value is None else field.transform.transform(kind)(_raw_value(by, value, kind)))
        path = self._path_of(one.name, one.values)
        if path.startswith("file:"):  # or `file:/`, as Spark writes it
            host.sync_file(Path("/", path.removeprefix("file:").lstrip("/")))
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=Record(*values),
            file_size_in_bytes=one.size,
            sort_order_id=None,
            spec_id=table.spec().spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )

    def upsert(self, rows: Iterator[Any], keys: Any, key: str) -> None:
        """Rewrite the files that have one of the keys without their rows, and add the new rows."""
        assert self._table is not None
        schema = self.schema()
        for task in self._table.scan().plan_files():
            if task.delete_files:
                raise ValueError(
                    f"{self._name}: the table has delete files of another program, which an upsert cannot apply. "
                    "Rewrite its data files without them"
                )
            found = rows_without(partial(self._batches_of, task.file), key, keys)
            if found is not None:
                self._replaced.append(task.file)
                for batch in found:
                    self.write(fit_batch(batch, schema))
        for batch in rows:
            self.write(batch)

    def _batches_of(self, file: DataFile, columns: list[str] | None = None) -> Iterator[Any]:
        """Yield the rows of a data file, also if it has columns under earlier names."""
        assert self._table is not None
        fields = index_by_id(self._table.schema())
        with self._table.io.new_input(file.file_path).open() as stream, parquet.ParquetFile(stream) as found:
            stored = found.schema_arrow
            present = [_with_present_name(field, fields) for field in stored]
            chosen = [i for i, field in enumerate(present) if columns is None or field.name in columns]
            schema = pa.schema([present[i] for i in chosen])
            names = [stored[i].name for i in chosen]
            for batch in read_parts(found, None if columns is None else names):
                # The columns have the same layout under other names.
                _, array = batch.__arrow_c_array__()
                yield pa.RecordBatch._import_from_c_capsule(schema.__arrow_c_schema__(), array)

    def commit(self, offsets: TableOffsets) -> Committed:
        written = self._files.finish() if self._files is not None else []
        replaced = self._replaced
        # From here on the files may be part of the table, also if the commit reports an error.
        self._files, self._replaced = None, []
        if self._merge is not None and not _paths(replaced).isdisjoint(_paths(self._merge.replaced)):
            self._discard_merge()
        self._commit(written, replaced, offsets)
        self._small += sum(one.size < self._settings.target_bytes // 2 for one in written)
        return Committed(sum(one.rows for one in written), len(written), sum(one.size for one in written))

    def _commit(self, written: list[WrittenFile], replaced: Sequence[DataFile], offsets: TableOffsets) -> None:
        assert self._table is not None
        text = offsets.to_text()
        data_files = [self._data_file(one) for one in written]
        # pyiceberg would repeat a commit after that of another writer, on top of it, and with it the rows of another
        # follower. This property of the loaded copy is not stored.
        self._table.metadata.properties["commit.retry.num-retries"] = "0"
        transaction = self._table.transaction()
        change = transaction.update_snapshot(snapshot_properties={OFFSETS_PROPERTY: text})
        try:
            with change.overwrite() if replaced else change.merge_append() as snapshot:
                if replaced:
                    # pyiceberg would skip manifests by the partitions of the files, and compare the value of a
                    # partition such as a day with the column itself, so that no manifest would match.
                    snapshot.delete_by_predicate(AlwaysTrue())
                for one in replaced:
                    snapshot.delete_data_file(one)
                for one in data_files:
                    snapshot.append_data_file(one)
            transaction.set_properties({OFFSETS_PROPERTY: text})
            transaction.commit_transaction()
        except CommitFailedException as error:
            raise TableConflictError(f"{self._name}: {' '.join(str(error).split())}") from error

    def discard(self) -> None:
        self._discard_merge()
        if self._files is not None:
            self._delete(self._files)
        self._files, self._replaced = None, []

    def _discard_merge(self) -> None:
        if self._merge is not None:
            self._delete(self._merge.files)
            self._small = self._settings.merge_at  # to be counted by the next maintenance
        self._merge = None

    def _delete(self, files: ParquetFiles) -> None:
        assert self._table is not None
        for name, values in files.discard():
            self._table.io.delete(self._path_of(name, values))

    def maintain(self, is_due: Callable[[], bool] = lambda: False) -> int:
        """Merge the small files of one partition if there are enough, and expire snapshots once per minute at most."""
        if self._table is None:
            return 0
        merged = 0
        if self._merge is None and self._settings.merge_at and self._small >= self._settings.merge_at:
            self._merge = self._begin_merge(self._table)
        if self._merge is not None:
            merged = self._continue_merge(self._merge, is_due)
        began = host.monotonic()
        if began > self._expire_at:
            self._expire(self._table)
            ended = host.monotonic()
            self._expire_at = ended + max(_EXPIRE_EVERY_S, (ended - began) / _EXPIRE_SHARE)
        return merged

    def _begin_merge(self, table: Table) -> FileMerge | None:
        small: dict[str, list[DataFile]] = {}
        for task in table.scan().plan_files():
            if task.file.file_size_in_bytes < self._settings.target_bytes // 2 and not task.delete_files:
                small.setdefault(str(task.file.partition), []).append(task.file)
        groups = sorted(small.values(), key=len)
        found = groups.pop() if groups else []
        if len(found) < self._settings.merge_at:
            self._small = len(found)
            return None
        found.sort(key=lambda file: file.file_path)
        merged = files_of_merge(found, lambda file: file.file_size_in_bytes, self._settings.target_bytes)
        schema = self.schema()
        batches = (fit_batch(batch, schema) for file in merged for batch in self._batches_of(file))
        # If as many files are left, here or in another partition, the next maintenance begins another merge.
        self._small = max(len(found) - len(merged), len(groups[-1]) if groups else 0)
        return FileMerge(merged, batches, self._new_files())

    def _continue_merge(self, merge: FileMerge, is_due: Callable[[], bool]) -> int:
        assert self._table is not None
        try:
            written = merge.run(is_due)
        except BaseException:
            self._discard_merge()
            raise
        if written is None:
            return 0
        # The expiry of snapshots may have loaded a commit of another program, which has replaced the files.
        if not _paths(merge.replaced) <= _paths(task.file for task in self._table.scan().plan_files()):
            self._discard_merge()
            return 0
        self._merge = None
        offsets = self._read_offsets(self._table)
        assert offsets is not None, "a merge without a commit"
        self._commit(written, merge.replaced, offsets)
        self._small += len(written)
        return len(merge.replaced)

    def _expire(self, table: Table) -> None:
        """Remove old snapshots from the table, and delete the files that no other snapshot has."""
        limit_ms = host.now_ms() - int(self._settings.keep_snapshots_s * 1000)
        named = {ref.snapshot_id for ref in table.refs().values()}  # the current snapshot, branches and tags
        old = [one for one in table.snapshots() if one.timestamp_ms < limit_ms and one.snapshot_id not in named]
        old = sorted(old, key=lambda one: one.timestamp_ms)[:_MOST_EXPIRED]
        if not old:
            return
        unused = _files_only_in(table, old, named)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                table.maintenance.expire_snapshots().by_ids([one.snapshot_id for one in old]).commit()
            except CommitFailedException as error:
                raise TableConflictError(f"{self._name}: {' '.join(str(error).split())}") from error
        for path in unused:
            table.io.delete(path)


def _paths(files: Iterable[DataFile]) -> set[str]:
    return {one.file_path for one in files}


def _partition_field(table: Table, field: IcebergPartitionField) -> PartitionField:
    """Return a field of the table's partitioning. Raises ValueError for a transform that the follower cannot write."""
    source = table.schema().find_column_name(field.source_id)
    transform = str(field.transform)
    if source is None or "." in source or transform not in ("identity", *UNITS):
        raise ValueError(
            f"{'.'.join(table.name()[-2:])}: the follower cannot write to the partitions {transform}({source}). "
            "Supported are columns, and year, month, day and hour of a column"
        )
    return PartitionField(source, None if transform == "identity" else transform, field.name)


def _with_present_name(field: Any, fields: Mapping[int, NestedField]) -> Any:
    """Return a field of a data file with the name that its id has in the table, also in its inner fields.

    A file without ids was added by its names. The name of a column that was deleted cannot be that of another column.
    """
    number = (field.metadata or {}).get(_ID)
    name = field.name
    if number is not None:
        name = fields[int(number)].name if int(number) in fields else f"#{int(number)}"
    kind, types = field.type, pa.types
    if types.is_struct(kind):
        kind = pa.struct([_with_present_name(one, fields) for one in kind])
    elif types.is_list(kind):
        kind = pa.list_(_with_present_name(kind.value_field, fields))
    elif types.is_map(kind):
        kind = pa.map_(_with_present_name(kind.key_field, fields), _with_present_name(kind.item_field, fields))
    return pa.field(name, kind, field.nullable)


def _files_only_in(table: Table, old: list[Snapshot], named: set[int]) -> set[str]:
    """Return the manifest lists, the manifests and the data files of old snapshots that no other snapshot has."""
    manifests = _manifests_of(table, old)
    used = _manifests_of(table, _kept_next_to(table, old, named))
    unused = manifests.keys() - used.keys()
    files = _data_files_of(table, [manifests[path] for path in unused])
    if files:
        files -= _data_files_of(table, used.values())
    return files | unused | {one.manifest_list for one in old}


def _kept_next_to(table: Table, old: list[Snapshot], named: set[int]) -> list[Snapshot]:
    """Return snapshots that are kept, and have all files that both old snapshots and any kept snapshot have.

    If each snapshot is based on the one before it, a file that is in an old and in a kept snapshot is in all snapshots
    between them, so that the kept neighbors of the old snapshots suffice. The snapshots of branches and tags are
    returned too, since older snapshots next to them may have expired. After a rollback all are returned.
    """
    snapshots = {one.snapshot_id: one for one in table.snapshots()}
    expired = {one.snapshot_id for one in old}
    parents = {one.parent_snapshot_id for one in old}
    line: set[int] = set()
    one = table.current_snapshot()
    while one is not None:
        line.add(one.snapshot_id)
        one = snapshots.get(one.parent_snapshot_id) if one.parent_snapshot_id is not None else None
    is_line = snapshots.keys() <= line | named
    return [
        one
        for number, one in snapshots.items()
        if number not in expired
        and (not is_line or number in named or number in parents or one.parent_snapshot_id in expired)
    ]


def _manifests_of(table: Table, snapshots: Iterable[Snapshot]) -> dict[str, ManifestFile]:
    return {manifest.manifest_path: manifest for one in snapshots for manifest in one.manifests(table.io)}


def _data_files_of(table: Table, manifests: Iterable[ManifestFile]) -> set[str]:
    entries = (entry for one in manifests for entry in one.fetch_manifest_entry(table.io, discard_deleted=True))
    return {entry.data_file.file_path for entry in entries}


def _statistics(one: WrittenFile, schema: Schema, properties: Mapping[str, str]) -> DataFileStatistics:
    """Return sizes, counts and bounds of the columns of a file; of times and dates without bounds if Python has no
    value for one of them, such as a time after the year 9999.
    """
    plan = compute_statistics_plan(schema, dict(properties))
    paths = parquet_path_to_id_mapping(schema)
    try:
        return data_file_statistics_from_parquet_metadata(one.metadata, plan, paths)
    except (OverflowError, ValueError):
        temporal = (DateType, TimestampType, TimestamptzType)
        counted = {
            number: replace(each, mode=MetricsMode(MetricModeTypes.COUNTS))
            for number, each in plan.items()
            if isinstance(each.iceberg_type, temporal)
        }
        return data_file_statistics_from_parquet_metadata(one.metadata, plan | counted, paths)


def _with_ids(schema: Any) -> Any:
    """Return the stored types of a schema, whose fields keep their ids."""
    stored = stored_schema(schema)
    return pa.schema(
        [pa.field(new.name, new.type, metadata=old.metadata) for new, old in zip(stored, schema, strict=True)]
    )


def _raw_value(field: PartitionField, value: Any, kind: Any) -> Any:
    """Return a value of the column as Iceberg stores it, from which it derives the value of the partition."""
    if field.unit is not None:
        value = datetime.strptime(value, UNITS[field.unit]).replace(tzinfo=UTC)
        if isinstance(kind, TimestampType | TimestamptzType):
            return datetime_to_micros(value)
    return date_to_days(value) if isinstance(value, date) else value
