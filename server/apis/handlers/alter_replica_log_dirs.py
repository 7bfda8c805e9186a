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
from ...replication.replica_alter_log_dirs_manager import ReplicaAlterLogDirsManager
from ...runtime.loop_sharing import SlicedWork, Steps
from ..request_context import RequestContext


async def handle(
    ctx: RequestContext,
    request: AlterReplicaLogDirsRequest,
    *,
    replica_alter_log_dirs_manager: ReplicaAlterLogDirsManager,
    sliced_work: SlicedWork,
) -> AlterReplicaLogDirsResponse:
    """Move each partition independently; the last directory of a repeated partition counts."""
    return await sliced_work.complete(_build_response(ctx, request, replica_alter_log_dirs_manager))


def _build_response(
    ctx: RequestContext, request: AlterReplicaLogDirsRequest, replica_alter_log_dirs_manager: ReplicaAlterLogDirsManager
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
        error = _move(topic_partition, path, replica_alter_log_dirs_manager=replica_alter_log_dirs_manager)
        topic.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error))
        yield
    return AlterReplicaLogDirsResponse(results=list(topics.values()))


def _move(
    topic_partition: TopicPartition, path: str, *, replica_alter_log_dirs_manager: ReplicaAlterLogDirsManager
) -> ErrorCode:
    try:
        replica_alter_log_dirs_manager.move(topic_partition, path)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE
