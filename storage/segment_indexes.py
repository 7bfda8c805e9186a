"""The three indexes of a segment as one: loaded at the first use, fed as batches come, made anew from the data."""

from .errors import CorruptIndexError
from .file_records import FileRecords
from .filesystem import File, FileSystem
from .log_config import LogConfig
from .offset_index import OffsetIndex
from .segment_files import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, SegmentFiles
from .time_index import NO_TIMESTAMP, TimeIndex, TimestampOffset
from .transaction_index import TransactionIndex

_UNKNOWN = -2


class SegmentIndexes:
    """Offset, time and transaction index, and what decides when they get an entry.

    They are loaded when first needed, as most segments of most logs are never read; a pair that turns out to be corrupt
    is rebuilt there and then. Plain attributes are for the segment, which appends without a call.
    """

    __slots__ = (
        "_base_offset",
        "_files",
        "_fs",
        "_max_size",
        "_offset",
        "_records",
        "_time",
        "bytes_since_last_entry",
        "interval_bytes",
        "is_full",
        "loaded_transactions",
        "max_timestamp_so_far",
        "offset_of_max_timestamp_so_far",
    )

    def __init__(
        self, files: SegmentFiles, records: FileRecords, base_offset: int, config: LogConfig, fs: FileSystem
    ) -> None:
        self._files = files
        self._records = records
        self._base_offset = base_offset
        self._fs = fs
        self._max_size = config.segment_index_bytes
        self._offset: OffsetIndex | None = None
        self._time: TimeIndex | None = None
        self.loaded_transactions: TransactionIndex | None = None
        """The transaction index, if anybody needed it so far."""
        self.interval_bytes = config.index_interval_bytes
        self.bytes_since_last_entry = 0
        self.is_full = False
        self.max_timestamp_so_far = _UNKNOWN if records.size else NO_TIMESTAMP
        """Below -1 before anybody asked; see `max_timestamp`."""
        self.offset_of_max_timestamp_so_far = base_offset

    @property
    def offset(self) -> OffsetIndex:
        """Raises OSError, as all of them when they are loaded, and `CorruptSegmentError` from a rebuild."""
        if self._offset is None:
            self._load()
        assert self._offset is not None
        return self._offset

    @property
    def time(self) -> TimeIndex:
        if self._time is None:
            self._load()
        assert self._time is not None
        return self._time

    @property
    def transactions(self) -> TransactionIndex:
        if self.loaded_transactions is None:
            self.loaded_transactions = TransactionIndex(
                self._files.path_of(TXN_INDEX_SUFFIX), self._base_offset, self._fs
            )
        return self.loaded_transactions

    @property
    def max_timestamp(self) -> TimestampOffset:
        """Largest timestamp of all batches, and the last offset of the first batch that has it; (-1, …) if none has."""
        if self.max_timestamp_so_far == _UNKNOWN:
            self.find_max_timestamp()
        return TimestampOffset(self.max_timestamp_so_far, self.offset_of_max_timestamp_so_far)

    @max_timestamp.setter
    def max_timestamp(self, highest: TimestampOffset) -> None:
        self.max_timestamp_so_far, self.offset_of_max_timestamp_so_far = highest

    def find_max_timestamp(self) -> None:
        """Look for `max_timestamp`: the last time index entry, or something younger behind it."""
        highest = self.time.last_entry
        start = self.offset.lookup(highest.offset).position
        for batch in self._records.batch_positions(start):
            if batch.max_timestamp > highest.timestamp:
                highest = TimestampOffset(batch.max_timestamp, batch.last_offset)
        self.max_timestamp = highest

    # -- opening ---------------------------------------------------------------------------------------------------

    def open(self) -> tuple[OffsetIndex, TimeIndex]:
        """Open offset and time index as they are on disk, without a look at what they say. Raises OSError."""
        size, base, fs = self._max_size, self._base_offset, self._fs
        self._offset = OffsetIndex(self._files.path_of(INDEX_SUFFIX), base, size, fs)
        self._time = TimeIndex(self._files.path_of(TIME_INDEX_SUFFIX), base, size, fs)
        return self._offset, self._time

    def _load(self) -> None:
        try:
            offset_index, time_index = self.open()
            offset_index.sanity_check()
            time_index.sanity_check()
            last, size = offset_index.last_position, self._records.size
            if last and last >= size:
                raise CorruptIndexError(f"{offset_index.path}: position {last} in a log of {size} bytes")
            if not offset_index.entries and size > self.interval_bytes and not self._files.exists(INDEX_SUFFIX):
                raise CorruptIndexError(f"{offset_index.path} is missing")
        except CorruptIndexError:
            self.rebuild()
        self._refresh_is_full()

    def _refresh_is_full(self) -> None:
        self.is_full = self.offset.is_full or self.time.is_full

    # -- entries ---------------------------------------------------------------------------------------------------

    def make_room(self) -> None:
        """Write entries that wait, before the data: once a batch is written nothing may fail any more."""
        (self._offset or self.offset).write_if_many_wait()
        (self._time or self.time).write_if_many_wait()

    def append_entries(self, last_offset: int, position: int) -> None:
        """An entry each for the batch at `position`, as far as there is room; `max_timestamp_so_far` counts it in."""
        offset_index, time_index = self._offset or self.offset, self._time or self.time
        if offset_index.entries < offset_index.full_at:
            offset_index.append(last_offset, position)
        if time_index.entries < time_index.full_at:
            time_index.maybe_append(self.max_timestamp_so_far, self.offset_of_max_timestamp_so_far)
        self.is_full = offset_index.entries >= offset_index.full_at or time_index.entries >= time_index.full_at

    def take_in(self, last_offset: int, max_timestamp: int, position: int, size: int) -> None:
        """A batch of `size` bytes is at `position`; it gets entries if the last ones are far enough away."""
        if max_timestamp > self.max_timestamp_so_far:
            self.max_timestamp = TimestampOffset(max_timestamp, last_offset)
        if self.bytes_since_last_entry > self.interval_bytes:
            self.append_entries(last_offset, position)
            self.bytes_since_last_entry = 0
        self.bytes_since_last_entry += size

    def append_last_timestamp(self) -> None:
        """The final maximum, which has a slot of its own, and everything written. Raises OSError."""
        time_index = self.time
        if time_index.entries < time_index.max_entries:
            time_index.maybe_append(*self.max_timestamp, use_reserved_slot=True)
        self.offset.trim_to_valid_size()
        time_index.trim_to_valid_size()

    # -- repair and truncation -------------------------------------------------------------------------------------

    def rebuild(self) -> None:
        """Write the offset and time index anew, durably, from batch headers, trusting the data."""
        self.begin_rebuild()
        for batch in self._records.batch_positions():
            self.take_in(batch.last_offset, batch.max_timestamp, batch.position, batch.size)
        self.finish_rebuild()
        self.offset.flush()
        self.time.flush()

    def begin_rebuild(self) -> None:
        """Empty the offset and time index, so that `take_in` may be told all batches."""
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            path = self._files.path_of(suffix)
            if self._fs.exists(path):
                self._fs.unlink(path)
        self.close_handles()
        self.open()
        self.bytes_since_last_entry = 0
        self.max_timestamp = TimestampOffset(NO_TIMESTAMP, self._base_offset)

    def finish_rebuild(self) -> None:
        """All batches were told: the files get their final form; not yet durable."""
        self.append_last_timestamp()
        self._refresh_is_full()

    def truncate_to(self, offset: int) -> None:
        """Remove every entry at or above `offset`; `find_max_timestamp` is due once the data is cut as well."""
        self.offset.truncate_to(offset)
        self.time.truncate_to(offset)
        self.transactions.truncate_to(offset)
        self.bytes_since_last_entry = 0
        self.is_full = False

    # -- files -----------------------------------------------------------------------------------------------------

    def unsynced_files(self) -> list[File]:
        """The open files, with every entry written, for somebody to sync. Raises OSError."""
        files = [index.unsynced_file() for index in (self.offset, self.time, self.transactions)]
        return [file for file in files if file is not None]

    def close_handles(self) -> None:
        """Give the handles back without writing anything."""
        for index in (self._offset, self._time, self.loaded_transactions):
            if index is not None:
                index.close_handle()

    def repath(self) -> None:
        """The files have got other names."""
        if self._offset is not None:
            self._offset.path = self._files.path_of(INDEX_SUFFIX)
        if self._time is not None:
            self._time.path = self._files.path_of(TIME_INDEX_SUFFIX)
        if self.loaded_transactions is not None:
            self.loaded_transactions.path = self._files.path_of(TXN_INDEX_SUFFIX)
