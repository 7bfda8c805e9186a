"""One pass of compaction: map the keys of the dirty part to their last offsets, then rewrite the segments below."""

from collections.abc import Callable, Iterator

from ...protocol.record_batch import Batch
from ..errors import CorruptIndexError
from ..file_records import FileRecords
from ..filesystem import FileSystem
from ..offset_index import OffsetIndex
from ..partition_files import is_log_file
from ..segment_files import CLEANED_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, segment_file_name
from .batch_walk import BatchWalk
from .clean_job import CleanerStats, CleanJob, Event, GroupCleaned, PassFinished, Progress, SourceSegment
from .cleaned_segment import CleanedSegment
from .map_builder import MapBuilder
from .offset_map import SkimpyOffsetMap, memory_for, new_offset_map
from .record_filter import RecordFilter
from .segment_groups import SegmentSizes, group_segments
from .segment_reader import SegmentReader
from .transaction_metadata import CleanedTransactionMetadata

PROGRESS_BYTES = 4 * 1024 * 1024
"""The bytes that are read between two reports of progress."""
_LEAST_FILLED = 1e-6
"""A map that may be filled no more than this gets all the memory that there is."""


def clean(
    job: CleanJob, fs: FileSystem, throttle: Callable[[int], None], *, use_native: bool = True
) -> Iterator[Event]:
    """Do the pass, as far as the offset map reaches; Kafka's Cleaner.

    Writes `<base offset>.log.cleaned` and its indexes for one group of segments after the other, all synced. Yields
    `GroupCleaned` for each group, whose files may replace the old segments while the pass continues; `Progress` at
    intervals; and `PassFinished` at the end. `throttle` is called with the number of bytes of each read and write, and
    may block. Closing the iterator ends the pass, which leaves only files that end in `.cleaned`.

    Raises OSError, `CorruptSegmentError` for an invalid record batch, `OffsetMapTooSmallError` and
    `SegmentOffsetOverflowError`; ValueError for an impossible size of the map.
    """
    one_pass = CleaningPass(job, fs, throttle, use_native=use_native)
    one_pass.remove_leftovers()
    if job.first_dirty_offset == job.first_uncleanable_offset:
        yield from _at_intervals(one_pass.look_for_expired())
    yield from _at_intervals(one_pass.build_map())
    yield from _at_intervals(one_pass.clean_groups())
    yield one_pass.finished()


def _at_intervals(events: Iterator[Progress] | Iterator[Progress | GroupCleaned]) -> Iterator[Event]:
    """Yield the events, with progress only now and then."""
    due = 0
    for event in events:
        if not isinstance(event, Progress):
            yield event
        elif event.done >= due:
            due = event.done + PROGRESS_BYTES
            yield event


class CleaningPass:
    """The steps of `clean`, in their order."""

    def __init__(self, job: CleanJob, fs: FileSystem, throttle: Callable[[int], None], *, use_native: bool) -> None:
        self._job = job
        self._fs = fs
        self._throttle = throttle
        self._use_native = use_native
        self._stats = CleanerStats()
        self._map = self._new_map()
        self._legacy_horizon_ms = self._oldest_legacy_tombstones()

    def _new_map(self) -> SkimpyOffsetMap:
        """Return a map of the configured size, or a smaller one where there are few offsets."""
        job = self._job
        offsets = job.first_uncleanable_offset - job.first_dirty_offset
        filled = min(job.load_factor, 0.5)
        enough = memory_for(int((offsets + 1) / filled), job.hash_name) if filled > _LEAST_FILLED else None
        memory = job.dedupe_buffer_bytes if enough is None else min(job.dedupe_buffer_bytes, enough)
        return new_offset_map(memory, job.hash_name, use_native=self._use_native)

    def _position_of(self, segment: SourceSegment, offset: int) -> int:
        """Return the position of a batch at or before the offset; 0 if there is no usable index."""
        path = self._path_of(segment, INDEX_SUFFIX)
        index = OffsetIndex(path, segment.base_offset, self._job.segment_index_bytes, self._fs)
        try:
            index.sanity_check()
            position = index.lookup(offset).position
        except CorruptIndexError:
            return 0
        finally:
            index.close_handle()
        return position if position < segment.size else 0

    def _path_of(self, segment: SourceSegment, suffix: str) -> str:
        return f"{self._job.directory}/{segment_file_name(segment.base_offset, suffix)}"

    def _records(self, segment: SourceSegment) -> FileRecords:
        return FileRecords(self._path_of(segment, LOG_SUFFIX), self._fs, segment.size)

    def _size_of(self, segment: SourceSegment, suffix: str) -> int:
        path = self._path_of(segment, suffix)
        return self._fs.size(path) if self._fs.exists(path) else 0

    def remove_leftovers(self) -> None:
        """Unlink the files of an earlier pass that did not finish."""
        for name in self._fs.list_dir(self._job.directory):
            if name.endswith(CLEANED_SUFFIX) and is_log_file(name):
                self._fs.unlink(f"{self._job.directory}/{name}")

    def look_for_expired(self) -> Iterator[Progress]:
        """Read a clean log if it may contain a tombstone whose delete horizon has passed (KIP-534)."""
        done, total = 0, sum(segment.size for segment in self._job.segments)
        for segment in self._job.segments:
            records = self._records(segment)
            try:
                for _, batch in records.batches():
                    if self._has_expired(batch):
                        self._map.update_latest_offset(self._job.first_dirty_offset - 1)
                        return
                    self._throttle(batch.size)
                    done += batch.size
                    yield Progress("map", done, total)
            finally:
                records.close_handle()

    def _has_expired(self, batch: Batch) -> bool:
        horizon = batch.delete_horizon_ms
        if horizon is None or horizon > self._job.now_ms or batch.is_control:
            return False
        return any(record.value is None for record in batch.records())

    # -- the first half ----------------------------------------------------------------------------------------------

    def build_map(self) -> Iterator[Progress]:
        """Fill the offset map; `_map.latest_offset` is then the last offset that it covers."""
        job, bound = self._job, self._job.first_uncleanable_offset
        builder = MapBuilder(job, self._map, self._stats, use_native=self._use_native)
        next_offsets = [segment.base_offset for segment in job.segments[1:]] + [bound]
        dirty = [
            (segment, next_offset)
            for segment, next_offset in zip(job.segments, next_offsets, strict=True)
            if next_offset > job.first_dirty_offset
        ]
        total = sum(segment.size for segment, _ in dirty)
        done = 0
        for segment, next_offset in dirty:
            start = self._position_of(segment, job.first_dirty_offset)
            done += start
            records = self._records(segment)
            try:
                for length in builder.add(self._reader(records, start)):
                    done += length
                    yield Progress("map", done, total)
            finally:
                records.close_handle()
            if builder.is_full:
                break
            self._map.update_latest_offset(next_offset - 1)

    def _reader(self, records: FileRecords, position: int) -> SegmentReader:
        return SegmentReader(records, position, self._job.io_buffer_bytes, self._throttle)

    # -- the second half ---------------------------------------------------------------------------------------------

    def clean_groups(self) -> Iterator[Progress | GroupCleaned]:
        """Write the successors of all segments that the map reaches into."""
        job = self._job
        transactions = CleanedTransactionMetadata(job.aborted_transactions)
        record_filter = RecordFilter(job, self._map, self._stats, use_native=self._use_native)
        record_walk = BatchWalk(
            transactions, use_native=self._use_native, max_record_size=self._job.max_decompressed_message_bytes
        )
        segments = [segment for segment in job.segments if segment.base_offset <= self._map.latest_offset]
        total = sum(segment.size for segment in segments)
        for group in self._groups(segments):
            cleaned = CleanedSegment(job, group[0].base_offset, self._fs, use_native=self._use_native)
            try:
                for segment in group:
                    record_filter.keeps_legacy_tombstones = self._modified_ms_of(segment) > self._legacy_horizon_ms
                    for _ in self._clean_into(cleaned, segment, record_walk, record_filter):
                        yield Progress("clean", self._stats.bytes_read, total)
                cleaned.add_aborted(transactions.kept_aborted)
                transactions.kept_aborted.clear()
                cleaned.finish(self._modified_ms_of(group[-1]))
            finally:
                cleaned.close_handles()
            yield GroupCleaned(
                group[0].base_offset,
                tuple(segment.base_offset for segment in group),
                sum(segment.size for segment in group),
                cleaned.records.size,
            )

    def _groups(self, segments: list[SourceSegment]) -> Iterator[list[SourceSegment]]:
        if not segments:
            return
        sizes = [
            SegmentSizes(segment, self._size_of(segment, INDEX_SUFFIX), self._size_of(segment, TIME_INDEX_SUFFIX))
            for segment in segments
        ]
        following = self._job.segments[len(segments) :]
        yield from group_segments(
            sizes,
            segment_bytes=self._job.segment_bytes,
            index_bytes=self._job.segment_index_bytes,
            end_offset=following[0].base_offset if following else self._job.first_uncleanable_offset,
        )

    def _modified_ms_of(self, segment: SourceSegment) -> int:
        return self._fs.modified_ms(self._path_of(segment, LOG_SUFFIX))

    def _oldest_legacy_tombstones(self) -> int:
        """Tombstones of old formats go from segments that are not younger than this.

        Their time is that of the last segment that was clean before, less `delete_retention_ms`.
        """
        clean = [one for one in self._job.segments if one.base_offset < self._job.first_dirty_offset]
        return self._modified_ms_of(clean[-1]) - self._job.delete_retention_ms if clean else 0

    def _clean_into(
        self, cleaned: CleanedSegment, segment: SourceSegment, walk: BatchWalk, record_filter: RecordFilter
    ) -> Iterator[int]:
        records = self._records(segment)
        reader = self._reader(records, 0)
        try:
            while data := reader.read():
                length = walk.walk(data, reader, record_filter)
                assert length is not None
                reader.advance(length)
                self._stats.bytes_read += length
                self._write(cleaned, memoryview(record_filter.output)[: record_filter.end])
                record_filter.clear()
                yield length
        finally:
            records.close_handle()

    def _write(self, cleaned: CleanedSegment, data: memoryview) -> None:
        if data:
            cleaned.append(data)
            self._stats.bytes_written += len(data)
            self._throttle(len(data))

    def finished(self) -> PassFinished:
        """Return the last event, with all that was counted."""
        stats, offset_map = self._stats, self._map
        stats.map_size = offset_map.size
        stats.map_utilization, stats.map_collision_rate = offset_map.utilization, offset_map.collision_rate
        return PassFinished(max(offset_map.latest_offset + 1, self._job.first_dirty_offset), stats)
