"""DescribeLogDirs (key 35): which partitions lie in which log directory, and how large they are (KIP-113).

v3 has a top-level error (KIP-784), v4 the size of the volume and what is free on it (KIP-827), v5 whether a directory
takes no new partitions (KIP-1066), which none can be told here. A directory that failed is listed with
KAFKA_STORAGE_ERROR and nothing in it.
"""

from __future__ import annotations

from collections.abc import Collection

from ....protocol.errors import ErrorCode
from ....protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ....protocol.topic_partition import TopicPartition
from ....storage.filesystem import FileSystem
from ....storage.log_manager import LogManager
from ..request_context import RequestContext

UNKNOWN_BYTES = -1


def handle(
    ctx: RequestContext, request: DescribeLogDirsRequest, *, filesystem: FileSystem, log_manager: LogManager
) -> DescribeLogDirsResponse:
    """Describes every directory, with all partitions or those asked for."""
    wanted = None
    if request.topics is not None:
        wanted = {TopicPartition(topic.topic, index) for topic in request.topics for index in topic.partitions}
    topics_by_dir = _topics_by_dir(wanted, log_manager=log_manager)
    results = []
    for log_dir in log_manager.dirs:
        if not log_dir.is_online:
            results.append(DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=log_dir.path))
            continue
        result = DescribeLogDirsResult(log_dir=log_dir.path, topics=topics_by_dir.get(log_dir.path, []))
        result.total_bytes, result.usable_bytes = _volume_bytes(log_dir.path, filesystem=filesystem)
        results.append(result)
    return DescribeLogDirsResponse(results=results)


def _topics_by_dir(
    wanted: Collection[TopicPartition] | None, *, log_manager: LogManager
) -> dict[str, list[DescribeLogDirsTopic]]:
    found: dict[tuple[str, str], DescribeLogDirsTopic] = {}
    for topic_partition, log in sorted(log_manager.logs.items()):
        directory = log_manager.log_dir_of(topic_partition)
        if directory is None or (wanted is not None and topic_partition not in wanted):
            continue
        topic = found.setdefault((directory, topic_partition.topic), DescribeLogDirsTopic(name=topic_partition.topic))
        partition = DescribeLogDirsPartition(
            partition_index=topic_partition.partition,
            partition_size=log.size,
            # How far this copy is behind the high watermark: a leader never is.
            offset_lag=max(0, log.high_watermark - log.log_end_offset),
        )
        topic.partitions.append(partition)
    for topic_partition, copy in sorted(log_manager.future_logs.copies.items()):
        source = log_manager.logs.get(topic_partition)
        if copy.log is None or source is None or (wanted is not None and topic_partition not in wanted):
            continue
        place = (copy.log_dir.path, topic_partition.topic)
        topic = found.setdefault(place, DescribeLogDirsTopic(name=topic_partition.topic))
        topic.partitions.append(
            DescribeLogDirsPartition(
                partition_index=topic_partition.partition,
                partition_size=copy.log.size,
                offset_lag=max(0, source.log_end_offset - copy.log.log_end_offset),
                is_future_key=True,
            )
        )
    topics_by_dir: dict[str, list[DescribeLogDirsTopic]] = {}
    for (directory, _), topic in found.items():
        topics_by_dir.setdefault(directory, []).append(topic)
    return topics_by_dir


def _volume_bytes(path: str, *, filesystem: FileSystem) -> tuple[int, int]:
    """Size of the volume, and what is free on it."""
    try:
        return filesystem.total_bytes(path), filesystem.free_bytes(path)
    except OSError:
        return UNKNOWN_BYTES, UNKNOWN_BYTES
