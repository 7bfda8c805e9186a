"""How the leaders of this broker have their in-sync replicas changed: two forms of replication's port.

Since Kafka 2.7 the controller is asked (KIP-497). While `inter.broker.protocol.version` is older, a leader writes the
state itself and leaves word of it for the controller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

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
from ..metadata.metadata_store import BadVersionError, StoreError
from ..metadata.notice_store import NoticeStore
from ..metadata.topic_store import TopicStore
from ..metadata.znodes import PartitionState
from ..replication.inter_broker_versions import highest_version
from ..replication.isr_changes import IsrChange, PartitionStateNow
from .controller import Controller
from .isr_requests import ANY_EPOCH
from .to_controller import ToController

WITHOUT_TOPIC_IDS = 1
"""The newest version of AlterPartition that names topics."""
SINCE_BROKER_EPOCHS = 3
"""The version of AlterPartition that tells the epochs of the brokers in sync: controllers know it since Kafka 3.5."""


class WaitingProposal(NamedTuple):
    """A change that has not been sent yet, and who waits for it."""

    change: IsrChange
    done: asyncio.Future[PartitionStateNow]


class ControllerIsrChanges:
    """Asks the controller, with one request in flight for all that have come meanwhile. Loop-thread only."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        controller: Controller,
        elsewhere: ToController,
        protocol: str,
    ) -> None:
        """`protocol` is `inter.broker.protocol.version`."""
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._controller = controller
        self._elsewhere = elsewhere
        self._highest = highest_version(ApiKey.ALTER_PARTITION, protocol)
        self._waiting: list[WaitingProposal] = []
        self._sending: asyncio.Task[None] | None = None

    async def propose(self, change: IsrChange) -> PartitionStateNow:
        """The state as it is after the change. Raises KafkaError."""
        loop = asyncio.get_running_loop()
        waiting = WaitingProposal(change, loop.create_future())
        self._waiting.append(waiting)
        if self._sending is None:
            self._sending = loop.create_task(self._send_all())
        return await waiting.done

    async def close(self) -> None:
        """Asks no more; who waits is cancelled."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
        for waiting in self._waiting:
            waiting.done.cancel()

    async def _send_all(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                results = await self._results([waiting.change for waiting in batch])
            except (KafkaError, StoreError) as error:
                refusal = error if isinstance(error, KafkaError) else KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
                results = dict.fromkeys((waiting.change.topic_partition for waiting in batch), refusal)
            for waiting in batch:
                _settle(waiting, results.get(waiting.change.topic_partition))
        self._sending = None

    async def _results(self, changes: Sequence[IsrChange]) -> Mapping[TopicPartition, PartitionStateNow | KafkaError]:
        if not self._controller.is_active:
            response = await self._answer(changes)
            names = {change.topic_id: change.topic_partition.topic for change in changes}
            return {
                TopicPartition(topic.topic_name or names.get(topic.topic_id, ""), one.partition_index): _result(one)
                for topic in response.topics
                for one in topic.partitions
            }
        results = await self._controller.alter_partitions(self._broker_id, self._broker_epoch(), changes)
        return {
            partition: state_now(result) if isinstance(result, PartitionState) else KafkaError(result)
            for partition, result in results.items()
        }

    async def _answer(self, changes: Sequence[IsrChange]) -> AlterPartitionResponse:
        highest = self._highest if all(change.topic_id.int for change in changes) else WITHOUT_TOPIC_IDS
        if highest >= SINCE_BROKER_EPOCHS:
            with suppress(UnsupportedVersionError):
                request = self._request(changes, tells_epochs=True)
                told: AlterPartitionResponse = await self._elsewhere.ask(
                    request, lowest=SINCE_BROKER_EPOCHS, highest=highest
                )
                return told
        request = self._request(changes, tells_epochs=False)
        answer: AlterPartitionResponse = await self._elsewhere.ask(
            request, highest=min(highest, SINCE_BROKER_EPOCHS - 1)
        )
        return answer

    def _request(self, changes: Sequence[IsrChange], *, tells_epochs: bool) -> AlterPartitionRequest:
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
            if tells_epochs:
                epochs = change.broker_epochs or (ANY_EPOCH,) * len(change.isr)
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


def _result(answer: ResponsePartitionData) -> PartitionStateNow | KafkaError:
    if answer.error_code:
        return KafkaError(code_of(answer.error_code))
    return PartitionStateNow(
        answer.leader_id, answer.leader_epoch, answer.partition_epoch, tuple(answer.isr), answer.leader_recovery_state
    )


def _settle(waiting: WaitingProposal, result: PartitionStateNow | KafkaError | None) -> None:
    if waiting.done.done():
        return
    if isinstance(result, PartitionStateNow):
        waiting.done.set_result(result)
    else:
        waiting.done.set_exception(result or KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))


def state_now(state: PartitionState) -> PartitionStateNow:
    """A stored state as replication knows it."""
    return PartitionStateNow(
        state.leader, state.leader_epoch, state.partition_epoch, state.isr, state.leader_recovery_state
    )


class StoredIsrChanges:
    """Writes the state where the controller will find it."""

    def __init__(self, broker_id: int, topic_store: TopicStore, notices: NoticeStore) -> None:
        self._broker_id = broker_id
        self._topics = topic_store
        self._notices = notices

    async def propose(self, change: IsrChange) -> PartitionStateNow:
        """The state as it is after this, which is another one if that is there already. Raises KafkaError.

        In its epoch nobody writes but the leader: what it does not know is an earlier wish of its own, of which no
        answer came, or one that was repeated after the first had been written.
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
                    return state_now(await self._notices.write_isr(partition, wanted))
        except StoreError as error:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
