"""Counts the tombstones of a segment by reading it, because no file stores the number."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...protocol.batch_run import BatchRun
from ...protocol.record_batch import LegacyBatch, RecordBatch
from ..file_records import FileRecords
from .batch_walk import BatchWalk
from .segment_reader import SegmentReader
from .transaction_metadata import CleanedTransactionMetadata

BUFFER_BYTES = 1 << 18
"""The bytes per step, a few tenths of a millisecond, so that other work in this process does not wait longer."""


class TombstoneCount(NamedTuple):
    """The numbers of records and tombstones in the first `size` bytes of a segment, without transaction markers."""

    records: int
    tombstones: int
    size: int


def count_tombstones(records: FileRecords, goes_on: Callable[[], bool]) -> TombstoneCount:
    """Read until the end, or until it is to go on no more. It blocks. Raises `CorruptSegmentError`, OSError."""
    reader, tally = SegmentReader(records, 0, BUFFER_BYTES, lambda _: None), _Tally()
    walk = BatchWalk(CleanedTransactionMetadata(()), use_native=True)
    try:
        while data := reader.read():
            reader.advance(walk.walk(data, reader, tally) or 0)
            if not goes_on():
                break
    finally:
        records.close_handle()
    return TombstoneCount(tally.records, tally.tombstones, reader.position)


class _Tally:
    """A `BatchVisitor` that counts. Without the transactions that were aborted all data counts."""

    def __init__(self) -> None:
        self.records = self.tombstones = 0

    def on_run(self, run: BatchRun, compressed: RecordBatch | None) -> bool:
        count = run.records.count
        self.records += count
        self.tombstones += run.records.value_sizes[:count].tolist().count(-1)
        return True

    def on_aborted(self, batch: RecordBatch) -> bool:
        return True

    def on_control(self, batch: RecordBatch, has_no_data: bool) -> bool:
        return True

    def on_legacy(self, batch: LegacyBatch) -> bool:
        for record in batch.records():
            self.records += 1
            self.tombstones += record.value is None
        return True
