"""What an application hears of rebalances: Kafka's ConsumerRebalanceListener; plain or async methods."""

from __future__ import annotations

from collections.abc import Awaitable
from inspect import isawaitable

from ...protocol.topic_partition import TopicPartition

Partitions = list[TopicPartition]


class RebalanceListener:
    """Override what is wanted, with `def` or `async def`. Called while the application reads, never beside it.

    When a member gives partitions up, `on_partitions_revoked` has ended before anybody else is given them, so that it
    may commit or store what was done. `on_partitions_lost` is told of partitions that others may have already; it does
    as `on_partitions_revoked` unless it is overridden. `on_partitions_assigned` names only what is new; it comes after
    both, and before the first record of the new partitions.
    """

    def on_partitions_revoked(self, revoked: Partitions) -> Awaitable[None] | None:
        """These are given up now; with an eager assignor all of them at every rebalance."""
        return None

    def on_partitions_assigned(self, assigned: Partitions) -> Awaitable[None] | None:
        """These are new; after every rebalance, if need be with none."""
        return None

    def on_partitions_lost(self, lost: Partitions) -> Awaitable[None] | None:
        """The group went on without us; commits of these would fail."""
        return self.on_partitions_revoked(lost)


async def tell(answer: Awaitable[None] | None) -> None:
    """Wait for a listener's method if it is an async one."""
    if isawaitable(answer):
        await answer
