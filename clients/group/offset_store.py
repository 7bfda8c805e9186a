"""A group's offsets as one member commits and reads them: OffsetCommit and OffsetFetch, with retries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ...protocol.apis import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ...protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from ...protocol.topic_partition import TopicPartition
from ..client import Client
from ..errors import CommitFailedError, FencedInstanceIdError, RebalanceInProgressError, code_of
from .coordinator_link import CoordinatorLink
from .membership import OUTSIDE, Generation, Membership
from .settings import GroupSettings

LAST_VERSION_BY_NAME = 9
_FIRST_FETCH_WITH_STABLE = 7
_FIRST_FETCH_WITH_GROUPS = 8
_FIRST_COMMIT_WITH_INSTANCES = 7
_THROWN_OUT = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


class OffsetAndMetadata(NamedTuple):
    """A committed offset: the next record to be read. `leader_epoch` of the record before it, -1 if unknown."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetStore:
    """What one group has consumed."""

    def __init__(self, client: Client, link: CoordinatorLink, member: Membership, settings: GroupSettings) -> None:
        self._client = client
        self._link = link
        self._member = member
        self._settings = settings

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, as_member: bool, timeout_ms: int
    ) -> None:
        """Store offsets, as a member of the generation of now or (not `as_member`) as the group's only consumer.

        Raises CommitFailedError, RebalanceInProgressError, FencedInstanceIdError, KafkaError.
        """
        sender = self._member.generation if as_member else OUTSIDE
        request = OffsetCommitRequest(
            group_id=self._settings.group_id,
            generation_id_or_member_epoch=sender.number,
            member_id=sender.member_id,
            group_instance_id=self._settings.group_instance_id if as_member else None,
            topics=_commit_topics(offsets),
        )

        async def ask() -> None:
            if as_member:
                self._check_is_member(sender)
            lowest = 0 if request.group_instance_id is None else _FIRST_COMMIT_WITH_INSTANCES
            response = await self._link.send(request, lowest=lowest, highest=LAST_VERSION_BY_NAME)
            assert isinstance(response, OffsetCommitResponse)
            for topic in response.topics:
                for partition in topic.partitions:
                    place = TopicPartition(topic.name, partition.partition_index)
                    self._take_in(code_of(partition.error_code), place, sender)

        await self._client.retrying(ask, timeout_ms=timeout_ms)

    def _check_is_member(self, sender: Generation) -> None:
        """A commit that was begun in one generation must not be sent in another, nor between two."""
        if self._member.is_joining:
            raise RebalanceInProgressError(self._settings.group_id)
        if self._member.generation != sender or self._member.is_outside:
            raise CommitFailedError(self._settings.group_id)

    def _take_in(self, code: ErrorCode, place: TopicPartition, sender: Generation) -> None:
        member, group_id = self._member, self._settings.group_id
        is_current = sender != OUTSIDE and member.generation == sender
        if code is ErrorCode.FENCED_INSTANCE_ID:
            error = FencedInstanceIdError(group_id, self._settings.group_instance_id)
            if is_current:
                member.fail(error)
            raise error
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            if is_current:
                member.request_rejoin("a commit met a rebalance")
            raise RebalanceInProgressError(group_id)
        if code in _THROWN_OUT:
            if is_current:
                member.expelled(f"a commit was answered with {code.name}", keep_member_id=code is not _UNKNOWN)
            raise CommitFailedError(group_id)
        self._link.check(code, f"commit of {place}")

    async def fetch(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The committed offset of each partition, None where there is none. Raises KafkaError."""
        wanted = list(partitions)
        topics: dict[str, list[int]] = {}
        for tp in wanted:
            topics.setdefault(tp.topic, []).append(tp.partition)

        async def ask() -> dict[TopicPartition, OffsetAndMetadata | None]:
            version = await self._link.version_for(ApiKey.OFFSET_FETCH, highest=LAST_VERSION_BY_NAME)
            request = fetch_request(self._settings.group_id, topics, version)
            response = await self._link.send(request, lowest=version, highest=version)
            return self._committed(response)

        found = await self._client.retrying(ask, timeout_ms=timeout_ms)
        return {tp: found.get(tp) for tp in wanted}

    def _committed(self, response: OffsetFetchResponse) -> dict[TopicPartition, OffsetAndMetadata | None]:
        group = response.groups[0] if response.groups else response
        self._link.check(code_of(group.error_code), "OffsetFetch")
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        for topic in group.topics:
            for p in topic.partitions:
                place, code = TopicPartition(topic.name, p.partition_index), code_of(p.error_code)
                if code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    self._link.check(code, f"offset of {place}")
                found[place] = committed_offset(p.committed_offset, p.metadata, p.committed_leader_epoch)
        return found


_UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


def committed_offset(offset: int, metadata: str | None, leader_epoch: int) -> OffsetAndMetadata | None:
    """As it stands in a response, where -1 is none."""
    return OffsetAndMetadata(offset, metadata or "", leader_epoch) if offset >= 0 else None


def fetch_request(group_id: str, topics: Mapping[str, list[int]] | None, version: int) -> OffsetFetchRequest:
    """What asks for these offsets of one group, or all (None), in that version."""
    stable = version >= _FIRST_FETCH_WITH_STABLE
    if version >= _FIRST_FETCH_WITH_GROUPS:
        wanted = (
            None
            if topics is None
            else [OffsetFetchRequestTopics(name=name, partition_indexes=list(p)) for name, p in topics.items()]
        )
        group = OffsetFetchRequestGroup(group_id=group_id, topics=wanted)
        return OffsetFetchRequest(groups=[group], require_stable=stable)
    named = (
        None
        if topics is None
        else [OffsetFetchRequestTopic(name=name, partition_indexes=list(p)) for name, p in topics.items()]
    )
    return OffsetFetchRequest(group_id=group_id, topics=named, require_stable=stable)


def _commit_topics(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> list[OffsetCommitRequestTopic]:
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for tp, at in offsets.items():
        topic = topics.setdefault(tp.topic, OffsetCommitRequestTopic(name=tp.topic))
        topic.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=tp.partition,
                committed_offset=at.offset,
                committed_leader_epoch=at.leader_epoch,
                committed_metadata=at.metadata,
            )
        )
    return list(topics.values())
