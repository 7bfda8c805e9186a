"""A bounded piece of topics as a stream of record batches: an Arrow stream and a dataset for query engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Literal, Protocol, TypeAlias

import pyarrow as pa
from pyarrow import dataset

from ..protocol.topic_partition import TopicPartition
from .batch_channel import BatchChannel
from .filter_bounds import FilterBounds, columns_in
from .offset_range import OffsetRange
from .record_layout import COLUMNS, ERROR_COLUMNS, RecordLayout
from .record_table import RecordTable
from .value_formats import ValueFormat

Errors: TypeAlias = Literal["raise", "null", "column"]
Progress: TypeAlias = Callable[[int, int], object]
"""Receives the number of offsets that have been read, and of all offsets of the read."""
QUEUED_BYTES = 32 << 20
"""Bytes of record batches that wait for the consumer of a stream."""
_ROWS_OF_ONE_THREAD = 100_000
"""The maximum row limit for which one thread reads: more threads would read records that the query does not need."""


class RangeDecoder(Protocol):
    """Reads ranges on one thread."""

    def read(self, r: OffsetRange) -> Iterator[RecordTable]:
        """Yield the records of a range."""

    def interrupt(self) -> None:
        """End the read soon, from any thread."""


class RangeBounds(Protocol):
    """The bounds that a query sets for topics, partitions, offsets and times, if they are known before the read."""

    def narrowed(self, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
        """Return the ranges without offsets that the query does not need."""

    def earliest_time(self) -> int:
        """Return the time in ms before which the query needs no records; -1 if there is none."""


class RecordSource(Protocol):
    """The origin of the records of a stream."""

    def open(self, *, headers: bool) -> AbstractContextManager[RangeDecoder]:
        """Return a reader for one thread."""

    def find_times(self, timestamps: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Return the first offset at or after each time in ms; -1 without one."""


class RecordStream(dataset.Dataset):
    """Records of one or more partitions up to a fixed end, read again by each consumer.

    It is an Arrow stream (`pl.from_arrow(stream)`, `pa.table(stream)`, `pd.DataFrame.from_arrow(stream)`), and a
    dataset of pyarrow whose projection and filters reach the read (`duckdb.sql("from stream")`,
    `pl.scan_pyarrow_dataset(stream)`).
    Records of a partition are in the order of their offsets; the partitions are read by `threads` threads, and their
    batches alternate. Memory does not grow with the number of records: each thread has a few megabytes, or its largest
    batch of records if that is larger, and `QUEUED_BYTES` wait for the consumer.
    """

    def __init__(
        self,
        source: RecordSource,
        ranges: Sequence[OffsetRange],
        *,
        types: Mapping[str, Any],
        formats: Mapping[str, ValueFormat],
        errors: Errors = "raise",
        columns: Sequence[str] | None = None,
        filter: Any = None,  # noqa: A002 - the name in pyarrow
        threads: int = 2,
        progress: Progress | None = None,
    ) -> None:
        # The constructor of pyarrow's class, which wraps a dataset in C++, is not called: all methods are overridden.
        if errors not in ("raise", "null", "column"):
            raise ValueError(f"errors: invalid value {errors!r}. Expected raise, null or column")
        self._source = source
        self._ranges = tuple(ranges)
        self._formats = dict(formats)
        self._errors = errors
        self._threads = threads
        self._progress = progress
        kinds = COLUMNS | dict(types)
        if errors == "column":
            kinds |= {name: pa.string() for name, of in ERROR_COLUMNS.items() if of in formats}
        self._whole = pa.schema([pa.field(name, kind) for name, kind in kinds.items()])
        self._names = list(kinds) if columns is None else list(columns)
        unknown = [name for name in self._names if name not in kinds]
        if unknown:
            raise ValueError(f"columns: unknown column {unknown[0]!r}. Expected some of {', '.join(kinds)}")
        if filter is not None:
            columns_in(filter, self._whole)
        self._filter = filter

    @property
    def schema(self) -> Any:
        """The schema of the batches."""
        return pa.schema([self._whole.field(name) for name in self._names])

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        """The offsets of the read by partition, which a filter may narrow further."""
        return self._ranges

    # An Arrow stream

    def __arrow_c_schema__(self) -> Any:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __iter__(self) -> Iterator[Any]:
        return self._batches(self._names, self._filter)

    def to_reader(self) -> Any:
        """Return a `pyarrow.RecordBatchReader`. It raises the errors of the read: KafkaError, ValueError, OSError."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    # A dataset

    def scanner(
        self,
        columns: Any = None,
        filter: Any = None,  # noqa: A002
        batch_size: int | None = None,
        **unused: Any,
    ) -> Any:
        """Return a `pyarrow.dataset.Scanner`, for which only these columns and offsets are read.

        `unused` are settings of files.
        """
        names = self._names if columns is None else list(columns)
        expressions = columns if isinstance(columns, Mapping) else None
        if expressions is not None:
            names = self._names  # their columns are not known
        wanted = self._filter if filter is None else filter if self._filter is None else self._filter & filter
        schema = pa.schema([self.schema.field(name) for name in names])
        reader = pa.RecordBatchReader.from_batches(schema, self._batches(names, wanted))
        size = {} if batch_size is None else {"batch_size": batch_size}
        return dataset.Scanner.from_batches(reader, columns=expressions, **size)

    def to_batches(self, **options: Any) -> Iterator[Any]:
        """Yield batches; the options are the parameters of `scanner`."""
        options.pop("batch_size", None)  # batches have the size in which they are decoded
        columns, wanted = options.pop("columns", None), options.pop("filter", None)
        if isinstance(columns, Mapping):
            yield from self.scanner(columns, wanted).to_batches()
            return
        if wanted is None:
            wanted = self._filter
        elif self._filter is not None:
            wanted = self._filter & wanted
        yield from self._batches(self._names if columns is None else list(columns), wanted)

    def to_table(self, **options: Any) -> Any:
        """Return all records as a `pyarrow.Table`; the options are the parameters of `scanner`."""
        if not options:
            return pa.Table.from_batches(iter(self), self.schema)
        return self.scanner(**options).to_table()

    def head(self, num_rows: int, **options: Any) -> Any:
        """Return the first rows that are read as a table, and end the read."""
        found, left = [], num_rows
        batches = self.to_batches(**options) if options else self.read(self._names, limit=num_rows)
        for batch in batches:
            found.append(batch.slice(0, left))
            left -= len(found[-1])
            if left <= 0:
                break
        batches.close()  # type: ignore[attr-defined]
        columns = options.get("columns")
        schema = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
        return pa.Table.from_batches(found, schema)

    def count_rows(self, filter: Any = None, **options: Any) -> int:  # noqa: A002
        """Return the number of records, without their keys and values unless a filter needs them."""
        return sum(batch.num_rows for batch in self.to_batches(columns=["offset"], filter=filter))

    def filter(self, expression: Any) -> RecordStream:
        """Return a stream of the records for which a filter is true."""
        return self._changed(filter=expression if self._filter is None else self._filter & expression)

    def select(self, columns: Sequence[str]) -> RecordStream:
        """Return a stream with only these columns, whose other columns are not decoded."""
        return self._changed(columns=columns)

    def _changed(self, **changes: Any) -> RecordStream:
        kept = {name: self._whole.field(name).type for name in ("key", "value")}
        settings: dict[str, Any] = {
            "types": kept, "formats": self._formats, "errors": self._errors, "columns": self._names,
            "filter": self._filter, "threads": self._threads, "progress": self._progress,
        }  # fmt: skip
        return RecordStream(self._source, self._ranges, **(settings | changes))

    @property
    def partition_expression(self) -> Any:
        """True for every row, as for any dataset without partitions of its own."""
        return dataset.scalar(True)

    def get_fragments(self, filter: Any = None) -> Any:  # noqa: A002
        """Raise NotImplementedError: a topic has no files."""
        raise NotImplementedError("a stream of records has no fragments. Use to_batches()")

    def replace_schema(self, schema: Any) -> Any:
        """Raise NotImplementedError."""
        raise NotImplementedError("the schema of a stream of records is fixed. Use select(), or cast() of a table")

    def take(self, indices: Any, **options: Any) -> Any:
        """Return rows by number, as a table: all records are read for it."""
        return self.to_table(**options).take(indices)

    def sort_by(self, sorting: Any, **options: Any) -> Any:
        """Return all rows in order, as a table."""
        return self.to_table(**options).sort_by(sorting)

    def join(self, *arguments: Any, **options: Any) -> Any:
        """Join all rows, as a table."""
        return self.to_table().join(*arguments, **options)

    def join_asof(self, *arguments: Any, **options: Any) -> Any:
        """Join all rows with the nearest ones, as a table."""
        return self.to_table().join_asof(*arguments, **options)

    def __repr__(self) -> str:
        ranges = ", ".join(f"{r.partition} {r.start}-{r.end}" for r in self._ranges[:5])
        more = f", and {len(self._ranges) - 5} more partitions" if len(self._ranges) > 5 else ""
        return f"RecordStream of {ranges or 'no partitions'}{more}\n{self.schema}"

    def __reduce__(self) -> Any:
        raise TypeError("a stream of records cannot be pickled: create it where it is read")

    # Reading

    def read(
        self, columns: Sequence[str], *, bounds: RangeBounds | None = None, limit: int | None = None
    ) -> Iterator[Any]:
        """Yield batches with these columns, for integrations of engines.

        They have all records within `bounds`, and may have others. The caller closes the iterator after `limit`
        records; for a small limit only one thread reads.
        """
        return self._batches(columns, self._filter, bounds, limit)

    def _batches(
        self, names: Sequence[str], expression: Any, bounds: RangeBounds | None = None, limit: int | None = None
    ) -> Iterator[Any]:
        """Read with threads; closing the iterator ends them."""
        filtered = columns_in(expression, self._whole) if expression is not None else []
        decoded = [ERROR_COLUMNS[name] for name in (*names, *filtered) if name in ERROR_COLUMNS]
        read_names = list(dict.fromkeys((*names, *filtered, *decoded)))
        schema = pa.schema([self._whole.field(name) for name in read_names])
        ranges = self._narrowed(expression, bounds)
        left = iter(sorted(ranges, key=lambda r: -r.records))
        total, done = sum(r.records for r in ranges), 0
        channel: BatchChannel[tuple[Any, int]] = BatchChannel(QUEUED_BYTES)

        def work() -> Iterator[tuple[tuple[Any, int], int]]:
            layout = RecordLayout(schema, self._formats, null_on_error=self._errors != "raise")
            with self._source.open(headers=layout.wants_headers) as reader:
                channel.on_close(reader.interrupt)
                # `next` of a list's iterator is atomic.
                while (r := next(left, None)) is not None and not channel.is_closed:
                    position = r.start
                    for table in reader.read(r):
                        behind = int(table.offsets[-1]) + 1
                        batch = layout.batch(table, r.partition)
                        if expression is not None:
                            batch = batch.filter(expression)
                        if read_names != list(names):
                            batch = batch.select(list(names))
                        yield (batch, behind - position), batch.nbytes
                        position = behind

        is_small = limit is not None and limit <= _ROWS_OF_ONE_THREAD
        count = 1 if is_small else max(1, min(self._threads, len(ranges)))
        for batch, offsets in channel.run([work] * count) if ranges else ():
            done += offsets
            if self._progress is not None:
                self._progress(done, total)
            if batch.num_rows:
                yield batch

    def _narrowed(self, expression: Any, bounds: RangeBounds | None = None) -> list[OffsetRange]:
        """Return the ranges without the offsets that are outside of the bounds, or for which the filter is known to be
        false.
        """
        ranges = [r for r in self._ranges if r.records > 0]
        known: list[RangeBounds] = [] if bounds is None else [bounds]
        if expression is not None:
            known.append(FilterBounds(expression, self._whole))
        since = -1
        for each in known:
            ranges, since = each.narrowed(ranges), max(since, each.earliest_time())
        if since <= 0 or not ranges:
            return ranges
        offsets = self._source.find_times({r.partition: since for r in ranges})
        ranges = [replace(r, start=max(r.start, min(offsets[r.partition] % (1 << 63), r.end))) for r in ranges]
        return [r for r in ranges if r.records > 0]
