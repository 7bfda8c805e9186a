"""Groups: who is in them, what they have consumed, how far they are behind."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from ...protocol.apis import ApiKey
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.delete_groups import DeleteGroupsRequest
from ...protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ...protocol.messages.list_groups import ListGroupsRequest
from ...protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ...protocol.negotiation import LAST_VERSIONS_BY_NAME
from ...protocol.special_timestamps import LATEST
from ...protocol.topic_partition import TopicPartition
from ..client import Client
from ..connection import BrokerConnection
from ..errors import code_of
from ..group.offset_requests import (
    OffsetAndMetadata,
    commit_request,
    committed_offsets,
    fetch_requests,
)
from ..name_list import name_list
from ..offsets import OffsetLookup
from .coordinators import Coordinators
from .group_descriptions import GroupDescription, describe_on
from .outcomes import Outcome, outcome

Committed = dict[TopicPartition, OffsetAndMetadata]

_FIRST_LIST_WITH_STATES = 4
_FIRST_LIST_WITH_TYPES = 5
_FIRST_LEAVE_OF_MANY = 3


class GroupListing(NamedTuple):
    """One group as its coordinator lists it; `state` and `type` are empty where the broker does not tell."""

    group_id: str
    protocol_type: str
    state: str
    type: str


class PartitionLag(NamedTuple):
    """How far a group is behind in one partition; None for what is not known, such as an offset never committed."""

    group_id: str
    partition: TopicPartition
    committed: int | None
    end: int | None
    member_id: str | None
    client_id: str | None
    host: str | None

    @property
    def lag(self) -> int | None:
        return None if self.committed is None or self.end is None else max(0, self.end - self.committed)


class GroupAdmin:
    """What `Admin` does with groups."""

    def __init__(self, client: Client, *, timeout_ms: int) -> None:
        self._client = client
        self._timeout_ms = timeout_ms
        self._coordinators = Coordinators(client, timeout_ms=timeout_ms)

    async def list_groups(self, *, states: Collection[str] = (), types: Collection[str] = ()) -> list[GroupListing]:
        """The groups of all brokers, or those in these states (2.6) and of these types (3.8). Raises KafkaError."""
        states_filter, types_filter = name_list(states, "states"), name_list(types, "types")

        async def ask(node_id: int) -> list[GroupListing]:
            connection = await self._client.connection(node_id)
            lowest = _FIRST_LIST_WITH_TYPES if types else _FIRST_LIST_WITH_STATES if states else 0
            version = connection.version_for(ApiKey.LIST_GROUPS, lowest=lowest)
            request = ListGroupsRequest(states_filter=states_filter, types_filter=types_filter)
            response = await connection.send(request, version)
            if response.error_code != ErrorCode.NONE:
                raise KafkaError(code_of(response.error_code), f"groups of broker {node_id}")
            return [GroupListing(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in response.groups]

        async def attempt() -> list[list[GroupListing]]:
            return await asyncio.gather(*map(ask, self._client.cluster.brokers))

        await self._client.refresh_metadata()
        found = await self._client.retrying(attempt, timeout_ms=self._timeout_ms)
        return sorted(listing for listings in found for listing in listings)

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription | KafkaError]:
        """State and members; a group that does not exist is GROUP_ID_NOT_FOUND."""
        return await self._coordinators.ask(group_ids, describe_on)

    async def delete_groups(self, group_ids: Iterable[str]) -> dict[str, Outcome]:
        """Delete groups without members, and all they have committed."""

        async def ask(connection: BrokerConnection, ids: list[str]) -> dict[str, Outcome]:
            response = await connection.send(DeleteGroupsRequest(groups_names=ids))
            return {r.group_id: outcome(r.error_code, f"group {r.group_id!r}") for r in response.results}

        return await self._coordinators.ask(group_ids, ask)

    # Offsets

    async def list_group_offsets(
        self, group_ids: Iterable[str], partitions: Iterable[TopicPartition] | None = None
    ) -> dict[str, Committed | KafkaError]:
        """What each group has committed, of these partitions or of all. A group nobody knows has nothing."""
        wanted = None if partitions is None else list(partitions)

        async def ask(connection: BrokerConnection, ids: list[str]) -> dict[str, Committed | KafkaError]:
            version = connection.version_for(
                ApiKey.OFFSET_FETCH,
                lowest=2 if wanted is None else 0,
                highest=LAST_VERSIONS_BY_NAME[ApiKey.OFFSET_FETCH],
            )
            answers = [connection.send(request, version) for request in fetch_requests(ids, wanted, version)]
            return committed_offsets(ids, await asyncio.gather(*answers))

        return await self._coordinators.ask(group_ids, ask)

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    ) -> dict[TopicPartition, Outcome]:
        """Set what an inactive group has committed; an active one answers UNKNOWN_MEMBER_ID. Raises KafkaError."""
        new = {tp: OffsetAndMetadata(at) if isinstance(at, int) else at for tp, at in offsets.items()}

        async def ask(connection: BrokerConnection, ids: list[str]) -> dict[str, dict[TopicPartition, Outcome]]:
            version = connection.version_for(ApiKey.OFFSET_COMMIT, highest=LAST_VERSIONS_BY_NAME[ApiKey.OFFSET_COMMIT])
            response = await connection.send(commit_request(group_id, new), version)
            return {group_id: _by_partition(response.topics)}

        return await self._coordinators.ask_one(group_id, ask)

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Outcome]:
        """Forget offsets of topics that no member is subscribed to (KIP-496, brokers since 2.4). Raises KafkaError."""
        topics: dict[str, OffsetDeleteRequestTopic] = {}
        for tp in partitions:
            topic = topics.setdefault(tp.topic, OffsetDeleteRequestTopic(name=tp.topic))
            topic.partitions.append(OffsetDeleteRequestPartition(partition_index=tp.partition))
        request = OffsetDeleteRequest(group_id=group_id, topics=list(topics.values()))

        async def ask(
            connection: BrokerConnection, ids: list[str]
        ) -> dict[str, dict[TopicPartition, Outcome] | KafkaError]:
            response = await connection.send(request)
            error = outcome(response.error_code, f"group {group_id!r}")
            return {group_id: error or _by_partition(response.topics)}

        return await self._coordinators.ask_one(group_id, ask)

    async def remove_members(
        self, group_id: str, instance_ids: Iterable[str] | None = None, *, reason: str = "removed by an admin client"
    ) -> dict[str, Outcome]:
        """Remove static members (KIP-345), or all members there are (KIP-571); brokers since 2.4. Raises KafkaError."""
        if instance_ids is not None:
            members = [
                MemberIdentity(group_instance_id=name, reason=reason)
                for name in name_list(instance_ids, "instance_ids")
            ]
        else:
            described = (await self.describe_groups([group_id]))[group_id]
            if isinstance(described, KafkaError):
                raise described
            members = [
                MemberIdentity(member_id=m.member_id, group_instance_id=m.group_instance_id, reason=reason)
                for m in described.members
            ]
        request = LeaveGroupRequest(group_id=group_id, members=members)

        async def ask(connection: BrokerConnection, ids: list[str]) -> dict[str, dict[str, Outcome] | KafkaError]:
            version = connection.version_for(ApiKey.LEAVE_GROUP, lowest=_FIRST_LEAVE_OF_MANY)
            response = await connection.send(request, version)
            error = outcome(response.error_code, f"group {group_id!r}")
            return {
                group_id: error
                or {m.group_instance_id or m.member_id: outcome(m.error_code, "member") for m in response.members}
            }

        return await self._coordinators.ask_one(group_id, ask)

    async def group_lag(self, group_ids: Iterable[str] | None = None) -> list[PartitionLag]:
        """How far groups (all by default) are behind, by group and partition, whether they have members or not.

        Partitions are those that are committed or assigned. Raises KafkaError, also for a group that is named and
        does not exist.
        """
        ids = [g.group_id for g in await self.list_groups()] if group_ids is None else name_list(group_ids, "group_ids")
        described, offsets = await asyncio.gather(self.describe_groups(ids), self.list_group_offsets(ids))
        lags: list[PartitionLag] = []
        for group_id in sorted(ids):
            committed, group = offsets[group_id], described[group_id]
            if isinstance(committed, KafkaError):
                raise committed
            if isinstance(group, KafkaError) and group_ids is not None and not committed:
                raise group
            owners = {} if isinstance(group, KafkaError) else {tp: m for m in group.members for tp in m.assigned}
            for tp in sorted(committed.keys() | owners.keys()):
                at, owner = committed.get(tp), owners.get(tp)
                who = (owner.member_id, owner.client_id, owner.host) if owner is not None else (None, None, None)
                lags.append(PartitionLag(group_id, tp, at.offset if at else None, None, *who))
        ends = await self._ends({lag.partition for lag in lags})
        return [lag._replace(end=ends.get(lag.partition)) for lag in lags]

    async def _ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The end of each partition that has a leader now."""
        await self._client.ask_metadata({tp.topic for tp in partitions})
        there = [tp for tp in partitions if self._client.cluster.leader(tp) is not None]
        found = await OffsetLookup(self._client).find(dict.fromkeys(there, LATEST), timeout_ms=self._timeout_ms)
        return {tp: at.offset for tp, at in found.items()}


def _by_partition(topics: Iterable[Any]) -> dict[TopicPartition, Outcome]:
    return {
        TopicPartition(topic.name, p.partition_index): outcome(p.error_code, f"{topic.name}-{p.partition_index}")
        for topic in topics
        for p in topic.partitions
    }
