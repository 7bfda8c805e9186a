"""Reads the ranges of one commit with threads, as rows of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import compute

from ..arrow.arrow_columns import binary_array
from ..arrow.batch_channel import BatchChannel
from ..arrow.offset_range import OffsetRange
from ..arrow.record_layout import COLUMNS, RecordLayout
from ..arrow.record_stream import RecordSource
from ..arrow.record_table import RecordTable
from ..protocol.topic_partition import TopicPartition
from .table_columns import ERROR, RAW_KEY, RAW_VALUE, TableColumns

_QUEUED_BYTES = 8 << 20
_RAW_SCHEMA = pa.schema([pa.field(name, kind) for name, kind in COLUMNS.items() if name != "timestamp_type"])


class RoundRows(NamedTuple):
    """Rows of one partition in the order of their offsets, and in `behind` the offset after them.

    `has_value` is false for tombstones, whose keys an upsert deletes. `rejected` has the unreadable records for the
    dead-letter topic, with all of their fields as bytes and a column `error`.
    """

    partition: TopicPartition
    behind: int
    rows: Any = None
    has_value: Any = None
    rejected: Any = None


def read_round(
    source: RecordSource,
    ranges: Sequence[OffsetRange],
    columns: TableColumns,
    *,
    threads: int,
    is_stopping: Callable[[], bool],
) -> Iterator[RoundRows]:
    """Yield the records of the ranges, and after each range an item with only its end; closing the iterator ends the
    threads.

    With `is_stopping` the iterator ends instead of waiting for a broker.
    Raises KafkaError, DataLossError, ProtocolError, and ValueError for an unreadable record.
    """
    on_error = columns.settings.on_error
    left = iter(sorted(ranges, key=lambda r: -r.records))
    channel: BatchChannel[RoundRows] = BatchChannel(_QUEUED_BYTES, is_stopping=is_stopping)

    def work() -> Iterator[tuple[RoundRows, int]]:
        layout = RecordLayout(columns.layout, columns.formats, null_on_error=on_error != "stop")
        raw = RecordLayout(_RAW_SCHEMA, {})
        with source.open(headers=layout.wants_headers or on_error == "topic") as reader:
            channel.on_close(reader.interrupt)
            while (
                r := next(left, None)
            ) is not None and not channel.is_closed:  # `next` of a list's iterator is atomic
                for table in reader.read(r):
                    found = _rows_of(table, r.partition, layout, raw, columns)
                    yield found, found.rows.nbytes + (found.rejected.nbytes if found.rejected is not None else 0)
                yield RoundRows(r.partition, r.end), 0

    count = max(1, min(threads, len(ranges)))
    return channel.run([work] * count) if ranges else iter(())


def _rows_of(
    table: RecordTable, tp: TopicPartition, layout: RecordLayout, raw: RecordLayout, columns: TableColumns
) -> RoundRows:
    batch = layout.batch(table, tp)
    behind = int(table.offsets[-1]) + 1
    has_value = table.values.sizes >= 0
    on_error = columns.settings.on_error
    if on_error == "stop":
        return RoundRows(tp, behind, columns.rows(batch), has_value)
    errors = [batch.column(batch.schema.get_field_index(f"{name}_error")) for name in columns.formats]
    reason = compute.coalesce(*errors) if errors else pa.nulls(len(batch), pa.string())
    bad = compute.is_valid(reason)
    if on_error == "column":
        failures = {
            ERROR: reason,
            RAW_KEY: compute.if_else(bad, binary_array(table.data, table.keys), pa.scalar(None, pa.binary())),
            RAW_VALUE: compute.if_else(bad, binary_array(table.data, table.values), pa.scalar(None, pa.binary())),
        }
        return RoundRows(tp, behind, columns.rows(batch, failures), has_value)
    if reason.null_count == len(reason):
        return RoundRows(tp, behind, columns.rows(batch), has_value)
    is_bad = np.asarray(bad.to_numpy(zero_copy_only=False))
    rejected = raw.batch(table.take(np.flatnonzero(is_bad)), tp)
    rejected = rejected.append_column(ERROR, reason.filter(bad))
    good = batch.filter(compute.invert(bad))
    return RoundRows(tp, behind, columns.rows(good), has_value[~is_bad], rejected)
