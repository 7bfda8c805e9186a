"""Reading a log across its segments: bytes for a fetch, and where offsets and timestamps lie."""

from ..protocol.special_timestamps import EARLIEST, LATEST
from .filesystem import Sendable
from .log_segment import LogSegment
from .log_segments import LogSegments
from .log_values import LogOffsetMetadata
from .time_index import TimestampOffset
from .transaction_index import AbortedTxn
from .unsynced_files import UnsyncedFiles

_OPEN_SEGMENTS_MAX = 4


class LogReader:
    """Finds segments, reads from them, and gives the handles of old segments back when others are read.

    Remembers the position of the last bound that had to be looked for, since every reader asks with the same one.
    """

    __slots__ = ("_bound", "_opened", "_segments", "_unsynced")

    def __init__(self, segments: LogSegments, unsynced: UnsyncedFiles) -> None:
        self._segments = segments
        self._unsynced = unsynced
        self._bound = (-1, -1, -1)
        self._opened: list[LogSegment] = []

    def forget(self) -> None:
        """The log was truncated, or segments of it replaced."""
        self._bound = (-1, -1, -1)
        self._opened = []

    def forget_opened(self) -> None:
        """Somebody has closed the files of all segments."""
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
        lend: bool,
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
            if bound < log_end_offset:
                end_position = self._end_position(segment, bound)
            found = segment.read(
                offset, max_length, end_position, min_one_message=min_one_message, hard_limit=hard_limit, lend=lend
            )
            if segment is not segments.last:
                self._note_opened(segment)
            if found is not None:
                return found[0], LogOffsetMetadata(offset, segment.base_offset, found[1])
            segment = segments.higher(segment.base_offset)
        return None

    def _end_position(self, segment: LogSegment, bound: int) -> int:
        """Where in `segment` the offsets below `bound` end."""
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
        """Where `offset`, which is within the log, lies. Raises OSError."""
        if offset >= log_end_offset:
            segment = self._segments.last
            return LogOffsetMetadata(offset, segment.base_offset, segment.size)
        floor = self._segments.floor(offset)
        assert floor is not None, f"offset {offset} is below the first segment"
        return LogOffsetMetadata(offset, floor.base_offset, floor.position_of(offset))

    def aborted_transactions(self, start: LogOffsetMetadata, length: int, log_end_offset: int) -> list[AbortedTxn]:
        """The aborted transactions that overlap the batches in `length` bytes from `start` on. Raises OSError."""
        segments = self._segments.from_offset(start.segment_base_offset)
        beyond = segments[0].indexes.offset.upper_bound(start.position, length)
        if beyond is not None:
            upper_bound = beyond.offset
        else:
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
        if start.segment_base_offset == end.segment_base_offset:
            return end.position - start.position
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

    def find_by_timestamp(self, timestamp: int, log_start_offset: int) -> TimestampOffset | None:
        """The first record at or above `log_start_offset` that is not older than `timestamp`. Raises OSError."""
        for segment in self._segments:
            if segment.indexes.max_timestamp.timestamp >= timestamp:
                found = segment.find_offset_by_timestamp(timestamp, log_start_offset)
                if found is not None:
                    return found
        return None

    def find_max_timestamp(self, log_start_offset: int) -> TimestampOffset | None:
        """The first of the records with the largest timestamp; None if no record has one. Raises OSError."""
        youngest = max(segment.indexes.max_timestamp.timestamp for segment in self._segments)
        return self.find_by_timestamp(youngest, log_start_offset) if youngest >= 0 else None
