"""Everything the controller knows about the cluster while it is controller."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping

from ...protocol.schema import ZERO_UUID
from ...protocol.topic_partition import TopicPartition
from ..metadata.metadata_cache import PartitionImage, TopicImage
from ..metadata.znodes import NO_BROKER_EPOCH, NO_LEADER, BrokerRegistration, PartitionState, TopicRegistration
from .partition_states import PartitionPhase, transition
from .replica_states import ReplicaPhase, replica_transition


class ControllerContext:
    """Topics with their assignments, partition states with their phases. Read from the store, then kept up to date."""

    def __init__(self, *, tells_topic_ids: bool = True) -> None:
        """Without `tells_topic_ids` no order tells them, and clients must not hear of what leaders do not know."""
        self._tells_topic_ids = tells_topic_ids
        self.clear()

    def clear(self) -> None:
        """Forgets everything: a term begins with what is in the store."""
        self.live_brokers: tuple[int, ...] = ()
        """Those that may lead: alive, and not about to stop."""
        self.brokers: Mapping[int, BrokerRegistration] = {}
        """All that can be given orders, those about to stop included."""
        self.stopping: set[int] = set()
        """Brokers that have asked to be let go."""
        self.doomed: set[str] = set()
        """Topics whose deletion is not finished."""
        self.unreadable: set[str] = set()
        """Topics that the store has, and nobody can tell what they are: their names are taken, and that is all."""
        self._deletions: dict[tuple[TopicPartition, int], ReplicaPhase] = {}
        self._topics: dict[str, TopicRegistration] = {}
        self._states: dict[TopicPartition, PartitionState] = {}
        self._phases: dict[TopicPartition, PartitionPhase] = {}
        self._offline_replicas: dict[TopicPartition, set[int]] = {}

    def put_brokers(self, brokers: Mapping[int, BrokerRegistration]) -> None:
        """Takes over who is alive. A broker that was about to stop and is gone may come back."""
        self.brokers = dict(brokers)
        self.stopping &= brokers.keys()
        self.live_brokers = tuple(broker for broker in brokers if broker not in self.stopping)

    def racks(self) -> dict[int, str | None]:
        """The racks of those that may lead."""
        return {broker: self.brokers[broker].rack for broker in self.live_brokers}

    def broker_stops(self, broker_id: int) -> None:
        """A live broker has asked to be let go: it leads nothing new."""
        self.stopping.add(broker_id)
        self.put_brokers(self.brokers)

    def broker_returned(self, broker_id: int) -> None:
        """Another run of a broker: its log directories may be well again, and what was ordered is to be said again."""
        self.stopping.discard(broker_id)
        self.retry_failed({broker_id})

    @property
    def topics(self) -> Iterable[TopicRegistration]:
        return self._topics.values()

    def topic(self, name: str) -> TopicRegistration | None:
        return self._topics.get(name)

    def put_topic(self, topic: TopicRegistration) -> None:
        """Adds a topic or replaces its assignment; partitions not seen before become new."""
        self._topics[topic.name] = topic
        for partition in self.partitions_of(topic.name):
            if partition not in self._phases:
                self._phases[partition] = transition(PartitionPhase.NON_EXISTENT, PartitionPhase.NEW)

    def remove_topic(self, name: str) -> None:
        """Forgets a topic whose partitions are all offline."""
        for partition in self.partitions_of(name):
            transition(self._phases.pop(partition), PartitionPhase.NON_EXISTENT)
            self._states.pop(partition, None)
            self._offline_replicas.pop(partition, None)
            for broker in self.replicas(partition):
                self._deletions.pop((partition, broker), None)
        self.doomed.discard(name)
        del self._topics[name]

    def partitions_of(self, name: str) -> list[TopicPartition]:
        """A topic's partitions; none if there is no such topic."""
        topic = self._topics.get(name)
        return [] if topic is None else [TopicPartition(name, index) for index in topic.assignment]

    def partitions(self) -> Iterator[TopicPartition]:
        return iter(list(self._phases))

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._phases

    def replicas(self, partition: TopicPartition) -> tuple[int, ...]:
        """The brokers a partition is assigned to, the preferred leader first."""
        return self._topics[partition.topic].assignment[partition.partition]

    def live_replicas(self, partition: TopicPartition) -> list[int]:
        """Replicas whose broker lives and whose log directory works."""
        offline = self._offline_replicas.get(partition, ())
        return [b for b in self.replicas(partition) if b in self.live_brokers and b not in offline]

    def reachable_replicas(self, partition: TopicPartition) -> list[int]:
        """Replicas that can be given orders: brokers that are about to stop included."""
        offline = self._offline_replicas.get(partition, ())
        return [b for b in self.replicas(partition) if b in self.brokers and b not in offline]

    def partitions_on(self, brokers: Collection[int]) -> list[TopicPartition]:
        return [
            TopicPartition(topic.name, index)
            for topic in self._topics.values()
            for index, replicas in topic.assignment.items()
            if any(broker in brokers for broker in replicas)
        ]

    def replica_phase(self, partition: TopicPartition, broker_id: int) -> ReplicaPhase:
        """Where a replica stands."""
        phase = self._deletions.get((partition, broker_id))
        if phase is not None:
            return phase
        return ReplicaPhase.ONLINE if broker_id in self.reachable_replicas(partition) else ReplicaPhase.OFFLINE

    def put_replica_phase(self, partition: TopicPartition, broker_id: int, phase: ReplicaPhase) -> None:
        """Notes how far the deletion of a replica has come."""
        former = self.replica_phase(partition, broker_id)
        self._deletions[partition, broker_id] = replica_transition(former, phase)

    def is_doomed(self, partition: TopicPartition) -> bool:
        """Whether its topic is being deleted."""
        return partition.topic in self.doomed

    def replica_failed(self, partition: TopicPartition, broker_id: int) -> None:
        """Notes that a live broker cannot serve its replica."""
        self._offline_replicas.setdefault(partition, set()).add(broker_id)

    def failed_replicas(self, broker_id: int) -> list[TopicPartition]:
        """The partitions whose replica a live broker could not serve."""
        return [partition for partition, brokers in self._offline_replicas.items() if broker_id in brokers]

    def retry_failed(self, brokers: Collection[int], lost: Container[TopicPartition] = ()) -> list[TopicPartition]:
        """Lets be tried again what live brokers could not serve, but for what is `lost`; the partitions."""
        found = {one for broker in brokers for one in self.failed_replicas(broker) if one not in lost}
        for partition in found:
            self._offline_replicas[partition].difference_update(brokers)
        return sorted(found)

    def state(self, partition: TopicPartition) -> PartitionState | None:
        """Who leads; None while the partition is new."""
        return self._states.get(partition)

    def restore_state(self, partition: TopicPartition, state: PartitionState) -> None:
        """Takes over a state that an earlier controller, or an earlier run, has left: its leader may be gone."""
        self._states[partition] = state
        self._phases[partition] = transition(self._phases[partition], PartitionPhase.OFFLINE)

    def restore_leaders(self) -> None:
        """Partitions whose leaders an earlier controller has left, and that are alive, are online as they are."""
        for partition, state in self._states.items():
            if state.leader in self.live_brokers:
                self._phases[partition] = transition(self._phases[partition], PartitionPhase.ONLINE)

    def led_by_earlier_runs(self) -> list[TopicPartition]:
        """Partitions whose leader has registered anew since it was elected: what runs now was not elected.

        It may have lost what it had not synced, of which followers may have more. Others written in the same epoch in
        its place could not be told from that.
        """
        return [partition for partition, state in self._states.items() if self._was_elected_before(state)]

    def _was_elected_before(self, state: PartitionState) -> bool:
        present = self.broker_epoch(state.leader)
        if state.leader_broker_epoch != NO_BROKER_EPOCH:
            return present not in (NO_BROKER_EPOCH, state.leader_broker_epoch)
        # In doubt, the last write: one of the in-sync replicas alone may be younger than the run that is registered.
        return state.zxid < present

    def in_sync_ever_since(self, state: PartitionState) -> tuple[int, ...]:
        """Who else than the leader is in sync, and has run on since that was written: it has what is committed."""
        return tuple(
            broker
            for broker in state.isr
            if broker != state.leader and NO_BROKER_EPOCH < self.broker_epoch(broker) <= state.zxid
        )

    def broker_epoch(self, broker_id: int) -> int:
        """Of the run of a broker that is alive, else -1."""
        broker = self.brokers.get(broker_id)
        return NO_BROKER_EPOCH if broker is None else broker.broker_epoch

    def put_state(self, partition: TopicPartition, state: PartitionState) -> None:
        """Takes over a state that was just written."""
        target = PartitionPhase.OFFLINE if state.leader == NO_LEADER else PartitionPhase.ONLINE
        self._phases[partition] = transition(self._phases[partition], target)
        self._states[partition] = state

    def take_offline(self, partition: TopicPartition) -> None:
        """Lets a partition go offline in memory alone, on its way to deletion."""
        self._phases[partition] = transition(self._phases[partition], PartitionPhase.OFFLINE)

    def image(self, name: str) -> TopicImage:
        """A topic as the brokers are told of it."""
        return self.partial_image(name, self._topics[name].assignment)

    def partial_image(self, name: str, indexes: Iterable[int]) -> TopicImage:
        topic = self._topics[name]
        partitions = {
            index: self._partition_image(TopicPartition(name, index), topic.assignment[index]) for index in indexes
        }
        return TopicImage(name, topic.topic_id if self._tells_topic_ids else ZERO_UUID, partitions)

    def _partition_image(self, partition: TopicPartition, replicas: tuple[int, ...]) -> PartitionImage:
        state = self._states.get(partition)
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
