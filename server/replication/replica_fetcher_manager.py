"""Which fetcher follows which partition: `num.replica.fetchers` for each leader (Kafka's ReplicaFetcherManager)."""

from __future__ import annotations

from collections.abc import Callable

from ...protocol.topic_partition import TopicPartition
from .partition import NO_LEADER, Partition
from .replica_fetcher import ReplicaFetcher

FetcherKey = tuple[int, int]
"""Leader, and number of the fetcher."""
NOWHERE = (NO_LEADER, 0)


class ReplicaFetcherManager:
    """Loop-thread only."""

    def __init__(self, make: Callable[[int], ReplicaFetcher], fetchers_per_leader: Callable[[], int]) -> None:
        """`make` gives a fetcher for a leader."""
        self._make = make
        self._fetchers_per_leader = fetchers_per_leader
        self._number = fetchers_per_leader()
        self._fetchers: dict[FetcherKey, ReplicaFetcher] = {}
        self._places: dict[TopicPartition, FetcherKey] = {}

    def follow(self, partition: Partition) -> None:
        """Fetch a partition from the leader that it has now; where there is none, not at all."""
        name = partition.topic_partition
        self.forget(name)
        if partition.leader == NO_LEADER:
            return
        key = partition.leader, _number_of(name, self._number)
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            fetcher = self._fetchers[key] = self._make(partition.leader)
        self._places[name] = key
        fetcher.follow(partition)

    def forget(self, topic_partition: TopicPartition) -> None:
        """Fetch it no more."""
        fetcher = self._fetchers.get(self._places.pop(topic_partition, NOWHERE))
        if fetcher is not None:
            fetcher.forget(topic_partition)

    async def end_idle(self) -> None:
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
                self.follow(partition)

    async def close(self) -> None:
        """Fetch nothing more."""
        while self._fetchers:
            _, fetcher = self._fetchers.popitem()
            await fetcher.close()


def _number_of(name: TopicPartition, fetchers: int) -> int:
    """Neighbouring partitions of a topic go to different fetchers."""
    return (sum(name.topic.encode()) * 31 + name.partition) % fetchers
