"""What is so in a simulated cluster: who leads, what is written and committed, past all clients and faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from ..clients.fetched_records import ConsumerRecord
from ..protocol.errors import KafkaError
from ..protocol.topic_partition import TopicPartition
from ..server.broker_state import BrokerState
from ..server.controller.topic_rules import TopicCreation
from ..server.coordinator.coordinator_topic import partition_for
from ..server.metadata.metadata_cache import PartitionImage
from ..server.metadata.topic_names import GROUP_METADATA_TOPIC
from ..testing.arguments import Setting, properties
from ..testing.contents import Contents, until
from .cluster import ClusterWorld
from .disk import SimCrash

NOBODY = -1
READY_SECONDS = 60.0


class SimCluster:
    """The brokers of a simulation, as somebody knows them who sees everything."""

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world

    @property
    def brokers(self) -> list[int]:
        """The ids of the brokers that run."""
        return [broker.broker_id for broker in self._world.running]

    @property
    def controller(self) -> int | None:
        """The broker that is controller now; None while nobody is."""
        return next((one for one, state in self._states().items() if state.controller.is_active), None)

    def leader(self, topic: str, partition: int = 0) -> int:
        """The broker that leads a partition, -1 if nobody does, or nobody knows of it."""
        image = self._image(topic, partition)
        return NOBODY if image is None else image.leader

    def isr(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """The brokers that are in sync; none if nobody knows of the partition."""
        image = self._image(topic, partition)
        return () if image is None else image.isr

    def coordinator(self, group: str) -> int:
        """The broker that coordinates a group, -1 if nobody does."""
        states = self._states().values()
        counts = [len(image.partitions) for state in states if (image := state.metadata.topic(GROUP_METADATA_TOPIC))]
        return self.leader(GROUP_METADATA_TOPIC, partition_for(group, counts[0])) if counts else NOBODY

    async def ready(self) -> None:
        """Wait until somebody is controller, and every broker that runs knows all that do. Raises TimeoutError."""
        await self._await(self._is_ready, "the cluster is not ready")

    async def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = -1,
        config: Mapping[str, Setting] | None = None,
    ) -> None:
        """Create a topic; all its replicas are in sync when this returns. Raises KafkaError, TimeoutError."""
        settings = properties(config or {}, of_topic=True)
        wish = TopicCreation(
            name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            config={key: value for key, value in settings.items() if value is not None},
        )
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
        """All that a consumer may read, partition by partition.

        Raises KeyError where nobody leads, or who does is gone, and KafkaError where the leader has not begun yet.
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
                # Not all is read in one turn.
                raise KeyError(leader) from error
        return found

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """The next offsets that a group has committed; empty if it has none, or nobody can tell at the moment."""
        try:
            return self._contents(self.coordinator(group)).committed(group)
        except (KafkaError, KeyError):
            return {}

    def _contents(self, broker_id: int) -> Contents:
        return Contents(self._states()[broker_id])

    def _states(self) -> dict[int, BrokerState]:
        return {one.broker_id: one.server.state for one in self._world.running if one.server is not None}

    def _image(self, topic: str, partition: int) -> PartitionImage | None:
        """As the controller has it, or while there is none, whoever runs."""
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
        """Whether every broker that runs knows of it, and all its replicas are in sync."""
        place = TopicPartition(topic, partition)
        images = [state.metadata.partition(place) for state in self._states().values()]
        return all(image is not None and len(image.isr) == len(image.replicas) for image in images)

    @staticmethod
    async def _await(holds: Callable[[], bool], complaint: str) -> None:
        if not await until(holds, READY_SECONDS):
            raise TimeoutError(f"{complaint} within {READY_SECONDS:.0f} simulated seconds")
