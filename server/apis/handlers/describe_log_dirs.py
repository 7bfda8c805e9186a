"""DescribeLogDirs (key 35): which partitions lie in which log directory, and how large they are (KIP-113).

v3 has a top-level error (KIP-784), v4 the size of the volume and what is free on it (KIP-827), v5 whether a directory
takes no new partitions (KIP-1066), which none can be told here. A directory that failed is listed with
KAFKA_STORAGE_ERROR and nothing in it.
"""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from ....protocol.errors import ErrorCode
from ....protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ...runtime.turns import Steps
from ..ports import LogDirs
from ..request_context import RequestContext

if TYPE_CHECKING:
    from ...replication.described_log_dirs import DescribedLogDir


def handle(
    ctx: RequestContext, request: DescribeLogDirsRequest, *, log_dirs: LogDirs
) -> Steps[DescribeLogDirsResponse]:
    """Describes every directory, with all partitions or those asked for."""
    wanted = None if request.topics is None else [(one.topic, one.partitions) for one in request.topics]
    response = DescribeLogDirsResponse(results=[])
    for found in (yield from log_dirs.describe_log_dirs(wanted)):
        response.results.append((yield from _result(found)))
    return response


def _result(found: DescribedLogDir) -> Steps[DescribeLogDirsResult]:
    if not found.is_online:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=found.path)
    result = DescribeLogDirsResult(log_dir=found.path, topics=[])
    result.total_bytes, result.usable_bytes = found.total_bytes, found.usable_bytes
    for name, replicas in groupby(found.replicas, attrgetter("topic_partition.topic")):
        topic = DescribeLogDirsTopic(name=name, partitions=[])
        for one in replicas:
            described = DescribeLogDirsPartition(
                partition_index=one.topic_partition.partition,
                partition_size=one.size,
                offset_lag=one.offset_lag,
                is_future_key=one.is_future,
            )
            topic.partitions.append(described)
            yield
        result.topics.append(topic)
    return result
