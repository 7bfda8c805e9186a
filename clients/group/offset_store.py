"""Commits and reads of a group's offsets by one member, with retries and fencing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...protocol.apis import ApiKey
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.negotiation import last_version
from ...protocol.topic_partition import TopicPartition
from ..client import Client
from ..errors import CommitFailedError, FencedInstanceIdError, RebalanceInProgressError, code_of
from .coordinator_link import CoordinatorLink
from .membership import OUTSIDE, Generation, GroupMembership
from .offset_requests import (
    OffsetAndMetadata,
    commit_request,
    committed_offsets,
    fetch_requests,
    topic_ids,
)
from .settings import GroupSettings

_FIRST_COMMIT_WITH_INSTANCES = 7


class OffsetStore:
    """The committed offsets of one group."""

    def __init__(self, client: Client, link: CoordinatorLink, member: GroupMembership, settings: GroupSettings) -> None:
        self._client = client
        self._link = link
        self._member = member
        self._settings = settings

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, as_member: bool, timeout_ms: int
    ) -> None:
        """Commit offsets, as a member of the present generation or (not `as_member`) as the group's only consumer.

        Raises CommitFailedError, RebalanceInProgressError, FencedInstanceIdError, KafkaError.
        """
        sender = self._member.generation if as_member else OUTSIDE
        instance = self._settings.group_instance_id if as_member else None

        async def ask() -> None:
            if as_member:
                self._check_is_member(sender)
            ids = topic_ids(self._client.cluster, offsets)
            request = commit_request(self._settings.group_id, offsets, sender, instance, ids=ids)
            lowest = 0 if instance is None else _FIRST_COMMIT_WITH_INSTANCES
            highest = last_version(ApiKey.OFFSET_COMMIT, by_name=not ids)
            response = await self._link.send(request, lowest=lowest, highest=highest)
            names = {topic_id: name for name, topic_id in ids.items()}
            for topic in response.topics:
                for partition in topic.partitions:
                    name = topic.name or names.get(topic.topic_id, str(topic.topic_id))
                    place = TopicPartition(name, partition.partition_index)
                    self._take_in(code_of(partition.error_code), place, sender)

        await self._client.retrying(ask, timeout_ms=timeout_ms)

    def _check_is_member(self, sender: Generation) -> None:
        """Raise if the generation has changed: a commit must not be sent in another generation, nor between two."""
        if self._member.is_joining:
            raise RebalanceInProgressError(self._settings.group_id)
        if self._member.generation != sender or self._member.is_outside:
            raise CommitFailedError(self._settings.group_id)

    def _take_in(self, code: ErrorCode, place: TopicPartition, sender: Generation) -> None:
        """Raise the coordinator's error, and apply it to the membership if the sender is still the same member."""
        member, group_id = self._member, self._settings.group_id
        is_current = sender != OUTSIDE and member.generation == sender
        if code is ErrorCode.FENCED_INSTANCE_ID:
            fenced = FencedInstanceIdError(group_id, self._settings.group_instance_id)
            if is_current:
                member.fail(fenced)
            raise fenced
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            if is_current:
                member.request_rejoin("a commit failed during a rebalance")
            raise RebalanceInProgressError(group_id)
        if code is ErrorCode.STALE_MEMBER_EPOCH:
            raise CommitFailedError(group_id)
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            if is_current:
                known = code is ErrorCode.ILLEGAL_GENERATION
                member.expelled(f"a commit failed with {code.name}", keep_member_id=known)
            raise CommitFailedError(group_id)
        self._link.check(code, f"commit of {place}")

    async def fetch(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int | None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offset of each partition, None without one; one attempt without a timeout.

        Raises KafkaError.
        """
        wanted, group_id = list(partitions), self._settings.group_id

        async def ask() -> dict[TopicPartition, OffsetAndMetadata]:
            ids = topic_ids(self._client.cluster, wanted)
            highest = last_version(ApiKey.OFFSET_FETCH, by_name=not ids)
            version = await self._link.version_for(ApiKey.OFFSET_FETCH, highest=highest)
            (request,) = fetch_requests([group_id], wanted, version, ids)
            response = await self._link.send(request, lowest=version, highest=version)
            found = committed_offsets([group_id], [response], ids)[group_id]
            if isinstance(found, KafkaError):
                self._link.check(found.code, found.message)
                raise found
            return found

        if not wanted:
            return {}
        found = await (ask() if timeout_ms is None else self._client.retrying(ask, timeout_ms=timeout_ms))
        return {tp: found.get(tp) for tp in wanted}
