"""ElectLeaders (key 43): the preferred leader, or since v1 any live replica where there is no leader (KIP-460)."""

from __future__ import annotations

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from ....protocol.topic_partition import TopicPartition
from ...controller.kafka_controller import KafkaController
from ..request_context import RequestContext

PREFERRED, UNCLEAN = 0, 1


async def handle(
    ctx: RequestContext, request: ElectLeadersRequest, *, controller: KafkaController
) -> ElectLeadersResponse:
    """Elect a leader for each partition independently.

    Raises KafkaError INVALID_REQUEST for an unknown kind of election, REQUEST_TIMED_OUT.
    """
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}.")
    wanted = request.topic_partitions
    partitions = None
    if wanted is not None:
        partitions = [TopicPartition(topic.topic, index) for topic in wanted for index in topic.partitions]
        partitions = list(dict.fromkeys(partitions))
    results = await controller.elect_leaders(
        partitions, allow_unclean=request.election_type == UNCLEAN, timeout_ms=request.timeout_ms
    )
    by_topic: dict[str, list[PartitionResult]] = {}
    for partition, error in results.items():
        result = PartitionResult(
            partition_id=partition.partition,
            error_code=ErrorCode.NONE if error is None else error.code,
            error_message=None if error is None else error.message,
        )
        by_topic.setdefault(partition.topic, []).append(result)
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic=topic, partition_result=partition_results)
            for topic, partition_results in by_topic.items()
        ]
    )
