"""Checks of the last stable offset, which never exceeds an open transaction and passes each one in bounded time."""

from __future__ import annotations

from soak.sim.transactions.truth import OpenTransactions

from barnabas.server.coordinator.transaction.transaction_metadata import AT_REST
from barnabas.server.metadata.topic_names import GROUP_METADATA_TOPIC
from barnabas.server.replication.partition import Partition
from barnabas.simulation.cluster import ClusterWorld, SimClusterBroker

LOOK_SECONDS = 0.05
Leadership = tuple[int, int, int]
"""The broker, the number of its start, and the leader epoch."""


class Stability:
    """A checker of the leaders of some topics that runs every `LOOK_SECONDS` of simulated time."""

    def __init__(self, world: ClusterWorld, topics: frozenset[str]) -> None:
        self.world = world
        self.topics = topics | {GROUP_METADATA_TOPIC}
        self.violations: list[str] = []
        self._seen: dict[tuple[str, int], tuple[Leadership, OpenTransactions]] = {}
        self._look_later()

    def _look_later(self) -> None:
        self.world.loop.call_later(LOOK_SECONDS, self._look_again)

    def _look_again(self) -> None:
        self.look()
        self._look_later()

    def look(self) -> None:
        """Check that no last stable offset exceeds the first offset of an open transaction."""
        for broker, partition in self.leaders():
            place = (partition.topic_partition.topic, partition.topic_partition.partition)
            me = (broker.broker_id, broker.lives, partition.leader_epoch)
            known, transactions = self._seen.get(place, (None, None))
            if known != me or transactions is None or transactions.end > partition.log.log_end_offset:
                transactions = OpenTransactions(partition.log.log_start_offset)
                self._seen[place] = (me, transactions)
            transactions.take_in(partition)
            bound = transactions.stable_up_to(partition.log.high_watermark)
            if partition.log.last_stable_offset > bound:
                self.violations.append(
                    f"{self.world.loop.time():.3f} stable: {place} of {me} is stable up to"
                    f" {partition.log.last_stable_offset}, but a transaction is open since {bound}"
                )

    def leaders(self) -> list[tuple[SimClusterBroker, Partition]]:
        """Return the leaders of all checked partitions."""
        return [
            (broker, partition)
            for broker in self.world.running
            if broker.server is not None
            for partition in broker.server.state.replica_manager.partitions
            if partition.topic_partition.topic in self.topics and partition.is_leader and not partition.is_offline
        ]

    def ends(self) -> dict[tuple[str, int], int]:
        """Return the log end offsets of the checked partitions."""
        return {
            (one.topic_partition.topic, one.topic_partition.partition): one.log.log_end_offset
            for _, one in self.leaders()
        }

    def behind(self, ends: dict[tuple[str, int], int]) -> list[str]:
        """Return the partitions whose last stable offset is below the given end."""
        stable = {
            (one.topic_partition.topic, one.topic_partition.partition): one.log.last_stable_offset
            for _, one in self.leaders()
        }
        return [
            f"{place} is stable up to {stable.get(place)} of {end}"
            for place, end in ends.items()
            if stable.get(place, -1) < end
        ]

    def hanging(self) -> list[str]:
        """Return the transactions that are still open, at coordinators and on partitions."""
        found = [
            f"{one.transactional_id} is {one.metadata.state.name}"
            for broker in self.world.running
            if broker.server is not None
            for one in broker.server.state.transaction_coordinator.state_manager.transactions
            if one.metadata.state not in AT_REST or one.is_busy
        ]
        for _, partition in self.leaders():
            if partition.log.producer_state.first_unstable_offset is not None:
                found.append(f"a transaction is open in {partition.topic_partition}")
        return found
