"""DeleteRecords (key 21): raises the log start offset (KIP-107).

Segments below the log start offset are deleted. Offset -1 is the high watermark. The response is sent when every live
replica has raised its log start offset, and that of the leader is on disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....protocol.errors import KafkaError
from ....protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ...runtime.loop_sharing import CountBudget
from ..request_context import RequestContext

if TYPE_CHECKING:
    from ...replication.replica_manager import ReplicaManager

NO_LOW_WATERMARK = -1


async def handle(
    _: RequestContext, request: DeleteRecordsRequest, *, replica_manager: ReplicaManager
) -> DeleteRecordsResponse:
    """Advance the log start offset of each partition independently, and sync all of them together."""
    offsets = [
        (topic.name, partition.partition_index, partition.offset)
        for topic in request.topics
        for partition in topic.partitions
    ]
    results = iter(await replica_manager.delete_records(offsets, request.timeout_ms))
    response, budget = DeleteRecordsResponse(), CountBudget()
    for topic in request.topics:
        answer = DeleteRecordsTopicResult(name=topic.name)
        response.topics.append(answer)
        for wanted in topic.partitions:
            answer.partitions.append(_result(wanted.partition_index, next(results)))
            await budget.step()
    return response


def _result(index: int, result: int | KafkaError) -> DeleteRecordsPartitionResult:
    if isinstance(result, KafkaError):
        return DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=NO_LOW_WATERMARK, error_code=result.code
        )
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=result)
