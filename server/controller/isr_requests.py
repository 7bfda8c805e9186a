"""Leaders ask for other in-sync replicas: the controller's side of AlterPartition (KIP-497, 704, 841, 903).

The in-sync replicas are the controller's to write, so that nobody is elected from a set that has changed meanwhile. A
broker that is gone, or about to stop, or has started anew since the leader heard of it, does not become one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.topic_partition import TopicPartition
from ..metadata.cluster_store import ControllerTerm
from ..metadata.znodes import PartitionState
from ..replication.isr_changes import IsrChange
from ..runtime.turns import Pace
from .context import ControllerContext
from .partition_state_machine import PartitionStateMachine

ANY_EPOCH = -1
RECOVERED, RECOVERING = 0, 1


class IsrRequests:
    """Called for one change after the other."""

    def __init__(self, context: ControllerContext, partitions: PartitionStateMachine) -> None:
        self._context = context
        self._partitions = partitions

    async def alter(
        self, broker_id: int, proposals: Iterable[IsrChange], term: ControllerTerm
    ) -> dict[TopicPartition, PartitionState | ErrorCode]:
        """The states as they are after this, or why a proposal was refused. Raises StoreError, KafkaError."""
        wanted = {proposal.topic_partition: proposal for proposal in proposals}
        refused: dict[TopicPartition, PartitionState | ErrorCode] = {}

        def decide(partition: TopicPartition, state: PartitionState) -> PartitionState | None:
            try:
                return self._accepted(broker_id, wanted[partition], state)
            except KafkaError as error:
                refused[partition] = error.code
                return None

        await self._partitions.change(wanted, decide, term)
        results, pace = dict[TopicPartition, PartitionState | ErrorCode](), Pace()
        for partition in wanted:
            results[partition] = self._result(partition, refused)
            await pace.step()
        return results

    def _result(
        self, partition: TopicPartition, refused: dict[TopicPartition, PartitionState | ErrorCode]
    ) -> PartitionState | ErrorCode:
        state = self._context.state(partition)
        if state is None or self._context.is_doomed(partition):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return refused.get(partition, state)

    def _accepted(self, broker_id: int, wanted: IsrChange, state: PartitionState) -> PartitionState | None:
        """The state that is wanted; None if it is as wanted already. Raises KafkaError."""
        if wanted.leader_epoch != state.leader_epoch:
            # A leader that knows a newer epoch than its controller was told so by the next one.
            known = wanted.leader_epoch < state.leader_epoch
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH if known else ErrorCode.NOT_CONTROLLER)
        if broker_id != state.leader:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if (wanted.isr, wanted.leader_recovery_state) == (state.isr, state.leader_recovery_state):
            return None
        if wanted.partition_epoch != state.partition_epoch:
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)
        self._check(wanted, state)
        return replace(state, isr=wanted.isr, leader_recovery_state=wanted.leader_recovery_state)

    def _check(self, wanted: IsrChange, state: PartitionState) -> None:
        replicas = self._context.replicas(wanted.topic_partition)
        is_odd = len(set(wanted.isr)) != len(wanted.isr) or not set(wanted.isr) <= set(replicas)
        if is_odd or state.leader not in wanted.isr:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if wanted.leader_recovery_state == RECOVERING and (
            len(wanted.isr) > 1 or state.leader_recovery_state == RECOVERED
        ):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        live = self._context.live_replicas(wanted.topic_partition)
        epochs = dict(zip(wanted.isr, wanted.broker_epochs, strict=False))
        for broker in wanted.isr:
            if broker not in state.isr and broker not in live:
                raise KafkaError(ErrorCode.INELIGIBLE_REPLICA)
            run = self._context.brokers.get(broker)
            if run is not None and epochs.get(broker, ANY_EPOCH) not in (ANY_EPOCH, run.broker_epoch):
                raise KafkaError(ErrorCode.INELIGIBLE_REPLICA)
