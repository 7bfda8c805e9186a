"""OffsetFetch (key 9): how far groups have read. A group or partition that nobody knows is at -1, without an error.

Version 0 reads from ZooKeeper what OffsetCommit 0 put there; 2 can ask for all partitions and has an error for the
whole group; 5 adds the leader epoch (KIP-320), 7 asks for offsets that no open transaction can change (KIP-447), 8
takes several groups (KIP-709), 9 knows members of the consumer protocol (KIP-848), 10 names topics by id.
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
from ...coordinator.group.group_port import GroupPort
from ...coordinator.group.offsets import NO_LEADER_EPOCH, NO_OFFSET, CommittedOffset
from ...coordinator.group.zookeeper_offsets import ZooKeeperOffsets
from ...runtime.turns import COMMITTED_GROUP, COMMITTED_PARTITIONS, Pace, steps_of
from ..answer_budget import Budget
from ..ports import ClusterMetadata, CommittedOffsets
from ..request_context import RequestContext

FIRST_VERSION_WITH_GROUPS = 8
FIRST_VERSION_WITH_GROUP_ERROR = 2
TOPIC_ID_VERSION = 10

PARTITION_BYTES = 100
"""About how much memory the answer for one partition takes, without the commit's metadata."""
NOTHING = CommittedOffset(NO_OFFSET, NO_LEADER_EPOCH, "", NO_OFFSET)

Topic = TypeVar("Topic", bound=Hashable)


async def handle(
    ctx: RequestContext,
    request: OffsetFetchRequest,
    *,
    committed_offsets: CommittedOffsets,
    metadata: ClusterMetadata,
    zookeeper_offsets: ZooKeeperOffsets,
) -> OffsetFetchResponse:
    """Answers from memory, where there are only offsets that are durable. What is named twice is told once.

    Who wants stable offsets is to go on from there and nowhere else: he is told them only by who coordinates the group
    for certain, which may take an append with acks=-1.
    """
    pace = Pace(COMMITTED_PARTITIONS)
    if ctx.api_version == 0:
        return await _fetch_from_zookeeper(request, metadata, zookeeper_offsets, pace)
    if ctx.api_version >= FIRST_VERSION_WITH_GROUPS:
        asked = {one.group_id: one for one in reversed(request.groups)}
        names = dict.fromkeys(one.group_id for one in request.groups)
        fetch = GroupFetch(ctx, request, committed_offsets, metadata, pace)
        if request.require_stable:
            fetch.not_confirmed = await committed_offsets.not_confirmed(names)
        return OffsetFetchResponse(groups=[await fetch.answer(asked[name]) for name in names])
    group, error = None, ErrorCode.NONE
    try:
        if request.require_stable and await committed_offsets.not_confirmed([request.group_id]):
            raise _not_confirmed()
        group = committed_offsets.find(request.group_id)
    except KafkaError as refusal:
        error = refusal.code
        if ctx.api_version >= FIRST_VERSION_WITH_GROUP_ERROR:
            return OffsetFetchResponse(error_code=error)
    if request.topics is None:
        wanted = {name: places async for name, places in _all_places(ctx, group, pace)}
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
            await pace.step()
        topics.append(OffsetFetchResponseTopic(name=name, partitions=answers))
    return OffsetFetchResponse(topics=topics)


def _not_confirmed() -> KafkaError:
    return KafkaError(ErrorCode.NOT_COORDINATOR, "another broker may have followed this coordinator")


def _may_see(ctx: RequestContext, topic: str) -> bool:
    return ctx.may(AclOperation.DESCRIBE, AclResourceType.TOPIC, topic)


def _merged(topics: Iterable[tuple[Topic, Iterable[int]]]) -> dict[Topic, dict[int, None]]:
    """Each topic once and in it each partition once, in the order in which they are named first."""
    merged: dict[Topic, dict[int, None]] = {}
    for topic, partitions in topics:
        merged.setdefault(topic, {}).update(dict.fromkeys(partitions))
    return merged


def _find(group: GroupPort | None, topic: str, partition: int) -> CommittedOffset:
    return (group.offsets.get(topic, partition) if group is not None else None) or NOTHING


def _is_unstable(request: OffsetFetchRequest, group: GroupPort | None, topic: str, partition: int) -> bool:
    """Whether the client wants to know of no offset that a transaction is about to change (KIP-447)."""
    return request.require_stable and group is not None and group.offsets.has_pending(topic, partition)


async def _all_places(
    ctx: RequestContext, group: GroupPort | None, pace: Pace
) -> AsyncIterator[tuple[str, dict[int, None]]]:
    """Every partition that has an offset and that the client may know of, topic by topic."""
    found: dict[str, list[int]] = {}
    for topic, partition in list(group.offsets.committed) if group is not None else ():
        found.setdefault(topic, []).append(partition)
        await pace.step()
    for topic in sorted(found):
        await pace.step(COMMITTED_GROUP)
        if _may_see(ctx, topic):
            yield topic, dict.fromkeys(sorted(found[topic]))


class GroupFetch:
    """Answers for groups, from version 8 on. Those without room in the answer are put off: clients ask again."""

    def __init__(
        self,
        ctx: RequestContext,
        request: OffsetFetchRequest,
        committed_offsets: CommittedOffsets,
        metadata: ClusterMetadata,
        pace: Pace,
    ) -> None:
        self._ctx = ctx
        self._request = request
        self._by_id = ctx.api_version >= TOPIC_ID_VERSION
        self._committed_offsets = committed_offsets
        self._metadata = metadata
        self._pace = pace
        self._budget = Budget()
        self.not_confirmed: Container[str] = ()
        """Groups that another broker may coordinate by now."""

    async def answer(self, asked: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        """What one group has committed, or why that is not told."""
        await self._pace.step(COMMITTED_GROUP * steps_of(asked.group_id))
        try:
            if self._budget.is_spent:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the answer is full")
            if asked.group_id in self.not_confirmed:
                raise _not_confirmed()
            group = self._committed_offsets.find(asked.group_id)
            _check_member(group, asked)
        except KafkaError as error:
            return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=error.code)
        topics = [
            await self._topic(group, name, topic_id, partitions)
            async for name, topic_id, partitions in self._wanted(group, asked)
        ]
        return OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics)

    async def _wanted(
        self, group: GroupPort | None, asked: OffsetFetchRequestGroup
    ) -> AsyncIterator[tuple[str | None, UUID, Iterable[int]]]:
        """Topics by name, None for one that there is not, with their ids and partitions."""
        if asked.topics is None:
            async for name, partitions in _all_places(self._ctx, group, self._pace):
                topic_id = self._metadata.topic_id(name)
                if topic_id is not None or not self._by_id:
                    yield name, topic_id or ZERO_UUID, partitions
            return
        named = _merged(((one.name, one.topic_id), one.partition_indexes) for one in asked.topics)
        for (name, topic_id), partitions in named.items():
            yield self._metadata.topic_name(topic_id) if self._by_id else name, topic_id, partitions

    async def _topic(
        self, group: GroupPort | None, name: str | None, topic_id: UUID, partitions: Iterable[int]
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
            await self._pace.step()
        return OffsetFetchResponseTopics(name=name or "", topic_id=topic_id, partitions=answers)


def _check_member(group: GroupPort | None, asked: OffsetFetchRequestGroup) -> None:
    """A client that claims to be a member of the consumer protocol has to be one, if there is such a group.

    Raises KafkaError UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION.
    """
    if group is None:
        return
    error = group.check_fetch(asked.member_id, asked.member_epoch)
    if error is not ErrorCode.NONE:
        raise KafkaError(error, "not a present member of the group")


async def _fetch_from_zookeeper(
    request: OffsetFetchRequest, metadata: ClusterMetadata, offsets: ZooKeeperOffsets, pace: Pace
) -> OffsetFetchResponse:
    topics = []
    for name, partitions in _merged((one.name, one.partition_indexes) for one in request.topics or ()).items():
        answers = []
        for index in partitions:
            offset, error = NO_OFFSET, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if metadata.has_partition(name, index):
                found = await offsets.read(request.group_id, (name, index))
                if found is not None:
                    offset, error = found, ErrorCode.NONE
            answers.append(
                OffsetFetchResponsePartition(
                    partition_index=index, committed_offset=offset, metadata="", error_code=error
                )
            )
            await pace.step()
        topics.append(OffsetFetchResponseTopic(name=name, partitions=answers))
    return OffsetFetchResponse(topics=topics)
