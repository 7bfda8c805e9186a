"""The records of many batches as numpy columns over one buffer, without an object per record.

The compiled scan of batches fills them, and another scan the columns of headers. Keys, values and headers remain in the
buffer and are described by start and size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

from ..protocol.batch_header import HEADER, HEADER_SIZE, BatchHeader
from ..protocol.batch_run import BatchRun, Stop
from ..protocol.errors import ProtocolError
from ..protocol.header_columns import header_columns
from ..protocol.record import (
    CODEC_MASK,
    LOG_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
    Record,
)
from ..protocol.record_codec import MIN_RECORD_SIZE

Ints: TypeAlias = Any
"""A numpy array of integers, one per record unless noted."""
Buffer: TypeAlias = bytes | memoryview

PAD = bytes(16)
"""Padding after the last record, so that a fixed number of bytes can be read from any start."""


class Payload(NamedTuple):
    """One batch: its header, the uncompressed bytes of its records, and the whole batch if it is uncompressed."""

    header: BatchHeader
    records: memoryview | bytes
    found: memoryview | None = None


@dataclass(slots=True)
class Slices:
    """Byte strings inside a buffer; size -1 is null."""

    starts: Ints
    sizes: Ints


@dataclass(slots=True)
class HeaderTable:
    """All headers of all records, one after another; `counts` is the number per record."""

    counts: Ints
    keys: Slices
    values: Slices


@dataclass(slots=True)
class RecordTable:
    """One column per field of a record. `batch` is the index of its batch in the decoded batches; `heads` is None
    unless headers were requested.
    """

    data: Buffer
    batch: Ints
    offsets: Ints
    timestamps: Ints
    timestamp_types: Ints
    keys: Slices
    values: Slices
    heads: HeaderTable | None

    def __len__(self) -> int:
        return len(self.offsets)

    def between(self, start: int, end: int) -> RecordTable:
        """Return the records with offsets from `start` up to, and without, `end`."""
        offsets = self.offsets
        if not len(offsets) or (offsets[0] >= start and offsets[-1] < end):
            return self
        return self.take(np.flatnonzero((offsets >= start) & (offsets < end)))

    def take(self, rows: Ints) -> RecordTable:
        """Return the records at these indexes, in order."""
        return RecordTable(
            self.data,
            self.batch[rows],
            self.offsets[rows],
            self.timestamps[rows],
            self.timestamp_types[rows],
            Slices(self.keys.starts[rows], self.keys.sizes[rows]),
            Slices(self.values.starts[rows], self.values.sizes[rows]),
            _take_headers(self.heads, rows),
        )


def decode_payloads(payloads: Sequence[Payload], *, headers: bool, use_native: bool = True) -> RecordTable:
    """Decode the records of these batches. Raises ProtocolError for invalid bytes."""
    run = BatchRun(use_native=use_native)
    data = _where_they_are(payloads) or _side_by_side(payloads)
    run.start(cast(bytes, data))
    run.records.make_room(sum(_most_records(payload) for payload in payloads))
    position, stopped = run.scan(0, len(data) - len(PAD), special=0, check_crc=False)
    if stopped is not Stop.END or run.count != len(payloads):
        offset = payloads[min(run.count, len(payloads) - 1)].header.base_offset
        raise ProtocolError(f"the records of the batch at offset {offset} have gaps or are out of order ({position})")
    found, count = run.records, run.records.count

    def column(values: memoryview) -> Ints:
        return _numbers(values)[:count]

    types = np.array([p.header.attributes & TIMESTAMP_TYPE_MASK != 0 for p in payloads], np.int64)
    counts = np.array([p.header.record_count for p in payloads], np.int64)
    return RecordTable(
        data,
        np.repeat(np.arange(len(payloads)), counts),
        column(found.offsets),
        column(found.timestamps),
        np.repeat(types, counts),
        Slices(column(found.key_starts), column(found.key_sizes)),
        Slices(column(found.value_starts), column(found.value_sizes)),
        _headers_of(run) if headers else None,
    )


def _headers_of(run: BatchRun) -> HeaderTable:
    found = header_columns(run.buffer, run.records, use_native=run.use_native)
    counts, key_starts, key_sizes, value_starts, value_sizes = map(_numbers, found)
    return HeaderTable(counts, Slices(key_starts, key_sizes), Slices(value_starts, value_sizes))


def _numbers(values: memoryview) -> Ints:
    return np.frombuffer(values, values.format)


def _most_records(payload: Payload) -> int:
    """Return the number of records, limited to the possible number if the header is wrong."""
    return max(0, min(payload.header.record_count, len(payload.records) // MIN_RECORD_SIZE))


def _where_they_are(payloads: Sequence[Payload]) -> Buffer | None:
    """Return the batches and some bytes after them, without a copy, if they are adjacent in one buffer."""
    views = [payload.found for payload in payloads]
    first, last = views[0], views[-1]
    if first is None or last is None or any(view is None or view.obj is not first.obj for view in views):
        return None
    whole = memoryview(first.obj)
    start = _address(first) - _address(whole)
    end = _address(last) - _address(whole) + len(last)
    if end - start != sum(len(view) for view in views if view is not None) or end + len(PAD) > len(whole):
        return None
    return whole[start : end + len(PAD)]


def _address(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).__array_interface__["data"][0])


def _side_by_side(payloads: Sequence[Payload]) -> bytes:
    """Copy the batches together, decompressed."""
    parts: list[bytes | memoryview] = []
    for payload in payloads:
        header, records = payload.header, payload.records
        plain = header._replace(
            length=HEADER_SIZE - LOG_OVERHEAD + len(records), attributes=header.attributes & ~CODEC_MASK
        )
        parts += (HEADER.pack(*plain), records)
    return b"".join([*parts, PAD])


def _take_headers(heads: HeaderTable | None, rows: Ints) -> HeaderTable | None:
    if heads is None:
        return None
    counts = heads.counts[rows]
    first = (np.cumsum(heads.counts) - heads.counts)[rows]
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    at = np.repeat(first, counts) + within
    return HeaderTable(
        counts,
        Slices(heads.keys.starts[at], heads.keys.sizes[at]),
        Slices(heads.values.starts[at], heads.values.sizes[at]),
    )


def columns_of_records(records: Sequence[Record], timestamp_type: int, *, headers: bool) -> RecordTable:
    """Return columns of records that were decoded one by one, in formats before v2: they have no headers."""
    parts: list[bytes] = []
    position = 0

    def put(value: bytes | None) -> tuple[int, int]:
        nonlocal position
        start = position
        if value is None:
            return start, -1
        parts.append(value)
        position += len(value)
        return start, len(value)

    keys = [put(record.key) for record in records]
    values = [put(record.value) for record in records]
    count, nothing = len(records), Slices(np.zeros(0, np.int64), np.zeros(0, np.int64))
    return RecordTable(
        b"".join([*parts, PAD]),
        np.zeros(count, np.int64),
        np.array([record.offset for record in records], np.int64),
        np.array([record.timestamp for record in records], np.int64),
        np.full(count, timestamp_type, np.int64),
        Slices(*np.array(keys, np.int64).reshape(count, 2).T),
        Slices(*np.array(values, np.int64).reshape(count, 2).T),
        HeaderTable(np.zeros(count, np.int64), nothing, nothing) if headers else None,
    )
