"""ListOffsets (key 2): offsets by time, and the ends of a log.

Version 0 answers several segment starts; 4 adds leader epochs; 7 the offset of the largest timestamp; 8 the earliest
local offset (KIP-405); 9 the latest tiered one; 11 the earliest one not yet uploaded. Nothing is tiered here, so the
earliest local offset is the log start and the last two are unknown (-1), as Kafka answers without remote storage.
"""

from __future__ import annotations

from collections import Counter

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ....protocol.special_timestamps import EARLIEST, EARLIEST_LOCAL, FIRST_VERSIONS, LATEST, MAX_TIMESTAMP
from ....storage.errors import LogDirFailedError
from ...replication.partition import Partition
from ..request_context import RequestContext

SINCE_LEADER_EPOCH = 4
CONSUMER_REPLICA_ID = -1


def handle(ctx: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Each partition on its own; one named twice is an error for that partition."""
    named = Counter((topic.name, part.partition_index) for topic in request.topics for part in topic.partitions)
    topics = []
    for topic in request.topics:
        answers = []
        for wanted in topic.partitions:
            try:
                if named[topic.name, wanted.partition_index] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "the partition is named twice")
                answers.append(_offset(ctx, request, topic.name, wanted))
            except KafkaError as error:
                answers.append(
                    ListOffsetsPartitionResponse(
                        partition_index=wanted.partition_index, error_code=error.code, offset=-1, timestamp=-1
                    )
                )
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return ListOffsetsResponse(topics=topics)


def _offset(
    ctx: RequestContext, request: ListOffsetsRequest, topic: str, wanted: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    """Raises KafkaError."""
    replica_manager = ctx.broker.replica_manager
    partition = replica_manager.partition(topic, wanted.partition_index)
    partition.check_leader_epoch(wanted.current_leader_epoch)
    bound = _bound(request, partition)
    answer = ListOffsetsPartitionResponse(partition_index=wanted.partition_index, offset=-1, timestamp=-1)
    try:
        if ctx.api_version == 0:
            answer.old_style_offsets = _old_style(partition, wanted, bound)
        else:
            _search(ctx.api_version, partition, wanted.timestamp, bound, answer)
        if ctx.api_version < SINCE_LEADER_EPOCH:
            answer.leader_epoch = -1
    except LogDirFailedError as error:
        raise replica_manager.checked_io(partition, error) from error
    return answer


def _bound(request: ListOffsetsRequest, partition: Partition) -> int:
    """The exclusive bound of what this reader may see."""
    if request.replica_id != CONSUMER_REPLICA_ID:
        return partition.log.log_end_offset
    return partition.read_bound(read_committed=request.isolation_level == 1)


def _search(
    version: int, partition: Partition, timestamp: int, bound: int, answer: ListOffsetsPartitionResponse
) -> None:
    """Fill in offset, timestamp and leader epoch; they stay -1 where nothing is found."""
    log = partition.log
    if timestamp < 0 and version < FIRST_VERSIONS.get(timestamp, version + 1):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} has no meaning in version {version}")
    if timestamp == LATEST:
        answer.offset = bound
        answer.leader_epoch = partition.leader_epoch
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        answer.offset = log.log_start_offset
        answer.leader_epoch = log.leader_epochs.epoch_for_offset(log.log_start_offset)
    elif timestamp == MAX_TIMESTAMP or timestamp >= 0:
        found = (
            log.max_timestamp_and_offset() if timestamp == MAX_TIMESTAMP else log.fetch_offset_by_timestamp(timestamp)
        )
        if found is not None and found.offset < bound:
            answer.offset = found.offset
            answer.timestamp = found.timestamp
            answer.leader_epoch = log.leader_epochs.epoch_for_offset(found.offset)


def _old_style(partition: Partition, wanted: ListOffsetsPartition, bound: int) -> list[int]:
    """Version 0: segment starts before the timestamp, newest first, by file modification time."""
    offsets = partition.log.legacy_fetch_offsets_before(wanted.timestamp, wanted.max_num_offsets)
    visible = [offset for offset in offsets if offset < bound]
    return offsets if len(visible) == len(offsets) else [bound, *visible]
