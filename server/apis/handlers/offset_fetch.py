"""OffsetFetch (key 9): how far groups have read. A group or partition that nobody knows is at -1, without an error.

Version 0 reads from ZooKeeper what OffsetCommit 0 put there; 2 can ask for all partitions and has an error for the
whole group; 5 adds the leader epoch (KIP-320), 7 asks for offsets that no open transaction can change (KIP-447), 8
takes several groups (KIP-709), 9 knows members of the consumer protocol (KIP-848), 10 names topics by id.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from uuid import UUID

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ....protocol.schema import ZERO_UUID
from ...coordinator.group.any_group import AnyGroup
from ...coordinator.group.coordinator import GroupCoordinator
from ...coordinator.group.offsets import NO_LEADER_EPOCH, NO_OFFSET, CommittedOffset
from ...coordinator.group.zookeeper_offsets import read_offset
from ...metadata.metadata_cache import MetadataCache
from ...metadata.metadata_store import MetadataStore
from ..request_context import RequestContext

FIRST_VERSION_WITH_GROUPS = 8
FIRST_VERSION_WITH_GROUP_ERROR = 2
TOPIC_ID_VERSION = 10

NOTHING = CommittedOffset(NO_OFFSET, NO_LEADER_EPOCH, "", NO_OFFSET)


def handle(
    ctx: RequestContext,
    request: OffsetFetchRequest,
    *,
    groups: GroupCoordinator,
    metadata: MetadataCache,
    store: MetadataStore,
) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    """Answers from memory, where there are only offsets that are durable."""
    if ctx.api_version == 0:
        return _fetch_from_zookeeper(request, metadata=metadata, store=store)
    if ctx.api_version >= FIRST_VERSION_WITH_GROUPS:
        return OffsetFetchResponse(
            groups=[_fetch_group(ctx, asked, groups=groups, metadata=metadata) for asked in request.groups]
        )
    wanted = None if request.topics is None else [(one.name, one.partition_indexes) for one in request.topics]
    try:
        group = groups.find(request.group_id)
    except KafkaError as error:
        if ctx.api_version >= FIRST_VERSION_WITH_GROUP_ERROR:
            return OffsetFetchResponse(error_code=error.code)
        return OffsetFetchResponse(topics=[_topic(name, None, places, error.code) for name, places in wanted or ()])
    if wanted is None:
        wanted = list(_all_places(group))
    return OffsetFetchResponse(topics=[_topic(name, group, places, ErrorCode.NONE) for name, places in wanted])


def _topic(name: str, group: AnyGroup | None, partitions: Iterable[int], error: ErrorCode) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name=name,
        partitions=[
            OffsetFetchResponsePartition(
                partition_index=index,
                committed_offset=found.offset,
                committed_leader_epoch=found.leader_epoch,
                metadata=found.metadata,
                error_code=error,
            )
            for index in partitions
            for found in (_find(group, name, index),)
        ],
    )


def _find(group: AnyGroup | None, topic: str, partition: int) -> CommittedOffset:
    return (group.offsets.get(topic, partition) if group is not None else None) or NOTHING


def _all_places(group: AnyGroup | None) -> Iterable[tuple[str, list[int]]]:
    """Every partition that has an offset, by topic."""
    places: dict[str, list[int]] = {}
    for topic, partition in sorted(group.offsets.committed) if group is not None else ():
        places.setdefault(topic, []).append(partition)
    return places.items()


def _fetch_group(
    ctx: RequestContext, asked: OffsetFetchRequestGroup, *, groups: GroupCoordinator, metadata: MetadataCache
) -> OffsetFetchResponseGroup:
    """The answer for one group of version 8 and later."""
    by_id = ctx.api_version >= TOPIC_ID_VERSION
    try:
        group = groups.find(asked.group_id)
        _check_member(group, asked)
    except KafkaError as error:
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=error.code)
    topics = []
    if asked.topics is None:
        for name, partitions in _all_places(group):
            topic_id = metadata.topic_id(name)
            if topic_id is not None or not by_id:
                topics.append(_topic_of_group(name, topic_id or ZERO_UUID, group, partitions))
    else:
        for topic in asked.topics:
            wanted = metadata.topic_name(topic.topic_id) if by_id else topic.name
            topics.append(_topic_of_group(wanted, topic.topic_id, group, topic.partition_indexes))
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics)


def _check_member(group: AnyGroup | None, asked: OffsetFetchRequestGroup) -> None:
    """Who says that it is a member of the consumer protocol has to be one, if there is such a group.

    Raises KafkaError UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION.
    """
    if group is None:
        return
    error = group.check_fetch(asked.member_id, asked.member_epoch)
    if error is not ErrorCode.NONE:
        raise KafkaError(error, "not a present member of the group")


def _topic_of_group(
    name: str | None, topic_id: UUID, group: AnyGroup | None, partitions: Iterable[int]
) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=name or "",
        topic_id=topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=found.offset,
                committed_leader_epoch=found.leader_epoch,
                metadata=found.metadata,
                error_code=ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.NONE,
            )
            for index in partitions
            for found in (NOTHING if name is None else _find(group, name, index),)
        ],
    )


async def _fetch_from_zookeeper(
    request: OffsetFetchRequest, *, metadata: MetadataCache, store: MetadataStore
) -> OffsetFetchResponse:
    topics = []
    for topic in request.topics or ():
        partitions = []
        for index in topic.partition_indexes:
            offset, error = NO_OFFSET, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if metadata.has_partition(topic.name, index):
                found = await read_offset(store, request.group_id, (topic.name, index))
                offset, error = NO_OFFSET if found is None else found, ErrorCode.NONE
            partitions.append(
                OffsetFetchResponsePartition(
                    partition_index=index, committed_offset=offset, metadata="", error_code=error
                )
            )
        topics.append(OffsetFetchResponseTopic(name=topic.name, partitions=partitions))
    return OffsetFetchResponse(topics=topics)
