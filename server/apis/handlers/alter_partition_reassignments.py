"""AlterPartitionReassignments (key 45): moves replicas between brokers (KIP-455).

The answer says that a partition is on its way, or with null for replicas on its way back; of the end
ListPartitionReassignments tells.
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
from ..ports import ActiveController
from ..request_context import RequestContext


async def handle(
    ctx: RequestContext, request: AlterPartitionReassignmentsRequest, *, controller: ActiveController
) -> AlterPartitionReassignmentsResponse:
    """Decides on each partition on its own; of one that is named twice the last wish counts."""
    wishes: dict[TopicPartition, Sequence[int] | None] = {
        TopicPartition(topic.name, partition.partition_index): partition.replicas
        for topic in request.topics
        for partition in topic.partitions
    }
    results = await controller.reassign(wishes, may_change_factor=request.allow_replication_factor_change)
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
