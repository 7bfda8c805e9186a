"""OffsetFetch (key 9): committed offsets of groups. An unknown group or partition has offset -1, without an error.

Version 0 reads the offsets of OffsetCommit 0 from ZooKeeper; 2 can request all partitions and has an error for the
whole group; 5 adds the leader epoch (KIP-320), 7 can require stable offsets, without pending transactions (KIP-447), 8
takes several groups (KIP-709), 9 adds members of the consumer protocol (KIP-848), 10 topic ids.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Container, Hashable, Iterable
from typing import TypeVar
from uuid import UUID

from ....protocol.acls import AclOperation, AclResourceType
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
from ...coordinator.group.group import Group
from ...coordinator.group.group_coordinator import GroupCoordinator
from ...coordinator.group.offsets import NO_LEADER_EPOCH, NO_OFFSET, CommittedOffset
from ...coordinator.group.zookeeper_offsets import ZooKeeperOffsets
from ...metadata.metadata_cache import MetadataCache
from ...runtime.loop_sharing import CountBudget, lookup_steps
from ..request_context import RequestContext
from ..response_budget import ResponseBudget

PARTITIONS_PER_GROUP = 20
"""The lookup of a group or topic counts as this many partitions."""
PARTITIONS_PER_TURN = 5000
"""Partitions whose committed offset is looked up."""

FIRST_VERSION_WITH_GROUPS = 8
FIRST_VERSION_WITH_GROUP_ERROR = 2
TOPIC_ID_VERSION = 10

PARTITION_BYTES = 100
"""Approximate bytes of the response for one partition, without the metadata of the commit."""
NOTHING = CommittedOffset(NO_OFFSET, NO_LEADER_EPOCH, "", NO_OFFSET)

Topic = TypeVar("Topic", bound=Hashable)


async def handle(
    ctx: RequestContext,
    request: OffsetFetchRequest,
    *,
    group_coordinator: GroupCoordinator,
    metadata_cache: MetadataCache,
    zookeeper_offsets: ZooKeeperOffsets,
) -> OffsetFetchResponse:
    """Respond from memory, which has only durable offsets. A group or partition that is named twice is returned once.

    Stable offsets are returned only by the confirmed coordinator of the group, which may take an append with acks -1: a
    former coordinator may not have the last offsets.
    """
    turn_budget = CountBudget(PARTITIONS_PER_TURN)
    if ctx.api_version == 0:
        return await _fetch_from_zookeeper(request, metadata_cache, zookeeper_offsets, turn_budget)
    if ctx.api_version >= FIRST_VERSION_WITH_GROUPS:
        asked = {one.group_id: one for one in reversed(request.groups)}
        names = dict.fromkeys(one.group_id for one in request.groups)
        fetch = GroupFetch(ctx, request, group_coordinator, metadata_cache, turn_budget)
        if request.require_stable:
            fetch.unconfirmed_groups = await group_coordinator.group_manager.find_unconfirmed_groups(names)
        return OffsetFetchResponse(groups=[await fetch.answer(asked[name]) for name in names])
    group, error = None, ErrorCode.NONE
    try:
        if request.require_stable and await group_coordinator.group_manager.find_unconfirmed_groups([request.group_id]):
            raise _not_confirmed()
        group = group_coordinator.group_manager.find_group(request.group_id)
    except KafkaError as refusal:
        error = refusal.code
        if ctx.api_version >= FIRST_VERSION_WITH_GROUP_ERROR:
            return OffsetFetchResponse(error_code=error)
    if request.topics is None:
        wanted = {name: indexes async for name, indexes in _all_partitions(ctx, group, turn_budget)}
    else:
        wanted = _merged((one.name, one.partition_indexes) for one in request.topics)
    topics = []
    for name, partitions in wanted.items():
        answers = []
        for index in partitions:
            is_unstable = _is_unstable(request, group, name, index)
            found = NOTHING if is_unstable else _find(group, name, index)
            answers.append(
                OffsetFetchResponsePartition(
                    partition_index=index,
                    committed_offset=found.offset,
                    committed_leader_epoch=found.leader_epoch,
                    metadata=found.metadata,
                    error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT if is_unstable else error,
                )
            )
            await turn_budget.step()
        topics.append(OffsetFetchResponseTopic(name=name, partitions=answers))
    return OffsetFetchResponse(topics=topics)


def _not_confirmed() -> KafkaError:
    return KafkaError(ErrorCode.NOT_COORDINATOR, "another broker may have followed this coordinator")


def _may_see(ctx: RequestContext, topic: str) -> bool:
    return ctx.is_authorized(AclOperation.DESCRIBE, AclResourceType.TOPIC, topic)


def _merged(topics: Iterable[tuple[Topic, Iterable[int]]]) -> dict[Topic, dict[int, None]]:
    """Return each topic and in it each partition once, in the order of their first occurrence."""
    merged: dict[Topic, dict[int, None]] = {}
    for topic, partitions in topics:
        merged.setdefault(topic, {}).update(dict.fromkeys(partitions))
    return merged


def _find(group: Group | None, topic: str, partition: int) -> CommittedOffset:
    return (group.offsets.get(topic, partition) if group is not None else None) or NOTHING


def _is_unstable(request: OffsetFetchRequest, group: Group | None, topic: str, partition: int) -> bool:
    """Return whether the request requires stable offsets and a transaction has a pending offset here (KIP-447)."""
    return request.require_stable and group is not None and group.offsets.has_pending(topic, partition)


async def _all_partitions(
    ctx: RequestContext, group: Group | None, turn_budget: CountBudget
) -> AsyncIterator[tuple[str, dict[int, None]]]:
    """Yield each topic with its partitions that have offsets, without topics that the client may not describe."""
    found: dict[str, list[int]] = {}
    for topic, partition in list(group.offsets.committed) if group is not None else ():
        found.setdefault(topic, []).append(partition)
        await turn_budget.step()
    for topic in sorted(found):
        await turn_budget.step(PARTITIONS_PER_GROUP)
        if _may_see(ctx, topic):
            yield topic, dict.fromkeys(sorted(found[topic]))


class GroupFetch:
    """The responses for groups, from version 8 on. Groups beyond the budget have an error, and clients retry them."""

    def __init__(
        self,
        ctx: RequestContext,
        request: OffsetFetchRequest,
        group_coordinator: GroupCoordinator,
        metadata_cache: MetadataCache,
        turn_budget: CountBudget,
    ) -> None:
        self._ctx = ctx
        self._request = request
        self._by_id = ctx.api_version >= TOPIC_ID_VERSION
        self._group_manager = group_coordinator.group_manager
        self._metadata = metadata_cache
        self._turn_budget = turn_budget
        self._budget = ResponseBudget()
        self.unconfirmed_groups: Container[str] = ()
        """Groups that another broker may coordinate."""

    async def answer(self, asked: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        """Return the committed offsets of a group, or its error."""
        await self._turn_budget.step(PARTITIONS_PER_GROUP * lookup_steps(asked.group_id))
        try:
            if self._budget.is_exhausted:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the size limit of the response is reached")
            if asked.group_id in self.unconfirmed_groups:
                raise _not_confirmed()
            group = self._group_manager.find_group(asked.group_id)
            _check_member(group, asked)
        except KafkaError as error:
            return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=error.code)
        topics = [
            await self._topic(group, name, topic_id, partitions)
            async for name, topic_id, partitions in self._wanted(group, asked)
        ]
        return OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics)

    async def _wanted(
        self, group: Group | None, asked: OffsetFetchRequestGroup
    ) -> AsyncIterator[tuple[str | None, UUID, Iterable[int]]]:
        """Yield the name, the id and the partitions of each topic. The name of an unknown topic is None."""
        if asked.topics is None:
            async for name, partitions in _all_partitions(self._ctx, group, self._turn_budget):
                topic_id = self._metadata.topic_id(name)
                if topic_id is not None or not self._by_id:
                    yield name, topic_id or ZERO_UUID, partitions
            return
        named = _merged(((one.name, one.topic_id), one.partition_indexes) for one in asked.topics)
        for (name, topic_id), partitions in named.items():
            yield self._metadata.topic_name(topic_id) if self._by_id else name, topic_id, partitions

    async def _topic(
        self, group: Group | None, name: str | None, topic_id: UUID, partitions: Iterable[int]
    ) -> OffsetFetchResponseTopics:
        error = ErrorCode.NONE
        if name is None:
            error = ErrorCode.UNKNOWN_TOPIC_ID
        elif not _may_see(self._ctx, name):
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        answers = []
        for index in partitions:
            is_told = name is not None and not error
            is_unstable = is_told and _is_unstable(self._request, group, name or "", index)
            found = _find(group, name or "", index) if is_told and not is_unstable else NOTHING
            answers.append(
                OffsetFetchResponsePartitions(
                    partition_index=index,
                    committed_offset=found.offset,
                    committed_leader_epoch=found.leader_epoch,
                    metadata=found.metadata,
                    error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT if is_unstable else error,
                )
            )
            self._budget.spend(PARTITION_BYTES + len(found.metadata))
            await self._turn_budget.step()
        return OffsetFetchResponseTopics(name=name or "", topic_id=topic_id, partitions=answers)


def _check_member(group: Group | None, asked: OffsetFetchRequestGroup) -> None:
    """Refuse a client that claims to be a member of a consumer group and is not one.

    Raises KafkaError UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION.
    """
    if group is None:
        return
    error = group.validate_offset_fetch(asked.member_id, asked.member_epoch)
    if error is not ErrorCode.NONE:
        raise KafkaError(error, "the member is not in the group")


async def _fetch_from_zookeeper(
    request: OffsetFetchRequest, metadata_cache: MetadataCache, offsets: ZooKeeperOffsets, turn_budget: CountBudget
) -> OffsetFetchResponse:
    topics = []
    for name, partitions in _merged((one.name, one.partition_indexes) for one in request.topics or ()).items():
        answers = []
        for index in partitions:
            offset, error = NO_OFFSET, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if metadata_cache.has_partition(name, index):
                found = await offsets.read(request.group_id, (name, index))
                if found is not None:
                    offset, error = found, ErrorCode.NONE
            answers.append(
                OffsetFetchResponsePartition(
                    partition_index=index, committed_offset=offset, metadata="", error_code=error
                )
            )
            await turn_budget.step()
        topics.append(OffsetFetchResponseTopic(name=name, partitions=answers))
    return OffsetFetchResponse(topics=topics)
