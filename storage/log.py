"""The log of one partition: appends, reads, rolls, truncates, flushes and forgets. Owns the offset invariants."""

from collections.abc import Callable, Sequence
from typing import NoReturn
from uuid import UUID

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.record_batch import RecordBatch, iter_batches
from .errors import CorruptSegmentError, failing_dir, failing_read, failing_write, read_failure, write_failure
from .filesystem import FileSystem, parent_of
from .leader_epochs import FILE_NAME as EPOCHS_FILE_NAME
from .leader_epochs import LeaderEpochCache
from .log_append import append_info, check_producers, duplicate_info
from .log_config import NEVER, LogConfig
from .log_loader import Chance, LoadedLog, LogLoader, create_segment, rebuild_producer_state
from .log_reader import LogReader
from .log_retention import deletable_segments, next_to_delete
from .log_segment import MAX_RELATIVE_OFFSET, LogSegment
from .log_segments import LogSegments
from .log_values import FetchData, LogAppendInfo, LogOffsetMetadata, topic_partition_of
from .partition_metadata import check_topic_id, read_partition_metadata, write_partition_metadata
from .producer_state import ProducerStateManager
from .record_validator import Origin, validate_and_assign
from .segment_changes import SegmentChanges
from .segment_swap import SegmentSwap
from .time_index import TimestampOffset
from .unreplicated_transactions import find_unreplicated
from .unsynced_files import FlushTask, UnsyncedFiles
from .validation import Validate

_new_tuple = tuple.__new__  # the generated constructor of a NamedTuple takes twice as long


class Log:
    """Kafka's UnifiedLog. Used by one thread, apart from `FlushTask.run`.

    Invariant: log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset, and recovery_point <=
    log_end_offset. Offsets and the high watermark are plain attributes since everybody asks for them all the time;
    nobody but the log sets them.

    Errors: `KafkaError` where the caller is to be told; KAFKA_STORAGE_ERROR for a full disk, after which the log is as
    before and usable; `LogDirFailedError` for any other I/O error, after which nothing in the directory is.
    """

    def __init__(self, loader: LogLoader, loaded: LoadedLog, topic_id: UUID | None) -> None:
        """For `open`."""
        self.path = loader.path
        self.directory = parent_of(loader.path)
        self.topic_partition = topic_partition_of(loader.path)
        self.topic_id = topic_id
        self.leader_epochs: LeaderEpochCache = loaded.leader_epochs
        self.producer_state: ProducerStateManager = loaded.producer_state
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.high_watermark = loaded.log_start_offset
        self.last_flush_ms = loader.now_ms()
        self._fs = loader.fs
        self._now_ms = loader.now_ms
        self._rng = loader.rng
        self.segments: LogSegments = loaded.segments
        """Oldest first; the last one is active. For others to look at."""
        self.active_segment: LogSegment = loaded.segments.last
        self.appended_records = self.appended_bytes = 0
        """What `append_as_leader` has added since this log was opened."""
        self._first_unstable_offset = NEVER
        self._unsynced = UnsyncedFiles(loader.fs, loaded.log_end_offset)
        self._reader = LogReader(self.segments, self._unsynced)
        self._changes = SegmentChanges(self.segments, self._unsynced, self._reader, self.producer_state)
        self.config = loader.config
        self._refresh_first_unstable_offset()

    @classmethod
    def open(
        cls,
        path: str,
        *,
        config: LogConfig,
        fs: FileSystem,
        now_ms: Callable[[], int],
        recovery_point: int,
        log_start_offset: int,
        clean_shutdown: bool,
        rng: Chance,
        topic_id: UUID | None = None,
        may_have_gaps: bool = False,
    ) -> "Log":
        """Open the partition directory at `path`, creating it if there is none, and repair it after an unclean stop.

        With `may_have_gaps` it may have been compacted, though `config` does not say so.
        A new directory's own name is for the caller to make durable, in its parent. The high watermark starts at the
        log start. Raises OSError, and StorageError for a directory that contradicts itself or the given topic id.
        """
        if not fs.is_dir(path):
            fs.mkdir(path)
        loader = LogLoader(path, config, fs, now_ms, rng, may_have_gaps)
        loaded = loader.load(
            recovery_point=recovery_point, log_start_offset=log_start_offset, clean_shutdown=clean_shutdown
        )
        log = cls(loader, loaded, read_partition_metadata(fs, path))
        if topic_id is not None:
            log.assign_topic_id(topic_id)
        return log

    # -- what it is ------------------------------------------------------------------------------------------------

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._segment_size = config.segment_size
        self._target_magic = config.message_magic
        self._roll_timestamp = -2  # found at the next append, as it may take a look into the file
        self.producer_state.producer_id_expiration_ms = config.producer_id_expiration_ms

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self.segments.size_in_bytes

    @property
    def last_stable_offset(self) -> int:
        """First offset of the oldest open transaction, or the high watermark."""
        first, high_watermark = self._first_unstable_offset, self.high_watermark
        return first if first < high_watermark else high_watermark

    def assign_topic_id(self, topic_id: UUID) -> None:
        """Note the topic id durably, if none is. Raises `KafkaError` INCONSISTENT_TOPIC_ID if another one is."""
        check_topic_id(self.topic_partition, self.topic_id, topic_id)
        if self.topic_id is None:
            write_partition_metadata(self._fs, self.path, topic_id)
            self.topic_id = topic_id

    # -- appending -------------------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        records: memoryview,
        *,
        leader_epoch: int,
        origin: Origin = "client",
        produce_version: int = 7,
        at_once: bool = False,
        validate: Validate = validate_and_assign,
    ) -> LogAppendInfo:
        """Validate, give offsets from the log's end on, and append; the buffer is patched in place.

        With `at_once` it raises HeavyRecordsError if that takes long; `validate` is a `Validation` then. Nothing is
        durable yet. Raises as `validate_and_assign` and `ProducerStateManager.check`, RECORD_LIST_TOO_LARGE,
        KAFKA_STORAGE_ERROR and `LogDirFailedError`; the log is unchanged then.
        """
        first_offset, target_magic = self.log_end_offset, self._target_magic
        result = validate(
            records,
            base_offset=first_offset,
            now_ms=self._now_ms(),
            config=self._config,
            leader_epoch=leader_epoch,
            origin=origin,
            require_single_v2_batch=produce_version >= 3,
            allow_zstd=produce_version >= 7,
            target_magic=target_magic,
            at_once=at_once,
        )
        data, _, last_offset, record_count, max_timestamp, append_time, producers, _ = result
        if last_offset < 0:
            return append_info(result, self.log_start_offset)
        if producers and (duplicate := check_producers(self.producer_state, producers, origin)) is not None:
            return duplicate_info(duplicate, self.log_start_offset, self._config)
        size = len(data)
        segment = self.active_segment
        if (
            segment.records.size + size > self._segment_size
            or max_timestamp > self._roll_timestamp
            or last_offset > segment.max_offset
            or segment.indexes.is_full
        ):
            if size > self._segment_size:
                message = f"{size} bytes exceed the segment size of {self._segment_size} of {self.topic_partition}"
                raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, message)
            segment = self._segment_for(size, max_timestamp, first_offset, last_offset)
        try:
            if target_magic == 2:
                segment.append(data, first_offset, last_offset, max_timestamp)
            else:
                segment.append_batches(data, iter_batches(data))
        except OSError as error:
            raise write_failure(self.directory, error) from error
        if segment.records.size == size:
            self._refresh_roll_timestamp()
        self.log_end_offset = last_offset + 1
        self.appended_records += record_count
        self.appended_bytes += size
        if leader_epoch != self.leader_epochs.latest_epoch and target_magic == 2:
            self.leader_epochs.assign(leader_epoch, first_offset)
        if producers:
            self._take_in(segment, producers)
        start = self.log_start_offset
        fields = first_offset, last_offset, max_timestamp, append_time, start, record_count, size, False
        return _new_tuple(LogAppendInfo, fields)

    def append_as_follower(self, records: memoryview, *, leader_epoch: int = -1) -> LogAppendInfo:
        """Append what the leader has, offsets and epochs as they are; a batch cut off at the end is left out.

        So is what leaders later than that of `leader_epoch` wrote, unless that is -1. What is larger than a segment
        gets one all the same: the leader had larger ones when it took that in.
        Raises CORRUPT_MESSAGE, UNKNOWN_SERVER_ERROR for offsets out of order, KAFKA_STORAGE_ERROR, LogDirFailedError.
        """
        result = validate_and_assign(
            records,
            base_offset=self.log_end_offset,
            now_ms=self._now_ms(),
            config=self._config,
            leader_epoch=leader_epoch,
            origin="replication",
        )
        first_offset, last_offset, data = result.first_offset, result.last_offset, result.records
        if last_offset < 0:
            return append_info(result, self.log_start_offset)
        segment = self._segment_for(len(data), result.max_timestamp, first_offset, last_offset)
        with failing_write(self.directory):
            segment.append_batches(data, iter_batches(data))
        if segment.size == len(data):
            self._refresh_roll_timestamp()
        self.log_end_offset = last_offset + 1
        for epoch, start_offset in result.epoch_starts:
            self.leader_epochs.assign(epoch, start_offset)
        if not result.epoch_starts:
            self.leader_epochs.clear()
        self._take_in(segment, result.producer_batches)
        return append_info(result, self.log_start_offset)

    def _segment_for(self, size: int, max_timestamp: int, first_offset: int, last_offset: int) -> LogSegment:
        """The segment that takes `size` bytes, after rolling if that is due. Errors as `append_as_leader`."""
        segment = self.active_segment
        with failing_read(self.directory):  # when the segment began may stand in its file alone
            is_due = segment.should_roll(self._config, size, max_timestamp, last_offset, self._now_ms())
            self._refresh_roll_timestamp()
        if is_due:
            # Segments follow each other without a hole, by which recovery knows that none is missing.
            return self.roll(first_offset if last_offset - self.log_end_offset > MAX_RELATIVE_OFFSET else 0)
        return segment

    def _take_in(self, segment: LogSegment, batches: Sequence[RecordBatch]) -> None:
        """Bring producer state up to what was just written."""
        producers = self.producer_state
        for batch in batches:
            aborted = producers.take_in(batch)
            if aborted is not None:
                segment.indexes.transactions.append(aborted)
        if producers.has_transactions:
            self._refresh_first_unstable_offset()

    # -- rolling ---------------------------------------------------------------------------------------------------

    def roll(self, expected_next_offset: int = 0) -> LogSegment:
        """Close the active segment and go on in a new one at the log's end, or at `expected_next_offset` if higher.

        An empty active segment stays. What was closed is flushed with the next flush. Errors as `append_as_leader`.
        """
        base_offset = max(expected_next_offset, self.log_end_offset)
        active = self.active_segment
        if active.base_offset == base_offset and active.size == 0:
            return active
        with failing_write(self.directory):
            active.become_inactive()
            self.producer_state.map_end_offset = base_offset
            self._take_snapshot()
            segment = self._create_segment(base_offset)
        self._unsynced.rolled.append(active)
        self._activate(segment)
        return segment

    def _create_segment(self, base_offset: int) -> LogSegment:
        self._unsynced.names = True
        return create_segment(self.path, base_offset, self._config, self._fs, now_ms=self._now_ms(), rng=self._rng)

    def _activate(self, segment: LogSegment) -> None:
        self.segments.add(segment)
        self.active_segment = segment
        self._refresh_roll_timestamp()

    def _refresh_roll_timestamp(self) -> None:
        self._roll_timestamp = self.active_segment.age.roll_timestamp(self._config)

    # -- reading ---------------------------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_length: int,
        *,
        max_offset: int | None = None,
        min_one_message: bool = False,
        hard_limit: bool = False,
        read_committed: bool = False,
        lend: bool = False,
    ) -> FetchData:
        """Bytes from the batch that contains `offset` on, below `max_offset` (default: the log's end).

        At most `max_length` bytes, possibly ending inside a batch. A first batch that is larger is given whole with
        `min_one_message`, in part with `hard_limit`, and else not at all, as Fetch wants it since version 3. Empty,
        without touching the disk, at the bound. `read_committed` adds aborted transactions. With `lend` a large stretch
        is given as a `FileSlice`, to be sent without being read. Raises OFFSET_OUT_OF_RANGE outside [log start, log
        end], CORRUPT_MESSAGE where no whole batch begins, and `LogDirFailedError`.
        """
        end_offset = self.log_end_offset
        if offset >= end_offset or offset < self.log_start_offset:
            if offset != end_offset:
                self._raise_out_of_range(offset)
            end = LogOffsetMetadata(end_offset, self.active_segment.base_offset, self.active_segment.size)
            return FetchData(b"", end, [] if read_committed else None)
        bound = end_offset if max_offset is None or max_offset > end_offset else max_offset
        found = None
        try:
            if offset < bound:
                found = self._reader.read(
                    offset,
                    max_length,
                    bound,
                    end_offset,
                    min_one_message=min_one_message,
                    hard_limit=hard_limit,
                    lend=lend,
                )
            if found is None:
                return FetchData(b"", LogOffsetMetadata(offset), [] if read_committed else None)
            data, first = found
            aborted = self._reader.aborted_transactions(first, len(data), end_offset) if read_committed else None
            return FetchData(data, first, aborted)
        except (OSError, CorruptSegmentError) as error:
            raise read_failure(self.directory, error) from error

    def _raise_out_of_range(self, offset: int) -> NoReturn:
        message = f"offset {offset} of {self.topic_partition} is not in {self.log_start_offset}..{self.log_end_offset}"
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)

    def convert_to_offset_metadata(self, offset: int) -> LogOffsetMetadata:
        """Where `offset` lies. Errors as `read`."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            self._raise_out_of_range(offset)
        with failing_read(self.directory):
            return self._reader.offset_metadata(offset, self.log_end_offset)

    def bytes_between(self, offset: int, bound: int) -> int:
        """Bytes of the batches from the one that contains `offset` up to `bound`. Errors as `read`."""
        if offset >= bound:
            return 0
        start, end = self.convert_to_offset_metadata(offset), self.convert_to_offset_metadata(bound)
        return self._reader.bytes_between(start, end)

    def fetch_offset_by_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record not older than `timestamp`, exactly, with its own timestamp; None if there is none."""
        with failing_read(self.directory):
            return self._reader.find_by_timestamp(timestamp, self.log_start_offset)

    def max_timestamp_and_offset(self) -> TimestampOffset | None:
        """The record with the largest timestamp (the first of several); None if none has a timestamp."""
        with failing_read(self.directory):
            return self._reader.find_max_timestamp(self.log_start_offset)

    def legacy_fetch_offsets_before(self, timestamp: int, max_offsets: int) -> list[int]:
        """ListOffsets v0: segment starts by file time, up to `timestamp` (-1 all, -2 oldest), newest first."""
        with failing_read(self.directory):
            ends = (self.log_start_offset, self.log_end_offset, self._now_ms())
            return self._reader.offsets_before(timestamp, max_offsets, *ends)

    # -- watermarks ------------------------------------------------------------------------------------------------

    def update_high_watermark(self, offset: int) -> int:
        """Set the high watermark, held within [log start, log end]; returns it."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        elif offset < self.log_start_offset:
            offset = self.log_start_offset
        self.high_watermark = offset
        if self._first_unstable_offset != NEVER:
            self.producer_state.on_high_watermark_updated(offset)
            self._refresh_first_unstable_offset()
        return offset

    def restore_high_watermark(self, offset: int) -> None:
        """Begin with the one of before the start, before anybody appends. Raises OSError."""
        offset = min(max(offset, self.log_start_offset), self.log_end_offset)
        producers, start = self.producer_state, self.log_start_offset
        producers.add_unreplicated(
            find_unreplicated(producers, self.segments, log_start_offset=start, high_watermark=offset)
        )
        self._refresh_first_unstable_offset()
        self.update_high_watermark(offset)

    def _refresh_first_unstable_offset(self) -> None:
        first = self.producer_state.first_unstable_offset
        self._first_unstable_offset = NEVER if first is None else max(first, self.log_start_offset)

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Raise the log start (DeleteRecords); files go with the next retention. Whether it rose.

        Raises OFFSET_OUT_OF_RANGE above the high watermark.
        """
        if offset > self.high_watermark:
            message = f"start {offset} of {self.topic_partition} is above the high watermark {self.high_watermark}"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset)
        self.producer_state.on_log_start_offset_raised(offset)
        self._refresh_first_unstable_offset()
        return True

    # -- flushing --------------------------------------------------------------------------------------------------

    @property
    def recovery_point(self) -> int:
        """Everything below is on disk."""
        return self._unsynced.recovery_point

    def needs_flush(self) -> bool:
        """Whether `flush.messages` records wait, or a rolled segment does."""
        unsynced = self._unsynced
        return self.log_end_offset - unsynced.recovery_point >= self._config.flush_messages or bool(unsynced.rolled)

    def begin_flush(self) -> FlushTask:
        """Collect everything that is not durable yet; to be completed once run, unless the directory failed.

        An index that cannot be written raises as `append_as_leader`; nothing is begun then.
        """
        try:
            return self._begin_flush()
        except OSError as error:
            raise write_failure(self.directory, error) from error

    def _begin_flush(self) -> FlushTask:
        return self._unsynced.begin(self.active_segment, self.leader_epochs, self.log_end_offset, lambda: self.path)

    def complete_flush(self, task: FlushTask) -> int:
        """`task.run` has succeeded: the recovery point may rise; returns it."""
        self._unsynced.complete(task)
        self.last_flush_ms = self._now_ms()
        return self._unsynced.recovery_point

    def flush(self) -> int:
        """Make everything that is appended durable, here and now; returns the recovery point.

        While another flush is under way elsewhere, the recovery point waits for that one's end.
        """
        with failing_dir(self.directory):
            task = self._begin_flush()
            task.run()
        return self.complete_flush(task)

    # -- truncation ------------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Remove everything at or above `offset`, durably; whether there was anything. Raises `LogDirFailedError`."""
        if offset < 0:
            raise ValueError(f"truncation to {offset}")
        if offset >= self.log_end_offset:
            self.leader_epochs.truncate_from_end(offset)
            return False
        if offset < self.segments.first.base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        with failing_dir(self.directory):
            self.active_segment = self._changes.cut(offset, self._now_ms())
            self._after_truncation(offset)
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove everything and go on, empty, at `offset`. Raises `LogDirFailedError`."""
        with failing_dir(self.directory):
            self._changes.remove_files(list(self.segments))
            self.producer_state.truncate_fully_and_start_at(offset)
            self._activate(self._create_segment(offset))
            self._fs.fsync_dir(self.path)
            self.log_start_offset = offset
            self._after_truncation(offset)

    def _after_truncation(self, offset: int) -> None:
        self.producer_state.map_end_offset = self.log_end_offset
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self._unsynced.truncated_to(offset)
        self._reader.forget()
        self.leader_epochs.truncate_from_end(offset)
        self._refresh_roll_timestamp()
        rebuild_producer_state(
            self.producer_state,
            self.segments,
            log_start_offset=self.log_start_offset,
            end_offset=offset,
            now_ms=self._now_ms(),
        )
        self._refresh_first_unstable_offset()
        self.update_high_watermark(self.high_watermark)  # of what was read anew, much has long been committed

    # -- retention -------------------------------------------------------------------------------------------------

    def begin_retention(self) -> int | None:
        """Apply retention by time, size and log start: the offset below which segments may go; None if none may.

        Nothing above the high watermark goes. The log start is raised to that offset, and has to be on disk before
        `finish_retention`. Raises KAFKA_STORAGE_ERROR, after which nothing has changed, and `LogDirFailedError`.
        """
        with failing_write(self.directory):  # an index that is missing is made anew
            deletable = deletable_segments(self, self._now_ms())
            if not deletable:
                return None
            if len(deletable) == len(self.segments):
                self.roll()
            following = self.segments.higher(deletable[-1].base_offset)
            assert following is not None, "the active segment is not deletable"
            self.maybe_increment_log_start_offset(following.base_offset)
            return following.base_offset

    def finish_retention(self, below: int, most: int) -> list[str]:
        """Rename segments below an offset to `.deleted`, `most` at most; the paths, for others to sync and to unlink.

        When no such segment is left, none are renamed. Raises `LogDirFailedError`.
        """
        with failing_dir(self.directory):
            return self._changes.rename_to_deleted(next_to_delete(self, below, most))

    # -- compaction ------------------------------------------------------------------------------------------------

    def begin_swap(self, new: Sequence[int]) -> SegmentSwap:
        """A replacement of segments by the `.cleaned` ones with the base offsets `new`.

        Until it is complete nothing may truncate the log or delete segments of it.
        """
        return SegmentSwap(self._changes, directory=self.path, fs=self._fs, config=self._config, new=new)

    # -- end -------------------------------------------------------------------------------------------------------

    def begin_close(self) -> FlushTask | None:
        """Bring every file to its final form; the flush that makes it last, after which the handles may go.

        None if nobody wrote since the log was opened. No other flush may be under way. Raises `LogDirFailedError`.
        """
        active, unsynced = self.active_segment, self._unsynced
        with failing_dir(self.directory):
            self.producer_state.map_end_offset = self.log_end_offset
            self._take_snapshot()
            if not active.is_as_opened:
                active.become_inactive()
                unsynced.rolled.append(active)
            if unsynced.rolled or unsynced.snapshots or self.leader_epochs.is_dirty:
                unsynced.expect_last_flush()
                return self._begin_flush()
        return None

    def close(self) -> None:
        """Close this log alone, durably. Raises `LogDirFailedError`."""
        if (task := self.begin_close()) is not None:
            with failing_dir(self.directory):
                task.run()
            self.complete_flush(task)
        self.close_handles()

    def _take_snapshot(self) -> None:
        snapshot = self.producer_state.take_snapshot()
        if snapshot is not None:
            self._unsynced.snapshots.append(snapshot)

    def close_handles(self) -> None:
        """Give all handles back without writing anything: the disk failed, or the files are about to go."""
        for segment in self.segments:
            self._unsynced.close(segment.close_handles)
        self._unsynced.close_snapshots()

    def give_files_back(self) -> None:
        """Close files, if nobody counts on them at this moment: whoever needs one opens it again.

        A snapshot that is not synced then is one that a crash may tear, which its CRC tells.
        """
        unsynced = self._unsynced
        if not unsynced.is_in_use:
            unsynced.close_snapshots()
            for segment in self.segments:  # retention, the cleaner and searches by time look into old ones as well
                segment.close_handles()
            self._reader.forget_opened()

    def rename_dir(self, path: str) -> None:
        """Give the partition's directory another name; open handles stay good. Raises OSError.

        `path` is the new one before the names change: a flush on another thread that finds the old name gone looks here
        whether that is right, perhaps before this thread goes on.
        """
        old, self.path = self.path, path
        try:
            self._fs.rename(old, path)
        except OSError:
            self.path = old
            raise
        self.segments.moved_to(path)
        self.producer_state.moved_to(path)
        self.leader_epochs.path = f"{path}/{EPOCHS_FILE_NAME}"
