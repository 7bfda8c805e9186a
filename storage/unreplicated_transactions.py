"""Finds transactions in the log that ended above the high watermark and are therefore not in a producer snapshot.

A snapshot contains the transactions that are open at its offset. A transaction that had ended still holds the last
stable offset until its marker is committed, and a restart loses this information. Kafka assumes that no snapshot is
above the high watermark; but a broker that stops writes a snapshot at the end of its log, replicated or not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..common.room_logger import room_logger
from ..protocol.errors import KafkaError, ProtocolError
from ..protocol.record_batch import Batch, RecordBatch
from .errors import CorruptIndexError, CorruptSegmentError

if TYPE_CHECKING:
    from .log_segments import LogSegments
    from .producer_state import ProducerStateManager

FIRST_STRETCH, GROWTH = 4_096, 16
"""How far below the high watermark transactions are looked for that ended above, and how much farther each time."""
MAX_ABOVE = 1_000_000
"""Offsets. Replicas are never so far apart when a log is closed: it is the checkpoint that was lost."""

logger = room_logger("storage")


def find_unreplicated(
    producers: ProducerStateManager, segments: LogSegments, *, log_start_offset: int, high_watermark: int
) -> dict[int, int]:
    """First offset → marker offset of each transaction that ended from the high watermark up to the loaded snapshot.

    Usually there are none. Only this range is read, and nothing if no transaction is open, however old the high
    watermark is. Damaged data is skipped. Raises OSError.
    """
    end = producers.loaded_offset
    if not high_watermark < end <= high_watermark + MAX_ABOVE or not producers.loaded_markers:
        return {}
    lowest, open_there = producers.open_below(high_watermark, log_start_offset)
    stretch = 0
    try:
        while True:
            start = max(high_watermark - stretch, lowest)
            walk = _Walk(high_watermark, dict(open_there) if start == lowest else {}, is_whole=start == lowest)
            if walk.through(segments, start, end):
                return walk.ended
            stretch = max(stretch * GROWTH, FIRST_STRETCH)
    except (CorruptIndexError, CorruptSegmentError, KafkaError, ProtocolError) as error:
        logger.warning(
            "cannot determine the transactions that ended above high watermark %d: %s", high_watermark, error
        )
        return {}


@dataclass(slots=True)
class _Walk:
    """Along the log from some offset on."""

    high_watermark: int
    first: dict[int, int]
    """The offset at which the open transaction of a producer begins, if it is known, by producer id."""
    is_whole: bool
    """Whether nothing that was open where the walk begins is unknown."""
    ended: dict[int, int] = field(default_factory=dict)
    _known: set[int] = field(default_factory=set)
    """Producers with a marker in the range; their next transaction begins after it."""

    def through(self, segments: LogSegments, start: int, end: int) -> bool:
        """Walk; False where a transaction that ended above the high watermark may have begun before the walk."""
        for segment in segments.between(start, end):
            try:
                for _, batch in segment.records.batches(segment.position_of(start)):
                    if batch.last_offset >= end:
                        return True
                    if batch.last_offset >= start and not self._take_in(batch):
                        return False
            finally:
                segment.close_handles()  # a start reads thousands of logs
        return True

    def _take_in(self, batch: Batch) -> bool:
        if not isinstance(batch, RecordBatch) or batch.header.producer_id < 0:
            return True
        producer_id, offset = batch.header.producer_id, batch.base_offset
        if not batch.header.is_control:
            if batch.header.is_transactional:
                self.first.setdefault(producer_id, offset)
        elif batch.end_marker is not None:
            first, is_known = self.first.pop(producer_id, None), self.is_whole or producer_id in self._known
            self._known.add(producer_id)
            if offset >= self.high_watermark:
                if not is_known:
                    return False
                if first is not None:
                    self.ended[first] = offset
        return True
