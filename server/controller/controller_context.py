"""Kafka's ControllerContext: the controller's view of the cluster, with the states of partitions and replicas."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from ...protocol.schema import ZERO_UUID
from ...protocol.topic_partition import TopicPartition
from ..metadata.metadata_cache import PartitionImage, TopicImage
from ..metadata.znodes import (
    NO_BROKER_EPOCH,
    NO_LEADER,
    BrokerInfo,
    LeaderIsrAndControllerEpoch,
    TopicRegistration,
)


class PartitionState(Enum):
    """Kafka's PartitionState: whether a partition has a leader."""

    NON_EXISTENT = "NonExistentPartition"
    """The partition was never created, or was deleted."""
    NEW = "NewPartition"
    """Has replicas but never had a leader."""
    ONLINE = "OnlinePartition"
    """Has a leader."""
    OFFLINE = "OfflinePartition"
    """Had a leader, which is dead."""


VALID_NEXT_PARTITION_STATES: dict[PartitionState, frozenset[PartitionState]] = {
    PartitionState.NON_EXISTENT: frozenset({PartitionState.NEW}),
    PartitionState.NEW: frozenset({PartitionState.ONLINE, PartitionState.OFFLINE}),
    # A new election while the leader is alive.
    PartitionState.ONLINE: frozenset({PartitionState.ONLINE, PartitionState.OFFLINE}),
    PartitionState.OFFLINE: frozenset({PartitionState.ONLINE, PartitionState.OFFLINE, PartitionState.NON_EXISTENT}),
}
"""The valid next states by state. Kafka has the inverse table, the valid previous states.

`ControllerContext._move_partition` applies it.
"""


class ReplicaState(Enum):
    """Kafka's ReplicaState: whether a replica can be reached, and the progress of its deletion.

    ONLINE and OFFLINE follow from the live brokers and the failed log directories; the others are stored. Kafka's
    NewReplica and NonExistentReplica are missing: a new replica is online as soon as its broker is alive.
    """

    ONLINE = "OnlineReplica"
    """Its broker is alive and its log directory works."""
    OFFLINE = "OfflineReplica"
    """Its broker is dead or its log directory has failed."""
    DELETION_STARTED = "ReplicaDeletionStarted"
    """StopReplica with deletion was sent to its broker."""
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    """Its broker has deleted it; other replicas of the topic may be left."""
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"
    """The replica cannot be deleted now: the deletion continues when its broker returns."""


VALID_NEXT_REPLICA_STATES: dict[ReplicaState, frozenset[ReplicaState]] = {
    # Kafka's replicas become offline before their deletion starts, by a StopReplica without deletion. Here one
    # StopReplica does both.
    ReplicaState.ONLINE: frozenset({ReplicaState.DELETION_STARTED}),
    ReplicaState.OFFLINE: frozenset({ReplicaState.DELETION_STARTED, ReplicaState.DELETION_INELIGIBLE}),
    ReplicaState.DELETION_STARTED: frozenset({ReplicaState.DELETION_SUCCESSFUL, ReplicaState.DELETION_INELIGIBLE}),
    ReplicaState.DELETION_SUCCESSFUL: frozenset(),
    ReplicaState.DELETION_INELIGIBLE: frozenset({ReplicaState.DELETION_STARTED}),
}
"""The states that can be stored for a replica in each state. `ControllerContext.move_replica` applies it."""


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """Kafka's ReplicaAssignment: the replicas of one partition, with the changes of a reassignment in progress."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()

    @property
    def is_being_reassigned(self) -> bool:
        """Whether a reassignment is in progress."""
        return bool(self.adding_replicas or self.removing_replicas)

    @property
    def target_replicas(self) -> tuple[int, ...]:
        """The replicas after the reassignment."""
        return tuple(broker for broker in self.replicas if broker not in self.removing_replicas)

    @property
    def origin_replicas(self) -> tuple[int, ...]:
        """The replicas before the reassignment."""
        return tuple(broker for broker in self.replicas if broker not in self.adding_replicas)

    def reassign_to(self, target: tuple[int, ...]) -> ReplicaAssignment:
        """Return the assignment while the partition moves to other replicas."""
        # A request may list tens of thousands of brokers, hence the set.
        origin, kept = self.origin_replicas, set(target)
        replicas = tuple(dict.fromkeys((*target, *origin)))
        adding = tuple(broker for broker in replicas if broker not in origin)
        return ReplicaAssignment(replicas, adding, tuple(broker for broker in replicas if broker not in kept))


class ControllerContext:
    """Kafka's ControllerContext: topics with their assignments, and the leader, ISR and state of each partition.

    `KafkaController` loads it from the store at the start of a term and updates it after each write.
    """

    def __init__(self, *, sends_topic_ids: bool = True) -> None:
        """`sends_topic_ids` is whether requests between brokers have topic ids; if not, clients must not see them."""
        self._sends_topic_ids = sends_topic_ids
        self.clear()

    def clear(self) -> None:
        """Drop everything before a term loads the store."""
        self.live_brokers: tuple[int, ...] = ()
        """The brokers that can lead: alive, and not in a controlled shutdown."""
        self.brokers: Mapping[int, BrokerInfo] = {}
        """The brokers that can receive requests, shutting down or not (Kafka: liveOrShuttingDownBrokers)."""
        self.shutting_down_brokers: set[int] = set()
        """The brokers that have requested a controlled shutdown."""
        self.topics_to_be_deleted: set[str] = set()
        """The topics whose deletion is not complete."""
        self.unreadable: set[str] = set()
        """The topics whose nodes cannot be read. Their names are taken."""
        self._deletion_states: dict[tuple[TopicPartition, int], ReplicaState] = {}
        self._topics: dict[str, TopicRegistration] = {}
        self._leadership_infos: dict[TopicPartition, LeaderIsrAndControllerEpoch] = {}
        self._partition_states: dict[TopicPartition, PartitionState] = {}
        self._offline_replicas: dict[TopicPartition, set[int]] = {}

    # -- brokers ---------------------------------------------------------------------------------------------------

    def put_brokers(self, brokers: Mapping[int, BrokerInfo]) -> None:
        """Replace the live brokers. A dead broker's controlled shutdown is over."""
        self.brokers = dict(brokers)
        self.shutting_down_brokers &= brokers.keys()
        self._update_live_brokers()

    def _update_live_brokers(self) -> None:
        self.live_brokers = tuple(broker for broker in self.brokers if broker not in self.shutting_down_brokers)

    def racks(self) -> dict[int, str | None]:
        """Return the racks of the brokers that can lead."""
        return {broker: self.brokers[broker].rack for broker in self.live_brokers}

    def begin_shutdown(self, broker_id: int) -> None:
        """Exclude a broker from elections because it has requested a controlled shutdown."""
        if broker_id in self.brokers:
            self.shutting_down_brokers.add(broker_id)
            self._update_live_brokers()

    def broker_restarted(self, broker_id: int) -> None:
        """Let a broker that has restarted lead again, and clear its failed replicas: its log directories may work."""
        self.shutting_down_brokers.discard(broker_id)
        self._update_live_brokers()
        self.retry_failed({broker_id})

    def broker_epoch(self, broker_id: int) -> int:
        """Return the epoch of a live broker, else -1."""
        broker = self.brokers.get(broker_id)
        return NO_BROKER_EPOCH if broker is None else broker.broker_epoch

    # -- topics ----------------------------------------------------------------------------------------------------

    @property
    def topics(self) -> Iterable[TopicRegistration]:
        return self._topics.values()

    def topic(self, name: str) -> TopicRegistration | None:
        return self._topics.get(name)

    def put_topic(self, topic: TopicRegistration) -> None:
        """Add a topic or replace its assignment; partitions that are not in the context become new."""
        self._topics[topic.name] = topic
        for partition in self.partitions_of(topic.name):
            if partition not in self._partition_states:
                self._move_partition(partition, PartitionState.NEW)

    def remove_topic(self, name: str) -> None:
        """Remove a topic whose replicas are all deleted."""
        for partition in self.partitions_of(name):
            self._move_partition(partition, PartitionState.NON_EXISTENT)
            self._leadership_infos.pop(partition, None)
            self._offline_replicas.pop(partition, None)
            for broker in self.replicas(partition):
                self._deletion_states.pop((partition, broker), None)
        self.topics_to_be_deleted.discard(name)
        del self._topics[name]

    def is_queued_for_deletion(self, partition: TopicPartition) -> bool:
        """Return whether the partition's topic is being deleted."""
        return partition.topic in self.topics_to_be_deleted

    # -- partitions and replicas -----------------------------------------------------------------------------------

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._partition_states

    def partitions(self) -> Iterator[TopicPartition]:
        return iter(list(self._partition_states))

    def partitions_of(self, name: str) -> list[TopicPartition]:
        """Return a topic's partitions; none for an unknown topic."""
        topic = self._topics.get(name)
        return [] if topic is None else [TopicPartition(name, index) for index in topic.assignment]

    def partitions_on(self, brokers: Collection[int]) -> list[TopicPartition]:
        """Return the partitions with a replica on any of the brokers."""
        return [
            TopicPartition(topic.name, index)
            for topic in self._topics.values()
            for index, replicas in topic.assignment.items()
            if any(broker in brokers for broker in replicas)
        ]

    def replicas(self, partition: TopicPartition) -> tuple[int, ...]:
        """Return the brokers that a partition is assigned to, the preferred leader first."""
        return self._topics[partition.topic].assignment[partition.partition]

    def live_replicas(self, partition: TopicPartition) -> list[int]:
        """Return the replicas that can lead: their broker is alive and their log directory works."""
        offline = self._offline_replicas.get(partition, ())
        return [b for b in self.replicas(partition) if b in self.live_brokers and b not in offline]

    def reachable_replicas(self, partition: TopicPartition) -> list[int]:
        """Return the replicas that can receive requests, also on brokers in a controlled shutdown."""
        offline = self._offline_replicas.get(partition, ())
        return [b for b in self.replicas(partition) if b in self.brokers and b not in offline]

    def replica_state(self, partition: TopicPartition, broker_id: int) -> ReplicaState:
        state = self._deletion_states.get((partition, broker_id))
        if state is not None:
            return state
        return ReplicaState.ONLINE if broker_id in self.reachable_replicas(partition) else ReplicaState.OFFLINE

    def move_replica(self, partition: TopicPartition, broker_id: int, target: ReplicaState) -> None:
        """Store the progress of a replica's deletion. This is the only way to change a replica's state."""
        current = self.replica_state(partition, broker_id)
        assert target in VALID_NEXT_REPLICA_STATES[current], (
            f"replica {broker_id} of {partition} cannot move from {current.value} to {target.value}"
        )
        self._deletion_states[partition, broker_id] = target

    def replica_failed(self, partition: TopicPartition, broker_id: int) -> None:
        """Mark a replica as offline because its live broker cannot serve it."""
        self._offline_replicas.setdefault(partition, set()).add(broker_id)

    def failed_replicas(self, broker_id: int) -> list[TopicPartition]:
        """Return the partitions whose replica on a live broker is offline."""
        return [partition for partition, brokers in self._offline_replicas.items() if broker_id in brokers]

    def replicas_recovered(self, partitions: Iterable[TopicPartition], broker_id: int) -> list[TopicPartition]:
        """Mark replicas of a live broker as online; return the partitions whose replica was offline."""
        found = [one for one in partitions if broker_id in self._offline_replicas.get(one, ())]
        for partition in found:
            self._discard_offline(partition, {broker_id})
        return found

    def retry_failed(self, brokers: Collection[int], lost: Container[TopicPartition] = ()) -> list[TopicPartition]:
        """Mark the offline replicas of live brokers as online, except the `lost` ones; return the partitions."""
        found = {one for broker in brokers for one in self.failed_replicas(broker) if one not in lost}
        for partition in found:
            self._discard_offline(partition, brokers)
        return sorted(found)

    def _discard_offline(self, partition: TopicPartition, brokers: Collection[int]) -> None:
        self._offline_replicas[partition].difference_update(brokers)
        if not self._offline_replicas[partition]:
            del self._offline_replicas[partition]

    # -- leaders and in-sync replicas ------------------------------------------------------------------------------

    def leadership_info(self, partition: TopicPartition) -> LeaderIsrAndControllerEpoch | None:
        """Return the leader and ISR of a partition; None while it is new."""
        return self._leadership_infos.get(partition)

    def put_leadership_info(self, partition: TopicPartition, state: LeaderIsrAndControllerEpoch) -> None:
        """Replace the leader and ISR of a partition after they were written."""
        self._assert_valid(partition, state)
        self._move_partition(partition, PartitionState.OFFLINE if state.leader == NO_LEADER else PartitionState.ONLINE)
        self._leadership_infos[partition] = state

    def _assert_valid(self, partition: TopicPartition, state: LeaderIsrAndControllerEpoch) -> None:
        former = self._leadership_infos.get(partition)
        # The store may hold an ISR beyond the replicas that another program has written: only additions are checked.
        added = set(state.isr) if former is None else set(state.isr).difference(former.isr)
        assert added <= set(self.replicas(partition)), f"{partition}: {added} in the ISR are not among the replicas"
        if former is not None:
            assert state.controller_epoch >= former.controller_epoch, f"{partition}: controller epoch falls, {state}"
            assert state.leader_epoch >= former.leader_epoch, f"{partition}: leader epoch falls, {state}"
            assert state.partition_epoch >= former.partition_epoch, f"{partition}: partition epoch falls, {state}"

    def restore_leadership_info(self, partition: TopicPartition, state: LeaderIsrAndControllerEpoch) -> None:
        """Load the state that an earlier controller or an earlier run has written: its leader may be dead."""
        self._move_partition(partition, PartitionState.OFFLINE)
        self._leadership_infos[partition] = state

    def restore_online_partitions(self) -> None:
        """Mark loaded partitions with a live leader as online."""
        for partition, state in self._leadership_infos.items():
            if state.leader in self.live_brokers:
                self._move_partition(partition, PartitionState.ONLINE)

    def take_offline(self, partition: TopicPartition) -> None:
        """Mark a partition as offline for its deletion. The store keeps its state."""
        self._move_partition(partition, PartitionState.OFFLINE)

    def _move_partition(self, partition: TopicPartition, target: PartitionState) -> None:
        """Change the state of a partition. This is the only place that does so."""
        current = self._partition_states.get(partition, PartitionState.NON_EXISTENT)
        assert target in VALID_NEXT_PARTITION_STATES[current], (
            f"{partition} cannot move from {current.value} to {target.value}"
        )
        if target is PartitionState.NON_EXISTENT:
            del self._partition_states[partition]
        else:
            self._partition_states[partition] = target

    def partitions_with_restarted_leader(self) -> list[TopicPartition]:
        """Return the partitions whose leader has registered again since its election.

        The restarted leader may have lost records that it had not flushed and that followers have. Other records
        written at those offsets in the same leader epoch could not be distinguished from them.
        """
        return [partition for partition, state in self._leadership_infos.items() if self._has_leader_restarted(state)]

    def _has_leader_restarted(self, state: LeaderIsrAndControllerEpoch) -> bool:
        present = self.broker_epoch(state.leader)
        if state.leader_broker_epoch != NO_BROKER_EPOCH:
            return present not in (NO_BROKER_EPOCH, state.leader_broker_epoch)
        # The leader's epoch is unknown, so the state's last write decides. It may be younger than the election, since
        # an ISR change writes the state too: then this reports no restart.
        return state.zxid < present

    def isr_not_restarted_since(self, state: LeaderIsrAndControllerEpoch) -> tuple[int, ...]:
        """Return the in-sync followers that have not restarted since the state was written.

        Such a follower has all committed records.
        """
        return tuple(
            broker
            for broker in state.isr
            if broker != state.leader and NO_BROKER_EPOCH < self.broker_epoch(broker) <= state.zxid
        )

    # -- reassignments ---------------------------------------------------------------------------------------------

    def full_replica_assignment(self, partition: TopicPartition) -> ReplicaAssignment:
        """Return the replicas of a partition with the adding and removing ones; empty for an unknown partition."""
        topic, index = self._topics.get(partition.topic), partition.partition
        if topic is None or index not in topic.assignment:
            return ReplicaAssignment(())
        return ReplicaAssignment(
            topic.assignment[index], topic.adding_replicas.get(index, ()), topic.removing_replicas.get(index, ())
        )

    def reassigned_topic(self, partition: TopicPartition, assignment: ReplicaAssignment) -> TopicRegistration:
        """Return the partition's topic with another assignment for the partition."""
        topic, index = self._topics[partition.topic], partition.partition
        return replace(
            topic,
            assignment={**topic.assignment, index: assignment.replicas},
            adding_replicas=_with(topic.adding_replicas, index, assignment.adding_replicas),
            removing_replicas=_with(topic.removing_replicas, index, assignment.removing_replicas),
        )

    def topics_being_reassigned(self) -> list[TopicRegistration]:
        return [
            topic
            for topic in self._topics.values()
            if (topic.adding_replicas or topic.removing_replicas) and topic.name not in self.topics_to_be_deleted
        ]

    def partitions_being_reassigned(self) -> list[TopicPartition]:
        return [
            TopicPartition(topic.name, index)
            for topic in self.topics_being_reassigned()
            for index in topic.adding_replicas.keys() | topic.removing_replicas.keys()
        ]

    def is_being_reassigned(self, partition: TopicPartition) -> bool:
        is_moving = self.full_replica_assignment(partition).is_being_reassigned
        return is_moving and not self.is_queued_for_deletion(partition)

    # -- images for the brokers' metadata caches -------------------------------------------------------------------

    def image(self, name: str) -> TopicImage:
        """Return a topic as the brokers' metadata caches hold it."""
        return self.partial_image(name, self._topics[name].assignment)

    def partial_image(self, name: str, indexes: Iterable[int]) -> TopicImage:
        """Return a topic with these partitions alone."""
        topic = self._topics[name]
        partitions = {
            index: self._partition_image(TopicPartition(name, index), topic.assignment[index]) for index in indexes
        }
        return TopicImage(name, topic.topic_id if self._sends_topic_ids else ZERO_UUID, partitions)

    def _partition_image(self, partition: TopicPartition, replicas: tuple[int, ...]) -> PartitionImage:
        state = self._leadership_infos.get(partition)
        offline = tuple(sorted(self._offline_replicas.get(partition, ())))
        if state is None:
            return PartitionImage(partition.partition, NO_LEADER, -1, 0, replicas, (), offline)
        return PartitionImage(
            partition.partition,
            state.leader,
            state.leader_epoch,
            state.partition_epoch,
            replicas,
            state.isr,
            offline,
        )


def _with(replicas: Mapping[int, tuple[int, ...]], index: int, brokers: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
    rest = {one: its_brokers for one, its_brokers in replicas.items() if one != index}
    return dict(sorted({**rest, index: brokers}.items())) if brokers else rest
