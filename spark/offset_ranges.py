"""Offset ranges and their Spark tasks: large ranges are split, small ones combined. No I/O.

A Python task costs Spark at least 60 ms of processor time, the cost of 100 000 records; so tasks below `_PACKED`
records are combined, as long as there are more tasks than requested.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ..arrow.offset_range import OffsetRange
from ..protocol.topic_partition import TopicPartition

_TASKS, _LEAST_SPLIT, _MAX_SPLIT = 4, 250_000, 2_000_000
"""Minimum number of tasks of a read, within these limits of records per task."""
_LARGEST_BYTES = 256 << 20
_PACKED_RECORDS, _PACKED_BYTES = 200_000, 16 << 20


@dataclass(frozen=True)
class TaskSizes:
    """Limits requested by the user; None: the defaults."""

    min_partitions: int | None = None
    max_records: int | None = None


def plan_tasks(ranges: Iterable[OffsetRange], sizes: TaskSizes) -> list[list[OffsetRange]]:
    """Return the ranges as lists, one list per Spark task."""
    wanted = [r for r in ranges if r.records > 0]
    largest = min(max(sum(r.records for r in wanted) // _TASKS, _LEAST_SPLIT), _MAX_SPLIT)
    pieces = [piece for r in wanted for piece in _split(r, _parts(r, sizes.max_records, largest))]
    if sizes.min_partitions is not None and len(pieces) < sizes.min_partitions:
        pieces = _split_to(pieces, sizes.min_partitions)
    return _pack(pieces, sizes)


def _parts(r: OffsetRange, max_records: int | None, largest: int) -> int:
    """Return the number of equal parts for `r`; `largest` is the default limit of records."""
    if max_records is not None:
        return -(-r.records // max_records)
    return max(-(-r.records // largest), int(-(-r.size // _LARGEST_BYTES)), 1)


def _split(r: OffsetRange, parts: int) -> list[OffsetRange]:
    parts = min(parts, r.records)
    edges = [r.start + r.records * i // parts for i in range(parts + 1)]
    return [replace(r, start=start, end=end) for start, end in pairwise(edges)]


def _split_to(pieces: Sequence[OffsetRange], count: int) -> list[OffsetRange]:
    """Split into at least `count` parts if there are as many records; each range by its share of all records."""
    total = sum(piece.records for piece in pieces)
    split: list[OffsetRange] = []
    for piece in pieces:
        split += _split(piece, max(1, -(-piece.records * count // total)))
    return split


def _pack(pieces: Sequence[OffsetRange], sizes: TaskSizes) -> list[list[OffsetRange]]:
    """Combine ranges in order; never fewer tasks than `min_partitions`, never more than `max_records` in one."""
    spare = len(pieces) - (sizes.min_partitions or 1)
    limit = min(_PACKED_RECORDS, sizes.max_records or _PACKED_RECORDS)
    tasks: list[list[OffsetRange]] = []
    records, size = 0, 0.0
    for piece in pieces:
        fits = records + piece.records <= limit and size + piece.size <= _PACKED_BYTES
        if tasks and spare > 0 and fits:
            tasks[-1].append(piece)
            spare -= 1
        else:
            tasks.append([piece])
            records, size = 0, 0.0
        records += piece.records
        size += piece.size
    return tasks


def average_sizes(
    sizes: Mapping[TopicPartition, int], starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, float]:
    """Return bytes on disk per record, from the bytes of a whole partition and its log start and end offset."""
    return {
        tp: size / (ends[tp] - starts[tp]) for tp, size in sizes.items() if tp in ends and ends[tp] > starts.get(tp, 0)
    }
