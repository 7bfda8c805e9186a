"""AlterPartitionReassignments (key 45): moves replicas between brokers (KIP-455).

A partition may be given the replicas that it has, which is done at once; nothing else can be asked of a cluster of one.
"""

from __future__ import annotations

from ....protocol.errors import KafkaError
from ....protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ....protocol.topic_partition import TopicPartition
from ...runtime.turns import Steps
from ..request_context import RequestContext
from ..services import ActiveController


def handle(
    ctx: RequestContext, request: AlterPartitionReassignmentsRequest, *, controller: ActiveController
) -> Steps[AlterPartitionReassignmentsResponse]:
    """Decides on each partition on its own."""
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=None
    )
    for topic in request.topics:
        answer = ReassignableTopicResponse(name=topic.name)
        response.responses.append(answer)
        for partition in topic.partitions:
            answer.partitions.append(_decide(topic.name, partition, controller=controller))
            yield
    return response


def _decide(
    topic: str, wanted: ReassignablePartition, *, controller: ActiveController
) -> ReassignablePartitionResponse:
    response = ReassignablePartitionResponse(partition_index=wanted.partition_index, error_message=None)
    try:
        controller.check_reassignment(TopicPartition(topic, wanted.partition_index), wanted.replicas)
    except KafkaError as error:
        response.error_code, response.error_message = error.code, error.message
    return response
