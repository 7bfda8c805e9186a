"""Kafka's AlterPartitionManager: requests changes of the ISR for the leaders on this broker.

Since Kafka 2.7 the controller changes the ISR (KIP-497). With an older `inter.broker.protocol.version` a leader writes
its partition's state itself and notifies the controller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from ...common.room_logger import room_logger
from ...protocol.apis import ApiKey
from ...protocol.errors import ErrorCode, KafkaError, UnsupportedVersionError, code_of
from ...protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    ResponsePartitionData,
    TopicData,
)
from ...protocol.topic_partition import TopicPartition
from ..metadata.cluster_store import ClusterStore
from ..metadata.metadata_store import BadVersionError, StoreError
from ..metadata.topic_store import TopicStore
from ..metadata.znodes import LeaderIsrAndControllerEpoch
from ..replication.inter_broker_versions import highest_version
from ..replication.leader_and_isr import IsrChange, LeaderAndIsr
from ..runtime.loop_sharing import CountBudget
from .forwarding_manager import SendToController
from .kafka_controller import ANY_BROKER_EPOCH, KafkaController

logger = room_logger("controller")

WITHOUT_TOPIC_IDS = 1
"""The last version of AlterPartition with topic names."""
SINCE_BROKER_EPOCHS = 3
"""The first version of AlterPartition with the epochs of the brokers in the ISR, supported since Kafka 3.5."""


class AlterPartitionItem(NamedTuple):
    """A change that has not been sent, with the future of its result."""

    change: IsrChange
    done: asyncio.Future[LeaderAndIsr]


class DefaultAlterPartitionManager:
    """Kafka's DefaultAlterPartitionManager: sends AlterPartition to the controller. It runs on the loop thread.

    One request is in flight. The next request has all changes that were requested during that time.
    """

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        send_request: SendToController,
        inter_broker_protocol: str,
        controller: KafkaController | None = None,
    ) -> None:
        """`controller` is that of a broker which may be the controller of a ZooKeeper cluster."""
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._send_request = send_request
        self._controller = controller
        self._highest = highest_version(ApiKey.ALTER_PARTITION, inter_broker_protocol)
        self._waiting: list[AlterPartitionItem] = []
        self._sending: asyncio.Task[None] | None = None

    async def submit(self, change: IsrChange) -> LeaderAndIsr:
        """Return the state after the change. Raises KafkaError."""
        loop = asyncio.get_running_loop()
        waiting = AlterPartitionItem(change, loop.create_future())
        self._waiting.append(waiting)
        if self._sending is None:
            self._sending = loop.create_task(self._send_all())
        return await waiting.done

    async def close(self) -> None:
        """Send no more requests and cancel the waiting changes."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
        for waiting in self._waiting:
            waiting.done.cancel()

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                results: Mapping[TopicPartition, LeaderAndIsr | KafkaError]
                try:
                    results = await self._results([waiting.change for waiting in batch])
                except (KafkaError, StoreError) as error:
                    refusal = error if isinstance(error, KafkaError) else KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
                    results = dict.fromkeys((waiting.change.topic_partition for waiting in batch), refusal)
                except Exception:
                    # An error of another part must not end this task: no later change would be sent.
                    logger.exception("cannot change the ISR of %d partitions", len(batch))
                    results = {}
                # A broker that stops or starts changes the ISRs of thousands of partitions.
                budget = CountBudget()
                for waiting in batch:
                    _settle(waiting, results.get(waiting.change.topic_partition))
                    await budget.step()
        finally:
            self._sending = None

    async def _results(self, changes: Sequence[IsrChange]) -> Mapping[TopicPartition, LeaderAndIsr | KafkaError]:
        if self._controller is None or not self._controller.is_active:
            response = await self._send(changes)
            names = {change.topic_id: change.topic_partition.topic for change in changes}
            return {
                TopicPartition(topic.topic_name or names.get(topic.topic_id, ""), one.partition_index): _result(one)
                for topic in response.topics
                for one in topic.partitions
            }
        results = await self._controller.alter_partitions(self._broker_id, self._broker_epoch(), changes)
        return {
            partition: state_now(result) if isinstance(result, LeaderIsrAndControllerEpoch) else KafkaError(result)
            for partition, result in results.items()
        }

    async def _send(self, changes: Sequence[IsrChange]) -> AlterPartitionResponse:
        highest = self._highest if all(change.topic_id.int for change in changes) else WITHOUT_TOPIC_IDS
        if highest >= SINCE_BROKER_EPOCHS:
            with suppress(UnsupportedVersionError):
                request = self._request(changes, with_broker_epochs=True)
                response: AlterPartitionResponse = await self._send_request(
                    request, lowest=SINCE_BROKER_EPOCHS, highest=highest
                )
                return response
        request = self._request(changes, with_broker_epochs=False)
        answer: AlterPartitionResponse = await self._send_request(
            request, highest=min(highest, SINCE_BROKER_EPOCHS - 1)
        )
        return answer

    def _request(self, changes: Sequence[IsrChange], *, with_broker_epochs: bool) -> AlterPartitionRequest:
        topics: dict[str, TopicData] = {}
        for change in changes:
            name, index = change.topic_partition
            topic = topics.setdefault(name, TopicData(topic_name=name, topic_id=change.topic_id))
            wanted = PartitionData(
                partition_index=index,
                leader_epoch=change.leader_epoch,
                leader_recovery_state=change.leader_recovery_state,
                partition_epoch=change.partition_epoch,
            )
            if with_broker_epochs:
                epochs = change.broker_epochs or (ANY_BROKER_EPOCH,) * len(change.isr)
                wanted.new_isr_with_epochs = [
                    BrokerState(broker_id=broker, broker_epoch=epoch)
                    for broker, epoch in zip(change.isr, epochs, strict=True)
                ]
            else:
                wanted.new_isr = list(change.isr)
            topic.partitions.append(wanted)
        return AlterPartitionRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch(), topics=list(topics.values())
        )


def _result(answer: ResponsePartitionData) -> LeaderAndIsr | KafkaError:
    if answer.error_code:
        return KafkaError(code_of(answer.error_code))
    return LeaderAndIsr(
        answer.leader_id, answer.leader_epoch, answer.partition_epoch, tuple(answer.isr), answer.leader_recovery_state
    )


def _settle(waiting: AlterPartitionItem, result: LeaderAndIsr | KafkaError | None) -> None:
    if waiting.done.done():
        return
    if isinstance(result, LeaderAndIsr):
        waiting.done.set_result(result)
    else:
        waiting.done.set_exception(result or KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))


def state_now(state: LeaderIsrAndControllerEpoch) -> LeaderAndIsr:
    """Convert a stored state."""
    return LeaderAndIsr(state.leader, state.leader_epoch, state.partition_epoch, state.isr, state.leader_recovery_state)


class ZkAlterPartitionManager:
    """Kafka's ZkAlterPartitionManager: writes the state into the store and notifies the controller."""

    def __init__(self, broker_id: int, topic_store: TopicStore, cluster_store: ClusterStore) -> None:
        self._broker_id = broker_id
        self._topics = topic_store
        self._cluster = cluster_store

    async def submit(self, change: IsrChange) -> LeaderAndIsr:
        """Return the state after the change, or the present state if its partition epoch differs. Raises KafkaError.

        In a leader epoch only the leader writes: an unexpected partition epoch is the result of an earlier change of
        its own whose response was lost, or of a retry.
        """
        partition = change.topic_partition
        try:
            while True:
                state = (await self._topics.states_of([partition])).get(partition)
                if state is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                if (state.leader, state.leader_epoch) != (self._broker_id, change.leader_epoch):
                    raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
                if state.partition_epoch != change.partition_epoch:
                    return state_now(state)
                wanted = replace(state, isr=change.isr, leader_recovery_state=change.leader_recovery_state)
                with suppress(BadVersionError):
                    return state_now(await self._cluster.propagate_isr_change(partition, wanted))
        except StoreError as error:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
