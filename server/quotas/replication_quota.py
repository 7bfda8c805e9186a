"""How much replicas may fetch that are not in sync: Kafka's ReplicationQuotaManager (KIP-73)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from .rates import QuotaWindow, SampledRate

EVERY_PARTITION = "*"


@lru_cache(maxsize=1024)
def _partitions_named(throttled_replicas: str, broker_id: int) -> frozenset[int] | None:
    """The partitions that `partition:broker,...` names for a broker; None for all of them."""
    entries = [entry.strip() for entry in throttled_replicas.split(",") if entry.strip()]
    if EVERY_PARTITION in entries:
        return None
    pairs = (entry.split(":") for entry in entries)
    return frozenset(int(pair[0]) for pair in pairs if len(pair) == 2 and int(pair[1]) == broker_id)


def names_partition(throttled_replicas: str, partition: int, broker_id: int) -> bool:
    """Whether a topic's `leader.replication.throttled.replicas`, or the followers', says so of a broker's replica."""
    if not throttled_replicas:
        return False
    named = _partitions_named(throttled_replicas, broker_id)
    return named is None or partition in named


class ReplicationQuota:
    """Bytes per second of the throttled partitions that a broker leads, or else of those that it follows."""

    def __init__(self, window: QuotaWindow, limit: Callable[[], float], now: Callable[[], float]) -> None:
        """`limit` is in bytes per second, as it is at present."""
        self._rate = SampledRate(window)
        self._limit = limit
        self._now = now

    @property
    def is_exceeded(self) -> bool:
        """Whether nothing more may be fetched for now."""
        now = self._now()
        return self._rate.measure(now)[0] > self._limit()

    def record(self, size: int) -> None:
        """Count bytes."""
        self._rate.record(size, self._now())
