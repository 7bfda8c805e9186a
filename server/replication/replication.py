"""The parts of replication that only a broker in a cluster has: fetchers, ISR changes and replication quotas."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from ..quotas.rates import QuotaWindow
from ..quotas.replication_quota_manager import ReplicationQuotaManager, stored_rate
from .isr_change_sender import IsrChangeSender
from .remote_leader_endpoint import FetchLimits, RemoteLeaderEndpoint
from .replica import LeaderContext
from .replica_fetcher import ReplicaFetcher
from .replica_fetcher_manager import ReplicaFetcherManager
from .replica_selector import RackAwareReplicaSelector, is_rack_aware
from .replication_throttle import FollowerThrottle, LeaderThrottle

if TYPE_CHECKING:
    from ...protocol.topic_partition import TopicPartition
    from ..config.broker_config import BrokerConfig
    from ..metadata.metadata_cache import MetadataCache
    from ..runtime.scheduler import Scheduler
    from .leader_and_isr import AlterPartitionManager
    from .remote_leader_endpoint import InterBrokerConnections
    from .replica_manager import ReplicaManager

IDLE_FETCHERS_MS = 10_000
"""The interval at which fetchers without partitions are closed."""
UNKNOWN_EPOCH = -1
KEPT_FRAMES = 2
"""The number of large fetch responses whose memory the fetchers of a broker reuse. The page faults of new memory cost
as much as a copy."""


class Replication:
    """Owns the fetchers, ISR changes and quotas of a broker in a cluster. Built before the first LeaderAndIsr."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        *,
        broker_id: int,
        broker_epoch: Callable[[], int],
        config: BrokerConfig,
        metadata: MetadataCache,
        isr_changes: AlterPartitionManager,
        connect: Callable[[int], InterBrokerConnections],
        paused: Callable[[TopicPartition], AbstractAsyncContextManager[None]],
        stopwatch: Callable[[], float],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`connect` returns the connections of a fetcher, with a timeout in milliseconds.

        `paused` keeps the cleaner away from a log, `stopwatch` advances during a loop turn.
        """
        self._replica_manager = replica_manager
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._config = config
        self._metadata = metadata
        self._connect = connect
        self._paused = paused
        self._stopwatch = stopwatch
        self._loop = loop
        window = QuotaWindow(config.replication_quota_window_num, config.replication_quota_window_size_seconds)
        given = ReplicationQuotaManager(window, stored_rate(config, "leader.replication.throttled.rate"), loop.time)
        taken = ReplicationQuotaManager(window, stored_rate(config, "follower.replication.throttled.rate"), loop.time)
        self._follower_throttle = FollowerThrottle(taken, broker_id)
        self._isr_change_sender = IsrChangeSender(isr_changes, loop)
        self.fetchers = ReplicaFetcherManager(self._fetcher, lambda: config.num_replica_fetchers)
        leader_context = LeaderContext(
            broker_id,
            loop.time,
            lambda: config.replica_lag_time_max_ms / 1000,
            self._is_eligible,
            lambda broker_id: broker_id in metadata.brokers,
        )
        by_rack = is_rack_aware(config.replica_selector_class)
        replica_manager.join_cluster(
            leader_context,
            self._isr_change_sender,
            self.fetchers,
            throttle=LeaderThrottle(given, broker_id),
            selector=RackAwareReplicaSelector(metadata) if by_rack else None,
        )

    def schedule(self, scheduler: Scheduler) -> None:
        """Schedule the periodic tasks."""
        half_ms = max(1, self._config.replica_lag_time_max_ms // 2)
        scheduler.every("shrinking of in-sync replicas", lambda: half_ms, self._replica_manager.shrink_isrs)
        scheduler.every("idle fetchers", lambda: IDLE_FETCHERS_MS, self.fetchers.shutdown_idle_fetchers)

    async def close(self) -> None:
        """Stop all fetchers and ISR changes."""
        await self.fetchers.close()
        await self._isr_change_sender.close()

    def _is_eligible(self, broker_id: int, epoch: int) -> bool:
        """Return whether a broker may join an ISR (Kafka's isReplicaIsrEligible).

        It is alive, does not stop, and has the broker epoch of its fetches, as far as both are known (KIP-903).
        """
        registration = self._metadata.brokers.get(broker_id)
        if registration is None or registration.in_controlled_shutdown:
            return False
        return UNKNOWN_EPOCH in (epoch, registration.broker_epoch) or epoch == registration.broker_epoch

    def _fetcher(self, leader: int) -> ReplicaFetcher:
        config = self._config
        return ReplicaFetcher(
            RemoteLeaderEndpoint(
                self._connect(config.replica_socket_timeout_ms),
                leader,
                self._broker_id,
                self._broker_epoch,
                config.inter_broker_protocol_version,
            ),
            self._replica_manager,
            limits=lambda: FetchLimits(
                config.replica_fetch_wait_max_ms,
                config.replica_fetch_min_bytes,
                config.replica_fetch_max_bytes,
                config.replica_fetch_response_max_bytes,
                config.replica_fetch_backoff_ms,
            ),
            throttle=self._follower_throttle,
            paused=self._paused,
            stopwatch=self._stopwatch,
            loop=self._loop,
        )
