"""AlterReplicaLogDirs (key 34, KIP-113): moves partitions to other log directories of this broker.

The response is sent when the moves have begun; DescribeLogDirs reports their progress. Versions 1 and 2 change only the
encoding.
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ....protocol.topic_partition import TopicPartition
from ...replication.log_dir_mover import LogDirMover
from ...runtime.loop_sharing import SlicedWork, Steps
from ..request_context import RequestContext


async def handle(
    ctx: RequestContext, request: AlterReplicaLogDirsRequest, *, log_dir_mover: LogDirMover, sliced_work: SlicedWork
) -> AlterReplicaLogDirsResponse:
    """Move each partition independently; the last directory of a repeated partition counts."""
    return await sliced_work.complete(_build_response(ctx, request, log_dir_mover))


def _build_response(
    ctx: RequestContext, request: AlterReplicaLogDirsRequest, log_dir_mover: LogDirMover
) -> Steps[AlterReplicaLogDirsResponse]:
    wanted = {
        TopicPartition(topic.name, partition): log_dir.path
        for log_dir in request.dirs
        for topic in log_dir.topics
        for partition in topic.partitions
    }
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    for topic_partition, path in wanted.items():
        name, index = topic_partition
        topic = topics.setdefault(name, AlterReplicaLogDirTopicResult(topic_name=name))
        error = _move(topic_partition, path, log_dir_mover=log_dir_mover)
        topic.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error))
        yield
    return AlterReplicaLogDirsResponse(results=list(topics.values()))


def _move(topic_partition: TopicPartition, path: str, *, log_dir_mover: LogDirMover) -> ErrorCode:
    try:
        log_dir_mover.move(topic_partition, path)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE
