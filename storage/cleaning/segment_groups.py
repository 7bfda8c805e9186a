"""Groups of neighbouring segments that are merged into one: Kafka's groupSegmentsBySize."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..log_segment import MAX_RELATIVE_OFFSET
from .clean_job import SourceSegment


class SegmentSizes(NamedTuple):
    """A segment, and how large the files of its indexes are."""

    segment: SourceSegment
    offset_index: int
    time_index: int


def group_segments(
    segments: Sequence[SegmentSizes], *, segment_bytes: int, index_bytes: int, end_offset: int
) -> Iterable[list[SourceSegment]]:
    """Yield groups of segments whose combined data, indexes and offset range fit into one segment.

    `end_offset` is above every offset of the last segment.
    """
    group: list[SegmentSizes] = []
    next_offsets = [item.segment.base_offset for item in segments[1:]] + [end_offset]
    for item, next_offset in zip(segments, next_offsets, strict=True):
        if group:
            together = [*group, item]
            # An empty segment has no offset that could be out of range, and must not remain in the log forever.
            in_reach = not item.segment.size or next_offset - 1 - group[0].segment.base_offset <= MAX_RELATIVE_OFFSET
            if not (
                in_reach
                and sum(one.segment.size for one in together) <= segment_bytes
                and sum(one.offset_index for one in together) <= index_bytes
                and sum(one.time_index for one in together) <= index_bytes
            ):
                yield [one.segment for one in group]
                group = []
        group.append(item)
    if group:
        yield [one.segment for one in group]
