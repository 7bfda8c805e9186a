"""OffsetForLeaderEpoch (key 23): where a leader epoch ends in the leader's log (KIP-101).

v1 answers with the epoch found, the largest not above the one asked for (KIP-279); v2 fences by the leader epoch that
the client believes in (KIP-320). The epoch that goes on ends at the log end offset, for consumers, too.
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
from ...runtime.turns import Steps
from ..request_context import RequestContext

if TYPE_CHECKING:
    from ..ports import Replicas


def handle(
    _: RequestContext, request: OffsetForLeaderEpochRequest, *, replica_manager: Replicas
) -> Steps[OffsetForLeaderEpochResponse]:
    """Answers each partition on its own; an epoch that the log knows nothing of is (-1, -1)."""
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        answer = OffsetForLeaderTopicResult(topic=topic.topic)
        response.topics.append(answer)
        for wanted in topic.partitions:
            answer.partitions.append(_end(replica_manager, topic.topic, wanted))
            yield
    return response


def _end(replica_manager: Replicas, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    answer = EpochEndOffset(partition=wanted.partition)
    try:
        answer.leader_epoch, answer.end_offset = replica_manager.last_offset_for_leader_epoch(
            topic, wanted.partition, wanted.leader_epoch, current_leader_epoch=wanted.current_leader_epoch
        )
    except KafkaError as error:
        answer.error_code = error.code
    return answer
