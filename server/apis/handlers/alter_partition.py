"""AlterPartition (key 56): a leader asks the controller for other in-sync replicas (KIP-497).

v1 brings the leader's recovery state (KIP-704), v2 topic ids and INELIGIBLE_REPLICA (KIP-841), which older leaders are
told as OPERATION_NOT_ATTEMPTED, v3 the epoch of each broker in sync (KIP-903).
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode
from ....protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionData,
    ResponsePartitionData,
    ResponseTopicData,
)
from ....protocol.topic_partition import TopicPartition
from ...metadata.znodes import PartitionState
from ...replication.isr_changes import IsrChange
from ...runtime.turns import Pace
from ..ports import BrokersController, ClusterMetadata
from ..request_context import RequestContext

TOPIC_ID_VERSION = 2
BROKER_EPOCHS_VERSION = 3


async def handle(
    ctx: RequestContext,
    request: AlterPartitionRequest,
    *,
    brokers_controller: BrokersController,
    metadata: ClusterMetadata,
) -> AlterPartitionResponse:
    """Each partition on its own, in short turns. Raises KafkaError NOT_CONTROLLER, STALE_BROKER_EPOCH."""
    names = await _names(request, ctx.api_version, metadata)
    if None in names:
        # Who has just become controller knows the topics when its term has begun, for which this waits. A leader that
        # was told before that a topic is unknown would wait for other orders, which do not come.
        await brokers_controller.alter_partitions(request.broker_id, request.broker_epoch, [])
        names = await _names(request, ctx.api_version, metadata)
    proposals, pace = [], Pace()
    for name, topic in zip(names, request.topics, strict=True):
        if name is not None:
            for partition in topic.partitions:
                proposals.append(_proposal(name, partition, ctx.api_version))
                await pace.step()
    results = await brokers_controller.alter_partitions(request.broker_id, request.broker_epoch, proposals)
    response = AlterPartitionResponse()
    for name, topic in zip(names, request.topics, strict=True):
        answer = ResponseTopicData(topic_name=topic.topic_name, topic_id=topic.topic_id)
        response.topics.append(answer)
        await pace.step()
        for partition in topic.partitions:
            result: PartitionState | ErrorCode = ErrorCode.UNKNOWN_TOPIC_ID
            if name is not None:
                result = results[TopicPartition(name, partition.partition_index)]
            answer.partitions.append(_answer(partition.partition_index, result, ctx.api_version))
            await pace.step()
    return response


async def _names(request: AlterPartitionRequest, version: int, metadata: ClusterMetadata) -> list[str | None]:
    names, pace = list[str | None](), Pace()
    for topic in request.topics:
        names.append(topic.topic_name if version < TOPIC_ID_VERSION else metadata.topic_name(topic.topic_id))
        await pace.step()
    return names


def _proposal(name: str, partition: PartitionData, version: int) -> IsrChange:
    isr, epochs = tuple(partition.new_isr), tuple[int, ...]()
    if version >= BROKER_EPOCHS_VERSION:
        isr = tuple(broker.broker_id for broker in partition.new_isr_with_epochs)
        epochs = tuple(broker.broker_epoch for broker in partition.new_isr_with_epochs)
    return IsrChange(
        TopicPartition(name, partition.partition_index),
        partition.leader_epoch,
        partition.partition_epoch,
        isr,
        epochs,
        partition.leader_recovery_state,
    )


def _answer(index: int, result: PartitionState | ErrorCode, version: int) -> ResponsePartitionData:
    if isinstance(result, PartitionState):
        return ResponsePartitionData(
            partition_index=index,
            leader_id=result.leader,
            leader_epoch=result.leader_epoch,
            isr=list(result.isr),
            leader_recovery_state=result.leader_recovery_state,
            partition_epoch=result.partition_epoch,
        )
    if result is ErrorCode.INELIGIBLE_REPLICA and version < TOPIC_ID_VERSION:
        result = ErrorCode.OPERATION_NOT_ATTEMPTED
    return ResponsePartitionData(partition_index=index, error_code=result)
