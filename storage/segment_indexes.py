"""The three indexes of a segment: loaded at the first use, extended with each batch, rebuilt from the data."""

from collections.abc import Callable, Generator
from contextlib import suppress
from itertools import islice
from typing import TypeAlias, TypeVar

from ..common.room_logger import room_logger
from .errors import FILE_ERRORS, CorruptIndexError, CorruptSegmentError, IndexRebuildingError
from .file_records import BatchPosition, FileRecords
from .filesystem import File, FileSystem
from .log_config import LogConfig
from .offset_index import OffsetIndex
from .partition_files import TEMPORARY_SUFFIX, clear_name
from .segment_files import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, SegmentFiles
from .time_index import NO_TIMESTAMP, TimeIndex, TimestampOffset
from .transaction_index import TransactionIndex

_UNKNOWN = -2
_FEW = 1000
_HEADERS_PER_STEP = 200
"""Batch headers read before others are served: half a millisecond."""

T = TypeVar("T")
RunInSteps: TypeAlias = Callable[[Generator[None, None, None]], None]

logger = room_logger("storage")


class SegmentIndexes:
    """Offset, time and transaction index, and the rules for adding entries.

    They are loaded when first needed, as most segments of most logs are never read. The content of an index file is
    compared with the data before its first use; a pair of indexes that contradicts the data or itself, or cannot be
    read, is rebuilt immediately. Public attributes are for the segment, which appends without a call.
    """

    __slots__ = (
        "_base_offset",
        "_files",
        "_fs",
        "_is_log_damaged",
        "_is_rebuilding",
        "_max_size",
        "_offset",
        "_records",
        "_replaced",
        "_time",
        "bytes_since_last_entry",
        "interval_bytes",
        "is_full",
        "is_unwritten",
        "loaded_transactions",
        "max_timestamp_so_far",
        "offset_of_max_timestamp_so_far",
        "run_in_steps",
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
        self._replaced: list[OffsetIndex | TimeIndex] = []
        """Indexes that a rebuild has replaced and whose handles a flush may still be syncing."""
        self._is_log_damaged = False
        """Whether a rebuild met an invalid record batch: another rebuild would read as much and end there again."""
        self._is_rebuilding = False
        """Whether `rebuild_in_steps` is under way."""
        self.run_in_steps: RunInSteps | None = None
        """Rebuilds a damaged index while others are served. None for a segment that is written to, or no longer in
        the log: its indexes are rebuilt in one step."""
        self.loaded_transactions: TransactionIndex | None = None
        """The transaction index, if anybody needed it so far."""
        self.interval_bytes = config.index_interval_bytes
        self.bytes_since_last_entry = 0
        self.is_full = False
        self.is_unwritten = False
        """Whether recovery has left all entries in memory, and no files, until the segment is closed or rolled."""
        self.max_timestamp_so_far = _UNKNOWN if records.size else NO_TIMESTAMP
        """Below -1 before the first use; see `max_timestamp`."""
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
        """Find `max_timestamp`: the last time index entry, or the timestamp of a later batch."""
        highest = self.last_time()
        for batch in self._records.batch_positions(self.scan_start(highest.offset)):
            if batch.max_timestamp > highest.timestamp:
                highest = TimestampOffset(batch.max_timestamp, batch.last_offset)
        self.max_timestamp = highest

    # -- opening ---------------------------------------------------------------------------------------------------

    def open(self) -> tuple[OffsetIndex, TimeIndex]:
        """Open offset and time index as they are on disk, without checking their content. Raises OSError."""
        size, base, fs = self._max_size, self._base_offset, self._fs
        self._offset = OffsetIndex(self._files.path_of(INDEX_SUFFIX), base, size, fs)
        self._time = TimeIndex(self._files.path_of(TIME_INDEX_SUFFIX), base, size, fs)
        return self._offset, self._time

    def _load(self) -> None:
        try:
            offset_index, time_index = self.open()
            offset_index.sanity_check()
            time_index.sanity_check()
            self._check_last_entries(offset_index, time_index)
        except (CorruptIndexError, OSError) as error:
            self._rebuild_because_of(error)
        self._refresh_is_full()

    def _check_last_entries(self, offset_index: OffsetIndex, time_index: TimeIndex) -> None:
        """Raise OSError, and `CorruptIndexError` if the last entries do not match the data, or entries are missing.

        An index may lack its newest entries: a flush leaves it out, and a scan continues from the entry before.
        """
        if not self._records.size:
            if offset_index.entries or time_index.entries:
                raise CorruptIndexError(f"{offset_index.path}: entries for an empty log")
            return
        if offset_index.entries:
            self._checked_position(offset_index.last_offset, offset_index.last_position)
        elif self._records.size > self.interval_bytes and self._needs_an_entry():
            raise CorruptIndexError(f"{offset_index.path} is missing or empty")
        if time_index.entries:
            self._checked_time(time_index.last_entry)
        elif next(self._records.batch_positions()).max_timestamp >= 0:
            raise CorruptIndexError(f"{time_index.path} is missing or empty")

    def _needs_an_entry(self) -> bool:
        """Return whether a batch begins far enough from the start of the data to need an offset index entry."""
        return any(batch.position > self.interval_bytes for batch in islice(self._records.batch_positions(), _FEW))

    def _rebuild_because_of(self, error: CorruptIndexError | OSError) -> None:
        """Rebuild where an index file, and not the disk, is at fault; else raises the OSError.

        Where the data is damaged as well, reads scan it from its start, and end at the damage.
        """
        if isinstance(error, OSError) and error.errno not in FILE_ERRORS:
            raise error
        if self._rebuild_later(error) and self._offset is not None:
            return
        logger.warning("%s; the indexes of the segment are rebuilt", error)
        try:
            self.rebuild()
        except CorruptSegmentError as damage:
            logger.warning("%s; the segment is read without an index", damage)
            self.begin_rebuild()
            self._is_log_damaged = True

    def _refresh_is_full(self) -> None:
        self.is_full = self.offset.is_full or self.time.is_full

    # -- use -------------------------------------------------------------------------------------------------------

    def checked(self, use: Callable[[], T]) -> T:
        """Return the result of `use`, called again after a rebuild if it finds an index corrupt.

        Raises OSError, and `CorruptSegmentError` if the data itself is damaged.
        """
        try:
            return use()
        except (CorruptIndexError, OSError) as error:
            if isinstance(error, OSError) and error.errno not in FILE_ERRORS:
                raise
            if self._is_log_damaged or not self._rebuild_later(error):
                if not self._is_log_damaged:
                    logger.warning("%s; the indexes of the segment are rebuilt", error)
                self.rebuild()
        try:
            return use()
        except CorruptIndexError as error:
            raise CorruptSegmentError(str(error)) from error

    def scan_start(self, offset: int) -> int:
        """Return a position at which a batch begins that is not above `offset`, near it: where a scan for it begins.

        Raises as `checked`.
        """
        return self.checked(lambda: self._scan_start(offset))

    def _scan_start(self, offset: int) -> int:
        entry = self.offset.lookup(offset)
        if entry.position == 0:
            return 0
        return self._checked_position(entry.offset, entry.position)

    def upper_bound(self, start_position: int, length: int) -> int | None:
        """Return an offset above all batches that begin before `start_position + length`, if there is an entry.

        Raises as `checked`.
        """
        return self.checked(lambda: self._upper_bound(start_position, length))

    def _upper_bound(self, start_position: int, length: int) -> int | None:
        entry = self.offset.upper_bound(start_position, length)
        if entry is None:
            return None
        self._checked_position(entry.offset, entry.position)
        return entry.offset

    def last_position(self) -> int:
        """Position of the batch of the last offset index entry, 0 if there is none. Raises as `checked`."""
        return self.checked(lambda: self._scan_start(self.offset.last_offset))

    def time_before(self, timestamp: int) -> TimestampOffset:
        """Return the greatest time index entry at or below `timestamp`, or (-1, base offset). Raises as `checked`."""
        return self.checked(lambda: self._checked_time(self.time.lookup(timestamp)))

    def go_beyond(self, end_offset: int) -> bool:
        """Whether an index that is loaded has an entry at or above the offset at which the data ends."""
        offset_index, time_index = self._offset, self._time
        if offset_index is None or time_index is None:
            return False
        return (offset_index.entries > 0 and offset_index.last_offset >= end_offset) or (
            time_index.entries > 0 and time_index.last_entry.offset >= end_offset
        )

    def last_time(self) -> TimestampOffset:
        """Return the last time index entry, or (-1, base offset) if there is none. Raises as `checked`."""
        return self.checked(lambda: self._checked_time(self.time.last_entry))

    def _checked_position(self, offset: int, position: int) -> int:
        """Return the position of an offset index entry. Raises `CorruptIndexError` unless a batch at or below it begins
        there.

        Kafka's older brokers write one entry for several batches: the position of the first, the offset of the last.
        """
        size, path = self._records.size, self.offset.path
        if not 0 < position < size:
            raise CorruptIndexError(f"{path}: position {position} for offset {offset} in a log of {size} bytes")
        try:
            batch = self._records.batch_at(position)
        except CorruptSegmentError as error:
            raise CorruptIndexError(f"{path}: offset {offset}: {error}") from error
        if batch.base_offset > offset:
            raise CorruptIndexError(
                f"{path}: position {position} for offset {offset}, but the batch there begins at {batch.base_offset}"
            )
        return position

    def _checked_time(self, entry: TimestampOffset) -> TimestampOffset:
        """Return a time index entry. Raises `CorruptIndexError` unless the batch of its offset has its timestamp."""
        if entry.timestamp == NO_TIMESTAMP:
            return entry
        batch = self._batch_of(entry.offset)
        if batch is None or batch.max_timestamp != entry.timestamp:
            raise CorruptIndexError(f"{self.time.path}: {entry} is not of {batch}")
        return entry

    def _batch_of(self, offset: int) -> BatchPosition | None:
        for batch in self._records.batch_positions(self._scan_start(offset)):
            if batch.last_offset >= offset:
                return batch
        return None

    # -- entries ---------------------------------------------------------------------------------------------------

    def make_room(self) -> None:
        """Write waiting entries before the data: after the write of a batch no step may fail."""
        (self._offset or self.offset).write_if_many_wait()
        (self._time or self.time).write_if_many_wait()

    def append_entries(self, last_offset: int, position: int) -> None:
        """Append an entry to each index with room for the batch at `position`, part of `max_timestamp_so_far`."""
        offset_index, time_index = self._offset or self.offset, self._time or self.time
        try:
            if offset_index.entries < offset_index.full_at:
                offset_index.append(last_offset, position)
            if time_index.entries < time_index.full_at:
                time_index.maybe_append(self.max_timestamp_so_far, self.offset_of_max_timestamp_so_far)
        except CorruptIndexError as error:
            # The batch is written, so the append must succeed: the contradicted indexes are rebuilt at the next use.
            logger.warning("%s; the indexes of the segment are rebuilt", error)
            with suppress(OSError):
                self._drop()
            return
        self.is_full = offset_index.entries >= offset_index.full_at or time_index.entries >= time_index.full_at

    def take_in(self, last_offset: int, max_timestamp: int, position: int, size: int) -> None:
        """Note a batch of `size` bytes at `position`; it gets entries if the last ones are far enough away."""
        if max_timestamp > self.max_timestamp_so_far:
            self.max_timestamp = TimestampOffset(max_timestamp, last_offset)
        if self.bytes_since_last_entry > self.interval_bytes:
            self.append_entries(last_offset, position)
            self.bytes_since_last_entry = 0
        self.bytes_since_last_entry += size

    def append_last_timestamp(self) -> None:
        """Append the final maximum timestamp, which has a slot of its own, and write everything. Raises OSError."""
        try:
            self._add_last_timestamp()
        except CorruptIndexError as error:
            logger.warning("%s; the indexes of the segment are rebuilt", error)
            self.rebuild()
            return
        self._write()

    def _add_last_timestamp(self) -> None:
        time_index = self.time
        if time_index.entries < time_index.max_entries:
            time_index.maybe_append(*self.max_timestamp, use_reserved_slot=True)

    def _write(self) -> None:
        self.offset.trim_to_valid_size()
        self.time.trim_to_valid_size()
        self.is_unwritten = False

    # -- repair and truncation -------------------------------------------------------------------------------------

    def rebuild(self) -> None:
        """Write a new offset and time index, durably, from batch headers, trusting the data.

        Raises OSError, and `CorruptSegmentError` if the data is damaged: the indexes remain unchanged then, because
        their entries for batches after the damage may be right.
        """
        if self._is_log_damaged:
            raise CorruptSegmentError(f"{self._records.path}: an index cannot be rebuilt from damaged data")
        try:
            last_offset = -1
            for batch in self._records.batch_positions():
                if batch.last_offset <= last_offset:
                    # A crash left it, and recovery is about to cut there: entries for it would contradict each other.
                    message = f"offset {batch.last_offset} after {last_offset} at position {batch.position}"
                    raise CorruptSegmentError(f"{self._records.path}: {message}")
                last_offset = batch.last_offset
        except CorruptSegmentError:
            self._is_log_damaged = True
            raise
        self.begin_rebuild()
        for batch in self._records.batch_positions():
            self.take_in(batch.last_offset, batch.max_timestamp, batch.position, batch.size)
        self.finish_rebuild()
        self.offset.flush()
        self.time.flush()

    def _rebuild_later(self, error: Exception) -> bool:
        """Begin a rebuild in steps where that is possible; whether it is over already, as that of a small segment is.

        Raises `IndexRebuildingError` while it is under way.
        """
        run_in_steps = self.run_in_steps
        if run_in_steps is None:
            return False
        if not self._is_rebuilding:
            logger.warning("%s; the indexes of the segment are rebuilt", error)
            self._is_rebuilding = True
            run_in_steps(self._rebuild_in_steps(run_in_steps))
        if self._is_rebuilding:
            raise IndexRebuildingError(f"the indexes of {self._records.path} are being rebuilt") from error
        return True

    def _rebuild_in_steps(self, run_in_steps: RunInSteps) -> Generator[None, None, None]:
        """Rebuild the offset and time index under temporary names, then let them take the place of the damaged ones.

        They are not synced: after a crash an incomplete index is detected at its first use.
        Ends early where the segment left the log or is written to again.
        """
        made: list[OffsetIndex | TimeIndex] = []
        try:
            paths = [self._files.path_of(suffix) for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)]
            for path in paths:
                if self._fs.exists(path + TEMPORARY_SUFFIX):
                    clear_name(self._fs, path + TEMPORARY_SUFFIX)
            size, base, fs = self._max_size, self._base_offset, self._fs
            offset_index = OffsetIndex(paths[0] + TEMPORARY_SUFFIX, base, size, fs)
            time_index = TimeIndex(paths[1] + TEMPORARY_SUFFIX, base, size, fs)
            made = [offset_index, time_index]
            highest, bytes_since_last_entry = TimestampOffset(NO_TIMESTAMP, base), 0
            for number, batch in enumerate(self._records.batch_positions(), 1):
                if batch.max_timestamp > highest.timestamp:
                    highest = TimestampOffset(batch.max_timestamp, batch.last_offset)
                if bytes_since_last_entry > self.interval_bytes:
                    if not offset_index.is_full:
                        offset_index.append(batch.last_offset, batch.position)
                    if not time_index.is_full:
                        time_index.maybe_append(*highest)
                    bytes_since_last_entry = 0
                bytes_since_last_entry += batch.size
                if number % _HEADERS_PER_STEP == 0:
                    for index in made:
                        index.write_if_many_wait()
                    yield
                    if self.run_in_steps is not run_in_steps:
                        return
            if time_index.entries < time_index.max_entries:
                time_index.maybe_append(*highest, use_reserved_slot=True)
            for index, path in zip(made, paths, strict=True):
                index.trim_to_valid_size()
                if self._fs.is_dir(path):
                    clear_name(self._fs, path)
                self._fs.rename(index.path, path)
                index.path = path
            self._replaced += [index for index in (self._offset, self._time) if index is not None]
            self._offset, self._time = offset_index, time_index
            self.bytes_since_last_entry, self.max_timestamp = bytes_since_last_entry, highest
            self._refresh_is_full()
            logger.info("%s: the indexes of the segment are rebuilt", self._records.path)
        except (CorruptSegmentError, CorruptIndexError) as damage:
            # Its readers get CORRUPT_MESSAGE from now on where they need the index, as a rebuild would end there again.
            self._is_log_damaged = True
            logger.warning("%s; the indexes cannot be rebuilt", damage)
        except OSError as error:
            # The next reader meets the same error, if it persists, and handles it according to its request.
            logger.warning("the indexes of %s are not rebuilt: %s", self._records.path, error)
        finally:
            self._is_rebuilding = False
            for index in made:
                index.close_handle()
                if index.path.endswith(TEMPORARY_SUFFIX):
                    with suppress(OSError):
                        self._fs.unlink(index.path)

    def find_violation(self, size: int, end_offset: int) -> str | None:
        """Return how loaded indexes contradict a segment of `size` bytes that ends at `end_offset`, or None."""
        base, index, time_index = self._base_offset, self._offset, self._time
        if index is not None and index.entries:
            offset, position = index.last_offset, index.last_position
            is_valid = base <= offset < end_offset and 0 <= position < size
            if not is_valid:
                return f"{index.path} ends with ({offset}, {position}); {size} bytes, end offset {end_offset}"
        if time_index is not None and time_index.entries and not base <= time_index.last_entry.offset < end_offset:
            return f"{time_index.path} ends with {time_index.last_entry}; end offset {end_offset}"
        return None

    def begin_rebuild(self) -> None:
        """Empty the offset and time index, before `take_in` receives all batches."""
        self._drop()
        self.open()
        self._is_log_damaged = False  # recovery, which calls this, removes the damage
        self.bytes_since_last_entry = 0
        self.max_timestamp = TimestampOffset(NO_TIMESTAMP, self._base_offset)

    def _drop(self) -> None:
        """Unlink the offset and time index, so that the next use rebuilds them. Raises OSError."""
        # A flush on another thread may be syncing the old files: their handles remain open until `close_handles`.
        self._replaced += [index for index in (self._offset, self._time) if index is not None]
        self._offset = self._time = None
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            path = self._files.path_of(suffix)
            if self._fs.exists(path):
                clear_name(self._fs, path)

    def finish_rebuild(self, *, may_wait: bool = False) -> None:
        """Complete the files after all batches were added; not yet durable.

        With `may_wait` the entries of a segment that is too small for an entry of the offset index remain in memory, as
        in a new segment. Most of ten thousand partitions are that small, and two files for each take most of the time
        of a recovery.
        """
        self._add_last_timestamp()
        self.is_unwritten = may_wait and self._records.size <= self.interval_bytes
        if not self.is_unwritten:
            self._write()
        self._refresh_is_full()

    def truncate_to(self, offset: int) -> None:
        """Remove every entry at or above `offset`; `find_max_timestamp` is due once the data is cut as well."""
        self.checked(lambda: self.offset.truncate_to(offset))
        self.checked(lambda: self.time.truncate_to(offset))
        self.transactions.truncate_to(offset)
        self.bytes_since_last_entry = 0
        self.is_full = False

    # -- files -----------------------------------------------------------------------------------------------------

    def unsynced_files(self) -> list[File]:
        """Return the open files, with every entry written, for a sync. Raises OSError."""
        files = [index.unsynced_file() for index in (self.offset, self.time, self.transactions)]
        self.is_unwritten = False
        return [file for file in files if file is not None]

    def close_handles(self) -> None:
        """Give the handles back without writing anything."""
        for index in (self._offset, self._time, self.loaded_transactions, *self._replaced):
            if index is not None:
                index.close_handle()
        self._replaced = []

    def repath(self) -> None:
        """Use other paths: the files have been renamed."""
        if self._offset is not None:
            self._offset.path = self._files.path_of(INDEX_SUFFIX)
        if self._time is not None:
            self._time.path = self._files.path_of(TIME_INDEX_SUFFIX)
        if self.loaded_transactions is not None:
            self.loaded_transactions.path = self._files.path_of(TXN_INDEX_SUFFIX)
