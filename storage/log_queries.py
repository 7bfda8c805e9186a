"""What a log can be asked about places and times, beside reading it."""

from collections.abc import Callable
from typing import NoReturn

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.topic_partition import TopicPartition
from .errors import failing_read
from .leader_epochs import EpochEnd, LeaderEpochCache
from .log_offsets import offsets_before
from .log_reader import LogReader
from .log_segment import LogSegment
from .log_segments import LogSegments
from .log_values import LogOffsetMetadata
from .time_index import TimestampOffset


class LogQueries:
    """The part of `Log` that only looks. Used by the log's own thread; changes nothing.

    Errors: CORRUPT_MESSAGE and KAFKA_STORAGE_ERROR as `read_failure` says, and `LogDirFailedError`.
    """

    directory: str
    topic_partition: TopicPartition
    leader_epochs: LeaderEpochCache
    log_start_offset: int
    log_end_offset: int
    _active: LogSegment
    _segments: LogSegments
    _reader: LogReader
    _now_ms: Callable[[], int]

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
    def log_end_offset_metadata(self) -> LogOffsetMetadata:
        return LogOffsetMetadata(self.log_end_offset, self._active.base_offset, self._active.size)

    def convert_to_offset_metadata(self, offset: int) -> LogOffsetMetadata:
        """Where `offset` lies. Raises OFFSET_OUT_OF_RANGE, too."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            self._raise_out_of_range(offset)
        with failing_read(self.directory):
            return self._reader.offset_metadata(offset, self.log_end_offset)

    def _raise_out_of_range(self, offset: int) -> NoReturn:
        message = f"offset {offset} of {self.topic_partition} is not in {self.log_start_offset}..{self.log_end_offset}"
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)

    def bytes_between(self, offset: int, bound: int) -> int:
        """Bytes of the batches from the one that contains `offset` up to `bound`. Errors as above."""
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
            return offsets_before(self, timestamp, max_offsets, self._now_ms())

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """(largest known epoch at or below `epoch`, its end offset); (-1, -1) if that cannot be said."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)
