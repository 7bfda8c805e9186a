"""Deletes topics: every replica first, then all that the store has of them (Kafka's TopicDeletionManager).

A mark in the store keeps the wish: what was begun is finished by whoever is controller when the last replica can be
deleted. Until then nobody serves the topic, and its name stays taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...protocol.errors import ErrorCode
from ...protocol.room_logger import room_logger
from ...protocol.topic_partition import TopicPartition
from ..metadata.cluster_store import ControllerTerm
from ..metadata.topic_store import TopicStore
from .announcer import Announcer
from .context import ControllerContext
from .replica_channel import EPOCH_DURING_DELETION, ReplicaChannel
from .replica_states import ReplicaPhase
from .topic_rules import TopicConfigs

logger = room_logger("controller")

DELETED = (ReplicaPhase.DELETION_STARTED, ReplicaPhase.DELETION_SUCCESSFUL)


class TopicDeletion:
    """Called for one change after the other."""

    def __init__(
        self,
        context: ControllerContext,
        store: TopicStore,
        channel: ReplicaChannel,
        announcer: Announcer,
        topic_configs: TopicConfigs,
    ) -> None:
        self._context = context
        self._store = store
        self._channel = channel
        self._announcer = announcer
        self._topic_configs = topic_configs
        self._refused: set[tuple[TopicPartition, int]] = set()

    async def heed_marks(self, term: ControllerTerm, *, may_delete: bool = True) -> None:
        """Deletes the topics that the store has marks of, whoever left them; if that may not be, the marks go.

        So does a mark without a topic: else the next topic of that name would be deleted by the next controller.
        Raises StoreError, KafkaError NOT_CONTROLLER.
        """
        marked = [name for name in await self._store.topics_to_delete() if name not in self._context.doomed]
        known = [name for name in marked if may_delete and self._context.topic(name) is not None]
        if len(known) < len(marked):
            # The context alone does not tell: Apache Kafka's brokers may have written a topic just now.
            present = set(await self._store.names()) if may_delete else set()
            await self._store.remove_marks([name for name in marked if name not in present], term)
        if known:
            await self.begin(known, term)

    async def begin(self, names: Iterable[str], term: ControllerTerm) -> None:
        """Nobody serves these topics from now on, and all replicas that can be reached are deleted."""
        new = [name for name in names if self._context.topic(name) is not None]
        self._context.doomed.update(new)
        self._announcer.remove(new)
        for name in new:
            for partition in self._context.partitions_of(name):
                self._context.take_offline(partition)
        await self.go_on(new, term)

    async def go_on(self, names: Iterable[str], term: ControllerTerm) -> None:
        """Deletes the replicas that are not deleted yet where they can be reached, and what has no replica any more."""
        by_broker: dict[int, dict[TopicPartition, int]] = {}
        for name in names:
            for partition in self._context.partitions_of(name):
                for broker in self._context.replicas(partition):
                    if self._context.replica_phase(partition, broker) in DELETED:
                        continue
                    if broker in self._context.reachable_replicas(partition):
                        self._context.put_replica_phase(partition, broker, ReplicaPhase.DELETION_STARTED)
                        self._refused.discard((partition, broker))
                        by_broker.setdefault(broker, {})[partition] = EPOCH_DURING_DELETION
                    elif self._context.replica_phase(partition, broker) is not ReplicaPhase.DELETION_INELIGIBLE:
                        # What cannot be reached cannot be deleted, and would come back one day.
                        self._ineligible(partition, broker, is_refused=broker in self._context.brokers)
        for broker, partitions in by_broker.items():
            self.note(broker, await self._channel.stop_replicas(broker, partitions, delete=True))
        await self.finish(term)

    def note(self, broker_id: int, answers: Mapping[TopicPartition, ErrorCode]) -> None:
        """A broker says what became of replicas that it was told to delete."""
        for partition, error in answers.items():
            if partition not in self._context or broker_id not in self._context.replicas(partition):
                continue
            if self._context.replica_phase(partition, broker_id) is not ReplicaPhase.DELETION_STARTED:
                continue
            if error is ErrorCode.NONE:
                self._context.put_replica_phase(partition, broker_id, ReplicaPhase.DELETION_SUCCESSFUL)
            else:
                logger.error("broker %d could not delete %s: %s", broker_id, partition, error.name)
                self._ineligible(partition, broker_id, is_refused=True)

    def broker_gone(self, broker_id: int) -> None:
        """What a broker has not said to be deleted waits until it is back."""
        for name in self._context.doomed:
            for partition in self._context.partitions_of(name):
                if (
                    broker_id in self._context.replicas(partition)
                    and self._context.replica_phase(partition, broker_id) is ReplicaPhase.DELETION_STARTED
                ):
                    self._ineligible(partition, broker_id, is_refused=False)

    def _ineligible(self, partition: TopicPartition, broker: int, *, is_refused: bool) -> None:
        self._context.put_replica_phase(partition, broker, ReplicaPhase.DELETION_INELIGIBLE)
        if is_refused:
            self._refused.add((partition, broker))
        else:
            self._refused.discard((partition, broker))

    def is_stuck(self, name: str) -> bool:
        """Whether a broker that is there cannot delete a replica now."""
        return self._context.topic(name) is not None and any(
            (partition, broker) in self._refused
            and self._context.replica_phase(partition, broker) is ReplicaPhase.DELETION_INELIGIBLE
            for partition in self._context.partitions_of(name)
            for broker in self._context.replicas(partition)
        )

    def waits_for_absent(self, name: str) -> bool:
        """Whether nothing is left but replicas of brokers that are away."""
        is_left = False
        for partition in self._context.partitions_of(name):
            for broker in self._context.replicas(partition):
                phase = self._context.replica_phase(partition, broker)
                if phase is ReplicaPhase.DELETION_INELIGIBLE and (partition, broker) not in self._refused:
                    is_left = True
                elif phase is not ReplicaPhase.DELETION_SUCCESSFUL:
                    return False  # most often the first
        return is_left

    async def finish(self, term: ControllerTerm) -> None:
        """Forgets the topics of which no replica is left. Raises StoreUnavailableError, KafkaError NOT_CONTROLLER."""
        gone = [name for name in self._context.doomed if self._is_deleted(name)]
        if gone:
            await self._store.delete_topics(gone, term)
        for name in gone:
            self._refused -= {one for one in self._refused if one[0].topic == name}
            self._context.remove_topic(name)
            self._topic_configs.topic_config_changed(name, None)

    def _is_deleted(self, name: str) -> bool:
        return all(
            self._context.replica_phase(partition, broker) is ReplicaPhase.DELETION_SUCCESSFUL
            for partition in self._context.partitions_of(name)
            for broker in self._context.replicas(partition)
        )
