"""Which of the oldest segments of a log may go: by age, by size, or because they lie below the log start."""

from typing import TYPE_CHECKING

from .log_segment import LogSegment

if TYPE_CHECKING:
    from .log import Log


def deletable_segments(log: "Log", now_ms: int) -> list[LogSegment]:
    """A run of segments from the oldest on; all of them, the active one included, if even that has expired.

    Nothing that reaches above the high watermark goes, and an empty active segment stays.
    """
    segments = log.segments
    ends = [segment.base_offset for segment in segments[1:]] + [log.log_end_offset]
    config = log.config
    excess = log.size - config.retention_bytes if config.delete and config.retention_bytes >= 0 else -1
    found: list[LogSegment] = []
    for segment, end_offset in zip(segments, ends, strict=True):
        is_last = segment is segments[-1]
        if end_offset > log.high_watermark or (is_last and segment.size == 0):
            break
        is_below_start = not is_last and end_offset <= log.log_start_offset
        is_excess = 0 <= segment.size <= excess
        if not (is_below_start or is_excess or _is_expired(log, segment, now_ms)):
            break
        excess -= segment.size
        found.append(segment)
    return found


def next_to_delete(log: "Log", below: int, most: int) -> list[LogSegment]:
    """Of the segments below the log start and `below` so many of the oldest at most."""
    return log.segments.wholly_below(min(below, log.log_start_offset))[:most]


def _is_expired(log: "Log", segment: LogSegment, now_ms: int) -> bool:
    retention_ms = log.config.retention_ms
    return log.config.delete and retention_ms >= 0 and now_ms - segment.largest_timestamp > retention_ms
