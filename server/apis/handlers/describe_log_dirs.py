"""DescribeLogDirs (key 35): the partitions in each log directory, and their sizes (KIP-113).

v3 has a top-level error (KIP-784), v4 the total and free bytes of the volume (KIP-827), v5 cordoned directories
(KIP-1066). A failed directory is listed with KAFKA_STORAGE_ERROR and without partitions.
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
from ...replication.replica_manager import ReplicaManager
from ...runtime.loop_sharing import SlicedWork, Steps
from ..request_context import RequestContext

if TYPE_CHECKING:
    from ...replication.described_log_dirs import DescribedLogDir


async def handle(
    ctx: RequestContext, request: DescribeLogDirsRequest, *, replica_manager: ReplicaManager, sliced_work: SlicedWork
) -> DescribeLogDirsResponse:
    """Describe each log directory with all partitions, or with the requested partitions."""
    return await sliced_work.complete(_build_response(ctx, request, replica_manager))


def _build_response(
    ctx: RequestContext, request: DescribeLogDirsRequest, replica_manager: ReplicaManager
) -> Steps[DescribeLogDirsResponse]:
    wanted = None if request.topics is None else [(one.topic, one.partitions) for one in request.topics]
    response = DescribeLogDirsResponse(results=[])
    for found in (yield from replica_manager.describe_log_dirs(wanted)):
        response.results.append((yield from _result(found)))
    return response


def _result(found: DescribedLogDir) -> Steps[DescribeLogDirsResult]:
    if not found.is_online:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=found.path)
    result = DescribeLogDirsResult(log_dir=found.path, topics=[], is_cordoned=found.is_cordoned)
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
