"""Takes partitions from state to state: elects their leaders, writes the outcome and orders the replicas to follow."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TypeAlias

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.room_logger import room_logger
from ...protocol.topic_partition import TopicPartition
from ..metadata.cluster_store import ControllerTerm
from ..metadata.metadata_store import BadVersionError, StoreUnavailableError
from ..metadata.topic_store import TopicStore
from ..metadata.znodes import NO_LEADER, PartitionState
from ..replication.partition_order import PartitionOrder
from ..runtime.turns import ITEMS, Pace, next_turn
from .announcer import Announcer
from .context import ControllerContext
from .election import Election, elect, elect_preferred
from .replica_channel import ReplicaChannel

logger = room_logger("controller")

ATTEMPTS = 3
"""So often a change is decided anew if leaders have changed their in-sync replicas in the store meanwhile."""

Decide: TypeAlias = Callable[[TopicPartition, PartitionState], PartitionState | None]
"""What a partition's state becomes, in the partition epoch that it has; None if it stays."""


class PartitionStateMachine:
    """Kafka's class of that name, with the part of its ReplicaStateMachine that follows from elections.

    Its caller sees to it that one change is finished before the next begins.
    """

    def __init__(
        self,
        context: ControllerContext,
        store: TopicStore,
        channel: ReplicaChannel,
        announcer: Announcer,
        *,
        unclean: Callable[[str], bool],
        partitions_at_once: int | None,
    ) -> None:
        """`unclean` says of a topic whether replicas that are not in sync may lead; `partitions_at_once` go into one
        write of the store, and into one order; None: all of them."""
        self._context = context
        self._store = store
        self._channel = channel
        self._announcer = announcer
        self._unclean = unclean
        self._partitions_at_once = partitions_at_once

    # -- changes ---------------------------------------------------------------------------------------------------

    async def bring_online(self, partitions: Iterable[TopicPartition], term: ControllerTerm) -> None:
        """Elects a leader for every partition that can have one, and tells replicas and clients.

        Raises BadVersionError if somebody else wrote a state, KafkaError NOT_CONTROLLER.
        """
        known = [partition for partition in partitions if self._context.state(partition)]

        def decide(partition: TopicPartition, state: PartitionState) -> PartitionState | None:
            election = self._elect(partition, state)
            return None if election is None and state.leader == NO_LEADER else self._outcome(state, election, term)

        await self.change(known, decide, term)
        await self.announce(known, term, is_new=False)

    async def replace_leaders(self, partitions: Iterable[TopicPartition], term: ControllerTerm) -> None:
        """Elects leaders where there is none that can serve, and tells replicas and clients."""

        def decide(partition: TopicPartition, state: PartitionState) -> PartitionState | None:
            if state.leader in self._context.live_replicas(partition):
                return None
            election = self._elect(partition, state)
            return None if election is None and state.leader == NO_LEADER else self._outcome(state, election, term)

        changed = await self.change(partitions, decide, term)
        await self.announce(changed, term, is_new=False)

    async def renew_leaders(self, partitions: Iterable[TopicPartition], term: ControllerTerm) -> None:
        """Elects leaders anew where those there are have restarted and may have lost the end of their logs.

        Who is in sync and has run on comes first: others would else cut off what is committed, to be as the leader is.
        Who has restarted stays in sync, and may lead if nobody else can: sessions of brokers that are dead last longer
        than they do, and after a loss of all power the only one that is back could else never lead. Tells nobody yet.
        """

        def decide(partition: TopicPartition, state: PartitionState) -> PartitionState:
            steady, live = self._context.in_sync_ever_since(state), self._context.live_replicas(partition)
            election = self._elect(partition, state)
            first = elect(self._context.replicas(partition), steady, live, allow_unclean=False)
            if election is not None and first is not None:
                election = replace(election, leader=first.leader)
            return self._outcome(state, election, term)

        await self.change(partitions, decide, term)

    async def remove_replicas(
        self, partitions: Iterable[TopicPartition], brokers: Collection[int], term: ControllerTerm
    ) -> None:
        """Takes the replicas on these brokers out of sync, where others lead; the last in sync stays it."""

        def decide(partition: TopicPartition, state: PartitionState) -> PartitionState | None:
            isr = tuple(broker for broker in state.isr if broker not in brokers)
            if isr == state.isr or not isr or state.leader in brokers:
                return None
            return next_state(state, term, isr=isr)

        changed = await self.change(partitions, decide, term)
        await self.announce(changed, term, is_new=False)

    async def elect(
        self, partitions: Iterable[TopicPartition], term: ControllerTerm, *, allow_unclean: bool
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elects preferred leaders, or with `allow_unclean` any live replica where there is no leader."""
        results: dict[TopicPartition, KafkaError | None] = {}
        pace = Pace(ITEMS)
        for partition in partitions:
            await pace.step()
            try:
                self._wanted_election(partition, allow_unclean=allow_unclean)
            except KafkaError as error:
                results[partition] = error.as_result()
            else:
                results[partition] = None

        def decide(partition: TopicPartition, state: PartitionState) -> PartitionState | None:
            try:
                election = self._wanted_election(partition, allow_unclean=allow_unclean)
            except KafkaError as error:  # its leader has written another state meanwhile
                results[partition] = error.as_result()
                return None
            return self._outcome(state, election, term)

        changed = await self.change([p for p, error in results.items() if error is None], decide, term)
        await self.announce(changed, term, is_new=False)
        return results

    async def change(
        self, partitions: Iterable[TopicPartition], decide: Decide, term: ControllerTerm
    ) -> list[TopicPartition]:
        """Writes what is decided for each partition; returns those of which something was.

        A state that a leader has changed in the store meanwhile is read and decided on anew. Raises BadVersionError if
        that does not end, StoreUnavailableError, KafkaError NOT_CONTROLLER.
        """
        changed: list[TopicPartition] = []
        for batch in self._batches([one for one in partitions if not self._context.is_doomed(one)]):
            for attempt in range(1, ATTEMPTS + 1):
                states = dict(self._decided(batch, decide))
                if not states:
                    break
                try:
                    written = await self._write(states, term)
                except BadVersionError:
                    if attempt == ATTEMPTS:
                        raise
                    await self.reread(batch)
                else:
                    for partition, state in written.items():
                        self._context.put_state(partition, state)
                    changed += written
                    break
            await next_turn()
        return changed

    def _batches(self, partitions: Iterable[TopicPartition]) -> Iterator[list[TopicPartition]]:
        """So many at a time that neither a write nor a turn of the loop is long."""
        waiting = iter(list(partitions))
        while batch := list(islice(waiting, self._partitions_at_once)):
            yield batch

    def _decided(
        self, partitions: Iterable[TopicPartition], decide: Decide
    ) -> Iterator[tuple[TopicPartition, PartitionState]]:
        for partition in partitions:
            former = self._context.state(partition)
            state = None if former is None else decide(partition, former)
            if former is None or state is None:
                continue
            if state.leader_epoch != former.leader_epoch:
                state = replace(state, leader_broker_epoch=self._context.broker_epoch(state.leader))
            yield partition, state

    async def _write(
        self, states: Mapping[TopicPartition, PartitionState], term: ControllerTerm
    ) -> Mapping[TopicPartition, PartitionState]:
        try:
            return await self._store.set_partition_states(states, term)
        except StoreUnavailableError as error:
            # Nobody may lead without its being written. That nobody leads is true whether or not it can be.
            leaderless = {partition: state for partition, state in states.items() if state.leader == NO_LEADER}
            if len(leaderless) < len(states):
                raise
            logger.error("%d partitions have no leader, which cannot be written now: %s", len(leaderless), error)
            return leaderless

    async def reread(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Takes in what leaders have written themselves; returns the partitions of which that is news."""
        news = []
        for partition, state in (await self._store.states_of(list(partitions))).items():
            former = self._context.state(partition)
            if former is not None and state != former and not self._context.is_doomed(partition):
                self._context.put_state(partition, state)
                news.append(partition)
        return news

    # -- elections -------------------------------------------------------------------------------------------------

    def _elect(self, partition: TopicPartition, state: PartitionState) -> Election | None:
        live = self._context.live_replicas(partition)
        replicas = self._context.replicas(partition)
        election = elect(replicas, state.isr, live, allow_unclean=False)
        if election is None and live and self._unclean(partition.topic):
            election = elect(replicas, state.isr, live, allow_unclean=True)
        return election

    def _wanted_election(self, partition: TopicPartition, *, allow_unclean: bool) -> Election:
        state = self._context.state(partition)
        if state is None or self._context.is_doomed(partition):
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

    def _outcome(self, former: PartitionState, election: Election | None, term: ControllerTerm) -> PartitionState:
        """Each election raises the leader epoch."""
        if election is None:
            return next_state(former, term, leader=NO_LEADER)
        recovery_state = int(election.is_unclean)
        return next_state(former, term, election.leader, election.isr, leader_recovery_state=recovery_state)

    # -- orders ----------------------------------------------------------------------------------------------------

    async def announce(self, partitions: Iterable[TopicPartition], term: ControllerTerm, *, is_new: bool) -> None:
        """Gives the replicas of partitions their orders, then shows the topics to clients."""
        for batch in self._batches(partitions):
            await self.order_until_led(batch, term, is_new=is_new)
            self._announcer.show(batch)
            await next_turn()

    async def order_until_led(
        self, partitions: Sequence[TopicPartition], term: ControllerTerm, *, is_new: bool
    ) -> None:
        """Gives the replicas of partitions their orders; a leader that fails makes another round with its successor."""
        while partitions:
            # Each round has one live replica less.
            partitions = await self.order(partitions, term, is_new=is_new)

    async def order(
        self,
        partitions: Sequence[TopicPartition],
        term: ControllerTerm,
        *,
        is_new: bool,
        brokers: Collection[int] | None = None,
    ) -> list[TopicPartition]:
        """Sends LeaderAndIsr to the replicas that can be reached, or those of them on `brokers`.

        Returns the partitions that got another leader since theirs failed.
        """
        failed: list[TopicPartition] = []
        for batch in self._batches(partitions):
            for broker, orders in self._orders(batch, is_new=is_new, brokers=brokers).items():
                answers = await self._channel.leader_and_isr(broker, orders)
                failed += self._failures(broker, answers)
            await next_turn()

        def decide(partition: TopicPartition, state: PartitionState) -> PartitionState | None:
            return self._outcome(state, self._elect(partition, state), term)

        changed = await self.change(failed, decide, term)
        return [partition for partition in changed if not self._is_leaderless(partition)]

    def _failures(self, broker: int, answers: Mapping[TopicPartition, ErrorCode]) -> list[TopicPartition]:
        """Notes replicas that cannot be served; returns the partitions that they were to lead."""
        failed = []
        for partition, error in answers.items():
            if error is ErrorCode.NONE or not self._counts(error):
                continue
            logger.error("broker %d cannot serve %s: %s", broker, partition, error.name)
            self._context.replica_failed(partition, broker)
            state = self._context.state(partition)
            if state is not None and state.leader == broker:
                failed.append(partition)
        return failed

    def _counts(self, error: ErrorCode) -> bool:
        """An order that the broker has carried out before is no failure: another controller may have given it."""
        return error not in (ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _is_leaderless(self, partition: TopicPartition) -> bool:
        state = self._context.state(partition)
        return state is None or state.leader == NO_LEADER

    def _orders(
        self, partitions: Iterable[TopicPartition], *, is_new: bool, brokers: Collection[int] | None
    ) -> dict[int, list[PartitionOrder]]:
        by_broker: dict[int, list[PartitionOrder]] = {}
        for partition in partitions:
            state, topic = self._context.state(partition), self._context.topic(partition.topic)
            if state is None or topic is None or state.leader == NO_LEADER or self._context.is_doomed(partition):
                continue
            order = PartitionOrder(
                topic_partition=partition,
                topic_id=topic.topic_id,
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                partition_epoch=state.partition_epoch,
                replicas=self._context.replicas(partition),
                isr=state.isr,
                is_new=is_new,
                controller_epoch=state.controller_epoch,
                adding_replicas=topic.adding_replicas.get(partition.partition, ()),
                removing_replicas=topic.removing_replicas.get(partition.partition, ()),
                leader_recovery_state=state.leader_recovery_state,
            )
            for broker in self._context.reachable_replicas(partition):
                if brokers is None or broker in brokers:
                    by_broker.setdefault(broker, []).append(order)
        return by_broker


def next_state(
    former: PartitionState,
    term: ControllerTerm,
    leader: int | None = None,
    isr: tuple[int, ...] | None = None,
    leader_recovery_state: int = 0,
) -> PartitionState:
    """A state in the next leader epoch, by order of this term's controller."""
    return PartitionState(
        former.leader if leader is None else leader,
        former.leader_epoch + 1,
        former.isr if isr is None else isr,
        term.epoch,
        former.partition_epoch,
        leader_recovery_state,
    )
