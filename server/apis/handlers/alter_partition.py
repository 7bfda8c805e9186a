"""AlterPartition (key 56): proposes in-sync replicas, from a leader to the controller (KIP-497).

v1 adds the leader's recovery state (KIP-704), v2 topic ids and INELIGIBLE_REPLICA (KIP-841), which is
OPERATION_NOT_ATTEMPTED in older versions, v3 the epoch of each in-sync broker (KIP-903).
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
from ...controller.kafka_controller import KafkaController
from ...metadata.metadata_cache import MetadataCache
from ...metadata.znodes import LeaderIsrAndControllerEpoch
from ...replication.leader_and_isr import IsrChange
from ...runtime.loop_sharing import CountBudget
from ..request_context import RequestContext

TOPIC_ID_VERSION = 2
BROKER_EPOCHS_VERSION = 3


async def handle(
    ctx: RequestContext,
    request: AlterPartitionRequest,
    *,
    controller: KafkaController,
    metadata_cache: MetadataCache,
) -> AlterPartitionResponse:
    """Change each partition on its own, in slices. Raise KafkaError NOT_CONTROLLER, STALE_BROKER_EPOCH."""
    names = await _names(request, ctx.api_version, metadata_cache)
    if None in names:
        # A new controller loads the topics first, and this waits for it: after UNKNOWN_TOPIC_ID the leader would wait
        # for a LeaderAndIsr request that is not sent.
        await controller.alter_partitions(request.broker_id, request.broker_epoch, [])
        names = await _names(request, ctx.api_version, metadata_cache)
    proposals, budget = [], CountBudget()
    for name, topic in zip(names, request.topics, strict=True):
        if name is not None:
            for partition in topic.partitions:
                proposals.append(_proposal(name, partition, ctx.api_version))
                await budget.step()
    results = await controller.alter_partitions(request.broker_id, request.broker_epoch, proposals)
    response = AlterPartitionResponse()
    for name, topic in zip(names, request.topics, strict=True):
        answer = ResponseTopicData(topic_name=topic.topic_name, topic_id=topic.topic_id)
        response.topics.append(answer)
        await budget.step()
        for partition in topic.partitions:
            result: LeaderIsrAndControllerEpoch | ErrorCode = ErrorCode.UNKNOWN_TOPIC_ID
            if name is not None:
                result = results[TopicPartition(name, partition.partition_index)]
            answer.partitions.append(_answer(partition.partition_index, result, ctx.api_version))
            await budget.step()
    return response


async def _names(request: AlterPartitionRequest, version: int, metadata_cache: MetadataCache) -> list[str | None]:
    names, budget = list[str | None](), CountBudget()
    for topic in request.topics:
        names.append(topic.topic_name if version < TOPIC_ID_VERSION else metadata_cache.topic_name(topic.topic_id))
        await budget.step()
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


def _answer(index: int, result: LeaderIsrAndControllerEpoch | ErrorCode, version: int) -> ResponsePartitionData:
    if isinstance(result, LeaderIsrAndControllerEpoch):
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
