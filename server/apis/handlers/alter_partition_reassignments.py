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
from ..request_context import RequestContext
from ..services import ActiveController


def handle(
    ctx: RequestContext, request: AlterPartitionReassignmentsRequest, *, controller: ActiveController
) -> AlterPartitionReassignmentsResponse:
    """Decides on each partition on its own."""
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[_decide(topic.name, partition, controller=controller) for partition in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _decide(
    topic: str, wanted: ReassignablePartition, *, controller: ActiveController
) -> ReassignablePartitionResponse:
    response = ReassignablePartitionResponse(partition_index=wanted.partition_index, error_message=None)
    try:
        controller.check_reassignment(TopicPartition(topic, wanted.partition_index), wanted.replicas)
    except KafkaError as error:
        response.error_code, response.error_message = error.code, error.message
    return response
