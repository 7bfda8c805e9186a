"""Callbacks for rebalances: Kafka's ConsumerRebalanceListener, with plain or async methods."""

from __future__ import annotations

from collections.abc import Awaitable
from inspect import isawaitable

from ...protocol.topic_partition import TopicPartition

Partitions = list[TopicPartition]


class RebalanceListener:
    """Override methods with `def` or `async def`. They are called during reads only, never concurrently with them.

    Before revoked partitions are assigned to another member, `on_partitions_revoked` has returned, so it can commit or
    store results. `on_partitions_lost` is called for partitions that other members may already have; by default it
    calls `on_partitions_revoked`. `on_partitions_assigned` receives new partitions only; it is called after both, and
    before the first record of the new partitions.
    """

    def on_partitions_revoked(self, revoked: Partitions) -> Awaitable[None] | None:
        """Called before these partitions are revoked; with an eager assignor all of them at every rebalance."""
        return None

    def on_partitions_assigned(self, assigned: Partitions) -> Awaitable[None] | None:
        """Called with the new partitions after every rebalance, possibly with none."""
        return None

    def on_partitions_lost(self, lost: Partitions) -> Awaitable[None] | None:
        """Called if the group has continued without this member; commits of these partitions would fail."""
        return self.on_partitions_revoked(lost)


async def tell(answer: Awaitable[None] | None) -> None:
    """Await the result of a listener's method if it is async."""
    if isawaitable(answer):
        await answer
