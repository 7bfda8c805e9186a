"""DescribeLogDirs (key 35): which partitions lie in which log directory, and how large they are (KIP-113).

v3 has a top-level error (KIP-784), v4 the size of the volume and what is free on it (KIP-827), v5 whether a directory
takes no new partitions (KIP-1066), which none can be told here. A directory that failed is listed with
KAFKA_STORAGE_ERROR and nothing in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from ....protocol.errors import ErrorCode
from ....protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ....protocol.topic_partition import TopicPartition
from ....storage.filesystem import FileSystem
from ....storage.log_manager import LogManager
from ...runtime.turns import Steps
from ..request_context import RequestContext

UNKNOWN_BYTES = -1


Topics: TypeAlias = dict[str, DescribeLogDirsTopic]
"""What lies in one log directory, by topic."""


def handle(
    ctx: RequestContext, request: DescribeLogDirsRequest, *, filesystem: FileSystem, log_manager: LogManager
) -> Steps[DescribeLogDirsResponse]:
    """Describes every directory, with all partitions or those asked for."""
    found: dict[str, Topics] = {}
    wanted = yield from (_all(log_manager) if request.topics is None else _named(request.topics))
    for topic in sorted(wanted):
        for index in sorted(wanted[topic]):
            _describe(TopicPartition(topic, index), found, log_manager)
            yield
    results = []
    for log_dir in log_manager.dirs:
        if not log_dir.is_online:
            results.append(DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=log_dir.path))
            continue
        topics = list(found.get(log_dir.path, {}).values())
        result = DescribeLogDirsResult(log_dir=log_dir.path, topics=topics)
        result.total_bytes, result.usable_bytes = _volume_bytes(log_dir.path, filesystem=filesystem)
        results.append(result)
    return DescribeLogDirsResponse(results=results)


def _all(log_manager: LogManager) -> Steps[dict[str, set[int]]]:
    wanted: dict[str, set[int]] = {}
    for topic, index in list(log_manager.logs):  # others may come in between
        wanted.setdefault(topic, set()).add(index)
        yield
    return wanted


def _named(topics: Iterable[DescribableLogDirTopic]) -> Steps[dict[str, set[int]]]:
    wanted: dict[str, set[int]] = {}
    for topic in topics:
        wanted.setdefault(topic.topic, set()).update(topic.partitions)
        yield
    return wanted


def _describe(partition: TopicPartition, found: dict[str, Topics], log_manager: LogManager) -> None:
    """Where a partition lies now, and the copy of it that is on its way to another directory."""
    log, directory = log_manager.logs.get(partition), log_manager.log_dir_of(partition)
    if log is None:
        return
    if directory is not None:
        # How far this copy is behind the high watermark: a leader never is.
        lag = max(0, log.high_watermark - log.log_end_offset)
        _add(found, directory, partition, DescribeLogDirsPartition(partition_size=log.size, offset_lag=lag))
    copy = log_manager.future_logs.copies.get(partition)
    if copy is not None and copy.log is not None:
        lag = max(0, log.log_end_offset - copy.log.log_end_offset)
        future = DescribeLogDirsPartition(partition_size=copy.log.size, offset_lag=lag, is_future_key=True)
        _add(found, copy.log_dir.path, partition, future)


def _add(found: dict[str, Topics], directory: str, partition: TopicPartition, told: DescribeLogDirsPartition) -> None:
    told.partition_index = partition.partition
    name = partition.topic
    found.setdefault(directory, {}).setdefault(name, DescribeLogDirsTopic(name=name)).partitions.append(told)


def _volume_bytes(path: str, *, filesystem: FileSystem) -> tuple[int, int]:
    """Size of the volume, and what is free on it."""
    try:
        return filesystem.total_bytes(path), filesystem.free_bytes(path)
    except OSError:
        return UNKNOWN_BYTES, UNKNOWN_BYTES
