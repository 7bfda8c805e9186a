"""The assignment of partitions to fetchers, `num.replica.fetchers` per leader (Kafka's ReplicaFetcherManager)."""

from __future__ import annotations

from collections.abc import Callable

from ...protocol.topic_partition import TopicPartition
from .partition import NO_LEADER, Partition
from .replica_fetcher import ReplicaFetcher

FetcherKey = tuple[int, int]
"""Leader, and number of the fetcher."""
NOWHERE = (NO_LEADER, 0)


class ReplicaFetcherManager:
    """Kafka's ReplicaFetcherManager. Owned by `Replication`; runs on the event loop."""

    def __init__(self, make: Callable[[int], ReplicaFetcher], fetchers_per_leader: Callable[[], int]) -> None:
        """`make` gives a fetcher for a leader."""
        self._make = make
        self._fetchers_per_leader = fetchers_per_leader
        self._number = fetchers_per_leader()
        self._fetchers: dict[FetcherKey, ReplicaFetcher] = {}
        self._places: dict[TopicPartition, FetcherKey] = {}

    def add_fetcher_for_partition(self, partition: Partition) -> None:
        """Fetch a partition from its current leader, if there is one."""
        name = partition.topic_partition
        self.remove_fetcher_for_partition(name)
        if partition.leader == NO_LEADER:
            return
        key = partition.leader, _number_of(name, self._number)
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            fetcher = self._fetchers[key] = self._make(partition.leader)
        self._places[name] = key
        fetcher.add_partition(partition)

    def remove_fetcher_for_partition(self, topic_partition: TopicPartition) -> None:
        """Stop fetching a partition."""
        fetcher = self._fetchers.get(self._places.pop(topic_partition, NOWHERE))
        if fetcher is not None:
            fetcher.remove_partition(topic_partition)

    async def shutdown_idle_fetchers(self) -> None:
        """Close the connections of fetchers that have nothing to do."""
        for key, fetcher in list(self._fetchers.items()):
            if not len(fetcher):
                del self._fetchers[key]
                await fetcher.close()

    def settings_changed(self) -> None:
        """`num.replica.fetchers` may be another number."""
        number = self._fetchers_per_leader()
        if number != self._number:
            self._number = number
            for partition in [one for fetcher in self._fetchers.values() for one in fetcher.partitions]:
                self.add_fetcher_for_partition(partition)

    async def close(self) -> None:
        """Stop all fetchers."""
        while self._fetchers:
            _, fetcher = self._fetchers.popitem()
            await fetcher.close()


def _number_of(name: TopicPartition, fetchers: int) -> int:
    """Neighbouring partitions of a topic go to different fetchers."""
    return (sum(name.topic.encode()) * 31 + name.partition) % fetchers
