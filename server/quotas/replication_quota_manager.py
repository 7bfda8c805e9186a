"""The quota for the fetches of replicas that are not in sync: Kafka's ReplicationQuotaManager (KIP-73)."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from .rates import QuotaWindow, SampledRate

if TYPE_CHECKING:
    from ..config.broker_config import BrokerConfig

EVERY_PARTITION = "*"


@lru_cache(maxsize=1024)
def _partitions_named(throttled_replicas: str, broker_id: int) -> frozenset[int] | None:
    """Return the partitions that `partition:broker,...` names for a broker; None for all of them."""
    entries = [entry.strip() for entry in throttled_replicas.split(",") if entry.strip()]
    if EVERY_PARTITION in entries:
        return None
    pairs = (entry.split(":") for entry in entries)
    return frozenset(int(pair[0]) for pair in pairs if len(pair) == 2 and int(pair[1]) == broker_id)


def names_partition(throttled_replicas: str, partition: int, broker_id: int) -> bool:
    """Return whether `leader.replication.throttled.replicas` (or the followers') includes a broker's replica."""
    if not throttled_replicas:
        return False
    named = _partitions_named(throttled_replicas, broker_id)
    return named is None or partition in named


def stored_rate(config: BrokerConfig, name: str) -> Callable[[], float]:
    """Return a function that reads bytes per second from a dynamic setting of this broker, or else of all brokers."""

    def rate() -> float:
        raw = config.dynamic_value(name)
        return float(raw) if raw else math.inf

    return rate


class ReplicationQuotaManager:
    """Bytes per second of the throttled partitions that a broker leads, of those it follows, or of moving logs."""

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


def moving_quota(config: BrokerConfig, now: Callable[[], float]) -> ReplicationQuotaManager:
    """Return the quota for all moves of replicas between the log directories of a broker."""
    window = QuotaWindow(
        config.alter_log_dirs_replication_quota_window_num, config.alter_log_dirs_replication_quota_window_size_seconds
    )
    return ReplicationQuotaManager(window, stored_rate(config, "replica.alter.log.dirs.io.max.bytes.per.second"), now)
