"""DescribeProducers (key 61): the idempotent and transactional producers of a partition (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....protocol.errors import KafkaError
from ....protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ....storage.producer_state import ProducerStateEntry
from ...metadata.topic_names import check_name
from ...runtime.loop_sharing import SlicedWork, Steps
from ..request_context import RequestContext

if TYPE_CHECKING:
    from ...replication.replica_manager import ReplicaManager

NO_OFFSET = -1


async def handle(
    ctx: RequestContext, request: DescribeProducersRequest, *, replica_manager: ReplicaManager, sliced_work: SlicedWork
) -> DescribeProducersResponse:
    """Describe each partition once, on its own: only its leader has the producers."""
    return await sliced_work.complete(_build_response(ctx, request, replica_manager))


def _build_response(
    ctx: RequestContext, request: DescribeProducersRequest, replica_manager: ReplicaManager
) -> Steps[DescribeProducersResponse]:
    wanted: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    response = DescribeProducersResponse()
    for name, indexes in wanted.items():
        answer = TopicResponse(name=name)
        response.topics.append(answer)
        for index in indexes:
            answer.partitions.append(_describe(replica_manager, name, index))
            yield
    return response


def _describe(replica_manager: ReplicaManager, topic: str, index: int) -> PartitionResponse:
    answer = PartitionResponse(partition_index=index)
    try:
        check_name(topic)
        producers = replica_manager.active_producers(topic, index).values()
        answer.active_producers = [_producer(entry) for entry in producers]
    except KafkaError as error:
        answer.error_code, answer.error_message = error.code, error.message
    return answer


def _producer(entry: ProducerStateEntry) -> ProducerState:
    first_offset = entry.current_txn_first_offset
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=NO_OFFSET if first_offset is None else first_offset,
    )
