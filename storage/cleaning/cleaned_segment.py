"""The segment that the cleaner writes: `.log.cleaned` and its indexes, growing together."""

from collections.abc import Iterable

from ..errors import CorruptSegmentError
from ..file_records import FileRecords
from ..filesystem import FileSystem
from ..log_segment import MAX_RELATIVE_OFFSET
from ..offset_index import OffsetIndex
from ..segment_files import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    SegmentFiles,
)
from ..time_index import TimeIndex
from ..transaction_index import AbortedTxn, TransactionIndex
from .batch_index import index_batches, nothing_indexed
from .clean_job import CleanJob
from .errors import SegmentOffsetOverflowError

WRITEBACK_BYTES = 1 << 20
"""The bytes that are written between two requests to start writing to disk."""


class CleanedSegment:
    """The segment that a pass writes: empty at first, even if an earlier pass left files; on disk after `finish`.

    Appending the batches one by one would create the same index entries, so a broker that rebuilds the indexes gets
    the same entries.
    """

    def __init__(self, job: CleanJob, base_offset: int, fs: FileSystem, *, use_native: bool) -> None:
        """Raises OSError."""
        self._fs = fs
        self._directory = job.directory
        self._index_interval_bytes = job.index_interval_bytes
        self._use_native = use_native
        self.base_offset = base_offset
        files = SegmentFiles(job.directory, base_offset, fs, CLEANED_SUFFIX)
        for path in files.existing_paths():
            fs.unlink(path)
        fs.open(files.path_of(LOG_SUFFIX), create=True).close()
        self.records = FileRecords(files.path_of(LOG_SUFFIX), fs, 0)
        self._offset_index = OffsetIndex(files.path_of(INDEX_SUFFIX), base_offset, job.segment_index_bytes, fs)
        self._time_index = TimeIndex(files.path_of(TIME_INDEX_SUFFIX), base_offset, job.segment_index_bytes, fs)
        self._transaction_index = TransactionIndex(files.path_of(TXN_INDEX_SUFFIX), base_offset, fs)
        self._indexes = (self._offset_index, self._time_index, self._transaction_index)
        self._scan = nothing_indexed(base_offset)
        self._writeback_end = 0

    def append(self, data: memoryview) -> None:
        """Write whole batches. Raises OSError, `SegmentOffsetOverflowError`."""
        position = self.records.size
        scan = index_batches(data, self._index_interval_bytes, self._scan, use_native=self._use_native)
        if scan.end != len(data):
            raise CorruptSegmentError(f"{self.records.path}: invalid record batch after offset {scan.last_offset}")
        if scan.last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            raise SegmentOffsetOverflowError(
                f"{self.records.path}: offset {scan.last_offset} is out of reach from {self.base_offset}"
            )
        self.records.append(data)
        self._start_writeback(least=WRITEBACK_BYTES)
        self._offset_index.append_many([(last_offset, position + at) for last_offset, at, _, _ in scan.entries])
        youngest = self._time_index.last_entry.timestamp
        for _, _, timestamp, timestamp_offset in scan.entries:
            if timestamp > youngest and not self._time_index.is_full:
                self._time_index.maybe_append(timestamp, timestamp_offset)
                youngest = timestamp
        self._offset_index.write_if_many_wait()
        self._time_index.write_if_many_wait()
        self._scan = scan

    def _start_writeback(self, *, least: int) -> None:
        """Start the writeback of the written bytes once at least `least` bytes are waiting."""
        waiting = self.records.size - self._writeback_end
        if waiting >= least:
            self.records.file.start_writeback(self._writeback_end, waiting)
            self._writeback_end += waiting

    def add_aborted(self, transactions: Iterable[AbortedTxn]) -> None:
        """Note aborted transactions whose markers the segment has."""
        for transaction in transactions:
            self._transaction_index.append(transaction)

    def finish(self, modified_ms: int) -> None:
        """Complete the indexes, make everything durable, and let the file look as old as it should. Raises OSError."""
        if self._time_index.entries < self._time_index.max_entries:
            self._time_index.maybe_append(*self._scan.highest, use_reserved_slot=True)
        # The disk gets all of it in one go, for which the first sync waits, so that the others find little left to do.
        self._start_writeback(least=0)
        files = [file for index in self._indexes if (file := index.unsynced_file()) is not None]
        for file in files:
            file.start_writeback(0, file.size())
        for file in (self.records.file, *files):
            file.fsync()
        self._fs.set_modified_ms(self.records.path, modified_ms)
        self._fs.fsync_dir(self._directory)

    def close_handles(self) -> None:
        self.records.close_handle()
        for index in self._indexes:
            index.close_handle()
