"""The true state of a simulated cluster: leaders, records and commits, independent of clients and faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from ..clients.fetched_records import ConsumerRecord
from ..protocol.errors import KafkaError
from ..protocol.topic_partition import TopicPartition
from ..server.broker_state import BrokerState
from ..server.coordinator.coordinator_topic import partition_for
from ..server.metadata.metadata_cache import PartitionImage
from ..server.metadata.topic_names import GROUP_METADATA_TOPIC
from ..testing.arguments import Setting, topic_creation
from ..testing.contents import Contents, until
from .cluster import ClusterWorld
from .disk import SimCrash

NOBODY = -1
READY_SECONDS = 60.0


class SimCluster:
    """The brokers of a simulation, with access to their internal state."""

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world

    @property
    def brokers(self) -> list[int]:
        """Return the ids of the running brokers."""
        return [broker.broker_id for broker in self._world.running]

    @property
    def controller(self) -> int | None:
        """Return the controller; None if there is none."""
        return next((one for one, state in self._states().items() if state.controller.is_active), None)

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the leader of a partition, -1 without one or for an unknown partition."""
        image = self._image(topic, partition)
        return NOBODY if image is None else image.leader

    def isr(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """Return the in-sync replicas; none for an unknown partition."""
        image = self._image(topic, partition)
        return () if image is None else image.isr

    def coordinator(self, group: str) -> int:
        """Return the coordinator of a group, -1 without one."""
        states = self._states().values()
        counts = [len(image.partitions) for state in states if (image := state.metadata.topic(GROUP_METADATA_TOPIC))]
        return self.leader(GROUP_METADATA_TOPIC, partition_for(group, counts[0])) if counts else NOBODY

    async def ready(self) -> None:
        """Wait until there is a controller, and every running broker has all running brokers in its metadata. Raises
        TimeoutError.
        """
        await self._await(self._is_ready, "the cluster is not ready")

    async def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = -1,
        config: Mapping[str, Setting] | None = None,
    ) -> None:
        """Create a topic; all its replicas are in sync when this returns. Raises KafkaError, TimeoutError."""
        wish = topic_creation(name, partitions, replication_factor, config or {})
        await self.ready()
        broker = self._world.brokers[self.controller or 0]
        assert broker.server is not None
        creation = broker.server.state.controller.create_topics([wish])
        result = (await self._world.done(broker.node, creation))[name]
        if isinstance(result, KafkaError):
            raise result
        for index in range(partitions):
            await self._await(partial(self._is_whole, name, index), f"{name}-{index} is not in sync")

    async def records(self, topic: str, partition: int | None = None) -> list[ConsumerRecord]:
        """Return all records for a read_committed consumer, partition by partition.

        Raises KeyError without a leader, or if the leader is down, and KafkaError if the leader has not started yet.
        """
        count = max(
            (len(image.partitions) for s in self._states().values() if (image := s.metadata.topic(topic))), default=0
        )
        found: list[ConsumerRecord] = []
        for index in range(count) if partition is None else [partition]:
            leader = self.leader(topic, index)
            try:
                found += await self._contents(leader).records(topic, index)
            except SimCrash as error:
                # The records are read in several turns.
                raise KeyError(leader) from error
        return found

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """Return the committed offsets of a group; empty if it has none, or they are unavailable at the moment."""
        try:
            return self._contents(self.coordinator(group)).committed(group)
        except (KafkaError, KeyError):
            return {}

    def _contents(self, broker_id: int) -> Contents:
        return Contents(self._states()[broker_id])

    def _states(self) -> dict[int, BrokerState]:
        return {one.broker_id: one.server.state for one in self._world.running if one.server is not None}

    def _image(self, topic: str, partition: int) -> PartitionImage | None:
        """Return the metadata of the controller, or without one of any running broker."""
        states = self._states()
        for broker_id in sorted(states, key=lambda one: one != self.controller):
            image = states[broker_id].metadata.partition(TopicPartition(topic, partition))
            if image is not None:
                return image
        return None

    def _is_ready(self) -> bool:
        states = self._states()
        return self.controller is not None and all(
            state.metadata.brokers.keys() >= states.keys() for state in states.values()
        )

    def _is_whole(self, topic: str, partition: int) -> bool:
        """Return whether every running broker has the topic, and all its replicas are in sync."""
        place = TopicPartition(topic, partition)
        images = [state.metadata.partition(place) for state in self._states().values()]
        return all(image is not None and len(image.isr) == len(image.replicas) for image in images)

    @staticmethod
    async def _await(holds: Callable[[], bool], complaint: str) -> None:
        if not await until(holds, READY_SECONDS):
            raise TimeoutError(f"{complaint} within {READY_SECONDS:.0f} simulated seconds")
