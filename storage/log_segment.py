"""A segment: one `.log` file with its offset, time and transaction index."""

from array import array
from bisect import bisect_right
from collections.abc import Callable

from ..protocol.errors import KafkaError, ProtocolError
from ..protocol.joint_produce import locate_batches
from ..protocol.record import NO_PARTITION_LEADER_EPOCH
from ..protocol.record_batch import HEADER_SIZE, LOG_OVERHEAD, Batch, entry_size
from .batch_scan import HEADER_FRONT_SIZE, SCANNED_READ, BatchScan
from .cleaning.batch_index import IndexScan, index_batches
from .errors import NO_SPACE, CorruptSegmentError, IndexRebuildingError
from .file_records import BatchPosition, FileRecords, batch_position
from .filesystem import File, FileSystem, Sendable
from .log_config import NEVER, LogConfig
from .record_search import first_not_older
from .segment_files import LOG_SUFFIX, SegmentFiles
from .segment_indexes import SegmentIndexes
from .time_index import NO_TIMESTAMP, TimestampOffset

MAX_RELATIVE_OFFSET = 2**31 - 1
MAX_TIMESTAMP = 2**63 - 1
_TAIL_MAX = 512
_TAIL_KEPT = 256
"""The number of newest batches that an active segment remembers after `_TAIL_MAX` was reached."""


class SegmentAge:
    """The age of a segment, by which it is rolled: since the first batch's timestamp, or else since its creation."""

    __slots__ = ("_created_ms", "_records", "_roll_jitter_ms", "first_timestamp")

    def __init__(self, records: FileRecords, created_ms: int, roll_jitter_ms: int) -> None:
        """Both in ms; the segment is rolled `roll_jitter_ms` before `segment.ms` ends."""
        self._records = records
        self._created_ms = created_ms
        self._roll_jitter_ms = roll_jitter_ms
        self.first_timestamp: int | None = None
        """Largest timestamp of the first batch; None while unknown or empty."""

    def load_first_timestamp(self) -> int | None:
        """Return `first_timestamp`, read from the file after a restart. Raises OSError, `CorruptSegmentError`."""
        if self.first_timestamp is None:
            for batch in self._records.batch_positions():
                self.first_timestamp = batch.max_timestamp
                break
        return self.first_timestamp

    def is_over(self, config: LogConfig, max_timestamp: int, now_ms: int) -> bool:
        """Whether a batch with `max_timestamp` must roll the segment. Errors as `load_first_timestamp`."""
        first = self.load_first_timestamp()
        waited_ms = max_timestamp - first if first is not None and first >= 0 else now_ms - self._created_ms
        return waited_ms > config.max_segment_ms - self._roll_jitter_ms

    def roll_timestamp(self, config: LogConfig) -> int:
        """Return the timestamp above which a batch rolls the segment; -2 if only the clock decides. Errors as above."""
        first = self.load_first_timestamp()
        if first is None:
            return NEVER
        return first + config.max_segment_ms - self._roll_jitter_ms if first >= 0 else -2

    def restart(self, now_ms: int) -> None:
        """Begin again for a segment that was emptied."""
        self._created_ms = now_ms
        self.first_timestamp = None


class SegmentTail:
    """Exact positions of the last few hundred appended batches, so that reads near the log's end need no search.

    It contains every batch from its first entry on.
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

    def append_many(self, offsets: bytes, positions: bytes) -> None:
        """Note more batches; their first offsets and positions are numbers of 64 bits."""
        self._offsets.frombytes(offsets)
        self._positions.frombytes(positions)
        if len(self._offsets) > _TAIL_MAX:
            del self._offsets[:-_TAIL_KEPT]
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

    Its parts are `files` (names), `records` (data), `indexes` (positions in the data) and `age` (times). The active
    segment also remembers the exact positions of its newest batches, so that reads near the end of the log need no
    search.

    Invariant: `records.size` never ends inside a batch.
    """

    __slots__ = (
        "_closed_size",
        "_tail",
        "age",
        "base_offset",
        "files",
        "indexes",
        "last_leader_epoch",
        "max_offset",
        "records",
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
        self.files = SegmentFiles(directory, base_offset, fs, suffix)
        self.records = FileRecords(self.files.path_of(LOG_SUFFIX), fs, size)
        self.indexes = SegmentIndexes(self.files, self.records, base_offset, config, fs)
        self.age = SegmentAge(self.records, created_ms, roll_jitter_ms)
        self._closed_size = 0
        self.last_leader_epoch = NO_PARTITION_LEADER_EPOCH
        """The leader epoch of the last batch that `next_offset` read."""
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
        """Create an empty segment on disk; the caller syncs the directory to make its name durable.

        Raises OSError.
        """
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
    def is_small(self) -> bool:
        """Whether it is at most as large as the interval between entries of its indexes."""
        return self.records.size <= self.indexes.interval_bytes

    @property
    def largest_timestamp(self) -> int:
        """The timestamp for retention: the largest timestamp, or the file's modification time if none can be read."""
        try:
            timestamp = self.indexes.max_timestamp.timestamp
        except IndexRebuildingError:
            return MAX_TIMESTAMP  # kept until its timestamps are known
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
        # Before a first batch as well: missing indexes are complete at that moment, and later would need a rebuild.
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

    def append_batches(self, records: bytes | bytearray | memoryview) -> None:
        """Append whole batches of any format, with rising offsets, with one write. Raises OSError as `append`."""
        indexes, position = self.indexes, self.records.size
        highest = indexes.max_timestamp_so_far, indexes.offset_of_max_timestamp_so_far
        before = IndexScan(0, [], indexes.bytes_since_last_entry, highest, -1)
        data = memoryview(records)
        scan = index_batches(data, indexes.interval_bytes, before)
        assert scan.end == len(data), "whole batches"
        if scan.entries or not position:
            indexes.make_room()
        self.records.append(records)
        for last_offset, at, timestamp, timestamp_offset in scan.entries:
            indexes.max_timestamp_so_far, indexes.offset_of_max_timestamp_so_far = timestamp, timestamp_offset
            indexes.append_entries(last_offset, position + at)
        indexes.max_timestamp_so_far, indexes.offset_of_max_timestamp_so_far = scan.highest
        indexes.bytes_since_last_entry = scan.since
        if position == 0:
            self.age.first_timestamp = batch_position(data, 0, 0, len(data)).max_timestamp
        offsets, positions = locate_batches(data, position)
        if not positions or position + len(data) != _end_of_last(data, positions, position):
            # The tail must have every batch after its first one, and batches of older formats have no first offset.
            self._tail.clear()
        else:
            self._tail.append_many(offsets, positions)

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
        as_file_slice: bool = False,
    ) -> tuple[Sendable, int] | None:
        """Bytes from the batch that contains `offset` (or the next one, in a gap) on, and their position.

        At most `max_length` bytes and nothing at or beyond `end_position`, as `Log.read`. None if there is no
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
                if not as_file_slice or wanted < SCANNED_READ:
                    data = self.records.pread(wanted, position)
                    if HEADER_SIZE <= LOG_OVERHEAD + int.from_bytes(data[8:12], "big", signed=True) <= len(data):
                        return data, position
        else:
            position = self.indexes.scan_start(offset)
        scan = BatchScan(self.records, offset, max_length, end_position, min_one_message, hard_limit, as_file_slice)
        return scan.read_from(position, self.indexes.interval_bytes)

    def position_of(self, offset: int) -> int:
        """Position of the first batch that ends at or above `offset`; the segment's size if there is none."""
        known = self._tail.floor(offset)
        if known is not None and known[0] == offset:
            return known[1]
        start = self.indexes.scan_start(offset) if known is None else known[1]
        for batch in self.records.batch_positions(start):
            if batch.last_offset >= offset:
                return batch.position
        return self.records.size

    def batch_at_or_after(self, offset: int) -> BatchPosition | None:
        """Return the first batch that ends at or above `offset`."""
        for batch in self.records.batch_positions(self.indexes.scan_start(offset)):
            if batch.last_offset >= offset:
                return batch
        return None

    def next_offset(self) -> int:
        """Return the offset after the last offset in the segment; the base offset if it is empty.

        Reads the end of the file.
        """
        last, end = self.base_offset, 0
        self.last_leader_epoch = NO_PARTITION_LEADER_EPOCH
        if self.records.size == 0:
            return last
        if self.records.size <= self.indexes.interval_bytes:
            # So little that there is no offset index entry, and looking into the index files would cost more.
            start, highest = 0, TimestampOffset(NO_TIMESTAMP, last)
        else:
            start, highest = self.indexes.last_position(), self.indexes.last_time()
        for batch in self.records.batch_positions(start):
            last, end = batch.last_offset + 1, batch.position + batch.size
            self.last_leader_epoch = batch.leader_epoch
            if batch.max_timestamp > highest.timestamp:
                highest = TimestampOffset(batch.max_timestamp, batch.last_offset)
            if batch.position == 0:
                self.age.first_timestamp = batch.max_timestamp
        if self.indexes.go_beyond(last):
            # An entry above the end of the log would conflict with the entry of a later batch.
            self.indexes.rebuild()
            return self.next_offset()
        self.indexes.bytes_since_last_entry = self.records.size - start
        self.indexes.max_timestamp = highest
        self._closed_size = end
        return last

    def find_offset_by_timestamp(self, timestamp: int, starting_offset: int, most: int) -> TimestampOffset | None:
        """Return the first record at or after `starting_offset` that is not older than `timestamp`.

        Raises KafkaError INVALID_RECORD for a decompressed record of more than `most` bytes.
        """
        start = max(self.indexes.time_before(timestamp).offset, starting_offset)
        for found in self.records.batch_positions(self.indexes.scan_start(start)):
            if found.max_timestamp < timestamp:
                continue
            for _, batch in self.records.batches(found.position, found.position + found.size):
                first = first_not_older(batch, timestamp, starting_offset, most)
                if first is not None:
                    return first
        return None

    # -- repair and truncation -------------------------------------------------------------------------------------

    def recover(
        self, on_batch: Callable[[Batch], None] | None = None, before_cut: Callable[[], None] = lambda: None
    ) -> int:
        """Check every batch, rebuild the indexes, and cut the file before the first bad one; returns the bytes cut.

        A batch is bad if its length, magic or CRC is wrong or its offsets do not increase. `on_batch` sees the good
        ones, after the transaction index has been emptied. Nothing is durable yet, and indexes may be only in memory.
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
        self.indexes.finish_rebuild(may_wait=True)
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
            self.age.restart(now_ms)
        self.indexes.find_max_timestamp()
        return size - self.records.size

    # -- files -----------------------------------------------------------------------------------------------------

    def become_inactive(self) -> None:
        """Write the pending parts of an active segment: the final time entry, index entries, the file's true length."""
        self.indexes.append_last_timestamp()
        self.indexes.transactions.write()
        self.records.trim()
        self._tail.clear()

    def unsynced_files(self, *, with_indexes: bool) -> list[File]:
        """Return the open files that a flush has to sync. Raises OSError.

        Without the indexes, which can be rebuilt, these are the data, and the transaction index if it has new entries:
        a missing entry there would not be detected.
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
        """Make the segment durable. Index entries without disk space may wait if another flush follows."""
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
        """Whether the files are complete: no batch was appended since the segment was opened, and no index waits in
        memory.
        """
        return self._closed_size == self.records.size and not self.indexes.is_unwritten

    def close_handles(self) -> None:
        """Give all handles back without writing anything; any later use opens them again."""
        self.records.close_handle()
        self.indexes.close_handles()

    def change_suffix(self, new_suffix: str) -> None:
        """Rename the files, from `.cleaned` to `.swap` and so on; open handles remain valid. Raises OSError."""
        self.files.rename_to(new_suffix)
        self._repath()

    def pin(self) -> None:
        """Open and load everything that readers may need, so that the file names are not used until `unpin`.

        Only for a complete segment: its time index ends with the largest timestamp, if the index has room for it.
        """
        indexes = self.indexes
        self.unsynced_files(with_indexes=True)
        self.age.load_first_timestamp()
        if not indexes.time.is_full:
            indexes.max_timestamp = indexes.time.last_entry
        self.files.pin()
        assert indexes.max_timestamp and indexes.transactions.entries is not None

    def unpin(self, suffix: str) -> None:
        """End `pin`: the files have been renamed to this suffix."""
        self.files.unpin(suffix)
        self._repath()

    def moved_to(self, directory: str) -> None:
        """Use another path: the directory has been renamed."""
        self.files.moved_to(directory)
        self._repath()

    def _repath(self) -> None:
        self.records.path = self.files.path_of(LOG_SUFFIX)
        self.indexes.repath()


def _end_of_last(data: memoryview, positions: bytes, start: int) -> int:
    """Return the position in `data` after its last batch. `positions` has the positions of its batches in the segment,
    in which `data` begins at `start`.
    """
    last = memoryview(positions).cast("q")[-1]
    return last + entry_size(data, last - start)
