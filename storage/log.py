"""The log of one partition: appends, reads, rolls, truncates, flushes and forgets. Owns the offset invariants."""

import errno
from collections.abc import Callable, Sequence
from typing import NoReturn
from uuid import UUID

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.record_batch import RecordBatch, iter_batches
from ..protocol.topic_partition import TopicPartition
from .errors import LogDirFailedError
from .filesystem import File, FileSystem, parent_of
from .flush_task import FlushTask
from .leader_epochs import EpochEndOffset, LeaderEpochCache
from .log_config import NEVER, LogConfig
from .log_loader import DELETED_SUFFIX, Chance, LoadedLog, LogLoader, rebuild_producer_state, roll_jitter_ms
from .log_offsets import aborted_transactions, find_by_timestamp, find_max_timestamp, offsets_before
from .log_retention import deletable_segments
from .log_segment import LogSegment
from .log_segments import LogSegments
from .log_values import FetchData, LogAppendInfo, LogOffsetMetadata
from .partition_metadata import read_partition_metadata, write_partition_metadata
from .producer_state import ProducedBatch, ProducerStateManager, end_marker_of
from .record_validator import Origin, validate_and_assign
from .time_index import TimestampOffset

__all__ = ["FetchData", "FlushTask", "Log", "LogAppendInfo", "LogOffsetMetadata"]

DEFAULT_PRODUCER_ID_EXPIRATION_MS = 86_400_000
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def _topic_partition_of(path: str) -> TopicPartition:
    topic, _, partition = path.rpartition("/")[2].rpartition("-")
    return TopicPartition(topic, int(partition))


class Log:
    """Kafka's UnifiedLog. Used by one thread, apart from `FlushTask.run`.

    Invariant: log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset, and recovery_point <=
    log_end_offset. Offsets and the high watermark are plain attributes since everybody asks for them all the time;
    nobody but the log sets them.

    Errors: `KafkaError` where the caller is to be told; KAFKA_STORAGE_ERROR for a full disk, after which the log is as
    before and usable; `LogDirFailedError` for any other I/O error, after which nothing in the directory is.
    """

    __slots__ = (
        "_active",
        "_before_deletion",
        "_bound",
        "_config",
        "_deferred_closes",
        "_first_unstable_offset",
        "_flushes",
        "_fs",
        "_now_ms",
        "_rng",
        "_roll_timestamp",
        "_rolled",
        "_segment_bytes",
        "_segments",
        "_target_magic",
        "_unsynced_names",
        "_unsynced_snapshots",
        "directory",
        "high_watermark",
        "last_flush_ms",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "path",
        "producer_state",
        "recovery_point",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        path: str,
        loaded: LoadedLog,
        *,
        config: LogConfig,
        fs: FileSystem,
        now_ms: Callable[[], int],
        rng: Chance,
        topic_id: UUID | None,
        before_deletion: Callable[["Log"], None] | None,
    ) -> None:
        """For `open`. `before_deletion` is called when the log start rose, before any file goes because of it."""
        self.path = path
        self.directory = parent_of(path)
        self.topic_partition = _topic_partition_of(path)
        self.topic_id = topic_id
        self.leader_epochs: LeaderEpochCache = loaded.leader_epochs
        self.producer_state: ProducerStateManager = loaded.producer_state
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.recovery_point = loaded.recovery_point
        self.high_watermark = loaded.log_start_offset
        self.last_flush_ms = now_ms()
        self._fs = fs
        self._now_ms = now_ms
        self._rng = rng
        self._before_deletion = before_deletion
        self._segments: LogSegments = loaded.segments
        self._active: LogSegment = loaded.segments.last
        self._first_unstable_offset = NEVER
        self._rolled: list[LogSegment] = []
        """Segments that were rolled and not flushed since, oldest first."""
        self._unsynced_snapshots: list[File] = []
        self._unsynced_names = False
        self._flushes: list[FlushTask] = []
        self._deferred_closes: list[Callable[[], None]] = []
        self._bound: tuple[int, int, int] = (-1, -1, -1)
        self.config = config
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
        producer_id_expiration_ms: int = DEFAULT_PRODUCER_ID_EXPIRATION_MS,
        before_deletion: Callable[["Log"], None] | None = None,
    ) -> "Log":
        """Open the partition directory at `path`, creating it if there is none, and repair it after an unclean stop.

        A new directory's own name is for the caller to make durable, in its parent. The high watermark starts at the
        log start. Raises OSError, and StorageError for a directory that contradicts itself or the given topic id.
        """
        if not fs.is_dir(path):
            fs.mkdir(path)
        loader = LogLoader(path, config, fs, now_ms, rng, producer_id_expiration_ms)
        loaded = loader.load(
            recovery_point=recovery_point, log_start_offset=log_start_offset, clean_shutdown=clean_shutdown
        )
        stored_id = read_partition_metadata(fs, path)
        log = cls(
            path,
            loaded,
            config=config,
            fs=fs,
            now_ms=now_ms,
            rng=rng,
            topic_id=stored_id,
            before_deletion=before_deletion,
        )
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
        self._segment_bytes = config.segment_bytes
        self._target_magic = _magic_of(config.message_format_version)
        self._refresh_roll_timestamp()

    @property
    def active_segment(self) -> LogSegment:
        return self._active

    @property
    def segments(self) -> list[LogSegment]:
        """Oldest first; the last one is active."""
        return list(self._segments)

    def segments_from(self, offset: int) -> list[LogSegment]:
        """The segment that may hold `offset`, and all later ones."""
        return self._segments.from_offset(offset)

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self._segments.size_in_bytes

    @property
    def last_stable_offset(self) -> int:
        """First offset of the oldest open transaction, or the high watermark."""
        first, high_watermark = self._first_unstable_offset, self.high_watermark
        return first if first < high_watermark else high_watermark

    @property
    def log_end_offset_metadata(self) -> LogOffsetMetadata:
        return LogOffsetMetadata(self.log_end_offset, self._active.base_offset, self._active.size)

    def assign_topic_id(self, topic_id: UUID) -> None:
        """Note the topic id durably, if none is. Raises `KafkaError` INCONSISTENT_TOPIC_ID if another one is."""
        if self.topic_id is None:
            write_partition_metadata(self._fs, self.path, topic_id)
            self.topic_id = topic_id
        elif self.topic_id != topic_id:
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"{self.topic_partition} belongs to topic id {self.topic_id}, not {topic_id}",
            )

    # -- appending -------------------------------------------------------------------------------------------------

    def append_as_leader(
        self, records: memoryview, *, leader_epoch: int, origin: Origin = "client", produce_version: int = 7
    ) -> LogAppendInfo:
        """Validate, give offsets from the log's end on, and append; the buffer is patched in place.

        Nothing is durable yet. Raises what `validate_and_assign` raises, RECORD_LIST_TOO_LARGE, what
        `ProducerStateManager.check` raises, KAFKA_STORAGE_ERROR and `LogDirFailedError`; the log is unchanged then.
        """
        first_offset = self.log_end_offset
        target_magic = self._target_magic
        result = validate_and_assign(
            records,
            base_offset=first_offset,
            now_ms=self._now_ms(),
            config=self._config,
            leader_epoch=leader_epoch,
            origin=origin,
            require_single_v2_batch=produce_version >= 3,
            allow_zstd=produce_version >= 7,
            target_magic=target_magic,
        )
        last_offset = result.last_offset
        if last_offset < 0:
            return LogAppendInfo(-1, -1, -1, -1, self.log_start_offset, 0, 0)
        data, max_timestamp, producers = result.records, result.max_timestamp, result.producer_batches
        if producers and (duplicate := self._check_producers(producers, origin)) is not None:
            return self._duplicate_info(duplicate)
        segment = self._prepare_segment(len(data), max_timestamp, first_offset, last_offset)
        try:
            if target_magic == 2:
                segment.append(data, first_offset, last_offset, max_timestamp)
            else:
                segment.append_batches(data, iter_batches(data))
        except OSError as error:
            self._raise_storage_error(error)
        if segment.size == len(data):
            self._refresh_roll_timestamp()
        self.log_end_offset = last_offset + 1
        if leader_epoch != self.leader_epochs.latest_epoch and target_magic == 2:
            self.leader_epochs.assign(leader_epoch, first_offset)
        if producers:
            self._take_in(segment, producers)
        return LogAppendInfo(
            first_offset,
            last_offset,
            max_timestamp,
            result.log_append_time_ms,
            self.log_start_offset,
            result.record_count,
            len(data),
        )

    def append_as_follower(self, records: memoryview) -> LogAppendInfo:
        """Append what the leader has, offsets and epochs as they are; a batch cut off at the end is left out.

        Raises CORRUPT_MESSAGE, UNKNOWN_SERVER_ERROR for offsets that do not continue the log, and as
        `append_as_leader`.
        """
        result = validate_and_assign(
            records,
            base_offset=self.log_end_offset,
            now_ms=self._now_ms(),
            config=self._config,
            leader_epoch=-1,
            origin="replication",
        )
        first_offset, last_offset, data = result.first_offset, result.last_offset, result.records
        if last_offset < 0:
            return LogAppendInfo(-1, -1, -1, -1, self.log_start_offset, 0, 0)
        segment = self._prepare_segment(len(data), result.max_timestamp, first_offset, last_offset)
        try:
            segment.append_batches(data, iter_batches(data))
        except OSError as error:
            self._raise_storage_error(error)
        if segment.size == len(data):
            self._refresh_roll_timestamp()
        self.log_end_offset = last_offset + 1
        for epoch, start_offset in result.epoch_starts:
            self.leader_epochs.assign(epoch, start_offset)
        if not result.epoch_starts:
            self.leader_epochs.clear()
        self._take_in(segment, result.producer_batches)
        return LogAppendInfo(
            first_offset,
            last_offset,
            result.max_timestamp,
            result.log_append_time_ms,
            self.log_start_offset,
            result.record_count,
            len(data),
        )

    def _prepare_segment(self, size: int, max_timestamp: int, first_offset: int, last_offset: int) -> LogSegment:
        """The segment that takes `size` bytes, after rolling if that is due. Errors as `append_as_leader`."""
        segment = self._active
        if (
            segment.records.size + size <= self._segment_bytes
            and max_timestamp <= self._roll_timestamp
            and last_offset <= segment.max_offset
            and not segment.is_index_full
        ):
            return segment
        if size > self._segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{size} bytes exceed the segment size of {self._segment_bytes} of {self.topic_partition}",
            )
        if segment.should_roll(self._config, size, max_timestamp, last_offset, self._now_ms()):
            return self.roll(first_offset)
        return segment

    def _check_producers(self, batches: Sequence[RecordBatch], origin: Origin) -> ProducedBatch | None:
        """Judge the batches before they are written; the earlier append of which they are a repetition, if they are."""
        check = self.producer_state.check
        for batch in batches:
            header = batch.header
            if not header.is_control:
                duplicate = check(header, is_client=origin == "client")
                if duplicate is not None:
                    return duplicate
            elif (marker := end_marker_of(batch)) is not None:
                self.producer_state.check_marker(header, marker.coordinator_epoch)
        return None

    def _duplicate_info(self, batch: ProducedBatch) -> LogAppendInfo:
        append_time = batch.timestamp if self._config.message_timestamp_type == "LogAppendTime" else -1
        return LogAppendInfo(
            batch.first_offset,
            batch.last_offset,
            batch.timestamp,
            append_time,
            self.log_start_offset,
            batch.offset_delta + 1,
            0,
            True,
        )

    def _take_in(self, segment: LogSegment, batches: Sequence[RecordBatch]) -> None:
        """Bring producer state up to what was just written."""
        producers = self.producer_state
        for batch in batches:
            aborted = producers.take_in(batch)
            if aborted is not None:
                try:
                    segment.transaction_index.append(aborted)
                except OSError as error:
                    # The marker is in the log already: without its index entry readers would see aborted records.
                    raise LogDirFailedError(self.directory, error) from error
        if producers.has_transactions:
            self._refresh_first_unstable_offset()

    def _raise_storage_error(self, error: OSError) -> NoReturn:
        if error.errno in _NO_SPACE:
            message = f"no space left for {self.topic_partition}: {error}"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message) from error
        raise LogDirFailedError(self.directory, error) from error

    # -- rolling ---------------------------------------------------------------------------------------------------

    def roll(self, expected_next_offset: int = 0) -> LogSegment:
        """Close the active segment and go on in a new one at the log's end, or at `expected_next_offset` if higher.

        An empty active segment stays. What was closed is flushed with the next flush. Errors as `append_as_leader`.
        """
        base_offset = max(expected_next_offset, self.log_end_offset)
        active = self._active
        if active.base_offset == base_offset and active.size == 0:
            return active
        try:
            active.become_inactive()
            self.producer_state.map_end_offset = base_offset
            snapshot = self.producer_state.take_snapshot()
            if snapshot is not None:
                self._unsynced_snapshots.append(snapshot)
            segment = self._create_segment(base_offset)
        except OSError as error:
            self._raise_storage_error(error)
        self._rolled.append(active)
        self._activate(segment)
        return segment

    def maybe_roll(self, size: int = 0, max_timestamp: int = -1) -> bool:
        """Roll if a batch of `size` bytes with this timestamp would not fit the active segment; whether it did."""
        now_ms = self._now_ms()
        if self._active.should_roll(self._config, size, max_timestamp, self.log_end_offset, now_ms):
            active = self._active
            return self.roll() is not active
        return False

    def _create_segment(self, base_offset: int) -> LogSegment:
        segment = LogSegment.create(
            self.path,
            base_offset,
            config=self._config,
            fs=self._fs,
            created_ms=self._now_ms(),
            roll_jitter_ms=roll_jitter_ms(self._config, self._rng),
        )
        self._unsynced_names = True
        return segment

    def _activate(self, segment: LogSegment) -> None:
        self._segments.add(segment)
        self._active = segment
        self._refresh_roll_timestamp()

    def _refresh_roll_timestamp(self) -> None:
        """Find the timestamp above which a batch rolls the active segment; below any, if only the clock can tell."""
        first = self._active.load_first_timestamp()
        if first is None:
            self._roll_timestamp = NEVER
        elif first < 0:
            self._roll_timestamp = -2
        else:
            self._roll_timestamp = first + self._config.segment_ms - self._active.roll_jitter_ms

    # -- reading ---------------------------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_length: int,
        *,
        max_offset: int | None = None,
        min_one_message: bool = False,
        read_committed: bool = False,
    ) -> FetchData:
        """Bytes from the batch that contains `offset` on, below `max_offset` (default: the log's end).

        At most `max_length` bytes, possibly ending inside a batch, but one whole batch however large with
        `min_one_message`. Empty, without touching the disk, at the bound. `read_committed` adds aborted transactions.
        Raises OFFSET_OUT_OF_RANGE outside [log start, log end], and `LogDirFailedError`.
        """
        end_offset = self.log_end_offset
        if offset >= end_offset or offset < self.log_start_offset:
            if offset != end_offset:
                self._raise_out_of_range(offset)
            return FetchData(b"", self.log_end_offset_metadata, [] if read_committed else None)
        bound = end_offset if max_offset is None or max_offset > end_offset else max_offset
        if offset < bound:
            segment: LogSegment | None = self._active
            if offset < self._active.base_offset:
                segment = self._segments.floor(offset)
            try:
                while segment is not None:
                    end_position = self._end_position(segment, bound)
                    found = segment.read(offset, max_length, end_position, min_one_message)
                    if found is not None:
                        data, position = found
                        first = LogOffsetMetadata(offset, segment.base_offset, position)
                        aborted = None
                        if read_committed:
                            aborted = aborted_transactions(self, first, len(data))
                        return FetchData(data, first, aborted)
                    segment = self._segments.higher(segment.base_offset)
            except OSError as error:
                raise LogDirFailedError(self.directory, error) from error
        return FetchData(b"", LogOffsetMetadata(offset), [] if read_committed else None)

    def _end_position(self, segment: LogSegment, bound: int) -> int:
        """Where in `segment` the offsets below `bound` end."""
        if bound >= self.log_end_offset:
            return segment.size
        base_offset = segment.base_offset
        known_bound, known_base, position = self._bound
        if known_bound == bound and known_base == base_offset:
            return position
        following = self._segments.higher(base_offset)
        if following is not None and bound >= following.base_offset:
            return segment.size
        position = segment.position_of(bound)
        self._bound = (bound, base_offset, position)
        return position

    def _raise_out_of_range(self, offset: int) -> NoReturn:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} of {self.topic_partition} is not within {self.log_start_offset} to {self.log_end_offset}",
        )

    def convert_to_offset_metadata(self, offset: int) -> LogOffsetMetadata:
        """Where `offset` lies. Raises OFFSET_OUT_OF_RANGE, `LogDirFailedError`."""
        if offset == self.log_end_offset:
            return self.log_end_offset_metadata
        segment = self._segments.floor(offset)
        if segment is None or not self.log_start_offset <= offset < self.log_end_offset:
            self._raise_out_of_range(offset)
        try:
            return LogOffsetMetadata(offset, segment.base_offset, segment.position_of(offset))
        except OSError as error:
            raise LogDirFailedError(self.directory, error) from error

    def bytes_between(self, offset: int, bound: int) -> int:
        """Bytes of the batches from the one that contains `offset` up to `bound`. Errors as above."""
        if offset >= bound:
            return 0
        start = self.convert_to_offset_metadata(offset)
        end = self.convert_to_offset_metadata(bound)
        if start.segment_base_offset == end.segment_base_offset:
            return end.position - start.position
        between = self._segments.between(start.segment_base_offset, end.segment_base_offset)
        return sum(segment.size for segment in between) - start.position + end.position

    def fetch_offset_by_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record not older than `timestamp`, exactly, with its own timestamp; None if there is none."""
        try:
            return find_by_timestamp(self._segments, timestamp, self.log_start_offset)
        except OSError as error:
            raise LogDirFailedError(self.directory, error) from error

    def max_timestamp_and_offset(self) -> TimestampOffset | None:
        """The record with the largest timestamp (the first of several); None if none has a timestamp."""
        try:
            return find_max_timestamp(self._segments, self.log_start_offset)
        except OSError as error:
            raise LogDirFailedError(self.directory, error) from error

    def legacy_fetch_offsets_before(self, timestamp: int, max_offsets: int) -> list[int]:
        """ListOffsets v0: segment starts by file time, up to `timestamp` (-1 all, -2 oldest), newest first."""
        try:
            return offsets_before(self, timestamp, max_offsets, self._now_ms())
        except OSError as error:
            raise LogDirFailedError(self.directory, error) from error

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset:
        """(largest known epoch at or below `epoch`, its end offset); (-1, -1) if that cannot be said."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

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

    def _refresh_first_unstable_offset(self) -> None:
        first = self.producer_state.first_unstable_offset
        self._first_unstable_offset = NEVER if first is None else max(first, self.log_start_offset)

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Raise the log start (DeleteRecords); files go with the next `delete_old_segments`. Whether it rose.

        Raises OFFSET_OUT_OF_RANGE above the high watermark.
        """
        if offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"start {offset} of {self.topic_partition} would be above the high watermark {self.high_watermark}",
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset)
        self.producer_state.on_log_start_offset_raised(offset)
        self._refresh_first_unstable_offset()
        return True

    def expire_producers(self) -> int:
        """Forget producers that were silent for `producer.id.expiration.ms`; how many."""
        return self.producer_state.remove_expired(self._now_ms())

    # -- flushing --------------------------------------------------------------------------------------------------

    @property
    def needs_flush(self) -> bool:
        """Whether `flush.messages` records wait, or a rolled segment does."""
        return self.log_end_offset - self.recovery_point >= self._config.flush_messages or bool(self._rolled)

    def begin_flush(self) -> FlushTask:
        """Collect everything that is not durable yet. To be completed, unless the directory fails.

        Raises `LogDirFailedError` if an index cannot be written.
        """
        try:
            files = [file for segment in self._rolled for file in segment.unsynced_files(with_indexes=True)]
            files += self._unsynced_snapshots
            files += self._active.unsynced_files(with_indexes=False)
        except OSError as error:
            raise LogDirFailedError(self.directory, error) from error
        epochs = self.leader_epochs
        task = FlushTask(
            self._fs,
            lambda: self.path,
            up_to_offset=self.log_end_offset,
            files=files,
            epoch_lines=epochs.lines() if epochs.is_dirty else None,
            sync_directory=self._unsynced_names,
        )
        epochs.is_dirty = False
        self._unsynced_names = False
        self._deferred_closes += [snapshot.close for snapshot in self._unsynced_snapshots]
        self._deferred_closes += [segment.release_index_handles for segment in self._rolled]
        self._unsynced_snapshots = []
        self._rolled = []
        self._flushes.append(task)
        return task

    def complete_flush(self, task: FlushTask) -> int:
        """`task.run` has succeeded: the recovery point may rise; returns it."""
        self._flushes.remove(task)
        if task.up_to_offset > self.recovery_point:
            self.recovery_point = task.up_to_offset
        self.last_flush_ms = self._now_ms()
        if not self._flushes and self._deferred_closes:
            self._close_deferred()
        return self.recovery_point

    def flush(self) -> int:
        """Make everything that is appended durable, here and now; returns the recovery point."""
        task = self.begin_flush()
        try:
            task.run()
        except OSError as error:
            raise LogDirFailedError(self.directory, error) from error
        return self.complete_flush(task)

    def _close_deferred(self) -> None:
        closes, self._deferred_closes = self._deferred_closes, []
        for close in closes:
            close()

    def _close_when_unused(self, close: Callable[[], None]) -> None:
        """A flush on another thread may be using the handle: its number must not be given to another file."""
        if self._flushes:
            self._deferred_closes.append(close)
        else:
            close()

    # -- truncation ------------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Remove everything at or above `offset`, durably; whether there was anything. Raises `LogDirFailedError`.

        Order: later segments are renamed away and the names synced, then the remaining one is cut and synced: in
        whatever state a crash leaves that, no removed record comes back behind new ones.
        """
        if offset < 0:
            raise ValueError(f"truncation to {offset}")
        if offset >= self.log_end_offset:
            self.leader_epochs.truncate_from_end(offset)
            return False
        if offset < self._segments.first.base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        try:
            self._remove_segments([segment for segment in self._segments if segment.base_offset > offset])
            self._active = self._segments.last
            self._active.truncate_to(offset, self._now_ms())
            self._active.flush()
        except OSError as error:
            raise LogDirFailedError(self.directory, error) from error
        self._after_truncation(offset)
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove everything and go on, empty, at `offset`. Raises `LogDirFailedError`."""
        try:
            removed = list(self._segments)
            self._remove_segments(removed)
            self._activate(self._create_segment(offset))
            self._fs.fsync_dir(self.path)
            self._unsynced_names = False
        except OSError as error:
            raise LogDirFailedError(self.directory, error) from error
        self.log_start_offset = offset
        self._after_truncation(offset)

    def _remove_segments(self, removed: list[LogSegment]) -> None:
        """Take segments out of the log and the directory, durably."""
        for segment in removed:
            self._segments.remove(segment)
            if segment in self._rolled:
                self._rolled.remove(segment)
            self._close_when_unused(segment.close_handles)
            for path in segment.existing_paths():
                self._fs.unlink(path)
        if removed:
            self._fs.fsync_dir(self.path)

    def _after_truncation(self, offset: int) -> None:
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.recovery_point = min(self.recovery_point, offset)
        for task in self._flushes:
            task.up_to_offset = min(task.up_to_offset, offset)
        self._bound = (-1, -1, -1)
        self.leader_epochs.truncate_from_end(offset)
        self._refresh_roll_timestamp()
        rebuild_producer_state(
            self.producer_state,
            self._segments,
            log_start_offset=self.log_start_offset,
            end_offset=offset,
            now_ms=self._now_ms(),
        )
        if self.high_watermark > offset:
            self.high_watermark = offset
        self._refresh_first_unstable_offset()

    # -- retention -------------------------------------------------------------------------------------------------

    def delete_old_segments(self) -> list[str]:
        """Apply retention by time, size and log start; the paths of the renamed files, to be unlinked some time later.

        Nothing above the high watermark goes. Order: raise the log start, have it checkpointed (`before_deletion`),
        rename to `.deleted`, sync the names. Raises `LogDirFailedError`, and KAFKA_STORAGE_ERROR from a roll.
        """
        try:
            deletable = deletable_segments(self, self._now_ms())
            if not deletable:
                return []
            if len(deletable) == len(self._segments):
                self.roll()
            following = self._segments.higher(deletable[-1].base_offset)
            assert following is not None, "the active segment is not deletable"
            raised = self.maybe_increment_log_start_offset(following.base_offset)
            if self._before_deletion is not None and raised:
                self._before_deletion(self)
            return self._rename_to_deleted(deletable)
        except OSError as error:
            raise LogDirFailedError(self.directory, error) from error

    def _rename_to_deleted(self, segments: list[LogSegment]) -> list[str]:
        paths = []
        for segment in segments:
            self._segments.remove(segment)
            if segment in self._rolled:
                self._rolled.remove(segment)
            self._close_when_unused(segment.close_handles)
            segment.change_suffix(DELETED_SUFFIX)
            paths += segment.existing_paths()
            snapshot = self.producer_state.forget_snapshot(segment.base_offset)
            if snapshot is not None and self._fs.exists(snapshot):
                self._fs.rename(snapshot, snapshot + DELETED_SUFFIX)
                paths.append(snapshot + DELETED_SUFFIX)
        self._fs.fsync_dir(self.path)
        return paths

    # -- end -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Bring every file to its final form and give the handles back; no flush may be under way.

        Flushes first, so that what a clean stop promises holds. Raises `LogDirFailedError`.
        """
        try:
            self.producer_state.map_end_offset = self.log_end_offset
            snapshot = self.producer_state.take_snapshot()
            if snapshot is not None:
                self._unsynced_snapshots.append(snapshot)
                self._unsynced_names = True
            self._active.become_inactive()
            if self._active not in self._rolled and self._active.size:
                self._rolled.append(self._active)
            self.flush()
        except OSError as error:
            raise LogDirFailedError(self.directory, error) from error
        self.close_handles()

    def close_handles(self) -> None:
        """Give all handles back without writing anything: the disk failed, or the files are about to go."""
        for segment in self._segments:
            self._close_when_unused(segment.close_handles)
        for snapshot in self._unsynced_snapshots:
            self._close_when_unused(snapshot.close)
        self._unsynced_snapshots = []

    def rename_dir(self, path: str) -> None:
        """Give the partition's directory another name; open handles stay good. Raises OSError."""
        self._fs.rename(self.path, path)
        self.path = path
        for segment in self._segments:
            segment.moved_to(path)
        self.producer_state.moved_to(path)
        self.leader_epochs.path = f"{path}/leader-epoch-checkpoint"

    def delete(self) -> None:
        """Remove the directory with everything in it. Raises `LogDirFailedError`."""
        self.close_handles()
        try:
            self._fs.remove_tree(self.path)
            self._fs.fsync_dir(self.directory)
        except OSError as error:
            raise LogDirFailedError(self.directory, error) from error


def _magic_of(message_format_version: str) -> int:
    """The record format of a `message.format.version`: 0 before 0.10, 1 before 0.11, else 2."""
    major, minor = [*message_format_version.split("-")[0].split("."), "0"][:2]
    version = (int(major), int(minor))
    if version >= (0, 11):
        return 2
    return 1 if version >= (0, 10) else 0
