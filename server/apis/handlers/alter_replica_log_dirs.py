"""AlterReplicaLogDirs (key 34, KIP-113): move partitions into other log directories of this broker.

Answered when the moves have begun; DescribeLogDirs shows how far they are. Versions 1 and 2 change only the form.
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
from ...runtime.turns import Steps
from ..request_context import RequestContext


def handle(
    ctx: RequestContext, request: AlterReplicaLogDirsRequest, *, mover: LogDirMover
) -> Steps[AlterReplicaLogDirsResponse]:
    """Each partition succeeds or fails on its own; of one named twice the last directory counts."""
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
        error = _move(topic_partition, path, mover=mover)
        topic.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error))
        yield
    return AlterReplicaLogDirsResponse(results=list(topics.values()))


def _move(topic_partition: TopicPartition, path: str, *, mover: LogDirMover) -> ErrorCode:
    try:
        mover.move(topic_partition, path)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE
