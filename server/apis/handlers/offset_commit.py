"""OffsetCommit (key 8): commits offsets of a group.

Version 0 writes offsets to ZooKeeper, for consumers of Kafka 0.8; since 1 they belong to the group, fenced by its
generation. 1 has a timestamp for each partition, 2 to 4 a retention time, which 5 leaves to the broker (KIP-211), 6
adds the leader epoch (KIP-320), 7 static members (KIP-345), 9 members of the consumer protocol (KIP-848), 10 topic ids.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ....protocol.topic_partition import TopicPartitionKey
from ...config.settings import Settings
from ...coordinator.creation_limiter import ClientIdentity
from ...coordinator.group.group_coordinator import GroupCoordinator
from ...coordinator.group.offset_metadata_manager import Committer
from ...coordinator.group.offsets import CommittedOffset
from ...coordinator.group.zookeeper_offsets import ZooKeeperOffsets
from ...metadata.metadata_cache import MetadataCache
from ..request_context import RequestContext

TOPIC_ID_VERSION = 10
NOT_GIVEN = -1
Check = Callable[[str, OffsetCommitRequestPartition], ErrorCode]
NEVER_MS = 2**63 - 1


def handle(
    ctx: RequestContext,
    request: OffsetCommitRequest,
    *,
    group_coordinator: GroupCoordinator,
    config: Settings,
    metadata_cache: MetadataCache,
    now_ms: Callable[[], int],
    zookeeper_offsets: ZooKeeperOffsets,
) -> Awaitable[OffsetCommitResponse] | None:
    """Commit all valid partitions in one record batch. Invalid partitions have an error of their own.

    The coordinator replies in a callback, without a task per request: groups with many members commit often.
    """
    check = partial(_refusal, metadata_cache, config.offset_metadata_max_bytes)
    response, offsets = _split(ctx, request, metadata_cache, now_ms(), check)
    client = ClientIdentity(f"/{ctx.client_host}", ctx.client_id or "")
    if ctx.api_version == 0:
        partitions = {partition: offset.offset for partition, offset in offsets.items()}
        return _commit_to_zookeeper(response, zookeeper_offsets.commit(request.group_id, partitions, client))
    reply = partial(_finish, ctx, response)
    committer = Committer(
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        ctx.api_version,
        client,
    )
    try:
        group_coordinator.commit_offsets(request.group_id, committer, offsets, reply)
    except KafkaError as error:
        reply(error.code)
    return None


def _split(
    ctx: RequestContext, request: OffsetCommitRequest, metadata_cache: MetadataCache, now_ms: int, check: Check
) -> tuple[OffsetCommitResponse, dict[TopicPartitionKey, CommittedOffset]]:
    """Return the response with the errors of invalid partitions, and the offsets of the valid partitions."""
    by_id = ctx.api_version >= TOPIC_ID_VERSION
    expire_ms = NOT_GIVEN
    if request.retention_time_ms != NOT_GIVEN:
        expire_ms = min(now_ms + request.retention_time_ms, NEVER_MS)
    offsets: dict[TopicPartitionKey, CommittedOffset] = {}
    topics = []
    for topic in request.topics:
        name = metadata_cache.topic_name(topic.topic_id) if by_id else topic.name
        answers = []
        for asked in topic.partitions:
            if name is None:
                error = ErrorCode.UNKNOWN_TOPIC_ID
            else:
                error = check(name, asked)
                if not error:
                    offsets[name, asked.partition_index] = _offset(asked, now_ms, expire_ms)
            answers.append(OffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=error))
        topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers))
    return OffsetCommitResponse(topics=topics), offsets


def _refusal(
    metadata_cache: MetadataCache, most_bytes: int, topic: str, asked: OffsetCommitRequestPartition
) -> ErrorCode:
    if not metadata_cache.has_partition(topic, asked.partition_index):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if len(asked.committed_metadata or "") > most_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def _offset(asked: OffsetCommitRequestPartition, now_ms: int, expire_ms: int) -> CommittedOffset:
    return CommittedOffset(
        offset=asked.committed_offset,
        leader_epoch=asked.committed_leader_epoch,
        metadata=asked.committed_metadata or "",
        commit_timestamp_ms=now_ms if asked.commit_timestamp == NOT_GIVEN else asked.commit_timestamp,
        expire_timestamp_ms=expire_ms,
    )


def _finish(ctx: RequestContext, response: OffsetCommitResponse, outcome: ErrorCode) -> None:
    """Respond with the outcome for each partition without an error of its own."""
    ctx.respond(_with_outcome(response, outcome))


def _with_outcome(response: OffsetCommitResponse, outcome: ErrorCode) -> OffsetCommitResponse:
    if outcome is not ErrorCode.NONE:
        for topic in response.topics:
            for partition in topic.partitions:
                partition.error_code = partition.error_code or outcome
    return response


async def _commit_to_zookeeper(response: OffsetCommitResponse, storing: Awaitable[ErrorCode]) -> OffsetCommitResponse:
    return _with_outcome(response, await storing)
