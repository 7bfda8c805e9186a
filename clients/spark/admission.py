"""How much of what is there one micro-batch takes: Spark's rules for rates, on plain numbers. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

from ...protocol.topic_partition import TopicPartition
from .offsets import Offsets
from .options import RateLimits


def admit(
    begin: Offsets, latest: Offsets, limits: RateLimits, bytes_per_record: Mapping[TopicPartition, float]
) -> Offsets:
    """The offsets where the batch ends: `latest`, or less in proportion to what each partition has waiting.

    Where it is not known how large a partition's records are, they count as those of the others on average.
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
    """At least one record, so that a partition with few of them is not left waiting for ever."""
    return min(records, max(1, int(records * share)))


class Patience:
    """`minOffsetsPerTrigger`: puts a batch off until it is worth it, or until it has waited `maxTriggerDelay`."""

    def __init__(self, limits: RateLimits) -> None:
        self._limits = limits
        self._last_ms = 0

    def is_worth_it(self, waiting: int, now_ms: int) -> bool:
        """Whether a batch of so many offsets may go; the first one may always, as with Spark's connector."""
        enough = self._limits.min_offsets is None or waiting >= self._limits.min_offsets
        if not enough and now_ms - self._last_ms < self._limits.max_delay_ms:
            return False
        self._last_ms = now_ms
        return True
