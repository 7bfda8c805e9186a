"""Takes partitions from state to state: elects their leaders, writes the outcome and orders the replicas to follow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.room_logger import room_logger
from ...protocol.topic_partition import TopicPartition
from ..metadata.cluster_store import ControllerTerm
from ..metadata.metadata_cache import MetadataCache
from ..metadata.metadata_store import StoreUnavailableError
from ..metadata.topic_store import TopicStore
from ..metadata.znodes import NO_LEADER, PartitionState
from ..runtime.turns import ITEMS, Pace
from .context import ControllerContext
from .election import Election, elect, elect_preferred
from .replica_channel import LeaderAndIsr, ReplicaChannel

logger = room_logger("controller")

Elections = Mapping[TopicPartition, Election | None]
"""Outcomes; None where nobody can lead: the partition goes offline."""


class PartitionStateMachine:
    """Kafka's class of that name, with the part of its ReplicaStateMachine that follows from elections.

    Its caller sees to it that one change is finished before the next begins.
    """

    def __init__(
        self, context: ControllerContext, store: TopicStore, channel: ReplicaChannel, metadata: MetadataCache
    ) -> None:
        self._context = context
        self._store = store
        self._channel = channel
        self._metadata = metadata

    async def bring_online(self, partitions: Iterable[TopicPartition], term: ControllerTerm) -> None:
        """Elects a leader for every partition that can have one, and tells replicas and clients.

        Raises BadVersionError if somebody else wrote a state, KafkaError NOT_CONTROLLER.
        """
        known = [(partition, state) for partition in partitions if (state := self._context.state(partition))]
        elections: dict[TopicPartition, Election | None] = {}
        for partition, state in known:
            election = self._elect(partition, state)
            if election is not None or state.leader != NO_LEADER:
                elections[partition] = election
        await self._conclude(elections, term)
        await self.announce([partition for partition, _ in known], term, is_new=False)

    async def elect(
        self, partitions: Iterable[TopicPartition], term: ControllerTerm, *, allow_unclean: bool
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elects preferred leaders, or with `allow_unclean` any live replica where there is no leader."""
        results: dict[TopicPartition, KafkaError | None] = {}
        elections: dict[TopicPartition, Election | None] = {}
        pace = Pace(ITEMS)
        for partition in partitions:
            await pace.step()
            try:
                elections[partition] = self._wanted_election(partition, allow_unclean=allow_unclean)
            except KafkaError as error:
                results[partition] = error.as_result()
            else:
                results[partition] = None
        await self._conclude(elections, term)
        await self.announce(elections, term, is_new=False)
        return results

    async def announce(self, partitions: Iterable[TopicPartition], term: ControllerTerm, *, is_new: bool) -> None:
        """Gives the replicas of partitions their orders, then shows the topics to clients."""
        waiting = list(partitions)
        topics = dict.fromkeys(partition.topic for partition in waiting)
        while waiting:
            # A leader that failed makes another round with its successor; each round has one live replica less.
            waiting = await self._order(waiting, term, is_new=is_new)
        self._metadata.put_topics([self._context.image(topic) for topic in topics])

    def _elect(self, partition: TopicPartition, state: PartitionState) -> Election | None:
        live = self._context.live_replicas(partition)
        return elect(self._context.replicas(partition), state.isr, live, allow_unclean=False)

    def _wanted_election(self, partition: TopicPartition, *, allow_unclean: bool) -> Election:
        state = self._context.state(partition)
        if state is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The partition {partition} does not exist.")
        replicas, live = self._context.replicas(partition), self._context.live_replicas(partition)
        is_content = state.leader != NO_LEADER if allow_unclean else state.leader == replicas[0]
        if is_content:
            raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"Leader election not needed for {partition}.")
        if allow_unclean:
            election = elect(replicas, state.isr, live, allow_unclean=True)
            code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        else:
            election = elect_preferred(replicas, state.isr, live)
            code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        if election is None:
            raise KafkaError(code, f"No replica of {partition} can be elected now.")
        return election

    async def _conclude(self, elections: Elections, term: ControllerTerm) -> None:
        """Writes the outcome of elections; each raises the leader epoch."""
        states = {}
        for partition, election in elections.items():
            former = self._context.state(partition)
            assert former is not None, f"{partition} was written together with its first state"
            states[partition] = PartitionState(
                leader=NO_LEADER if election is None else election.leader,
                leader_epoch=former.leader_epoch + 1,
                isr=former.isr if election is None else election.isr,
                controller_epoch=term.epoch,
                partition_epoch=former.partition_epoch,
                leader_recovery_state=int(election is not None and election.is_unclean),
            )
        if not states:
            return
        try:
            written = await self._store.set_partition_states(states, term)
        except StoreUnavailableError as error:
            # Nobody may lead without its being written. That nobody leads is true whether or not it can be.
            written = {partition: state for partition, state in states.items() if state.leader == NO_LEADER}
            if len(written) < len(states):
                raise
            logger.error("%d partitions have no leader, which cannot be written now: %s", len(written), error)
        for partition, state in written.items():
            self._context.put_state(partition, state)

    async def _order(
        self, partitions: Sequence[TopicPartition], term: ControllerTerm, *, is_new: bool
    ) -> list[TopicPartition]:
        """Sends LeaderAndIsr to the live replicas; returns partitions that got another leader since theirs failed."""
        elections: dict[TopicPartition, Election | None] = {}
        for broker, orders in self._orders(partitions, is_new=is_new).items():
            answers = await self._channel.leader_and_isr(broker, orders)
            for partition, error in answers.items():
                if error is ErrorCode.NONE:
                    continue
                logger.error("broker %d cannot serve %s: %s", broker, partition, error.name)
                self._context.replica_failed(partition, broker)
                state = self._context.state(partition)
                if state is not None and state.leader == broker:
                    elections[partition] = self._elect(partition, state)
        await self._conclude(elections, term)
        return [partition for partition, election in elections.items() if election is not None]

    def _orders(self, partitions: Iterable[TopicPartition], *, is_new: bool) -> dict[int, list[LeaderAndIsr]]:
        by_broker: dict[int, list[LeaderAndIsr]] = {}
        for partition in partitions:
            state, topic = self._context.state(partition), self._context.topic(partition.topic)
            if state is None or topic is None or state.leader == NO_LEADER:
                continue
            order = LeaderAndIsr(
                partition=partition,
                topic_id=topic.topic_id,
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                partition_epoch=state.partition_epoch,
                replicas=self._context.replicas(partition),
                isr=state.isr,
                is_new=is_new,
            )
            for broker in self._context.live_replicas(partition):
                by_broker.setdefault(broker, []).append(order)
        return by_broker
