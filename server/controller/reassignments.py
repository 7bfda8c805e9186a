"""Moves partitions to other brokers while they are written and read (KIP-455).

The course of one, every step of which can be taken up by another controller from the store alone:

1. The topic's node names the replicas wanted and those there are, `adding_replicas` and `removing_replicas` apart. The
   new ones are told to copy; the leader counts them in sync once they have caught up.
2. When all replicas wanted are in sync, one of them leads, and the others leave the ISR. Those that stay are told that
   there are no others.
3. The replicas that are not wanted are deleted, and the topic's node names those wanted alone.

To cancel is to reassign to the replicas that there were. Kafka's KafkaController.onPartitionReassignment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.room_logger import room_logger
from ...protocol.topic_partition import TopicPartition
from ..metadata.cluster_store import ControllerTerm
from ..metadata.topic_store import TopicStore
from ..metadata.znodes import NO_LEADER, PartitionState, TopicRegistration
from .announcer import Announcer
from .context import ControllerContext
from .election import elect
from .partition_state_machine import PartitionStateMachine, next_state
from .replica_channel import ReplicaChannel

logger = room_logger("controller")


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """One partition's replicas, those on their way in and out marked (Kafka's class of that name)."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_changing(self) -> bool:
        """Whether the partition is being reassigned."""
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas that are wanted."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.replicas if broker not in self.adding)

    def reassigned_to(self, target: tuple[int, ...]) -> ReplicaAssignment:
        """The same partition on its way to other replicas."""
        # Who asks may name tens of thousands.
        origin, staying = self.origin, set(target)
        replicas = tuple(dict.fromkeys((*target, *origin)))
        adding = tuple(broker for broker in replicas if broker not in origin)
        return ReplicaAssignment(replicas, adding, tuple(broker for broker in replicas if broker not in staying))

    def of(self, topic: TopicRegistration, index: int) -> TopicRegistration:
        """The topic with this assignment for one of its partitions."""
        return replace(
            topic,
            assignment={**topic.assignment, index: self.replicas},
            adding_replicas=_with(topic.adding_replicas, index, self.adding),
            removing_replicas=_with(topic.removing_replicas, index, self.removing),
        )


def _with(replicas: Mapping[int, tuple[int, ...]], index: int, brokers: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
    rest = {one: its_brokers for one, its_brokers in replicas.items() if one != index}
    return dict(sorted({**rest, index: brokers}.items())) if brokers else rest


class Reassignments:
    """Called for one change after the other."""

    def __init__(
        self,
        context: ControllerContext,
        store: TopicStore,
        channel: ReplicaChannel,
        announcer: Announcer,
        partitions: PartitionStateMachine,
    ) -> None:
        self._context = context
        self._store = store
        self._channel = channel
        self._announcer = announcer
        self._partitions = partitions

    def topics(self) -> list[TopicRegistration]:
        """The topics of which partitions are on their way to other brokers."""
        return [
            topic
            for topic in self._context.topics
            if (topic.adding_replicas or topic.removing_replicas) and topic.name not in self._context.doomed
        ]

    def running(self) -> list[TopicPartition]:
        """The partitions that are on their way to other brokers."""
        return [
            TopicPartition(topic.name, index)
            for topic in self.topics()
            for index in topic.adding_replicas.keys() | topic.removing_replicas.keys()
        ]

    def is_running(self, partition: TopicPartition) -> bool:
        """Whether the partition is on its way to other brokers."""
        topic = self._context.topic(partition.topic)
        if topic is None or topic.name in self._context.doomed:
            return False
        return partition.partition in topic.adding_replicas or partition.partition in topic.removing_replicas

    def planned(
        self, partition: TopicPartition, replicas: Sequence[int] | None, *, may_change_factor: bool
    ) -> ReplicaAssignment:
        """What a partition's assignment is to become; None asks to cancel. Raises KafkaError with the reason."""
        if partition not in self._context or self._context.is_doomed(partition):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The partition {partition} does not exist.")
        present = self._assignment(partition)
        if replicas is None:
            if not present.is_changing:
                raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{partition} is not being reassigned.")
            return present.reassigned_to(present.origin)
        target = tuple(replicas)
        if not target or len(set(target)) != len(target) or min(target) < 0:
            reason = f"Replica assignment {list(target)} is empty or names a broker twice, or one below zero."
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
        wanted = present.reassigned_to(target)
        # Who has a replica already may be away, as in Kafka: it is waited for.
        missing = [broker for broker in wanted.adding if broker not in self._context.live_brokers]
        if missing:
            reason = f"Replica assignment {list(target)} needs {missing}, which are not there to take a replica."
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
        if not may_change_factor and len(target) != len(present.origin):
            reason = f"{partition} has {len(present.origin)} replicas, which {list(target)} would change."
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, reason)
        return wanted

    async def begin(self, partition: TopicPartition, wanted: ReplicaAssignment, term: ControllerTerm) -> None:
        """Steps 1 of a reassignment, and as many more as can be taken. Raises StoreError, KafkaError."""
        present = self._assignment(partition)
        if wanted == present:
            return
        logger.info("%s is reassigned from %s to %s", partition, list(present.origin), list(wanted.target))
        unneeded = [broker for broker in present.replicas if broker not in wanted.replicas]
        await self._leave(partition, wanted.replicas, term)
        await self._put(partition, wanted, term)
        # What a reassignment which this one replaces has brought along.
        await self._delete(partition, unneeded)
        new = set(wanted.adding) - set(present.replicas)
        await self._partitions.order([partition], term, is_new=True, brokers=new)
        await self._partitions.order([partition], term, is_new=False, brokers=set(wanted.replicas) - new)
        self._announcer.show([partition])
        await self.go_on([partition], term)

    async def go_on(self, partitions: Iterable[TopicPartition], term: ControllerTerm) -> None:
        """Steps 2 and 3 for those of the partitions that are ready for them."""
        for partition in partitions:
            assignment = self._assignment(partition)
            state = self._context.state(partition)
            if not assignment.is_changing or state is None or self._context.is_doomed(partition):
                continue
            live = self._context.live_replicas(partition)
            if set(assignment.target) <= set(state.isr) and set(assignment.target) & set(live):
                await self._complete(partition, assignment, term)

    async def _complete(self, partition: TopicPartition, assignment: ReplicaAssignment, term: ControllerTerm) -> None:
        await self._leave(partition, assignment.target, term)
        # In memory first, as Kafka has it: the epoch that has just begun is told with the final replicas. Another
        # controller that finds the topic's node final could not tell that the leader counts more than it has.
        moved = self._assigned(partition, ReplicaAssignment(assignment.target))
        self._context.put_topic(moved)
        await self._partitions.order_until_led([partition], term, is_new=False)
        await self._delete(partition, assignment.removing)
        await self._store.set_topic(moved, term)
        self._announcer.show([partition])
        logger.info("%s has moved to %s", partition, list(assignment.target))

    async def _leave(self, partition: TopicPartition, staying: tuple[int, ...], term: ControllerTerm) -> None:
        """Only replicas that stay are in sync from now on, and one of them leads; or nobody, where nobody did.

        Raises KafkaError INVALID_REPLICA_ASSIGNMENT if none of them could: they lack what the others have.
        """

        def decide(partition: TopicPartition, state: PartitionState) -> PartitionState | None:
            isr = tuple(broker for broker in state.isr if broker in staying)
            live = self._context.live_replicas(partition)
            if state.leader in staying and (state.leader in live or isr == state.isr):
                return next_state(state, term, isr=isr)
            election = elect(staying, isr, live, allow_unclean=False)
            if election is None and state.leader == NO_LEADER and isr:
                # They go on waiting for one of those that were in sync last.
                return next_state(state, term, isr=isr)
            if election is None:
                reason = f"None of the brokers {list(staying)} has all records of {partition}."
                raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
            return next_state(state, term, election.leader, election.isr)

        await self._partitions.change([partition], decide, term)

    async def _delete(self, partition: TopicPartition, brokers: Iterable[int]) -> None:
        state = self._context.state(partition)
        leader_epoch = -1 if state is None else state.leader_epoch
        for broker in brokers:
            if broker in self._context.brokers:
                await self._channel.stop_replicas(broker, {partition: leader_epoch}, delete=True)

    async def _put(self, partition: TopicPartition, assignment: ReplicaAssignment, term: ControllerTerm) -> None:
        topic = self._assigned(partition, assignment)
        await self._store.set_topic(topic, term)
        self._context.put_topic(topic)

    def _assigned(self, partition: TopicPartition, assignment: ReplicaAssignment) -> TopicRegistration:
        topic = self._context.topic(partition.topic)
        assert topic is not None, f"{partition} is known"
        return assignment.of(topic, partition.partition)

    def _assignment(self, partition: TopicPartition) -> ReplicaAssignment:
        topic = self._context.topic(partition.topic)
        if topic is None or partition.partition not in topic.assignment:
            return ReplicaAssignment(())
        index = partition.partition
        return ReplicaAssignment(
            topic.assignment[index], topic.adding_replicas.get(index, ()), topic.removing_replicas.get(index, ())
        )
