"""Reading a log across its segments: bytes for a fetch, and the positions of offsets and timestamps."""

from collections.abc import Generator
from dataclasses import dataclass

from ..protocol.special_timestamps import EARLIEST, LATEST
from .file_records import BatchPosition
from .filesystem import Sendable
from .log_segment import LogSegment
from .log_segments import LogSegments
from .log_values import LogOffsetMetadata
from .record_search import greatest_timestamp
from .segment_indexes import RunInSteps
from .time_index import NO_TIMESTAMP, TimestampOffset
from .transaction_index import AbortedTxn
from .unsynced_files import UnsyncedFiles

_OPEN_SEGMENTS_MAX = 4
_HEADERS_PER_STEP = 200
"""Batch headers read before others are served: half a millisecond."""


@dataclass(slots=True)
class _Scanned:
    """The result of searching the batches of a segment for the greatest timestamp, and the end of the search."""

    segment: LogSegment
    offset: int
    position: int
    greatest: BatchPosition | None = None


def _greatest_in(segment: LogSegment, found: BatchPosition, log_start_offset: int, most: int) -> TimestampOffset | None:
    """Return the record of a batch with the greatest timestamp, without the records below the log start."""
    for _, batch in segment.records.batches(found.position, found.position + found.size):
        return greatest_timestamp(batch, log_start_offset, most)
    return None


class LogReader:
    """Finds segments, reads from them, and closes the handles of old segments when others are read.

    Remembers the position of the last upper bound that had to be searched, because all readers have the same bound.
    """

    __slots__ = ("_bound", "_opened", "_scanned", "_segments", "_unsynced", "run_in_steps")

    def __init__(self, segments: LogSegments, unsynced: UnsyncedFiles) -> None:
        self._segments = segments
        self._unsynced = unsynced
        self._bound = (-1, -1, -1)
        self._opened: list[LogSegment] = []
        self._scanned: _Scanned | None = None
        self.run_in_steps: RunInSteps | None = None
        """Rebuilds damaged indexes of closed segments while others are served; None: a reader rebuilds them itself."""

    def forget(self) -> None:
        """Drop the cached results: the log was truncated, or its segments were replaced."""
        self._bound = (-1, -1, -1)
        self._opened = []
        self._scanned = None

    def forget_opened(self) -> None:
        """Forget the opened segments, because the caller has closed the files of all segments."""
        self._opened = []

    def read(
        self,
        offset: int,
        max_length: int,
        bound: int,
        log_end_offset: int,
        *,
        min_one_message: bool,
        hard_limit: bool,
        as_file_slice: bool,
    ) -> tuple[Sendable, LogOffsetMetadata] | None:
        """Bytes from the batch that contains `offset` on, below `bound`, out of one segment; None if there are none.

        Raises OSError, `CorruptSegmentError`.
        """
        segments = self._segments
        segment: LogSegment | None = segments.last
        if offset < segments.last.base_offset:
            segment = segments.floor(offset)
        while segment is not None:
            end_position = segment.records.size
            if segment is not segments.last:
                segment.indexes.run_in_steps = self.run_in_steps  # here, as most closed segments are never read
            if bound < log_end_offset:
                end_position = self._end_position(segment, bound)
            found = segment.read(
                offset,
                max_length,
                end_position,
                min_one_message=min_one_message,
                hard_limit=hard_limit,
                as_file_slice=as_file_slice,
            )
            if segment is not segments.last:
                self._note_opened(segment)
            if found is not None:
                return found[0], LogOffsetMetadata(offset, segment.base_offset, found[1])
            segment = segments.higher(segment.base_offset)
        return None

    def _end_position(self, segment: LogSegment, bound: int) -> int:
        """Return the position in `segment` at which the offsets below `bound` end."""
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

    def _note_opened(self, segment: LogSegment) -> None:
        opened = self._opened
        if segment not in opened:
            opened.append(segment)
            if len(opened) > _OPEN_SEGMENTS_MAX:
                self._unsynced.close(opened.pop(0).close_handles)

    def offset_metadata(self, offset: int, log_end_offset: int) -> LogOffsetMetadata:
        """Return the position of `offset`, which is within the log. Raises OSError."""
        if offset >= log_end_offset:
            segment = self._segments.last
            return LogOffsetMetadata(offset, segment.base_offset, segment.size)
        floor = self._segments.floor(offset)
        assert floor is not None, f"offset {offset} is below the first segment"
        if floor is not self._segments.last:
            floor.indexes.run_in_steps = self.run_in_steps
        return LogOffsetMetadata(offset, floor.base_offset, floor.position_of(offset))

    def aborted_transactions(self, start: LogOffsetMetadata, length: int, log_end_offset: int) -> list[AbortedTxn]:
        """Return the aborted transactions that overlap the batches in `length` bytes from `start` on.

        Raises OSError.
        """
        segments = self._segments.from_offset(start.segment_base_offset)
        upper_bound = segments[0].indexes.upper_bound(start.position, length)
        if upper_bound is None:
            upper_bound = segments[1].base_offset if len(segments) > 1 else log_end_offset
        found: list[AbortedTxn] = []
        for segment in segments:
            overlapping, is_complete = segment.indexes.transactions.collect_aborted(start.offset, upper_bound)
            found += overlapping
            if is_complete:
                break
        return found

    def bytes_between(self, start: LogOffsetMetadata, end: LogOffsetMetadata) -> int:
        """Bytes of the batches from one place to another."""
        if end.on_same_segment(start):
            return end.position_diff(start)
        between = self._segments.between(start.segment_base_offset, end.segment_base_offset)
        return sum(segment.size for segment in between) - start.position + end.position

    def offsets_before(
        self, timestamp: int, max_offsets: int, log_start_offset: int, log_end_offset: int, now_ms: int
    ) -> list[int]:
        """Segment starts by modification time, newest first. Kafka's legacyFetchOffsetsBefore. Raises OSError."""
        candidates = [(max(one.base_offset, log_start_offset), one.files.modified_ms) for one in self._segments]
        if self._segments.last.size:
            candidates.append((log_end_offset, now_ms))
        if timestamp == EARLIEST:
            candidates = candidates[:1]
        elif timestamp != LATEST:
            while candidates and candidates[-1][1] > timestamp:
                candidates.pop()
        offsets = [offset for offset, _ in candidates][-max_offsets:] if max_offsets > 0 else []
        return sorted(offsets, reverse=True)

    def find_by_timestamp(self, timestamp: int, log_start_offset: int, most: int) -> TimestampOffset | None:
        """Return the first record at or above `log_start_offset` that is not older than `timestamp`.

        Raises OSError, and KafkaError INVALID_RECORD for a decompressed record of more than `most` bytes.
        """
        for segment in self._segments:
            if segment is not self._segments.last:
                segment.indexes.run_in_steps = self.run_in_steps
            if segment.indexes.max_timestamp.timestamp >= timestamp:
                found = segment.find_offset_by_timestamp(timestamp, log_start_offset, most)
                if found is not None:
                    return found
        return None

    def find_max_timestamp(self, log_start_offset: int, most: int) -> Generator[None, None, TimestampOffset | None]:
        """Return the first record at or above `log_start_offset` with the greatest timestamp, or None.

        In steps: the indexes of the first segment may describe a record below the log start, and then the headers of
        all its other batches are read. Raises OSError, `CorruptSegmentError`, and KafkaError as above.
        """
        greatest = TimestampOffset(NO_TIMESTAMP, -1)
        for segment in self._segments.from_offset(log_start_offset):
            if segment is not self._segments.last:
                segment.indexes.run_in_steps = self.run_in_steps
            highest = segment.indexes.max_timestamp
            if highest.timestamp > greatest.timestamp:
                batch = segment.batch_at_or_after(max(highest.offset, log_start_offset))
                if batch is not None and batch.base_offset < log_start_offset:
                    # It begins below the log start, and its greatest timestamp may be of a record there.
                    greatest = _greatest_in(segment, batch, log_start_offset, most) or greatest
                    batch = None
                if highest.offset < log_start_offset or batch is None:
                    batch = yield from self._greatest_from(segment, log_start_offset)
                if batch is not None and batch.max_timestamp > greatest.timestamp:
                    greatest = _greatest_in(segment, batch, log_start_offset, most) or greatest
            if segment is not self._segments.last:
                self._note_opened(segment)
            yield
        return greatest if greatest.timestamp >= 0 else None

    def _greatest_from(self, segment: LogSegment, offset: int) -> Generator[None, None, BatchPosition | None]:
        """Return the first of the batches that begin at or above an offset with the greatest timestamp.

        The result is kept until another segment or offset is requested, because clients may repeat the request.
        """
        scanned = self._scanned
        if scanned is None or scanned.segment is not segment or scanned.offset != offset:
            scanned = self._scanned = _Scanned(segment, offset, segment.position_of(offset))
        for number, batch in enumerate(segment.records.batch_positions(scanned.position), 1):
            if batch.base_offset >= offset and (
                scanned.greatest is None or batch.max_timestamp > scanned.greatest.max_timestamp
            ):
                scanned.greatest = batch
            scanned.position = batch.position + batch.size
            if number % _HEADERS_PER_STEP == 0:
                yield
        return scanned.greatest
