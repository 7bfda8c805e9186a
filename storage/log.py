"""The log of one partition: appends, reads, rolls, truncates, flushes and forgets. Owns the offset invariants."""

from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import NoReturn
from uuid import UUID

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.record_batch import RecordBatch
from .errors import (
    CorruptIndexError,
    CorruptSegmentError,
    InvariantViolationError,
    failing_dir,
    failing_read,
    failing_write,
    read_failure,
    write_failure,
)
from .filesystem import FileSystem, Sendable, parent_of
from .leader_epochs import FILE_NAME as EPOCHS_FILE_NAME
from .leader_epochs import LeaderEpochCache
from .log_config import NEVER, LogConfig
from .log_loader import LoadedLog, LogLoader, RandomSource, create_segment, rebuild_producer_state
from .log_reader import LogReader
from .log_segment import MAX_RELATIVE_OFFSET, LogSegment
from .log_segments import LogSegments
from .log_validator import (
    CLIENT_RULES,
    EPOCH_PER_TRANSACTION,
    REPLICATION_RULES,
    AppendOrigin,
    AppendRules,
    Validate,
    ValidationResult,
    validate_messages_and_assign_offsets,
)
from .log_values import FetchData, LogAppendInfo, LogOffsetMetadata, topic_partition_of
from .partition_metadata import check_topic_id, read_partition_metadata, write_partition_metadata
from .producer_state import ProducedBatch, ProducerStateManager
from .recovered_files import RecoveredFiles
from .segment_changes import SegmentChanges
from .segment_indexes import RunInSteps
from .segment_swap import SegmentSwap
from .time_index import TimestampOffset
from .transaction_index import IndexChecksum
from .unreplicated_transactions import find_unreplicated
from .unsynced_files import FlushTask, UnsyncedFiles

KEPT_APPEND_BYTES = 1 << 12
"""The size of the largest append that is copied for its readers instead of being read from the file."""

_new_tuple = tuple.__new__  # the generated constructor of a NamedTuple takes twice as long


class Log:
    """Kafka's UnifiedLog. Used by one thread, apart from `FlushTask.run`.

    Invariant: log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset, and recovery_point <=
    log_end_offset. Offsets and the high watermark are plain attributes because every request reads them;
    only the log sets them.

    Errors: `KafkaError` for errors that a client receives; KAFKA_STORAGE_ERROR for a full disk, after which the log is
    as before and usable; `LogDirFailedError` for any other I/O error, after which nothing in the directory is.
    """

    def __init__(self, loader: LogLoader, loaded: LoadedLog, topic_id: UUID | None) -> None:
        """Use `open` instead, which reads the files."""
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
        """Oldest first; the last segment is active. Read-only for other classes."""
        self.active_segment: LogSegment = loaded.segments.last
        self.appended_records = self.appended_bytes = 0
        """Totals of `append_as_leader` since this log was opened."""
        self._appended: tuple[int, int, bytes | bytearray | memoryview] | None = None
        """First offset, next offset and bytes of an append whose waiting readers are being woken."""
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
        rng: RandomSource,
        topic_id: UUID | None = None,
        may_have_gaps: bool = False,
        transaction_indexes: Mapping[int, IndexChecksum] = MappingProxyType({}),
        sync: Callable[[RecoveredFiles], None] = RecoveredFiles.sync,
        stored_topic_id: UUID | None = None,
    ) -> "Log":
        """Open the partition directory at `path`, creating it if there is none, and repair it after an unclean stop.

        With `may_have_gaps` it may have been compacted, though `config` does not say so. `transaction_indexes` are the
        checksums of the clean stop before this start, by base offset. `sync` as in `LogLoader`. `stored_topic_id` is
        the id in the directory, if it has been read already.
        A new directory's own name is for the caller to make durable, in its parent. The high watermark starts at the
        log start. Raises OSError, and StorageError for a directory that contradicts itself or the given topic id.
        """
        if not fs.is_dir(path):
            fs.mkdir(path)
        loader = LogLoader(path, config, fs, now_ms, rng, may_have_gaps, transaction_indexes, sync)
        loaded = loader.load(
            recovery_point=recovery_point, log_start_offset=log_start_offset, clean_shutdown=clean_shutdown
        )
        log = cls(loader, loaded, stored_topic_id or read_partition_metadata(fs, path))
        if topic_id is not None:
            log.assign_topic_id(topic_id)
        return log

    @classmethod
    def of_new_folder(
        cls,
        path: str,
        *,
        config: LogConfig,
        fs: FileSystem,
        now_ms: Callable[[], int],
        rng: RandomSource,
        topic_id: UUID,
    ) -> "Log":
        """Return the log of a folder that `LogDir.make_folders` has made for this topic since the start."""
        loader = LogLoader(path, config, fs, now_ms, rng)
        return cls(loader, loader.load_new(), topic_id)

    # -- properties -----------------------------------------------------------------------------------------------

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
        """First offset of the oldest transaction that is open or has its marker above the high watermark.

        Without such a transaction it is the high watermark.
        """
        first, high_watermark = self._first_unstable_offset, self.high_watermark
        return first if first < high_watermark else high_watermark

    def assign_topic_id(self, topic_id: UUID) -> None:
        """Write the topic id durably if there is none. Raises `KafkaError` INCONSISTENT_TOPIC_ID for another id."""
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
        rules: AppendRules = CLIENT_RULES,
        validate: Validate = validate_messages_and_assign_offsets,
        keeps_appended: bool = False,
    ) -> LogAppendInfo:
        """Validate the records, give them offsets from the log end offset on, and append; the buffer is patched.

        With `keeps_appended`, reads may use the buffer until the caller calls `release_appended`.
        Nothing is durable yet. Raises as `validate` and `ProducerStateManager.check`, RECORD_LIST_TOO_LARGE,
        KAFKA_STORAGE_ERROR and `LogDirFailedError`; the log is unchanged then.
        """
        first_offset, target_magic = self.log_end_offset, self._target_magic
        result = validate(records, rules, first_offset, self._now_ms(), self._config, leader_epoch, target_magic)
        data, _, last_offset, record_count, max_timestamp, append_time, producers, _, producer_appends = result
        if last_offset < 0:
            return self._append_info(result)
        if producers and (duplicate := self._check_producers(producers, rules)) is not None:
            return self._duplicate_info(duplicate)
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
            if target_magic == 2 and not rules.has_joined_batches:
                segment.append(data, first_offset, last_offset, max_timestamp)
            else:
                segment.append_batches(data)
        except OSError as error:
            raise write_failure(self.topic_partition, self.directory, error) from error
        if segment.records.size == size:
            self._refresh_roll_timestamp()
        self.log_end_offset = last_offset + 1
        self.appended_records += record_count
        self.appended_bytes += size
        if leader_epoch != self.leader_epochs.latest_epoch and target_magic == 2:
            self.leader_epochs.assign(leader_epoch, first_offset)
        if producers:
            self._take_in(segment, producers)
        elif producer_appends is not None:
            producer_appends.complete()
        if keeps_appended and size <= KEPT_APPEND_BYTES:
            self._appended = first_offset, last_offset + 1, data
        start = self.log_start_offset
        fields = first_offset, last_offset, max_timestamp, append_time, start, record_count, size, False
        return _new_tuple(LogAppendInfo, fields)

    def release_appended(self) -> None:
        """Read the last appended records from their file from now on: the memory of the caller may change."""
        self._appended = None

    def append_as_follower(self, records: memoryview, *, leader_epoch: int = -1) -> LogAppendInfo:
        """Append the leader's records, offsets and epochs unchanged; a batch that is cut off at the end is left out.

        So are batches of leaders later than that of `leader_epoch`, unless that is -1. Records larger than a segment
        are appended to a new one: the leader had larger segments when it appended them.
        Raises CORRUPT_MESSAGE, UNKNOWN_SERVER_ERROR for offsets out of order, KAFKA_STORAGE_ERROR, LogDirFailedError.
        """
        result = validate_messages_and_assign_offsets(
            records, REPLICATION_RULES, self.log_end_offset, self._now_ms(), self._config, leader_epoch
        )
        first_offset, last_offset, data = result.first_offset, result.last_offset, result.records
        if last_offset < 0:
            return self._append_info(result)
        segment = self._segment_for(len(data), result.max_timestamp, first_offset, last_offset)
        with failing_write(self.topic_partition, self.directory):
            segment.append_batches(data)
        if segment.size == len(data):
            self._refresh_roll_timestamp()
        self.log_end_offset = last_offset + 1
        for epoch, start_offset in result.epoch_starts:
            self.leader_epochs.assign(epoch, start_offset)
        if not result.epoch_starts:
            self.leader_epochs.clear()
        self._take_in(segment, result.producer_batches)
        return self._append_info(result)

    def _check_producers(self, batches: Sequence[RecordBatch], rules: AppendRules) -> ProducedBatch | None:
        """Check batches with producer ids before they are written; return the earlier append that they repeat, if any.

        Kafka's analyzeAndValidateProducerState. Raises `KafkaError` as `ProducerStateManager.check` and `check_marker`.
        """
        state, is_client = self.producer_state, rules.origin is AppendOrigin.CLIENT
        for batch in batches:
            header = batch.header
            if not header.is_control:
                duplicate = state.check(header, is_client=is_client)
                if duplicate is not None:
                    return duplicate
            elif (marker := batch.end_marker) is not None:
                state.check_marker(
                    header, marker.coordinator_epoch, newer_epoch=rules.transaction_version >= EPOCH_PER_TRANSACTION
                )
        return None

    def _duplicate_info(self, batch: ProducedBatch) -> LogAppendInfo:
        """Return the result of the earlier append for a batch that repeats it."""
        append_time = batch.timestamp if self._config.message_timestamp_type == "LogAppendTime" else -1
        return LogAppendInfo(
            batch.first_offset,
            batch.last_offset,
            batch.timestamp,
            append_time,
            self.log_start_offset,
            num_messages=batch.offset_delta + 1,
            valid_bytes=0,
            duplicate=True,
        )

    def _append_info(self, result: ValidationResult) -> LogAppendInfo:
        return LogAppendInfo(
            result.first_offset,
            result.last_offset,
            result.max_timestamp,
            result.log_append_time_ms,
            self.log_start_offset,
            result.record_count,
            len(result.records),
        )

    def _segment_for(self, size: int, max_timestamp: int, first_offset: int, last_offset: int) -> LogSegment:
        """Return the segment that takes `size` bytes, after rolling if that is due. Errors as `append_as_leader`."""
        segment = self.active_segment
        try:  # the first timestamp of the segment may have to be read from its file
            is_due = segment.should_roll(self._config, size, max_timestamp, last_offset, self._now_ms())
            self._refresh_roll_timestamp()
        except OSError as error:
            raise write_failure(self.topic_partition, self.directory, error) from error
        except CorruptSegmentError as error:
            raise read_failure(self.directory, error) from error
        if is_due:
            # Segments follow each other without a gap, by which recovery detects a missing segment.
            return self.roll(first_offset if last_offset - self.log_end_offset > MAX_RELATIVE_OFFSET else 0)
        return segment

    def _take_in(self, segment: LogSegment, batches: Sequence[RecordBatch]) -> None:
        """Update the producer state with batches that were just written."""
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

        An empty active segment is kept. The closed segment is flushed with the next flush. Errors as
        `append_as_leader`.
        """
        base_offset = max(expected_next_offset, self.log_end_offset)
        active = self.active_segment
        if active.base_offset == base_offset and active.size == 0:
            return active
        with failing_write(self.topic_partition, self.directory):
            if self.leader_epochs.is_dirty and self.recovery_point == self.log_end_offset:
                # Only after the recovery of a small log (`RecoveredFiles`). The next one begins with the new segment.
                self.leader_epochs.flush()
            active.become_inactive()
            self.producer_state.map_end_offset = base_offset
            self._begin_snapshot()
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
        as_file_slice: bool = False,
    ) -> FetchData:
        """Bytes from the batch that contains `offset` on, below `max_offset` (default: the log end offset).

        At most `max_length` bytes, possibly ending inside a batch. A first batch that is larger is given whole with
        `min_one_message`, in part with `hard_limit`, and else not at all, as Fetch wants it since version 3. Empty,
        without touching the disk, at the bound. `read_committed` adds aborted transactions. With `as_file_slice` a
        large stretch is returned as a `FileSlice`, which is sent without being read. Raises OFFSET_OUT_OF_RANGE outside
        [log start, log end], CORRUPT_MESSAGE where no whole batch begins, and `LogDirFailedError`.
        """
        end_offset = self.log_end_offset
        if offset >= end_offset or offset < self.log_start_offset:
            if offset != end_offset:
                self._raise_out_of_range(offset)
            end = LogOffsetMetadata(end_offset, self.active_segment.base_offset, self.active_segment.size)
            return FetchData(b"", end, [] if read_committed else None)
        bound = end_offset if max_offset is None or max_offset > end_offset else max_offset
        found: tuple[Sendable, LogOffsetMetadata] | None = None
        try:
            appended = self._appended
            if (
                appended is not None
                and appended[:2] == (offset, bound)
                and bound == end_offset
                and len(appended[2]) <= max_length
            ):
                # The usual read of a consumer that waited for this append: no search, and no system call.
                segment, kept = self.active_segment, bytes(appended[2])
                found = kept, LogOffsetMetadata(offset, segment.base_offset, segment.records.size - len(kept))
            elif offset < bound:
                found = self._reader.read(
                    offset,
                    max_length,
                    bound,
                    end_offset,
                    min_one_message=min_one_message,
                    hard_limit=hard_limit,
                    as_file_slice=as_file_slice,
                )
            if found is None:
                return FetchData(b"", LogOffsetMetadata(offset), [] if read_committed else None)
            data, first = found
            aborted = self._reader.aborted_transactions(first, len(data), end_offset) if read_committed else None
            return FetchData(data, first, aborted)
        except (OSError, CorruptSegmentError, CorruptIndexError) as error:
            raise read_failure(self.directory, error) from error

    def rebuild_indexes_in_steps(self, run_in_steps: RunInSteps) -> None:
        """Have damaged indexes of closed segments rebuilt by `run_in_steps`; their readers get KAFKA_STORAGE_ERROR."""
        self._reader.run_in_steps = run_in_steps

    def _raise_out_of_range(self, offset: int) -> NoReturn:
        message = f"offset {offset} of {self.topic_partition} is not in {self.log_start_offset}..{self.log_end_offset}"
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)

    def convert_to_offset_metadata(self, offset: int) -> LogOffsetMetadata:
        """Return the segment and the position of `offset`. Errors as `read`."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            self._raise_out_of_range(offset)
        with failing_read(self.directory):
            return self._reader.offset_metadata(offset, self.log_end_offset)

    def bytes_between(self, offset: int, bound: int) -> int:
        """Return the bytes of the batches from `offset` up to `bound`. Errors as `read`."""
        if offset >= bound:
            return 0
        start, end = self.convert_to_offset_metadata(offset), self.convert_to_offset_metadata(bound)
        return self._reader.bytes_between(start, end)

    def fetch_offset_by_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """Return the first record not older than `timestamp`, exactly, with its own timestamp; None if there is none.

        Raises KafkaError INVALID_RECORD for a decompressed record beyond `max.decompressed.message.bytes`.
        """
        most = self.config.max_decompressed_message_bytes
        with failing_read(self.directory):
            return self._reader.find_by_timestamp(timestamp, self.log_start_offset, most)

    def find_max_timestamp(self) -> Generator[None, None, TimestampOffset | None]:
        """Return the first record with the greatest timestamp, in steps; None if no record has a timestamp.

        Raises KafkaError as `fetch_offset_by_timestamp`.
        """
        most = self.config.max_decompressed_message_bytes
        with failing_read(self.directory):
            return (yield from self._reader.find_max_timestamp(self.log_start_offset, most))

    def legacy_fetch_offsets_before(self, timestamp: int, max_offsets: int) -> list[int]:
        """ListOffsets v0: segment starts by file time, up to `timestamp` (-1 all, -2 oldest), newest first."""
        with failing_read(self.directory):
            ends = (self.log_start_offset, self.log_end_offset, self._now_ms())
            return self._reader.offsets_before(timestamp, max_offsets, *ends)

    # -- watermarks ------------------------------------------------------------------------------------------------

    def update_high_watermark(self, offset: int) -> int:
        """Set the high watermark, and return it.

        Raises InvariantViolationError unless it is in [log start offset, log end offset]: consumers would read records
        that do not exist, or that an election may still remove.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise self._violation(f"invalid new high watermark {offset}")
        self.high_watermark = offset
        if self._first_unstable_offset != NEVER:
            self.producer_state.on_high_watermark_updated(offset)
            self._refresh_first_unstable_offset()
        return offset

    def restore_high_watermark(self, offset: int) -> None:
        """Set the high watermark of the last run, up to the log end, before the first append. Raises OSError."""
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

    def check_invariants(self) -> None:
        """Raise InvariantViolationError if offsets, segments, indexes or leader epochs contradict each other.

        Reads no file. Tests and simulations call it after each change; the log itself checks each new high watermark.
        """
        if not self.log_start_offset <= self.last_stable_offset <= self.high_watermark <= self.log_end_offset:
            raise self._violation("its offsets are out of order")
        if self.recovery_point > self.log_end_offset:
            raise self._violation(f"recovery point {self.recovery_point} is above the log end offset")
        bases = self.segments.base_offsets
        if bases != sorted(set(bases)) or not bases[0] <= self.log_start_offset or bases[-1] > self.log_end_offset:
            raise self._violation(f"the base offsets of the segments are not increasing: {bases}")
        if self.active_segment is not self.segments.last:
            raise self._violation(f"the active segment begins at {self.active_segment.base_offset}")
        for segment, end_offset in zip(self.segments, [*bases[1:], self.log_end_offset], strict=True):
            if (violation := segment.indexes.find_violation(segment.size, end_offset)) is not None:
                raise self._violation(violation)
        epochs = self.leader_epochs.entries
        for earlier, later in pairwise(epochs):
            if earlier.epoch >= later.epoch or earlier.start_offset >= later.start_offset:
                raise self._violation(f"leader epochs {earlier} and {later} are out of order")
        if epochs and epochs[-1].start_offset > self.log_end_offset:
            raise self._violation(f"leader epoch {epochs[-1]} is above the log end offset")

    def _violation(self, what: str) -> InvariantViolationError:
        offsets = (
            f"log start offset {self.log_start_offset}, last stable offset {self.last_stable_offset}, "
            f"high watermark {self.high_watermark}, log end offset {self.log_end_offset}"
        )
        return InvariantViolationError(self.topic_partition, self.directory, f"{what}; {offsets}")

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
            raise write_failure(self.topic_partition, self.directory, error) from error

    def _begin_flush(self) -> FlushTask:
        return self._unsynced.begin(self.active_segment, self.leader_epochs, self.log_end_offset, lambda: self.path)

    def complete_flush(self, task: FlushTask) -> int:
        """`task.run` has succeeded: the recovery point may rise; returns it."""
        self._unsynced.complete(task)
        for snapshot in task.snapshots:
            self.producer_state.complete_snapshot(snapshot)
        self.last_flush_ms = self._now_ms()
        return self._unsynced.recovery_point

    def flush(self) -> int:
        """Make everything that is appended durable, here and now; returns the recovery point.

        While another flush is under way elsewhere, the recovery point waits for that one's end.
        """
        with failing_dir(self.directory, self.topic_partition):
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
        with failing_dir(self.directory, self.topic_partition):
            self.active_segment = self._changes.cut(offset, self._now_ms())
            self._after_truncation(offset)
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove everything and go on, empty, at `offset`. Raises `LogDirFailedError`."""
        with failing_dir(self.directory, self.topic_partition):
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
        # The truncation may have removed committed records, of which another replica has lost its copy.
        self.update_high_watermark(min(max(self.high_watermark, self.log_start_offset), offset))

    # -- retention -------------------------------------------------------------------------------------------------

    def deletable_segments(self) -> list[LogSegment]:
        """Return the oldest segments that retention may delete: all, with the active one, if even that has expired.

        Segments that reach above the high watermark are kept, and so is an empty active segment.
        """
        segments, config = self.segments, self._config
        ends = [segment.base_offset for segment in segments[1:]] + [self.log_end_offset]
        excess = self.size - config.retention_bytes if config.delete and config.retention_bytes >= 0 else -1
        deletes_by_age, oldest_ms = config.delete and config.retention_ms >= 0, self._now_ms() - config.retention_ms
        found: list[LogSegment] = []
        for segment, end_offset in zip(segments, ends, strict=True):
            is_last = segment is segments[-1]
            if end_offset > self.high_watermark or (is_last and segment.size == 0):
                break
            is_below_start = not is_last and end_offset <= self.log_start_offset
            is_excess = 0 <= segment.size <= excess
            if not (is_below_start or is_excess or (deletes_by_age and segment.largest_timestamp < oldest_ms)):
                break
            excess -= segment.size
            found.append(segment)
        return found

    def begin_retention(self) -> int | None:
        """Apply retention by time, size and log start; return the offset below which segments are deleted, or None.

        Segments above the high watermark are kept. The log start is raised to that offset, and has to be on disk before
        `finish_retention`. Raises KAFKA_STORAGE_ERROR, after which nothing has changed, and `LogDirFailedError`.
        """
        with failing_write(self.topic_partition, self.directory):  # a missing index is rebuilt
            deletable = self.deletable_segments()
            if not deletable:
                return None
            if len(deletable) == len(self.segments):
                self.roll()
            following = self.segments.higher(deletable[-1].base_offset)
            assert following is not None, "the active segment is not deletable"
            self.maybe_increment_log_start_offset(following.base_offset)
            return following.base_offset

    def finish_retention(self, below: int, most: int) -> list[str]:
        """Rename segments below an offset to `.deleted`, `most` at most; return the paths, for the caller to sync and
        unlink.

        When no such segment is left, none are renamed. Raises `LogDirFailedError`.
        """
        with failing_dir(self.directory, self.topic_partition):
            return self._changes.rename_to_deleted(self.segments.wholly_below(min(below, self.log_start_offset))[:most])

    # -- compaction ------------------------------------------------------------------------------------------------

    def begin_swap(self, new: Sequence[int]) -> SegmentSwap:
        """Return a replacement of segments by the `.cleaned` ones with the base offsets `new`.

        Until it is complete nothing may truncate the log or delete segments of it.
        """
        return SegmentSwap(self._changes, directory=self.path, fs=self._fs, config=self._config, new=new)

    # -- end -------------------------------------------------------------------------------------------------------

    def begin_close(self) -> FlushTask | None:
        """Bring every file to its final form; the flush that makes it last, after which the handles may go.

        None if nothing was written since the log was opened. No other flush may be under way. Raises
        `LogDirFailedError`.
        """
        active, unsynced = self.active_segment, self._unsynced
        with failing_dir(self.directory, self.topic_partition):
            self.producer_state.map_end_offset = self.log_end_offset
            self._begin_snapshot()
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
            with failing_dir(self.directory, self.topic_partition):
                task.run()
            self.complete_flush(task)
        self.close_handles()

    def index_checksums(self) -> dict[int, IndexChecksum]:
        """Return the checksums of the transaction indexes by base offset, for a log that is closed. Reads no file."""
        found = {}
        for segment in self.segments:
            index = segment.indexes.loaded_transactions
            if index is not None and (checksum := index.checksum(segment.size)) is not None:
                found[segment.base_offset] = checksum
        return found

    def _begin_snapshot(self) -> None:
        """Have the next flush write a snapshot of the producer state."""
        snapshot = self.producer_state.begin_snapshot()
        if snapshot is not None:
            self._unsynced.snapshots.append(snapshot)

    def close_handles(self) -> None:
        """Give all handles back without writing anything: the disk failed, or the files are about to go."""
        for segment in self.segments:
            self._unsynced.close(segment.close_handles)

    def give_files_back(self) -> None:
        """Close files unless a flush needs them; the next read or append opens them again."""
        unsynced = self._unsynced
        if not unsynced.is_in_use:
            for segment in self.segments:  # retention, the cleaner and searches by time look into old ones as well
                segment.close_handles()
            self._reader.forget_opened()

    def rename_dir(self, path: str) -> None:
        """Give the partition's directory another name; open handles remain valid. Raises OSError.

        `path` is set before the directory is renamed: a flush on another thread that does not find the old name reads
        `path`, perhaps before this thread continues.
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
