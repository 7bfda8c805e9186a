"""Size of a micro-batch: Spark's rules for rates, on plain numbers. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

from ..protocol.topic_partition import TopicPartition
from .offsets import Offsets
from .options import RateLimits


def admit(
    begin: Offsets, latest: Offsets, limits: RateLimits, bytes_per_record: Mapping[TopicPartition, float]
) -> Offsets:
    """Return the offsets where the batch ends: `latest`, or less in proportion to the waiting records of each
    partition.

    If the size of a partition's records is unknown, the average of the others is used.
    """
    waiting = {tp: latest[tp] - begin[tp] for tp in latest if latest[tp] > begin[tp]}
    share = 1.0
    if limits.max_offsets is not None:
        share = min(share, limits.max_offsets / max(sum(waiting.values()), 1))
    if limits.max_bytes is not None:
        usual = fmean(bytes_per_record.values()) if bytes_per_record else 0.0
        size = sum(records * bytes_per_record.get(tp, usual) for tp, records in waiting.items())
        share = min(share, limits.max_bytes / max(size, 1.0))
    return {tp: begin[tp] + _part(waiting[tp], share) if tp in waiting else latest[tp] for tp in latest}


def _part(records: int, share: float) -> int:
    """At least one record, so that a partition with few records is not starved."""
    return min(records, max(1, int(records * share)))


class TriggerDelay:
    """`minOffsetsPerTrigger`: delays a batch until it has enough records, or until `maxTriggerDelay` has passed."""

    def __init__(self, limits: RateLimits) -> None:
        self._limits = limits
        self._last_ms = 0

    def is_worth_it(self, waiting: int, now_ms: int) -> bool:
        """Return whether a batch with this number of offsets may run; the first one always may, as in Spark's
        connector.
        """
        enough = self._limits.min_offsets is None or waiting >= self._limits.min_offsets
        if not enough and now_ms - self._last_ms < self._limits.max_delay_ms:
            return False
        self._last_ms = now_ms
        return True
