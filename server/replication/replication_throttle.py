"""Throttles for replicas outside of the ISR that a topic names, at the leader and at the follower (KIP-73)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..quotas.replication_quota_manager import ReplicationQuotaManager, names_partition

if TYPE_CHECKING:
    from .partition import Partition


class LeaderThrottle:
    """The quota of records that this broker sends to lagging followers."""

    def __init__(self, quota: ReplicationQuotaManager, broker_id: int) -> None:
        self._quota = quota
        self._broker_id = broker_id

    def _is_throttled(self, partition: Partition, follower: int) -> bool:
        names = partition.log.config.leader_replication_throttled_replicas
        if not names or follower in partition.in_sync_replicas:
            return False
        return names_partition(names, partition.topic_partition.partition, self._broker_id)

    def holds_back(self, partition: Partition, follower: int) -> bool:
        """Whether a follower receives no records of a partition at the moment."""
        return self._is_throttled(partition, follower) and self._quota.is_exceeded

    def record_sent(self, partition: Partition, follower: int, size: int) -> None:
        """Record `size` bytes that are sent to a follower."""
        if size and self._is_throttled(partition, follower):
            self._quota.record(size)


class FollowerThrottle:
    """The quota of records that this broker fetches for lagging replicas."""

    def __init__(self, quota: ReplicationQuotaManager, broker_id: int) -> None:
        self._quota = quota
        self._broker_id = broker_id

    def _is_throttled(self, partition: Partition) -> bool:
        names = partition.log.config.follower_replication_throttled_replicas
        if not names or 0 <= partition.leader_high_watermark <= partition.log.log_end_offset:
            return False
        return names_partition(names, partition.topic_partition.partition, self._broker_id)

    def holds_back(self, partition: Partition) -> bool:
        """Whether a partition is not fetched at the moment."""
        return self._is_throttled(partition) and self._quota.is_exceeded

    def record_fetched(self, partition: Partition, size: int) -> None:
        """Record `size` bytes that were fetched."""
        if self._is_throttled(partition):
            self._quota.record(size)
