"""A segment: one `.log` file with its offset, time and transaction index."""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable

from ..protocol.errors import KafkaError, ProtocolError
from ..protocol.record_batch import HEADER_SIZE, LOG_OVERHEAD, Batch
from .batch_scan import HEADER_FRONT_SIZE, SCANNED_READ, BatchScan
from .errors import NO_SPACE, CorruptSegmentError
from .file_records import BatchPosition, FileRecords
from .filesystem import File, FileSystem, Sendable
from .log_config import LogConfig
from .record_search import first_not_older
from .segment_age import SegmentAge
from .segment_files import LOG_SUFFIX, SegmentFiles
from .segment_indexes import SegmentIndexes
from .time_index import NO_TIMESTAMP, TimestampOffset

MAX_RELATIVE_OFFSET = 2**31 - 1
_TAIL_MAX = 512
_TAIL_KEPT = 256
"""How many of its newest batches an active segment remembers: that many are left when it has come to the most."""


class SegmentTail:
    """Exact positions of some hundred batches that were appended last, so that reads near the log's end search nothing.

    Every batch from the first one that it knows on is known to it.
    """

    __slots__ = ("_offsets", "_positions")

    def __init__(self) -> None:
        self._offsets = array("q")
        self._positions = array("q")

    def append(self, first_offset: int, position: int) -> None:
        """Note one more batch; when there are too many, the oldest are forgotten."""
        offsets = self._offsets
        offsets.append(first_offset)
        self._positions.append(position)
        if len(offsets) > _TAIL_MAX:
            del offsets[:-_TAIL_KEPT]
            del self._positions[:-_TAIL_KEPT]

    def floor(self, offset: int) -> tuple[int, int] | None:
        """First offset and position of the last batch that starts at or below `offset`; None if that is older."""
        offsets = self._offsets
        if not offsets or offset < offsets[0]:
            return None
        slot = bisect_right(offsets, offset) - 1
        return offsets[slot], self._positions[slot]

    def clear(self) -> None:
        """Forget all of them."""
        del self._offsets[:]
        del self._positions[:]


class LogSegment:
    """Kafka's LogSegment: batches with offsets in [base_offset, next segment's base offset).

    Its parts are `files` (what they are called), `records` (the data), `indexes` (where in the data) and `age` (since
    when). The active segment also remembers exactly where its newest batches start, so that reads near the end of the
    log look nowhere else.

    Invariant: `records.size` never ends inside a batch.
    """

    __slots__ = ("_closed_size", "_tail", "age", "base_offset", "files", "indexes", "max_offset", "records")

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
        self.files = SegmentFiles(directory, base_offset, fs, suffix)
        self.records = FileRecords(self.files.path_of(LOG_SUFFIX), fs, size)
        self.indexes = SegmentIndexes(self.files, self.records, base_offset, config, fs)
        self.age = SegmentAge(self.records, created_ms, roll_jitter_ms)
        self._closed_size = 0
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
        path = SegmentFiles(directory, base_offset, fs, suffix).path_of(LOG_SUFFIX)
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
        segment.indexes.open()
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

    @property
    def size(self) -> int:
        """Bytes of record batches."""
        return self.records.size

    @property
    def largest_timestamp(self) -> int:
        """What retention goes by: the largest timestamp, or the file's modification time where none can be read."""
        try:
            timestamp = self.indexes.max_timestamp.timestamp
        except CorruptSegmentError:
            timestamp = NO_TIMESTAMP
        return timestamp if timestamp >= 0 else self.files.modified_ms

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
        file, indexes = self.records, self.indexes
        position = file.size
        since = indexes.bytes_since_last_entry
        is_entry_due = since > indexes.interval_bytes
        # Before a first batch as well: indexes that are missing are complete then, and later would be made anew.
        if is_entry_due or not position:
            indexes.make_room()
        file.append(records)
        if max_timestamp > indexes.max_timestamp_so_far:
            indexes.max_timestamp_so_far = max_timestamp
            indexes.offset_of_max_timestamp_so_far = last_offset
        if is_entry_due:
            indexes.append_entries(last_offset, position)
            since = 0
        indexes.bytes_since_last_entry = since + file.size - position
        if position == 0:
            self.age.first_timestamp = max_timestamp
        self._tail.append(first_offset, position)

    def append_batches(self, records: bytes | bytearray | memoryview, batches: Iterable[Batch]) -> None:
        """Append several batches, which `batches` walks through, with one write. Raises OSError as `append`."""
        start = self.records.size
        self.indexes.make_room()
        self.records.append(records)
        for batch in batches:
            position = start + batch.position
            self.indexes.take_in(batch.last_offset, batch.max_timestamp, position, batch.size)
            if position == 0:
                self.age.first_timestamp = batch.max_timestamp
            if batch.magic == 2:
                self._tail.append(batch.base_offset, position)

    def should_roll(self, config: LogConfig, size: int, max_timestamp: int, last_offset: int, now_ms: int) -> bool:
        """Whether a batch of `size` bytes belongs into a new segment: Kafka's LogSegment.shouldRoll."""
        if self.size > config.segment_size - size or last_offset > self.max_offset or self.indexes.is_full:
            return True
        return self.size > 0 and self.age.is_over(config, max_timestamp, now_ms)

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
            position = self.indexes.offset.lookup(offset).position
        scan = BatchScan(self.records, offset, max_length, end_position, min_one_message, hard_limit, lend)
        return scan.read_from(position, self.indexes.interval_bytes)

    def position_of(self, offset: int) -> int:
        """Position of the first batch that ends at or above `offset`; the segment's size if there is none."""
        known = self._tail.floor(offset)
        if known is not None and known[0] == offset:
            return known[1]
        start = self.indexes.offset.lookup(offset).position if known is None else known[1]
        for batch in self.records.batch_positions(start):
            if batch.last_offset >= offset:
                return batch.position
        return self.records.size

    def batch_at_or_after(self, offset: int) -> BatchPosition | None:
        """The first batch that ends at or above `offset`."""
        for batch in self.records.batch_positions(self.indexes.offset.lookup(offset).position):
            if batch.last_offset >= offset:
                return batch
        return None

    def next_offset(self) -> int:
        """One above the last offset in the segment; the base offset if it is empty. Reads the end of the file."""
        last, end = self.base_offset, 0
        if self.records.size == 0:
            return last
        if self.records.size <= self.indexes.interval_bytes:
            # So little that there is no offset index entry, and looking into the index files would cost more.
            start, highest = 0, TimestampOffset(NO_TIMESTAMP, last)
        else:
            start, highest = self.indexes.offset.last_position, self.indexes.time.last_entry
        for batch in self.records.batch_positions(start):
            last, end = batch.last_offset + 1, batch.position + batch.size
            if batch.max_timestamp > highest.timestamp:
                highest = TimestampOffset(batch.max_timestamp, batch.last_offset)
            if batch.position == 0:
                self.age.first_timestamp = batch.max_timestamp
        self.indexes.bytes_since_last_entry = self.records.size - start
        self.indexes.max_timestamp = highest
        self._closed_size = end
        return last

    def find_offset_by_timestamp(self, timestamp: int, starting_offset: int) -> TimestampOffset | None:
        """The first record at or after `starting_offset` that is not older than `timestamp`."""
        start = max(self.indexes.time.lookup(timestamp).offset, starting_offset)
        for found in self.records.batch_positions(self.indexes.offset.lookup(start).position):
            if found.max_timestamp < timestamp:
                continue
            for _, batch in self.records.batches(found.position, found.position + found.size):
                first = first_not_older(batch, timestamp, starting_offset)
                if first is not None:
                    return first
        return None

    # -- repair and truncation -------------------------------------------------------------------------------------

    def recover(
        self, on_batch: Callable[[Batch], None] | None = None, before_cut: Callable[[], None] = lambda: None
    ) -> int:
        """Check every batch, rebuild the indexes, and cut the file before the first bad one; returns the bytes cut.

        A batch is bad if its length, magic or CRC is wrong or its offsets do not increase. `on_batch` sees the good
        ones, after the transaction index has been emptied. Nothing is durable yet.
        """
        self._tail.clear()
        self.age.first_timestamp = None
        self.indexes.begin_rebuild()
        self.indexes.transactions.reset()
        valid = self._check_batches(on_batch)
        cut = self.records.size - valid
        if cut:
            before_cut()
        if cut or self.records.file.size() != valid:
            self.records.truncate_to(valid)
        self.indexes.finish_rebuild()
        return cut

    def _check_batches(self, on_batch: Callable[[Batch], None] | None) -> int:
        """Index all valid batches and return where they end."""
        valid, next_offset = 0, self.base_offset
        try:
            for position, batch in self.records.batches():
                if not self._is_sound(batch, next_offset):
                    break
                self.indexes.take_in(batch.last_offset, batch.max_timestamp, position, batch.size)
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

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Remove every batch that ends at or above `offset` and return the bytes cut; nothing is durable yet."""
        batch = self.batch_at_or_after(offset)
        self.indexes.truncate_to(offset)
        self._tail.clear()
        size = self.records.size
        if batch is not None:
            self.records.truncate_to(batch.position)
        if self.records.size == 0:
            self.age.begin_anew(now_ms)
        self.indexes.find_max_timestamp()
        return size - self.records.size

    # -- files -----------------------------------------------------------------------------------------------------

    def become_inactive(self) -> None:
        """Write what an active segment leaves open: the final time entry, index entries, the file's true length."""
        self.indexes.append_last_timestamp()
        self.indexes.transactions.write()
        self.records.trim()
        self._tail.clear()

    def unsynced_files(self, *, with_indexes: bool) -> list[File]:
        """The open files that a flush has to sync. Raises OSError.

        Without the indexes, which can be rebuilt, that is the data, and the transaction index if it has news: what is
        missing there nobody would notice.
        """
        data = self.records.file  # before the transaction index has no news any more: this may fail
        indexes: list[File] = []
        if with_indexes:
            indexes = self.indexes.unsynced_files()
        elif self.has_new_transactions and (file := self.indexes.transactions.unsynced_file()) is not None:
            indexes = [file]
        return [data, *indexes]

    @property
    def has_new_transactions(self) -> bool:
        """Whether the transaction index has entries that were not written yet."""
        transactions = self.indexes.loaded_transactions
        return transactions is not None and transactions.has_news

    def flush(self, *, indexes_may_wait: bool = False) -> None:
        """Make the segment durable. Index entries that find no room may wait if another flush is to come."""
        try:
            files = self.unsynced_files(with_indexes=True)
        except OSError as error:
            if not indexes_may_wait or error.errno not in NO_SPACE:
                raise
            files = [self.records.file]
        for file in files:
            file.fsync()

    @property
    def is_as_opened(self) -> bool:
        """Whether nothing was written since an earlier run closed the segment, or ever."""
        return self._closed_size == self.records.size

    def close_handles(self) -> None:
        """Give all handles back without writing anything; any later use opens them again."""
        self.records.close_handle()
        self.indexes.close_handles()

    def change_suffix(self, new_suffix: str) -> None:
        """Rename the files, from `.cleaned` to `.swap` and so on; open handles stay good. Raises OSError."""
        self.files.rename_to(new_suffix)
        self._repath()

    def pin(self) -> None:
        """Open and load all that readers may want, so that nobody needs the names of the files until `unpin`.

        Only for a segment that is complete: its time index ends with the largest timestamp, if that found room.
        """
        indexes = self.indexes
        self.unsynced_files(with_indexes=True)
        self.age.load_first_timestamp()
        if not indexes.time.is_full:
            indexes.max_timestamp = indexes.time.last_entry
        self.files.pin()
        assert indexes.max_timestamp and indexes.transactions.entries is not None

    def unpin(self, suffix: str) -> None:
        """The files have another suffix now, and keep it."""
        self.files.unpin(suffix)
        self._repath()

    def moved_to(self, directory: str) -> None:
        """The directory has been renamed."""
        self.files.moved_to(directory)
        self._repath()

    def _repath(self) -> None:
        self.records.path = self.files.path_of(LOG_SUFFIX)
        self.indexes.repath()
