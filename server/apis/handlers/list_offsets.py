"""ListOffsets (key 2): offsets by time, and the ends of a log.

Version 0 returns several segment starts; 4 adds leader epochs; 5 has OFFSET_NOT_AVAILABLE, while a new leader has no
high watermark; 7 the offset of the largest timestamp; 8 the earliest local offset (KIP-405); 9 the latest tiered one;
11 the earliest one not yet uploaded. Barnabas has no tiered storage: the earliest local offset is the log start offset,
and the last two are -1, as in Kafka without remote storage.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ....protocol.special_timestamps import FIRST_VERSIONS
from ....storage.log_values import FetchIsolation
from ...runtime.loop_sharing import SlicedWork, Steps
from ..request_context import RequestContext

if TYPE_CHECKING:
    from ...replication.replica_manager import ReplicaManager

SINCE_LEADER_EPOCH = 4
SINCE_OFFSET_NOT_AVAILABLE = 5
CONSUMER_REPLICA_ID = -1


async def handle(
    ctx: RequestContext, request: ListOffsetsRequest, *, replica_manager: ReplicaManager, sliced_work: SlicedWork
) -> ListOffsetsResponse:
    """Find the offset for each partition on its own. A partition that is named twice has an error."""
    return await sliced_work.complete(_build_response(ctx, request, replica_manager))


def _build_response(
    ctx: RequestContext, request: ListOffsetsRequest, replica_manager: ReplicaManager
) -> Steps[ListOffsetsResponse]:
    isolation: FetchIsolation = FetchIsolation.LOG_END
    if request.replica_id == CONSUMER_REPLICA_ID:
        isolation = FetchIsolation.TXN_COMMITTED if request.isolation_level == 1 else FetchIsolation.HIGH_WATERMARK
    named = Counter((topic.name, part.partition_index) for topic in request.topics for part in topic.partitions)
    topics = []
    for topic in request.topics:
        answers = []
        for wanted in topic.partitions:
            try:
                if named[topic.name, wanted.partition_index] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "duplicate partition in the request")
                answers.append((yield from _offset(ctx.api_version, replica_manager, isolation, topic.name, wanted)))
            except KafkaError as error:
                code = error.code
                if code is ErrorCode.OFFSET_NOT_AVAILABLE and ctx.api_version < SINCE_OFFSET_NOT_AVAILABLE:
                    code = ErrorCode.LEADER_NOT_AVAILABLE
                answers.append(
                    ListOffsetsPartitionResponse(
                        partition_index=wanted.partition_index, error_code=code, offset=-1, timestamp=-1
                    )
                )
            yield
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return ListOffsetsResponse(topics=topics)


def _offset(
    version: int, replica_manager: ReplicaManager, isolation: FetchIsolation, topic: str, wanted: ListOffsetsPartition
) -> Steps[ListOffsetsPartitionResponse]:
    """Raises KafkaError."""
    index, timestamp = wanted.partition_index, wanted.timestamp
    answer = ListOffsetsPartitionResponse(partition_index=index, offset=-1, timestamp=-1)
    if version == 0:
        answer.old_style_offsets = replica_manager.legacy_fetch_offsets_for_timestamp(
            topic, index, timestamp, isolation=isolation, max_num_offsets=wanted.max_num_offsets
        )
        return answer
    _check_timestamp(version, timestamp)
    found = yield from replica_manager.fetch_offset_for_timestamp(
        topic, index, timestamp, isolation=isolation, current_leader_epoch=wanted.current_leader_epoch
    )
    answer.offset, answer.timestamp = found.offset, found.timestamp
    answer.leader_epoch = found.leader_epoch if version >= SINCE_LEADER_EPOCH else -1
    return answer


def _check_timestamp(version: int, timestamp: int) -> None:
    """Raise KafkaError for a special timestamp that the version of the request does not have."""
    if timestamp < 0 and version < FIRST_VERSIONS.get(timestamp, version + 1):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} is not supported by version {version}")
