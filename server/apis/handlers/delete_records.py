"""DeleteRecords (key 21): raises the log start offset (KIP-107).

The data go when whole segments lie below it. Offset -1 stands for the high watermark. Kafka answers when every live
replica has moved; the leader's own move is on disk before the answer leaves, and it is the only replica.
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ....protocol.topic_partition import TopicPartition
from ...metadata.topic_names import is_internal
from ..request_context import RequestContext

NO_LOW_WATERMARK = -1


async def handle(ctx: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Moves each partition on its own, and has all of them on disk together."""
    topics = []
    moved: dict[TopicPartition, DeleteRecordsPartitionResult] = {}
    for topic in request.topics:
        results = []
        for wanted in topic.partitions:
            result = DeleteRecordsPartitionResult(
                partition_index=wanted.partition_index, low_watermark=NO_LOW_WATERMARK
            )
            try:
                result.low_watermark = _delete(ctx, topic.name, wanted)
                moved[TopicPartition(topic.name, wanted.partition_index)] = result
            except KafkaError as error:
                result.error_code = error.code
            results.append(result)
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    replica_manager = ctx.broker.replica_manager
    await replica_manager.keep_log_starts(moved)
    for (name, index), result in moved.items():
        try:
            replica_manager.partition(name, index)
        except KafkaError as error:
            result.error_code, result.low_watermark = error.code, NO_LOW_WATERMARK
    return DeleteRecordsResponse(topics=topics)


def _delete(ctx: RequestContext, topic: str, wanted: DeleteRecordsPartition) -> int:
    """Returns the new low watermark. Raises KafkaError."""
    partition = ctx.broker.replica_manager.partition(topic, wanted.partition_index)
    if is_internal(topic):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {topic}")
    return partition.delete_records(wanted.offset)
