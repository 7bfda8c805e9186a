"""AlterPartitionReassignments (key 45): moves replicas between brokers (KIP-455).

A success means that a reassignment has begun, or with null replicas that its cancellation has begun.
ListPartitionReassignments reports its end.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ....protocol.topic_partition import TopicPartition
from ...controller.kafka_controller import KafkaController
from ..request_context import RequestContext


async def handle(
    ctx: RequestContext, request: AlterPartitionReassignmentsRequest, *, controller: KafkaController
) -> AlterPartitionReassignmentsResponse:
    """Reassign each partition on its own. If a request names a partition twice, the last entry counts.

    Raises KafkaError NOT_CONTROLLER, REQUEST_TIMED_OUT.
    """
    reassignments: dict[TopicPartition, Sequence[int] | None] = {
        TopicPartition(topic.name, partition.partition_index): partition.replicas
        for topic in request.topics
        for partition in topic.partitions
    }
    results = await controller.alter_partition_reassignments(
        reassignments, may_change_factor=request.allow_replication_factor_change, timeout_ms=request.timeout_ms
    )
    topics: dict[str, ReassignableTopicResponse] = {}
    for (name, index), error in results.items():
        answer = ReassignablePartitionResponse(partition_index=index, error_message=None)
        if error is not None:
            answer.error_code, answer.error_message = error.code, error.message
        topics.setdefault(name, ReassignableTopicResponse(name=name)).partitions.append(answer)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=list(topics.values()),
    )
