"""What follows when brokers come, go, or ask to be let go: KafkaController.onBrokerStartup and onBrokerFailure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.room_logger import room_logger
from ...protocol.topic_partition import TopicPartition
from ..metadata.cluster_store import ControllerTerm
from ..metadata.znodes import BrokerRegistration, PartitionState
from .announcer import Announcer
from .context import ControllerContext
from .election import elect
from .partition_state_machine import PartitionStateMachine, next_state
from .reassignments import Reassignments
from .replica_channel import ReplicaChannel
from .topic_deletion import TopicDeletion

logger = room_logger("controller")


class BrokerChanges:
    """Called for one change after the other."""

    def __init__(
        self,
        context: ControllerContext,
        channel: ReplicaChannel,
        announcer: Announcer,
        partitions: PartitionStateMachine,
        *,
        deletion: TopicDeletion,
        reassignments: Reassignments,
    ) -> None:
        self._context = context
        self._channel = channel
        self._announcer = announcer
        self._partitions = partitions
        self._deletion = deletion
        self._reassignments = reassignments

    async def now_alive(self, brokers: Mapping[int, BrokerRegistration], term: ControllerTerm) -> None:
        """Take over who is alive: elect leaders in place of brokers that are gone, give orders to new ones.

        A broker with another epoch than before has restarted.
        """
        former = self._context.brokers
        same = {
            broker_id: broker
            for broker_id, broker in brokers.items()
            if broker_id in former and former[broker_id].broker_epoch == broker.broker_epoch
        }
        gone, new = former.keys() - same.keys(), brokers.keys() - same.keys()
        if gone or new:
            logger.info("brokers that have come: %s, gone: %s, alive: %s", sorted(new), sorted(gone), sorted(brokers))
        if gone:
            self._put_brokers(same)
            await self._gone(gone, term)
        self._put_brokers(brokers)
        if new:
            await self._came(new, term)
        await self._go_on_moving(term)

    async def replicas_failed(self, broker_id: int, partitions: Iterable[TopicPartition], term: ControllerTerm) -> None:
        """Take over that a live broker cannot serve these: others lead them, or nobody."""
        led: list[TopicPartition] = []
        followed: list[TopicPartition] = []
        for partition in partitions:
            if partition in self._context:
                self._context.replica_failed(partition, broker_id)
                state = self._context.state(partition)
                (led if state is not None and state.leader == broker_id else followed).append(partition)
        await self._partitions.bring_online(led, term)
        await self._partitions.remove_replicas(followed, {broker_id}, term)
        await self._go_on_moving(term)

    async def _go_on_moving(self, term: ControllerTerm) -> None:
        """Who is in sync after an election that was not clean may be all that a reassignment waits for."""
        await self._reassignments.go_on(self._reassignments.running(), term)

    def _put_brokers(self, brokers: Mapping[int, BrokerRegistration]) -> None:
        if brokers != self._context.brokers:
            self._context.put_brokers(brokers)
            self._channel.brokers_changed(brokers)
            self._announcer.show_brokers()

    async def _gone(self, gone: Collection[int], term: ControllerTerm) -> None:
        for broker in gone:
            self._deletion.broker_gone(broker)
        partitions = self._context.partitions_on(gone)
        await self._partitions.replace_leaders(partitions, term)
        await self._partitions.remove_replicas(partitions, gone, term)

    async def _came(self, new: Collection[int], term: ControllerTerm) -> None:
        for broker in new:
            self._context.broker_returned(broker)
        self._context.put_brokers(self._context.brokers)
        await self._announcer.show_all(new)
        partitions = self._context.partitions_on(new)
        await self._partitions.order(partitions, term, is_new=False, brokers=new)
        await self._partitions.replace_leaders(partitions, term)
        await self._deletion.go_on(list(self._context.doomed), term)

    async def let_go(self, broker_id: int, broker_epoch: int, term: ControllerTerm) -> list[TopicPartition]:
        """A broker is about to stop: moves its leaders to others where that can be. Returns what it still leads.

        Raises KafkaError BROKER_NOT_AVAILABLE, STALE_BROKER_EPOCH.
        """
        broker = self._context.brokers.get(broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"Broker {broker_id} is not registered.")
        if -1 < broker_epoch < broker.broker_epoch:
            text = f"Broker epoch {broker_epoch} is that of an earlier run of broker {broker_id}."
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, text)
        self._context.broker_stops(broker_id)
        concerned = [partition for partition in self._context.partitions_on([broker_id]) if self._has_others(partition)]

        def decide(partition: TopicPartition, state: PartitionState) -> PartitionState | None:
            if state.leader == broker_id:
                live = self._context.live_replicas(partition)
                election = elect(self._context.replicas(partition), state.isr, live, allow_unclean=False)
                return None if election is None else next_state(state, term, election.leader, election.isr)
            isr = tuple(broker for broker in state.isr if broker != broker_id)
            return next_state(state, term, isr=isr) if isr and isr != state.isr else None

        changed = await self._partitions.change(concerned, decide, term)
        await self._partitions.announce(changed, term, is_new=False)
        stopping, remaining = {}, []
        for partition in concerned:
            state = self._context.state(partition)
            if state is not None and state.leader == broker_id:
                remaining.append(partition)
            elif state is not None:
                stopping[partition] = state.leader_epoch
        if stopping:
            await self._channel.stop_replicas(broker_id, stopping, delete=False)
        logger.info("broker %d may stop: %d partitions are led by it still", broker_id, len(remaining))
        return remaining

    def _has_others(self, partition: TopicPartition) -> bool:
        return len(self._context.replicas(partition)) > 1 and not self._context.is_doomed(partition)
