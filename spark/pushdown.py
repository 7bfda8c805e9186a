"""Filters on topic, partition, offset and time that narrow a batch read before it starts (option `pushdown=true`).

Spark must allow it as well: `spark.sql.python.filterPushdown.enabled=true`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

from pyspark.sql import datasource

from ..arrow.client import BlockingClient
from ..arrow.offset_range import OffsetRange
from .batch_reader import BarnabasBatchReader

_FARTHEST = 2**63 - 1


class NarrowingBatchReader(BarnabasBatchReader):
    """A separate reader, since Spark rejects a reader with filters unless they are enabled."""

    _first, _behind, _since_ms = 0, _FARTHEST, -1
    _allowed: tuple[tuple[int, frozenset[Any]], ...] = ()
    """Conditions on topics (0) and partitions (1), which must all be true."""

    def pushFilters(self, filters: Iterable[Any]) -> Iterable[Any]:  # noqa: N802  # Spark's name
        """Use supported filters; return the filters that Spark must still apply."""
        for each in filters:
            if not self._take_in(each):
                yield each

    def _take_in(self, each: Any) -> bool:
        """Return whether the filter is applied completely."""
        (column, *rest), value = each.attribute, getattr(each, "value", None)
        if rest:
            return False
        if column == "offset" and type(value) is int:
            return self._bound_offsets(each, value)
        if column in ("topic", "partition"):
            index = 0 if column == "topic" else 1
            values = [value] if isinstance(each, datasource.EqualTo) else value
            if isinstance(each, datasource.EqualTo | datasource.In) and values:
                self._allowed = (*self._allowed, (index, frozenset(values)))
                return True
        lower = isinstance(each, datasource.GreaterThan | datasource.GreaterThanOrEqual | datasource.EqualTo)
        if column == "timestamp" and lower and isinstance(value, datetime) and value.tzinfo is not None:
            # The first record at or after the time: all records before it are earlier, but not all after it are later.
            self._since_ms = max(self._since_ms, int(value.timestamp() * 1000))
        return False

    def _bound_offsets(self, each: Any, value: int) -> bool:
        first, behind = {
            datasource.EqualTo: (value, value + 1),
            datasource.GreaterThan: (value + 1, _FARTHEST),
            datasource.GreaterThanOrEqual: (value, _FARTHEST),
            datasource.LessThan: (0, value),
            datasource.LessThanOrEqual: (0, value + 1),
        }.get(type(each), (0, -1))
        if behind < 0:
            return False
        self._first, self._behind = max(self._first, first), min(self._behind, behind)
        return True

    def _narrowed(self, client: BlockingClient, ranges: list[OffsetRange]) -> list[OffsetRange]:
        ranges = [r for r in ranges if all(r.partition[index] in values for index, values in self._allowed)]
        ranges = [replace(r, start=max(r.start, self._first), end=min(r.end, self._behind)) for r in ranges]
        ranges = [r for r in ranges if r.records > 0]
        if self._since_ms >= 0 and ranges:
            found = client.find_offsets({r.partition: self._since_ms for r in ranges})
            ends = {r.partition: r.end for r in ranges}
            since = {tp: offset if offset >= 0 else ends[tp] for tp, offset in found.items()}
            ranges = [replace(r, start=min(max(r.start, since[r.partition]), r.end)) for r in ranges]
        return ranges
