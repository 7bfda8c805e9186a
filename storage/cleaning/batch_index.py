"""Computes the index entries of a stretch of batches in one pass; the loop has a compiled twin."""

from typing import NamedTuple

from ...protocol.native import native
from ..errors import CorruptSegmentError
from ..file_records import batch_position
from ..time_index import NO_TIMESTAMP


class IndexScan(NamedTuple):
    """The result of walking over batches."""

    end: int
    """The position of the end of the last complete batch."""
    entries: list[tuple[int, int, int, int]]
    """Last offset and position of a batch that gets an entry; the largest timestamp so far, and that batch's offset."""
    since: int
    """Bytes since the last entry."""
    highest: tuple[int, int]
    """Largest timestamp so far, and the last offset of the first batch that has it."""
    last_offset: int
    """The last offset of the last batch; -1 if there is no batch."""


def nothing_indexed(base_offset: int) -> IndexScan:
    """Return the scan before the first batch of a segment."""
    return IndexScan(0, [], 0, (NO_TIMESTAMP, base_offset), -1)


def index_batches(data: memoryview, interval: int, before: IndexScan, *, use_native: bool = True) -> IndexScan:
    """Add an entry for each batch that begins more than `interval` bytes after the previous indexed batch.

    `before` is the scan of the preceding data. The scan ends at the first invalid batch, and at a batch that does not
    end above its predecessor.
    """
    since, highest, last_offset = before.since, before.highest, before.last_offset
    if use_native and native is not None:
        return IndexScan(*native.index_batches(data, since, interval, highest, last_offset))
    entries = []
    position = 0
    while position < len(data):
        try:
            batch = batch_position(data, position, position, len(data))
        except CorruptSegmentError:
            break
        if batch.base_offset <= last_offset:
            break
        last_offset = batch.last_offset
        if batch.max_timestamp > highest[0]:
            highest = (batch.max_timestamp, last_offset)
        if since > interval:
            entries.append((last_offset, position, *highest))
            since = 0
        since += batch.size
        position += batch.size
    return IndexScan(position, entries, since, highest, last_offset)
