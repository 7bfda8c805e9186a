"""A segment: one `.log` file with its offset, time and transaction index."""

from collections.abc import Callable, Iterable

from ..protocol.errors import KafkaError, ProtocolError
from ..protocol.record_batch import HEADER_SIZE, LOG_OVERHEAD, Batch
from .batch_scan import HEADER_FRONT_SIZE, SCANNED_READ, BatchScan
from .errors import CorruptIndexError, CorruptSegmentError
from .file_records import BatchPosition, FileRecords
from .filesystem import File, FileSystem, Sendable
from .log_config import NEVER, LogConfig
from .offset_index import OffsetIndex
from .segment_tail import SegmentTail
from .time_index import NO_TIMESTAMP, TimeIndex, TimestampOffset
from .transaction_index import TransactionIndex

MAX_RELATIVE_OFFSET = 2**31 - 1
LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX = ".log", ".index", ".timeindex", ".txnindex"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)

_UNKNOWN = -2


def segment_file_name(base_offset: int, suffix: str) -> str:
    """Kafka's name of a segment's file: 20 digits, then the suffix."""
    return f"{base_offset:020d}{suffix}"


class LogSegment:
    """Kafka's LogSegment: batches with offsets in [base_offset, next segment's base offset).

    The indexes are loaded when first needed, as most segments of most logs are never read; one that turns out to be
    corrupt is rebuilt there and then. The active segment also remembers exactly where its newest batches start, so
    that reads near the end of the log look nowhere else.

    Invariant: `records.size` never ends inside a batch.
    """

    __slots__ = (
        "_closed_size",
        "_fs",
        "_max_index_size",
        "_max_timestamp",
        "_offset_index",
        "_offset_of_max_timestamp",
        "_pinned_modified_ms",
        "_stem",
        "_suffix",
        "_tail",
        "_time_index",
        "_transaction_index",
        "base_offset",
        "bytes_since_last_index_entry",
        "created_ms",
        "first_timestamp",
        "index_interval_bytes",
        "is_index_full",
        "max_offset",
        "records",
        "roll_jitter_ms",
    )

    def __init__(
        self,
        directory: str,
        base_offset: int,
        *,
        config: LogConfig,
        fs: FileSystem,
        created_ms: int,
        roll_jitter_ms: int = 0,
        suffix: str = "",
        size: int | None = None,
    ) -> None:
        """A segment whose `.log` file exists. `suffix` is `.cleaned`, `.swap` or nothing; `size` as in FileRecords."""
        self.base_offset = base_offset
        self.max_offset = base_offset + MAX_RELATIVE_OFFSET
        self.created_ms = created_ms
        self.roll_jitter_ms = roll_jitter_ms
        self.index_interval_bytes = config.index_interval_bytes
        self.bytes_since_last_index_entry = 0
        self.is_index_full = False
        self.first_timestamp: int | None = None
        """Largest timestamp of the first batch, which rolling by time counts from; None while unknown or empty."""
        self._max_index_size = config.segment_index_bytes
        self._stem = f"{directory}/{base_offset:020d}"
        self._suffix = suffix
        self._fs = fs
        self.records = FileRecords(self.path_of(LOG_SUFFIX), fs, size)
        self._closed_size = 0
        self._pinned_modified_ms: int | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._transaction_index: TransactionIndex | None = None
        self._max_timestamp = _UNKNOWN if self.records.size else NO_TIMESTAMP
        self._offset_of_max_timestamp = base_offset
        self._tail = SegmentTail()

    @classmethod
    def create(
        cls,
        directory: str,
        base_offset: int,
        *,
        config: LogConfig,
        fs: FileSystem,
        created_ms: int,
        roll_jitter_ms: int = 0,
        suffix: str = "",
    ) -> "LogSegment":
        """A new, empty segment on disk; its name is durable once somebody syncs the directory. Raises OSError."""
        path = f"{directory}/{segment_file_name(base_offset, LOG_SUFFIX)}{suffix}"
        fs.open(path, create=True).close()
        segment = cls(
            directory,
            base_offset,
            config=config,
            fs=fs,
            created_ms=created_ms,
            roll_jitter_ms=roll_jitter_ms,
            suffix=suffix,
            size=0,
        )
        segment._open_indexes()
        if config.preallocate:
            try:
                segment.records.preallocate(config.segment_size)
            except OSError:
                segment.close_handles()
                fs.unlink(path)
                raise
        return segment

    def __repr__(self) -> str:
        return f"LogSegment(base_offset={self.base_offset}, size={self.size})"

    # -- parts -----------------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Bytes of record batches."""
        return self.records.size

    @property
    def offset_index(self) -> OffsetIndex:
        if self._offset_index is None:
            self._load_indexes()
        assert self._offset_index is not None
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        if self._time_index is None:
            self._load_indexes()
        assert self._time_index is not None
        return self._time_index

    @property
    def transaction_index(self) -> TransactionIndex:
        if self._transaction_index is None:
            self._transaction_index = TransactionIndex(self.path_of(TXN_INDEX_SUFFIX), self.base_offset, self._fs)
        return self._transaction_index

    @property
    def max_timestamp(self) -> TimestampOffset:
        """Largest timestamp of all batches, and the last offset of the first batch that has it; (-1, …) if none has."""
        if self._max_timestamp == _UNKNOWN:
            self._set_max_timestamp(self._read_max_timestamp())
        return TimestampOffset(self._max_timestamp, self._offset_of_max_timestamp)

    def _set_max_timestamp(self, highest: TimestampOffset) -> None:
        self._max_timestamp, self._offset_of_max_timestamp = highest

    @property
    def largest_timestamp(self) -> int:
        """What retention goes by: the largest timestamp, or the file's modification time where none can be read."""
        try:
            timestamp = self.max_timestamp.timestamp
        except CorruptSegmentError:
            timestamp = NO_TIMESTAMP
        return timestamp if timestamp >= 0 else self.modified_ms

    @property
    def modified_ms(self) -> int:
        pinned = self._pinned_modified_ms
        return self._fs.modified_ms(self.records.path) if pinned is None else pinned

    def path_of(self, suffix: str) -> str:
        """Path of the file of this segment that `suffix` names (`.log`, `.index`, …)."""
        return f"{self._stem}{suffix}{self._suffix}"

    def _load_indexes(self) -> None:
        try:
            offset_index, time_index = self._open_indexes()
            offset_index.sanity_check()
            time_index.sanity_check()
            last, size = offset_index.last_position, self.records.size
            if last and last >= size:
                raise CorruptIndexError(f"{offset_index.path}: position {last} in a log of {size} bytes")
            if not offset_index.entries and self.records.size > self.index_interval_bytes and not self._has_file():
                raise CorruptIndexError(f"{offset_index.path} is missing")
        except CorruptIndexError:
            self.rebuild_indexes()
        self.is_index_full = self.offset_index.is_full or self.time_index.is_full

    def _has_file(self) -> bool:
        return self._fs.exists(self.path_of(INDEX_SUFFIX))

    def _open_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        size, base, fs = self._max_index_size, self.base_offset, self._fs
        self._offset_index = OffsetIndex(self.path_of(INDEX_SUFFIX), base, size, fs)
        self._time_index = TimeIndex(self.path_of(TIME_INDEX_SUFFIX), base, size, fs)
        return self._offset_index, self._time_index

    # -- appending -------------------------------------------------------------------------------------------------

    def append(
        self,
        records: bytes | bytearray | memoryview,
        first_offset: int,
        last_offset: int,
        max_timestamp: int,
    ) -> None:
        """Append one batch at the end. Raises OSError, after which the segment is as before.

        The caller has checked that the segment takes it: offsets above all present ones and at most `max_offset`.
        """
        file = self.records
        position = file.size
        since = self.bytes_since_last_index_entry
        # Before a first batch as well: indexes that are missing are complete then, and later would be made anew.
        if since > self.index_interval_bytes or not position:
            self._make_room_in_indexes()
        file.append(records)
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._offset_of_max_timestamp = last_offset
        if since > self.index_interval_bytes:
            self._append_index_entries(last_offset, position)
            since = 0
        self.bytes_since_last_index_entry = since + file.size - position
        if position == 0:
            self.first_timestamp = max_timestamp
        self._tail.append(first_offset, position)

    def append_batches(self, records: bytes | bytearray | memoryview, batches: Iterable[Batch]) -> None:
        """Append several batches, which `batches` walks through, with one write. Raises OSError as `append`."""
        start = self.records.size
        self._make_room_in_indexes()
        self.records.append(records)
        for batch in batches:
            position = start + batch.position
            self._index_batch(batch.last_offset, batch.max_timestamp, position, batch.size)
            if position == 0:
                self.first_timestamp = batch.max_timestamp
            if batch.magic == 2:
                self._tail.append(batch.base_offset, position)

    def _make_room_in_indexes(self) -> None:
        """Write index entries that wait, before the data: once a batch is written nothing may fail any more."""
        self.offset_index.write_if_many_wait()
        self.time_index.write_if_many_wait()

    def _append_index_entries(self, last_offset: int, position: int) -> None:
        offset_index, time_index = self.offset_index, self.time_index
        if not offset_index.is_full:
            offset_index.append(last_offset, position)
        if not time_index.is_full:
            time_index.maybe_append(*self.max_timestamp)
        self.is_index_full = offset_index.is_full or time_index.is_full

    def should_roll(self, config: LogConfig, size: int, max_timestamp: int, last_offset: int, now_ms: int) -> bool:
        """Whether a batch of `size` bytes belongs into a new segment: Kafka's LogSegment.shouldRoll."""
        if self.size > config.segment_size - size or last_offset > self.max_offset or self.is_index_full:
            return True
        return self.size > 0 and self.waited_ms(now_ms, max_timestamp) > config.max_segment_ms - self.roll_jitter_ms

    def roll_timestamp(self, config: LogConfig) -> int:
        """The timestamp above which a batch rolls the segment; below any, if only the clock tells. Raises OSError."""
        first = self.load_first_timestamp()
        if first is None:
            return NEVER
        return first + config.max_segment_ms - self.roll_jitter_ms if first >= 0 else -2

    def waited_ms(self, now_ms: int, max_timestamp: int) -> int:
        """Time between the first batch and the one to come, by their timestamps, or by the clock if they have none."""
        first = self.load_first_timestamp()
        if first is not None and first >= 0:
            return max_timestamp - first
        return now_ms - self.created_ms

    def load_first_timestamp(self) -> int | None:
        """`first_timestamp`, read from the file if the segment was written by an earlier run."""
        if self.first_timestamp is None:
            for batch in self.records.batch_positions():
                self.first_timestamp = batch.max_timestamp
                break
        return self.first_timestamp

    # -- reading ---------------------------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_length: int,
        end_position: int,
        *,
        min_one_message: bool,
        hard_limit: bool = False,
        lend: bool = False,
    ) -> tuple[Sendable, int] | None:
        """Bytes from the batch that contains `offset` (or the next one, in a gap) on, and their position.

        At most `max_length` bytes and nothing at or beyond `end_position`, as `Log.read` says. None if there is no
        batch before `end_position`. Raises OSError, and `CorruptSegmentError` where no whole batch begins.
        """
        known = self._tail.floor(offset)
        if known is not None:
            start, position = known
            if start == offset and max_length >= HEADER_FRONT_SIZE:
                available = end_position - position
                if available <= 0:
                    return None
                wanted = max_length if max_length < available else available
                if not lend or wanted < SCANNED_READ:
                    data = self.records.pread(wanted, position)
                    if HEADER_SIZE <= LOG_OVERHEAD + int.from_bytes(data[8:12], "big", signed=True) <= len(data):
                        return data, position
        else:
            position = self.offset_index.lookup(offset).position
        scan = BatchScan(self.records, offset, max_length, end_position, min_one_message, hard_limit, lend)
        return scan.read_from(position, self.index_interval_bytes)

    def position_of(self, offset: int) -> int:
        """Position of the first batch that ends at or above `offset`; the segment's size if there is none."""
        known = self._tail.floor(offset)
        if known is not None and known[0] == offset:
            return known[1]
        start = self.offset_index.lookup(offset).position if known is None else known[1]
        for batch in self.records.batch_positions(start):
            if batch.last_offset >= offset:
                return batch.position
        return self.records.size

    def batch_at_or_after(self, offset: int) -> BatchPosition | None:
        """The first batch that ends at or above `offset`."""
        for batch in self.records.batch_positions(self.offset_index.lookup(offset).position):
            if batch.last_offset >= offset:
                return batch
        return None

    def next_offset(self) -> int:
        """One above the last offset in the segment; the base offset if it is empty. Reads the end of the file."""
        last, end = self.base_offset, 0
        if self.records.size == 0:
            return last
        if self.records.size <= self.index_interval_bytes:
            # So little that there is no offset index entry, and looking into the index files would cost more.
            start, highest = 0, TimestampOffset(NO_TIMESTAMP, last)
        else:
            start, highest = self.offset_index.last_position, self.time_index.last_entry
        for batch in self.records.batch_positions(start):
            last, end = batch.last_offset + 1, batch.position + batch.size
            if batch.max_timestamp > highest.timestamp:
                highest = TimestampOffset(batch.max_timestamp, batch.last_offset)
            if batch.position == 0:
                self.first_timestamp = batch.max_timestamp
        self.bytes_since_last_index_entry = self.records.size - start
        self._set_max_timestamp(highest)
        self._closed_size = end
        return last

    def _read_max_timestamp(self) -> TimestampOffset:
        """The last time index entry, or something younger behind it."""
        highest = self.time_index.last_entry
        start = self.offset_index.lookup(highest.offset).position
        for batch in self.records.batch_positions(start):
            if batch.max_timestamp > highest.timestamp:
                highest = TimestampOffset(batch.max_timestamp, batch.last_offset)
        return highest

    def find_offset_by_timestamp(self, timestamp: int, starting_offset: int) -> TimestampOffset | None:
        """The first record at or after `starting_offset` that is not older than `timestamp`."""
        start = max(self.time_index.lookup(timestamp).offset, starting_offset)
        for found in self.records.batch_positions(self.offset_index.lookup(start).position):
            if found.max_timestamp < timestamp:
                continue
            for _, batch in self.records.batches(found.position, found.position + found.size):
                for record in batch.records():
                    if record.timestamp >= timestamp and record.offset >= starting_offset:
                        return TimestampOffset(record.timestamp, record.offset)
        return None

    # -- repair and truncation -------------------------------------------------------------------------------------

    def recover(
        self, on_batch: Callable[[Batch], None] | None = None, before_cut: Callable[[], None] = lambda: None
    ) -> int:
        """Check every batch, rebuild the indexes, and cut the file before the first bad one; returns the bytes cut.

        A batch is bad if its length, magic or CRC is wrong or its offsets do not increase. `on_batch` sees the good
        ones, after the transaction index has been emptied. Nothing is durable yet.
        """
        self._reset_indexes()
        self.transaction_index.reset()
        valid = self._rebuild_from_batches(on_batch, check=True)
        cut = self.records.size - valid
        if cut:
            before_cut()
        if cut or self.records.file.size() != valid:
            self.records.truncate_to(valid)
        self._finish_rebuild()
        return cut

    def rebuild_indexes(self) -> None:
        """Write the offset and time index anew, durably, from batch headers, trusting the data."""
        self._reset_indexes()
        self._rebuild_from_batches(None, check=False)
        self._finish_rebuild()
        self.offset_index.flush()
        self.time_index.flush()

    def _reset_indexes(self) -> None:
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            path = self.path_of(suffix)
            if self._fs.exists(path):
                self._fs.unlink(path)
        self._close_indexes()
        self._open_indexes()
        self._tail.clear()
        self.bytes_since_last_index_entry = 0
        self.first_timestamp = None
        self._set_max_timestamp(TimestampOffset(NO_TIMESTAMP, self.base_offset))

    def _rebuild_from_batches(self, on_batch: Callable[[Batch], None] | None, *, check: bool) -> int:
        """Index all batches and return where the valid ones end."""
        valid = 0
        if not check:
            for header in self.records.batch_positions():
                self._index_batch(header.last_offset, header.max_timestamp, header.position, header.size)
                valid = header.position + header.size
            return valid
        next_offset = self.base_offset
        try:
            for position, batch in self.records.batches():
                if not self._is_sound(batch, next_offset):
                    break
                self._index_batch(batch.last_offset, batch.max_timestamp, position, batch.size)
                if on_batch is not None:
                    on_batch(batch)
                next_offset = batch.last_offset + 1
                valid = position + batch.size
        except (CorruptSegmentError, ProtocolError, KafkaError):
            # Where no batch can begin the log ends; a batch that its producer state refuses was never acknowledged.
            return valid
        return valid

    def _is_sound(self, batch: Batch, next_offset: int) -> bool:
        first = batch.base_offset if batch.magic == 2 else batch.last_offset
        return next_offset <= first <= batch.last_offset <= self.max_offset and batch.is_valid

    def _index_batch(self, last_offset: int, max_timestamp: int, position: int, size: int) -> None:
        if max_timestamp > self._max_timestamp:
            self._set_max_timestamp(TimestampOffset(max_timestamp, last_offset))
        if self.bytes_since_last_index_entry > self.index_interval_bytes:
            self._append_index_entries(last_offset, position)
            self.bytes_since_last_index_entry = 0
        self.bytes_since_last_index_entry += size

    def _finish_rebuild(self) -> None:
        self.time_index.maybe_append(*self.max_timestamp, use_reserved_slot=True)
        self.offset_index.trim_to_valid_size()
        self.time_index.trim_to_valid_size()
        self.is_index_full = self.offset_index.is_full or self.time_index.is_full

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Remove every batch that ends at or above `offset` and return the bytes cut; nothing is durable yet."""
        batch = self.batch_at_or_after(offset)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        self._tail.clear()
        size = self.records.size
        if batch is not None:
            self.records.truncate_to(batch.position)
        if self.records.size == 0:
            self.created_ms = now_ms
            self.first_timestamp = None
        self.bytes_since_last_index_entry = 0
        self.is_index_full = False
        self._set_max_timestamp(self._read_max_timestamp())
        return size - self.records.size

    # -- files -----------------------------------------------------------------------------------------------------

    def become_inactive(self) -> None:
        """Write what an active segment leaves open: the final time entry, index entries, the file's true length."""
        time_index = self.time_index
        if time_index.entries < time_index.max_entries:
            time_index.maybe_append(*self.max_timestamp, use_reserved_slot=True)
        self.offset_index.trim_to_valid_size()
        time_index.trim_to_valid_size()
        self.transaction_index.write()
        self.records.trim()
        self._tail.clear()

    def unsynced_files(self, *, with_indexes: bool) -> list[File]:
        """The open files that a flush has to sync.

        Without the indexes, which can be rebuilt, that is the data, and the transaction index if it has news: what is
        missing there nobody would notice.
        """
        indexes: list[File | None] = []
        if with_indexes:
            indexes += [self.offset_index.unsynced_file(), self.time_index.unsynced_file()]
        if with_indexes or self.has_new_transactions:
            indexes.append(self.transaction_index.unsynced_file())
        return [self.records.file, *(index for index in indexes if index is not None)]

    @property
    def has_new_transactions(self) -> bool:
        """Whether the transaction index has entries that were not written yet."""
        return self._transaction_index is not None and self._transaction_index.has_news

    def flush(self) -> None:
        """Make everything in the segment durable."""
        for file in self.unsynced_files(with_indexes=True):
            file.fsync()

    @property
    def is_as_opened(self) -> bool:
        """Whether nothing was written since an earlier run closed the segment, or ever."""
        return self._closed_size == self.records.size

    def close_handles(self) -> None:
        """Give all handles back without writing anything; any later use opens them again."""
        self.records.close_handle()
        self._close_indexes()

    def _close_indexes(self) -> None:
        for index in (self._offset_index, self._time_index, self._transaction_index):
            if index is not None:
                index.close_handle()

    def change_suffix(self, new_suffix: str) -> None:
        """Rename the files, from `.cleaned` to `.swap` and so on; open handles stay good."""
        for old, new in self.renames_to(new_suffix):
            self._fs.rename(old, new)
        self._suffix = new_suffix
        self._repath()

    def renames_to(self, new_suffix: str) -> list[tuple[str, str]]:
        """The files that exist, and what they would be called with another suffix."""
        return [(path, path.removesuffix(self._suffix) + new_suffix) for path in self.existing_paths()]

    def pin(self) -> None:
        """Open and load all that readers may want, so that nobody needs the names of the files until `unpin`.

        Only for a segment that is complete: its time index ends with the largest timestamp, if that found room.
        """
        self.unsynced_files(with_indexes=True)
        self.load_first_timestamp()
        if not self.time_index.is_full:
            self._set_max_timestamp(self.time_index.last_entry)
        self._pinned_modified_ms = self.modified_ms
        assert self.max_timestamp and self.transaction_index.entries is not None

    def unpin(self, suffix: str) -> None:
        """The files have another suffix now, and keep it."""
        self._suffix = suffix
        self._pinned_modified_ms = None
        self._repath()

    def moved_to(self, directory: str) -> None:
        """The directory has been renamed."""
        self._stem = f"{directory}/{self.base_offset:020d}"
        self._repath()

    def _repath(self) -> None:
        self.records.path = self.path_of(LOG_SUFFIX)
        if self._offset_index is not None:
            self._offset_index.path = self.path_of(INDEX_SUFFIX)
        if self._time_index is not None:
            self._time_index.path = self.path_of(TIME_INDEX_SUFFIX)
        if self._transaction_index is not None:
            self._transaction_index.path = self.path_of(TXN_INDEX_SUFFIX)

    def existing_paths(self) -> list[str]:
        """Paths of the files that exist."""
        return [path for path in map(self.path_of, SEGMENT_SUFFIXES) if self._fs.exists(path)]
