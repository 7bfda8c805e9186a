"""The part of a filter that a read can use before it reads: bounds of partition, offset and timestamp.

A filter is an expression of pyarrow, which has no interface to look into it. But Arrow can decide whether a filter may
be true for any row of a file of which the caller guarantees, for example, that its offsets are between 5 and 10. Such
guarantees, halved again and again, find the lowest and the highest offset that the filter allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyarrow import dataset, fs

from .offset_range import OffsetRange

_MAX_MS = 1 << 62
"""A time of a record, in ms, is below it: later times are not bounded."""


class FilterBounds:
    """The bounds of one filter, which is bound to `schema`. Raises pyarrow.ArrowInvalid if it does not fit."""

    def __init__(self, expression: Any, schema: Any) -> None:
        self._expression = expression
        self._schema = schema
        self._columns = frozenset(columns_in(expression, schema))
        self._files = dataset.ParquetFileFormat()
        self._disk = fs.LocalFileSystem()

    def earliest_time(self) -> int:
        """Return the time in ms before which the filter is false for all records; -1 if there is none."""
        times, kind = dataset.field("timestamp"), self._schema.field("timestamp").type
        # Times before 1970 are times of records, too.
        if "timestamp" not in self._columns or self._is_possible(times < pa.scalar(0, kind)):
            return -1

        def is_time_possible(a: int, b: int) -> bool:
            return self._is_possible((times >= pa.scalar(a, kind)) & (times <= pa.scalar(b - 1, kind)))

        found = _lowest(is_time_possible, 0, _MAX_MS)
        return -1 if found is None else found

    def narrowed(self, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
        """Return the ranges without partitions and offsets for which the filter is false."""
        if not self._columns & {"topic", "partition", "offset"}:
            return list(ranges)
        found = []
        for r in ranges:
            here = (dataset.field("partition") == r.partition.partition) & (dataset.field("topic") == r.partition.topic)
            narrowed = self._narrowed(r, here) if "offset" in self._columns else r
            if narrowed.records > 0 and self._is_possible(here):
                found.append(narrowed)
        return found

    def _narrowed(self, r: OffsetRange, here: Any) -> OffsetRange:
        offsets = dataset.field("offset")

        def is_possible(a: int, b: int) -> bool:
            return self._is_possible(here & (offsets >= a) & (offsets <= b - 1))

        first = _lowest(is_possible, r.start, r.end)
        if first is None:
            return replace(r, end=r.start)
        last = _lowest(lambda a, b: is_possible(1 - b, 1 - a), 1 - r.end, 1 - first)
        assert last is not None
        return replace(r, start=first, end=1 - last)

    def _is_possible(self, guarantee: Any) -> bool:
        """Return whether the filter may be true for a row for which the guarantee is true."""
        fragment = self._files.make_fragment("none", self._disk, partition_expression=guarantee)
        whole = dataset.FileSystemDataset([fragment], self._schema, self._files, self._disk)
        return any(True for _ in whole.get_fragments(self._expression))


def columns_in(expression: Any, schema: Any) -> list[str]:
    """Return the columns that a filter uses. Raises pyarrow.ArrowInvalid for a filter that does not fit the schema."""
    schema.empty_table().filter(expression)
    found = []
    for index, name in enumerate(schema.names):
        try:
            schema.remove(index).empty_table().filter(expression)
        except pa.ArrowException:
            found.append(name)
    return found


def _lowest(is_possible: Callable[[int, int], bool], start: int, end: int) -> int | None:
    """Return the lowest number from `start` up to, and without, `end` that is possible; None if there is none."""
    if start >= end or not is_possible(start, end):
        return None
    while end - start > 1:
        middle = (start + end) // 2
        if is_possible(start, middle):
            end = middle
        elif is_possible(middle, end):
            start = middle
        else:
            return start  # Arrow could not decide for the whole, and decides for both halves that there is no row
    return start
