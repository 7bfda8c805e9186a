"""The second half of a pass, for a stretch of batches: selects the retained batches of any kind, in log order."""

from ...protocol.batch_run import BatchRun, Stop
from ...protocol.compression import compress
from ...protocol.legacy_records import build_message_set
from ...protocol.record_batch import (
    BATCH_HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    LegacyBatch,
    Record,
    RecordBatch,
    write_crc,
)
from .batch_filter import BatchFilter, batch_of, empty_batch
from .clean_job import NO_DATA_OFFSET, CleanerStats, CleanJob
from .offset_map import SkimpyOffsetMap


class RecordFilter:
    """Kafka's Cleaner.cleanInto. The retained batches collect in `output` up to `end`, until `clear`."""

    def __init__(self, job: CleanJob, offset_map: SkimpyOffsetMap, stats: CleanerStats, *, use_native: bool) -> None:
        last_data = [producer.last_data_offset for producer in job.active_producers]
        # The last batch below the uncleanable part is retained as well, because it determines the log's end.
        keep_empty = [offset for offset in last_data if offset != NO_DATA_OFFSET] + [job.first_uncleanable_offset - 1]
        self._map = offset_map
        self._stats = stats
        self._now_ms = job.now_ms
        self._new_horizon_ms = job.now_ms + job.delete_retention_ms
        self._filter = BatchFilter(
            latest_offset=offset_map.latest_offset,
            now_ms=job.now_ms,
            delete_retention_ms=job.delete_retention_ms,
            keep_empty=keep_empty,
            use_native=use_native,
        )
        self._kept_empty = frozenset(keep_empty)
        self._known_by_marker = {
            producer.producer_id: producer.producer_epoch
            for producer in job.active_producers
            if producer.last_data_offset == NO_DATA_OFFSET
        }
        self.keeps_legacy_tombstones = True
        """Set for each segment, because old formats have no delete horizon."""
        self.output = bytearray()
        self.end = 0
        self._plain_output = bytearray()

    def clear(self) -> None:
        self.end = 0

    def _write(self, data: bytes | bytearray | memoryview) -> None:
        end = self.end + len(data)
        self.output[self.end : end] = data
        self.end = end

    def on_run(self, run: BatchRun, compressed: RecordBatch | None) -> bool:
        found = self._map.get_many(run.buffer, run.records)
        self._stats.messages_read += run.records.count
        if compressed is None:
            kept = self._filter.filter(run, found, self.output, self.end)
            self.end = kept.end
        else:
            kept = self._filter.filter(run, found, self._plain_output, 0)
            plain = memoryview(self._plain_output)[: kept.end]
            if plain == run.buffer:
                self._write(compressed.view)
            elif kept.messages:
                self._write(compressed_batch(plain, compressed.codec))
            else:
                self._write(plain)
            plain.release()
        self._stats.messages_written += kept.messages
        self._stats.invalid_messages += kept.invalid
        return True

    def on_aborted(self, batch: RecordBatch) -> bool:
        self._stats.messages_read += batch.header.record_count
        if batch.last_offset in self._kept_empty:
            self._write(empty_batch(batch.header))
        return True

    def on_control(self, batch: RecordBatch, has_no_data: bool) -> bool:
        count, horizon = batch.header.record_count, batch.delete_horizon_ms
        self._stats.messages_read += count
        if not count or (has_no_data and horizon is not None and horizon <= self._now_ms):
            is_last = self._known_by_marker.get(batch.producer_id) == batch.producer_epoch
            if is_last or batch.last_offset in self._kept_empty:
                self._write(empty_batch(batch.header))
            return True
        self._write(self._with_horizon(batch) if has_no_data and horizon is None else batch.view)
        self._stats.messages_written += count
        return True

    def _with_horizon(self, batch: RecordBatch) -> bytes | bytearray | memoryview:
        """Return a marker with a delete horizon, after which it is removed."""
        run = BatchRun()
        run.start(bytes(batch.view))
        if run.scan(0, special=0) != (batch.size, Stop.END):
            return batch.view
        return batch_of(run, memoryview(run.buffer), list(range(run.records.count)), self._new_horizon_ms)

    def on_legacy(self, batch: LegacyBatch) -> bool:
        records = list(batch.records())
        kept = [record for record in records if self._stays(record)]
        self._stats.messages_read += len(records)
        self._stats.messages_written += len(kept)
        if len(kept) == len(records):
            self._write(batch.view)
        elif kept:
            self._write(
                build_message_set(kept, magic=batch.magic, codec=batch.codec, timestamp_type=batch.timestamp_type)
            )
        return True

    def _stays(self, record: Record) -> bool:
        if record.offset > self._map.latest_offset:
            return True
        if record.key is None:
            self._stats.invalid_messages += 1
            return False
        if record.offset < self._map.get(record.key):
            return False
        return record.value is not None or self.keeps_legacy_tombstones


def compressed_batch(plain: memoryview, codec: int) -> bytearray:
    """Return the batch with its records compressed as one stream."""
    records = compress(codec, plain[HEADER_SIZE:])
    out = bytearray(plain[:HEADER_SIZE])
    out += records
    attributes = BatchHeader.read(out).attributes | codec
    BATCH_HEADER.patch(out, length=len(out) - LOG_OVERHEAD, attributes=attributes)
    write_crc(memoryview(out))
    return out
