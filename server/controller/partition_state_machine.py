"""Kafka's PartitionStateMachine: elects leaders, writes the result to the store and sends it to the replicas."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeAlias

from ...common.room_logger import room_logger
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.topic_partition import TopicPartition
from ..metadata.cluster_store import ControllerTerm
from ..metadata.metadata_store import BadVersionError, StoreUnavailableError
from ..metadata.topic_store import TopicStore
from ..metadata.znodes import NO_LEADER, LeaderIsrAndControllerEpoch
from ..replication.leader_and_isr import LeaderAndIsrState
from ..runtime.loop_sharing import CountBudget, next_turn
from .controller_channel_manager import ControllerChannel
from .controller_context import ControllerContext
from .update_metadata_sender import UpdateMetadataSender

logger = room_logger("controller")


@dataclass(frozen=True, slots=True)
class Election:
    """The result of an election: a leader and its first ISR."""

    leader: int
    isr: tuple[int, ...]
    is_unclean: bool = False
    """The leader was not in sync: the records that it lacks are lost."""


def offline_partition_leader_election(
    replicas: tuple[int, ...], isr: tuple[int, ...], live: Collection[int], *, allow_unclean: bool
) -> Election | None:
    """Elect the first replica, in order of assignment, that is live and in sync; None if there is none.

    With `allow_unclean` the first live replica is the alternative. It is then the only replica in sync.
    """
    in_sync = tuple(broker for broker in isr if broker in live)
    for broker in replicas:
        if broker in in_sync:
            return Election(broker, in_sync)
    if allow_unclean:
        for broker in replicas:
            if broker in live:
                return Election(broker, (broker,), is_unclean=True)
    return None


def preferred_replica_partition_leader_election(
    replicas: tuple[int, ...], isr: tuple[int, ...], live: Collection[int]
) -> Election | None:
    """Elect the preferred leader, the first of the assignment, if it is live and in sync."""
    preferred = replicas[0]
    if preferred in live and preferred in isr:
        return Election(preferred, tuple(broker for broker in isr if broker in live))
    return None


LAST_LEADER_EPOCH = 2**31 - 1
"""The largest that requests and batches can hold."""
ORDERS_PER_TURN = 50
"""Partitions whose states are added to LeaderAndIsr requests per turn, in 0.2 ms."""
ATTEMPTS = 3
"""The number of attempts for a change while leaders change their ISR in the store."""

Decide: TypeAlias = Callable[[TopicPartition, LeaderIsrAndControllerEpoch], LeaderIsrAndControllerEpoch | None]
"""Returns a partition's next state, with its present partition epoch; None to leave it unchanged.

`PartitionStateMachine.update_states` calls it again for all partitions of a batch after a BadVersionError, when it has
read their states again. A function that stores a result or an error must replace the one of an earlier call, also where
the later call has none.
"""


class PartitionStateMachine:
    """Kafka's PartitionStateMachine, with the part of its ReplicaStateMachine that follows from elections.

    `KafkaController` owns it and makes one change after another. `ControllerContext` holds the states.
    """

    def __init__(
        self,
        context: ControllerContext,
        store: TopicStore,
        channel: ControllerChannel,
        update_metadata_sender: UpdateMetadataSender,
        *,
        may_elect_uncleanly: Callable[[str], bool],
        partitions_at_once: int | None,
    ) -> None:
        """`may_elect_uncleanly` returns whether a topic's replicas outside of the ISR may lead.

        `partitions_at_once` is the limit of one write to the store and of one request; None: no limit.
        """
        self._context = context
        self._store = store
        self._channel = channel
        self._update_metadata_sender = update_metadata_sender
        self._may_elect_uncleanly = may_elect_uncleanly
        self._partitions_at_once = partitions_at_once

    # -- elections -------------------------------------------------------------------------------------------------

    async def elect_leader_for_partitions(self, partitions: Iterable[TopicPartition], term: ControllerTerm) -> None:
        """Elect a leader for each partition and inform replicas and clients.

        Raises BadVersionError if another writer has changed a state, KafkaError NOT_CONTROLLER.
        """
        known = [partition for partition in partitions if self._context.leadership_info(partition)]

        def decide(partition: TopicPartition, state: LeaderIsrAndControllerEpoch) -> LeaderIsrAndControllerEpoch | None:
            election = self._elect(partition, state)
            return None if election is None and state.leader == NO_LEADER else self._elected(state, election, term)

        await self.update_states(known, decide, term)
        await self.send_and_publish(known, term, is_new=False)

    async def trigger_online_partition_state_change(
        self, partitions: Iterable[TopicPartition], term: ControllerTerm
    ) -> None:
        """Elect a leader for each partition without a live one and inform replicas and clients."""

        def decide(partition: TopicPartition, state: LeaderIsrAndControllerEpoch) -> LeaderIsrAndControllerEpoch | None:
            if state.leader in self._context.live_replicas(partition):
                return None
            election = self._elect(partition, state)
            return None if election is None and state.leader == NO_LEADER else self._elected(state, election, term)

        changed = await self.update_states(partitions, decide, term)
        await self.send_and_publish(changed, term, is_new=False)

    async def elect_after_leader_restart(self, partitions: Iterable[TopicPartition], term: ControllerTerm) -> None:
        """Elect leaders where the present leader has restarted and may have lost the end of its log.

        Replicas are informed later.
        """

        def decide(partition: TopicPartition, state: LeaderIsrAndControllerEpoch) -> LeaderIsrAndControllerEpoch:
            steady, live = self._context.isr_not_restarted_since(state), self._context.live_replicas(partition)
            election = self._elect(partition, state)
            # A replica that has not restarted has all committed records. Under a restarted leader it might truncate
            # some of them.
            first = offline_partition_leader_election(
                self._context.replicas(partition), steady, live, allow_unclean=False
            )
            if election is not None and first is not None:
                # The restarted leader remains in sync and may lead if no other replica can: a dead broker's session
                # outlives the broker, and after a power failure the first broker to return could otherwise never lead.
                election = replace(election, leader=first.leader)
            return self._elected(state, election, term)

        await self.update_states(partitions, decide, term)

    async def elect_for_controlled_shutdown(
        self, partitions: Iterable[TopicPartition], broker_id: int, term: ControllerTerm
    ) -> None:
        """Elect other leaders for partitions that a broker leads, and remove it from the ISR of the others."""

        def decide(partition: TopicPartition, state: LeaderIsrAndControllerEpoch) -> LeaderIsrAndControllerEpoch | None:
            if state.leader == broker_id:
                live = self._context.live_replicas(partition)
                replicas = self._context.replicas(partition)
                election = offline_partition_leader_election(replicas, state.isr, live, allow_unclean=False)
                return None if election is None else next_state(state, term, election.leader, election.isr)
            isr = tuple(broker for broker in state.isr if broker != broker_id)
            return next_state(state, term, isr=isr) if isr and isr != state.isr else None

        changed = await self.update_states(partitions, decide, term)
        await self.send_and_publish(changed, term, is_new=False)

    async def elect_among(self, partition: TopicPartition, kept: tuple[int, ...], term: ControllerTerm) -> None:
        """Reduce the ISR to the replicas that a reassignment keeps, and elect one of them if another replica leads.

        Replicas are informed later. Raises KafkaError INVALID_REPLICA_ASSIGNMENT if no kept replica is in sync.
        """

        def decide(partition: TopicPartition, state: LeaderIsrAndControllerEpoch) -> LeaderIsrAndControllerEpoch | None:
            isr = tuple(broker for broker in state.isr if broker in kept)
            live = self._context.live_replicas(partition)
            if state.leader in kept and (state.leader in live or isr == state.isr):
                return next_state(state, term, isr=isr)
            election = offline_partition_leader_election(kept, isr, live, allow_unclean=False)
            if election is None and state.leader == NO_LEADER and isr:
                # The partition still waits for one of the replicas that were in sync last.
                return next_state(state, term, isr=isr)
            if election is None:
                reason = f"None of the brokers {list(kept)} has all records of {partition}."
                raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
            return next_state(state, term, election.leader, election.isr)

        await self.update_states([partition], decide, term)

    async def remove_replicas_from_isr(
        self, partitions: Iterable[TopicPartition], brokers: Collection[int], term: ControllerTerm
    ) -> None:
        """Remove brokers from the ISR of partitions that others lead, unless the ISR would become empty."""

        def decide(partition: TopicPartition, state: LeaderIsrAndControllerEpoch) -> LeaderIsrAndControllerEpoch | None:
            isr = tuple(broker for broker in state.isr if broker not in brokers)
            if isr == state.isr or not isr or state.leader in brokers:
                return None
            return next_state(state, term, isr=isr)

        changed = await self.update_states(partitions, decide, term)
        await self.send_and_publish(changed, term, is_new=False)

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition], term: ControllerTerm, *, allow_unclean: bool
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elect preferred leaders, or with `allow_unclean` any live replica where there is no leader."""
        results: dict[TopicPartition, KafkaError | None] = {}
        budget = CountBudget()
        for partition in partitions:
            await budget.step()
            try:
                self._requested_election(partition, allow_unclean=allow_unclean)
            except KafkaError as error:
                results[partition] = error.as_result()
            else:
                results[partition] = None

        def decide(partition: TopicPartition, state: LeaderIsrAndControllerEpoch) -> LeaderIsrAndControllerEpoch | None:
            # An earlier decision, from a state that has since been read again, does not count.
            results[partition] = None
            try:
                election = self._requested_election(partition, allow_unclean=allow_unclean)
            except KafkaError as error:  # its leader has changed the state in the store since
                results[partition] = error.as_result()
                return None
            return self._elected(state, election, term)

        changed = await self.update_states([p for p, error in results.items() if error is None], decide, term)
        await self.send_and_publish(changed, term, is_new=False)
        return results

    def _elect(self, partition: TopicPartition, state: LeaderIsrAndControllerEpoch) -> Election | None:
        live = self._context.live_replicas(partition)
        replicas = self._context.replicas(partition)
        election = offline_partition_leader_election(replicas, state.isr, live, allow_unclean=False)
        if election is None and live and self._may_elect_uncleanly(partition.topic):
            election = offline_partition_leader_election(replicas, state.isr, live, allow_unclean=True)
        return election

    def _requested_election(self, partition: TopicPartition, *, allow_unclean: bool) -> Election:
        state = self._context.leadership_info(partition)
        if state is None or self._context.is_queued_for_deletion(partition):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The partition {partition} does not exist.")
        replicas, live = self._context.replicas(partition), self._context.live_replicas(partition)
        is_unneeded = state.leader != NO_LEADER if allow_unclean else state.leader == replicas[0]
        if is_unneeded:
            raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"Leader election not needed for {partition}.")
        if allow_unclean:
            election = offline_partition_leader_election(replicas, state.isr, live, allow_unclean=True)
            code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        else:
            election = preferred_replica_partition_leader_election(replicas, state.isr, live)
            code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        if election is None:
            raise KafkaError(code, f"No replica of {partition} can be elected now.")
        return election

    def _elected(
        self, former: LeaderIsrAndControllerEpoch, election: Election | None, term: ControllerTerm
    ) -> LeaderIsrAndControllerEpoch:
        """Return the state after an election; without a result the partition has no leader."""
        if election is None:
            return next_state(former, term, leader=NO_LEADER)
        recovery_state = int(election.is_unclean)
        return next_state(former, term, election.leader, election.isr, leader_recovery_state=recovery_state)

    # -- states in the store ---------------------------------------------------------------------------------------

    async def update_states(
        self, partitions: Iterable[TopicPartition], decide: Decide, term: ControllerTerm
    ) -> list[TopicPartition]:
        """Write the state that is decided for each partition; return the partitions that have changed.

        A state that a leader has changed in the store is read and decided on again. Raises BadVersionError after
        `ATTEMPTS`, StoreUnavailableError, KafkaError NOT_CONTROLLER.
        """
        changed: list[TopicPartition] = []
        for batch in self._batches([one for one in partitions if not self._context.is_queued_for_deletion(one)]):
            for attempt in range(1, ATTEMPTS + 1):
                states = dict(self._decided(batch, decide))
                if not states:
                    break
                try:
                    written = await self._write(states, term)
                except BadVersionError:
                    if attempt == ATTEMPTS:
                        raise
                    await self.update_leader_and_isr_cache(batch)
                else:
                    for partition, state in written.items():
                        self._context.put_leadership_info(partition, state)
                    changed += written
                    break
            await next_turn()
        return changed

    def _batches(self, partitions: Iterable[TopicPartition]) -> Iterator[list[TopicPartition]]:
        waiting = iter(list(partitions))
        while batch := list(islice(waiting, self._partitions_at_once)):
            yield batch

    def _decided(
        self, partitions: Iterable[TopicPartition], decide: Decide
    ) -> Iterator[tuple[TopicPartition, LeaderIsrAndControllerEpoch]]:
        for partition in partitions:
            former = self._context.leadership_info(partition)
            state = None if former is None else decide(partition, former)
            if former is None or state is None:
                continue
            if state.leader_epoch > LAST_LEADER_EPOCH:
                # LeaderAndIsr could not be encoded, for this partition and all others in the request.
                logger.error("%s has used its last leader epoch and remains unchanged", partition)
                continue
            if state.leader_epoch != former.leader_epoch:
                state = replace(state, leader_broker_epoch=self._context.broker_epoch(state.leader))
            yield partition, state

    async def _write(
        self, states: Mapping[TopicPartition, LeaderIsrAndControllerEpoch], term: ControllerTerm
    ) -> Mapping[TopicPartition, LeaderIsrAndControllerEpoch]:
        try:
            return await self._store.set_partition_states(states, term)
        except StoreUnavailableError as error:
            # A leader must be written before it leads. The loss of a leader is true even if it cannot be written.
            leaderless = {partition: state for partition, state in states.items() if state.leader == NO_LEADER}
            if len(leaderless) < len(states):
                raise
            logger.error("cannot store that %d partitions have no leader: %s", len(leaderless), error)
            return leaderless

    async def update_leader_and_isr_cache(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Read states that leaders may have written themselves; return the partitions that have changed."""
        changed = []
        for partition, state in (await self._store.states_of(list(partitions))).items():
            former = self._context.leadership_info(partition)
            if former is not None and state != former and not self._context.is_queued_for_deletion(partition):
                self._context.put_leadership_info(partition, state)
                changed.append(partition)
        return changed

    # -- requests to brokers ---------------------------------------------------------------------------------------

    async def send_and_publish(
        self, partitions: Iterable[TopicPartition], term: ControllerTerm, *, is_new: bool
    ) -> None:
        """Send LeaderAndIsr to the replicas of partitions, then publish the topics in the metadata caches."""
        for batch in self._batches(partitions):
            await self.send_leader_and_isr_until_led(batch, term, is_new=is_new)
            await self._update_metadata_sender.publish_partitions(batch)
            await next_turn()

    async def send_leader_and_isr_until_led(
        self, partitions: Sequence[TopicPartition], term: ControllerTerm, *, is_new: bool
    ) -> None:
        """Send LeaderAndIsr to the replicas of partitions, and again after an election where the leader has failed."""
        while partitions:
            # Each round has at least one live replica less.
            partitions = await self.send_leader_and_isr(partitions, term, is_new=is_new)

    async def send_leader_and_isr(
        self,
        partitions: Sequence[TopicPartition],
        term: ControllerTerm,
        *,
        is_new: bool,
        brokers: Collection[int] | None = None,
    ) -> list[TopicPartition]:
        """Send LeaderAndIsr to the replicas that can be reached, or to the ones on `brokers`.

        Return the partitions that have another leader because theirs has failed.
        """
        failed: list[TopicPartition] = []
        for batch in self._batches(partitions):
            for broker, partition_states in (await self._orders(batch, is_new=is_new, brokers=brokers)).items():
                answers = await self._channel.leader_and_isr(broker, partition_states)
                failed += self._process_errors(broker, answers)
            await next_turn()

        def decide(partition: TopicPartition, state: LeaderIsrAndControllerEpoch) -> LeaderIsrAndControllerEpoch | None:
            return self._elected(state, self._elect(partition, state), term)

        changed = await self.update_states(failed, decide, term)
        states = {partition: self._context.leadership_info(partition) for partition in changed}
        return [partition for partition, state in states.items() if state is not None and state.leader != NO_LEADER]

    def _process_errors(self, broker: int, answers: Mapping[TopicPartition, ErrorCode]) -> list[TopicPartition]:
        """Mark replicas that cannot be served as offline; return the partitions that they were to lead."""
        failed = []
        for partition, error in answers.items():
            # STALE_CONTROLLER_EPOCH: the broker has this state already, perhaps from another controller.
            if error in (ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                continue
            logger.error("broker %d cannot serve %s: %s", broker, partition, error.name)
            self._context.replica_failed(partition, broker)
            state = self._context.leadership_info(partition)
            if state is not None and state.leader == broker:
                failed.append(partition)
        return failed

    async def _orders(
        self, partitions: Iterable[TopicPartition], *, is_new: bool, brokers: Collection[int] | None
    ) -> dict[int, list[LeaderAndIsrState]]:
        by_broker: dict[int, list[LeaderAndIsrState]] = {}
        budget = CountBudget(ORDERS_PER_TURN)
        for partition in partitions:
            await budget.step()
            state, topic = self._context.leadership_info(partition), self._context.topic(partition.topic)
            if (
                state is None
                or topic is None
                or state.leader == NO_LEADER
                or self._context.is_queued_for_deletion(partition)
            ):
                continue
            order = LeaderAndIsrState(
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
    former: LeaderIsrAndControllerEpoch,
    term: ControllerTerm,
    leader: int | None = None,
    isr: tuple[int, ...] | None = None,
    leader_recovery_state: int = 0,
) -> LeaderIsrAndControllerEpoch:
    """Return a state in the next leader epoch, which this term's controller has decided."""
    return LeaderIsrAndControllerEpoch(
        former.leader if leader is None else leader,
        former.leader_epoch + 1,
        former.isr if isr is None else isr,
        term.epoch,
        former.partition_epoch,
        leader_recovery_state,
    )
