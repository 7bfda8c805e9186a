"""OffsetForLeaderEpoch (key 23): the end offset of a leader epoch in the leader's log (KIP-101).

v1 returns the largest epoch of the log that is not above the requested epoch (KIP-279); v2 fences by the leader epoch
of the client (KIP-320). The current epoch ends at the log end offset, for consumers, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....protocol.errors import KafkaError
from ....protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from ...runtime.loop_sharing import SlicedWork, Steps
from ..request_context import RequestContext

if TYPE_CHECKING:
    from ...replication.replica_manager import ReplicaManager


async def handle(
    ctx: RequestContext,
    request: OffsetForLeaderEpochRequest,
    *,
    replica_manager: ReplicaManager,
    sliced_work: SlicedWork,
) -> OffsetForLeaderEpochResponse:
    """Return the end of the epoch for each partition on its own: (-1, -1) for an unknown epoch."""
    return await sliced_work.complete(_build_response(ctx, request, replica_manager))


def _build_response(
    ctx: RequestContext, request: OffsetForLeaderEpochRequest, replica_manager: ReplicaManager
) -> Steps[OffsetForLeaderEpochResponse]:
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        answer = OffsetForLeaderTopicResult(topic=topic.topic)
        response.topics.append(answer)
        for wanted in topic.partitions:
            answer.partitions.append(_end(replica_manager, topic.topic, wanted))
            yield
    return response


def _end(replica_manager: ReplicaManager, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    answer = EpochEndOffset(partition=wanted.partition)
    try:
        answer.leader_epoch, answer.end_offset = replica_manager.last_offset_for_leader_epoch(
            topic, wanted.partition, wanted.leader_epoch, current_leader_epoch=wanted.current_leader_epoch
        )
    except KafkaError as error:
        answer.error_code = error.code
    return answer
