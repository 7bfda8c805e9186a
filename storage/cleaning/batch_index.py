"""The index entries that appending a stretch of batches makes, found at once; the loop has a compiled twin."""

from typing import NamedTuple

from ...protocol.native import native
from ...protocol.record_batch import HEADER_SIZE, MAGIC_POSITION
from ..errors import CorruptSegmentError
from ..file_records import SMALLEST_BATCH, batch_position


class IndexScan(NamedTuple):
    """What walking over batches finds."""

    end: int
    """Where the last whole batch ends."""
    entries: list[tuple[int, int, int, int]]
    """Last offset and position of a batch that gets an entry; the largest timestamp so far, and that batch's offset."""
    since: int
    """Bytes since the last entry."""
    highest: tuple[int, int]
    """Largest timestamp so far, and the last offset of the first batch that has it."""
    last_offset: int
    """Of the last batch; -1 without one."""


def index_batches(
    data: memoryview, since: int, interval: int, highest: tuple[int, int], *, use_native: bool = True
) -> IndexScan:
    """An entry for each batch that begins more than `interval` bytes after the last one that got an entry.

    `since` and `highest` are from the scan before.
    """
    if use_native and native is not None:
        return IndexScan(*native.index_batches(data, since, interval, highest))
    entries = []
    position, last_offset = 0, -1
    while position + SMALLEST_BATCH <= len(data):
        if data[position + MAGIC_POSITION] == 2 and position + HEADER_SIZE > len(data):
            break
        try:
            batch = batch_position(data, position, position)
        except CorruptSegmentError:
            break
        if position + batch.size > len(data):
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
