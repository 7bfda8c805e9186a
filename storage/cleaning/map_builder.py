"""The first half of a pass: the last offset of every key in the dirty part, as far as there is memory for keys."""

from collections.abc import Iterator

from ...protocol.batch_run import BatchRun
from ...protocol.record_batch import BatchHeader, LegacyBatch, RecordBatch
from .batch_walk import BatchWalk
from .clean_job import CleanerStats, CleanJob
from .errors import OffsetMapFullError, OffsetMapTooSmallError
from .offset_map import SkimpyOffsetMap
from .segment_reader import SegmentReader
from .transaction_metadata import CleanedTransactionMetadata


class MapBuilder:
    """Kafka's Cleaner.buildOffsetMap. Unlike there the pass ends before the first record without room, batch or not."""

    def __init__(self, job: CleanJob, offset_map: SkimpyOffsetMap, stats: CleanerStats, *, use_native: bool) -> None:
        self._start = job.first_dirty_offset
        self._map = offset_map
        self._stats = stats
        self.is_full = False
        """Whether the map ends before the part that it was to learn."""
        self._most_keys = int(offset_map.slots * job.load_factor)
        transactions = CleanedTransactionMetadata(
            transaction for transaction in job.aborted_transactions if transaction.last_offset >= self._start
        )
        self._walk = BatchWalk(transactions, use_native=use_native, max_record_size=job.max_decompressed_message_bytes)

    def add(self, reader: SegmentReader) -> Iterator[int]:
        """Take in the keys of a segment; yields the bytes read after each buffer. Look at `is_full` afterwards."""
        while data := reader.read():
            end = self._walk.walk(data, reader, self)
            if end is None:
                return
            reader.advance(end)
            self._stats.map_bytes_read += end
            yield end

    def on_run(self, run: BatchRun, compressed: RecordBatch | None) -> bool:
        records = run.records
        row = self._map.put_many(run.buffer, records, from_offset=self._start, max_size=self._most_keys)
        if row < records.count:
            return self._end_before(records.offsets[row])
        position, _ = run.batch(run.count - 1)
        return self._covered(BatchHeader.read(run.buffer, position).last_offset)

    def on_aborted(self, batch: RecordBatch) -> bool:
        return self._covered(batch.last_offset)

    def on_control(self, batch: RecordBatch, has_no_data: bool) -> bool:
        return self._covered(batch.last_offset)

    def on_legacy(self, batch: LegacyBatch) -> bool:
        for record in batch.records():
            if record.key is not None and record.offset >= self._start:
                if self._map.size >= self._most_keys:
                    return self._end_before(record.offset)
                try:
                    self._map.put(record.key, record.offset)
                except OffsetMapFullError:
                    return self._end_before(record.offset)
        return self._covered(batch.last_offset)

    def _covered(self, offset: int) -> bool:
        if offset >= self._start:
            self._map.update_latest_offset(offset)
        return True

    def _end_before(self, offset: int) -> bool:
        if offset <= self._start:
            raise OffsetMapTooSmallError(
                f"no room for the first key, at offset {offset}, in an offset map of {self._map.slots} slots: "
                "log.cleaner.dedupe.buffer.size has to be larger, or log.cleaner.io.buffer.load.factor"
            )
        self._map.update_latest_offset(offset - 1)
        self.is_full = True
        return False
