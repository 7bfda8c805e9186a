"""Questions about offsets that a log answers by looking through its segments."""

from typing import TYPE_CHECKING

from .log_values import LogOffsetMetadata
from .transaction_index import AbortedTxn

if TYPE_CHECKING:
    from .log_queries import LogQueries

LATEST, EARLIEST = -1, -2


def offsets_before(log: "LogQueries", timestamp: int, max_offsets: int, now_ms: int) -> list[int]:
    """Segment starts by modification time, newest first. Kafka's legacyFetchOffsetsBefore."""
    candidates = [(max(segment.base_offset, log.log_start_offset), segment.modified_ms) for segment in log.segments]
    if log.active_segment.size:
        candidates.append((log.log_end_offset, now_ms))
    if timestamp == EARLIEST:
        candidates = candidates[:1]
    elif timestamp != LATEST:
        while candidates and candidates[-1][1] > timestamp:
            candidates.pop()
    offsets = [offset for offset, _ in candidates][-max_offsets:] if max_offsets > 0 else []
    return sorted(offsets, reverse=True)


def aborted_transactions(log: "LogQueries", start: LogOffsetMetadata, length: int) -> list[AbortedTxn]:
    """The aborted transactions that overlap the batches in `length` bytes from `start` on."""
    segments = log.segments_from(start.segment_base_offset)
    beyond = segments[0].offset_index.upper_bound(start.position, length)
    if beyond is not None:
        upper_bound = beyond.offset
    else:
        upper_bound = segments[1].base_offset if len(segments) > 1 else log.log_end_offset
    found: list[AbortedTxn] = []
    for segment in segments:
        overlapping, is_complete = segment.transaction_index.collect_aborted(start.offset, upper_bound)
        found += overlapping
        if is_complete:
            break
    return found
