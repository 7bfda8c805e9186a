"""OffsetCommit (key 8): write down how far a group has read.

Version 0 puts offsets into ZooKeeper, where consumers of Kafka 0.8 look for them; since 1 they are the group's, fenced
by its generation. 1 has a timestamp for each partition, 2 to 4 how long to keep them, 5 leaves that to the broker
(KIP-211), 6 adds the leader epoch (KIP-320), 7 static members (KIP-345), 9 members of the consumer protocol (KIP-848),
10 names topics by id.
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
from ...config.settings import Settings
from ...coordinator.allowance import Maker
from ...coordinator.group.offset_commits import Committer
from ...coordinator.group.offsets import CommittedOffset, Place
from ...coordinator.group.zookeeper_offsets import ZooKeeperOffsets
from ..ports import ClusterMetadata, CommittedOffsets
from ..request_context import RequestContext

TOPIC_ID_VERSION = 10
NOT_GIVEN = -1
Check = Callable[[str, OffsetCommitRequestPartition], ErrorCode]
NEVER_MS = 2**63 - 1


def handle(
    ctx: RequestContext,
    request: OffsetCommitRequest,
    *,
    committed_offsets: CommittedOffsets,
    config: Settings,
    metadata: ClusterMetadata,
    now_ms: Callable[[], int],
    zookeeper_offsets: ZooKeeperOffsets,
) -> Awaitable[OffsetCommitResponse] | None:
    """Partitions that cannot be committed are told so; the others are one record batch and share its fate."""
    check = partial(_refusal, metadata, config.offset_metadata_max_bytes)
    response, offsets = _split(ctx, request, metadata, now_ms(), check)
    maker = Maker(f"/{ctx.client_host}", ctx.client_id or "")
    if ctx.api_version == 0:
        places = {place: offset.offset for place, offset in offsets.items()}
        return _commit_to_zookeeper(response, zookeeper_offsets.commit(request.group_id, places, maker))
    reply = partial(_finish, ctx, response)
    committer = Committer(
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        ctx.api_version,
        maker,
    )
    try:
        committed_offsets.commit(request.group_id, committer, offsets, reply)
    except KafkaError as error:
        reply(error.code)
    return None


def _split(
    ctx: RequestContext, request: OffsetCommitRequest, metadata: ClusterMetadata, now_ms: int, check: Check
) -> tuple[OffsetCommitResponse, dict[Place, CommittedOffset]]:
    """The response with the errors that are known already, and what may be committed."""
    by_id = ctx.api_version >= TOPIC_ID_VERSION
    expire_ms = NOT_GIVEN
    if request.retention_time_ms != NOT_GIVEN:
        expire_ms = min(now_ms + request.retention_time_ms, NEVER_MS)
    offsets: dict[Place, CommittedOffset] = {}
    topics = []
    for topic in request.topics:
        name = metadata.topic_name(topic.topic_id) if by_id else topic.name
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


def _refusal(metadata: ClusterMetadata, most_bytes: int, topic: str, asked: OffsetCommitRequestPartition) -> ErrorCode:
    if not metadata.has_partition(topic, asked.partition_index):
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
    """Answer with the outcome for every partition that had no error of its own."""
    ctx.respond(_with_outcome(response, outcome))


def _with_outcome(response: OffsetCommitResponse, outcome: ErrorCode) -> OffsetCommitResponse:
    if outcome is not ErrorCode.NONE:
        for topic in response.topics:
            for partition in topic.partitions:
                partition.error_code = partition.error_code or outcome
    return response


async def _commit_to_zookeeper(response: OffsetCommitResponse, storing: Awaitable[ErrorCode]) -> OffsetCommitResponse:
    return _with_outcome(response, await storing)
