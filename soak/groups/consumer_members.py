"""Members of the consumer protocol that behave like clients: one heartbeat at a time, revocation before assignment."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from soak.groups.members import GROUP, Cluster, commit_request

from barnabas.clients.connection import BrokerConnection
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest, DescribedGroup
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from barnabas.server.coordinator.group.consumer_group import ConsumerGroup

Owned = set[tuple[str, int]]
"""Partitions by topic name and index."""


class Consumer:
    """A member. `owned` has its current partitions, `granted` the partitions of its last assignment."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        name: str = "",
        group_id: str = GROUP,
        instance_id: str | None = None,
        topics: Sequence[str] | None = ("t",),
        regex: str | None = None,
        assignor: str | None = None,
        rack_id: str | None = None,
        rebalance_ms: int = 30_000,
        version: int = 1,
    ) -> None:
        self.cluster = cluster
        self.group_id = group_id
        self.member_id = name
        self.instance_id = instance_id
        self.topics = topics
        self.regex = regex
        self.assignor = assignor
        self.rack_id = rack_id
        self.rebalance_ms = rebalance_ms
        self.version = version
        self.epoch = 0
        self.owned: Owned = set()
        self.granted: Owned = set()
        self.known_topics: dict[str, UUID] = {}
        """Topic ids that the member has cached, also of deleted topics."""
        self.interval_ms = 0
        self.heard_at = 0.0
        """The time of the last successful heartbeat."""
        self._reported: Owned = set()
        self._connection: BrokerConnection | None = None

    async def connect(self) -> Consumer:
        self._connection = await self.cluster.connect("consumer")
        return self

    def vanish(self) -> None:
        """Close the connection without leaving the group."""
        assert self._connection is not None
        self._connection.close()

    async def send(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat with only these fields, and return the response."""
        assert self._connection is not None
        request = ConsumerGroupHeartbeatRequest(
            **{
                "group_id": self.group_id,
                "member_id": self.member_id,
                "member_epoch": self.epoch,
                "instance_id": self.instance_id,
                **fields,
            }
        )
        answer: ConsumerGroupHeartbeatResponse = await self._connection.send(request, self.version)
        return answer

    async def beat(self, *, full: bool = False) -> ErrorCode:
        """Send a heartbeat as a client does, with the changed fields or with all fields; return its error code."""
        fields: dict[str, Any] = {}
        if full or not self.epoch:
            fields = {
                "rebalance_timeout_ms": self.rebalance_ms,
                "subscribed_topic_names": None if self.topics is None else list(self.topics),
                "subscribed_topic_regex": self.regex,
                "server_assignor": self.assignor,
                "rack_id": self.rack_id,
            }
        if full or not self.epoch or self.owned != self._reported:
            fields["topic_partitions"] = self._on_the_wire(self.owned)
        reported = set(self.owned)
        answer = await self.send(**fields)
        if answer.error_code == ErrorCode.NONE:
            self._reported = reported
            self._take(answer)
        return ErrorCode(answer.error_code)

    def _take(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        self.heard_at = self.cluster.loop.time()
        self.member_id = answer.member_id or self.member_id
        self.epoch = answer.member_epoch
        self.interval_ms = answer.heartbeat_interval_ms
        if answer.assignment is not None:
            self.granted = {
                (self._topic_name(one.topic_id), index)
                for one in answer.assignment.topic_partitions
                for index in one.partitions
            }

    def _topic_name(self, topic_id: UUID) -> str:
        for name, known in self.known_topics.items():
            if known == topic_id:
                return name
        return self.cluster.state.metadata.topic_name(topic_id) or str(topic_id)

    def _on_the_wire(self, owned: Owned) -> list[TopicPartitions]:
        topics: dict[UUID, list[int]] = {}
        for name, index in sorted(owned):
            topic_id = self.known_topics.get(name) or self.cluster.state.metadata.topic_id(name)
            if topic_id is not None:
                topics.setdefault(topic_id, []).append(index)
        return [TopicPartitions(topic_id=topic_id, partitions=indexes) for topic_id, indexes in topics.items()]

    def let_go(self) -> bool:
        """Revoke the partitions that are not in the last assignment; return whether there were any."""
        before = len(self.owned)
        self.owned &= self.granted
        return len(self.owned) < before

    def take(self) -> None:
        """Adopt the last assignment, after revoking the other partitions."""
        self.let_go()
        self.owned = set(self.granted)

    def begin_anew(self) -> None:
        """Abandon all partitions after fencing, so that the next heartbeat joins again."""
        self.epoch = 0
        self.owned, self.granted, self._reported = set(), set(), set()

    async def turn(self, *, full: bool = False) -> ErrorCode:
        """Send a heartbeat, confirm a revocation with another heartbeat, and adopt the assignment."""
        error = await self.beat(full=full)
        if error is ErrorCode.NONE:
            if self.let_go():
                error = await self.beat()
            self.take()
        return error

    async def leave(self, epoch: int = -1) -> ErrorCode:
        answer = await self.send(member_epoch=epoch)
        return ErrorCode(answer.error_code)

    async def commit(self, offset: int, version: int = 9, **options: Any) -> ErrorCode:
        """Commit an offset of `t`-0 with OffsetCommit; return the error code."""
        assert self._connection is not None
        fields = {
            "group_id": self.group_id,
            "generation": self.epoch,
            "member_id": self.member_id,
            "instance_id": self.instance_id,
            **options,
        }
        (topic,) = (
            await self._connection.send(commit_request(self.cluster, version, offset, **fields), version)
        ).topics
        return ErrorCode(topic.partitions[0].error_code)


async def consumers(cluster: Cluster, *names: str, **options: Any) -> list[Consumer]:
    """Create members that are connected and have not joined yet."""
    return [await Consumer(cluster, name=name, **options).connect() for name in names]


async def settle(*members: Consumer, turns: int = 8) -> None:
    """Send heartbeats of all members in turn until no epoch or assignment changes."""
    for _ in range(turns):
        before = [(member.epoch, set(member.owned)) for member in members]
        for member in members:
            error = await member.turn()
            assert error is ErrorCode.NONE, error.name
        if before == [(member.epoch, member.owned) for member in members]:
            return
    raise AssertionError(f"the group does not settle: {before}")


def group_of(cluster: Cluster) -> ConsumerGroup:
    group = cluster.group(GROUP)
    assert isinstance(group, ConsumerGroup)
    return group


def partitions(*places: str) -> Owned:
    """Parse partitions, as in `partitions("t-0", "t-1")`."""
    return {(name, int(index)) for name, _, index in (place.rpartition("-") for place in places)}


async def describe(cluster: Cluster, group_id: str = GROUP) -> DescribedGroup:
    answer = await cluster.ask(ConsumerGroupDescribeRequest(group_ids=[group_id]), 1)
    (described,) = answer.groups
    return described


async def beat_for(seconds: float, *members: Consumer) -> None:
    """Send heartbeats of all members every second, for this time."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        await asyncio.sleep(1)
        for member in members:
            assert await member.turn() is ErrorCode.NONE
