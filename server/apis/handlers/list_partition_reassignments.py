"""ListPartitionReassignments (key 46): the partitions whose replicas are being moved to other brokers (KIP-455)."""

from __future__ import annotations

from ....protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from ...controller.kafka_controller import KafkaController
from ..request_context import RequestContext


def handle(
    ctx: RequestContext, request: ListPartitionReassignmentsRequest, *, controller: KafkaController
) -> ListPartitionReassignmentsResponse:
    """List all reassignments, or the reassignments of the requested partitions, without errors for the others."""
    wanted = None
    if request.topics is not None:
        wanted = {(topic.name, index) for topic in request.topics for index in topic.partition_indexes}
    topics = []
    for topic in controller.list_partition_reassignments():
        partitions = [
            OngoingPartitionReassignment(
                partition_index=index,
                replicas=list(topic.assignment[index]),
                adding_replicas=list(topic.adding_replicas.get(index, ())),
                removing_replicas=list(topic.removing_replicas.get(index, ())),
            )
            for index in sorted(topic.adding_replicas.keys() | topic.removing_replicas.keys())
            if wanted is None or (topic.name, index) in wanted
        ]
        if partitions:
            topics.append(OngoingTopicReassignment(name=topic.name, partitions=partitions))
    return ListPartitionReassignmentsResponse(error_message=None, topics=topics)
