"""A broker in a simulated world, and members of groups that send requests of any version."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from barnabas.clients.connection import BrokerConnection, ConnectionOptions
from barnabas.protocol.codec import encode_versioned
from barnabas.protocol.consumer_protocol import ConsumerProtocolSubscription
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from barnabas.server.broker_state import BrokerState
from barnabas.server.coordinator.group.classic_group import ClassicGroup
from barnabas.simulation.loop import SimLoop, run
from barnabas.simulation.machines import HOST, PORT, World

GROUP = "readers"
SESSION_MS = 10_000
REBALANCE_MS = 30_000
QUICK = {"group.initial.rebalance.delay.ms": "0", "group.consumer.assignment.interval.ms": "0"}


def subscription(*topics: str) -> bytes:
    return encode_versioned(ConsumerProtocolSubscription(topics=list(topics)), 0)


class Cluster:
    """A running broker with the topic `t`, which has two partitions."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.loop = world.loop

    @property
    def state(self) -> BrokerState:
        assert self.world.broker.server is not None
        return self.world.broker.server.state

    def group(self, group_id: str = GROUP) -> ClassicGroup | None:
        return cast("ClassicGroup | None", self.state.group_coordinator.group_manager.find_group(group_id))

    async def connect(self, client_id: str = "c") -> BrokerConnection:
        options = ConnectionOptions(client_id=client_id, request_timeout_ms=900_000)
        return await BrokerConnection.open(HOST, PORT, options)

    async def ask(self, request: Any, version: int) -> Any:
        """Send a request over a new connection and return the response."""
        connection = await self.connect()
        try:
            return await connection.send(request, version)
        finally:
            connection.close()

    async def member(self, **options: Any) -> Member:
        member = Member(self, **options)
        await member.connect()
        return member

    async def until(self, condition: Callable[[], Any], seconds: float = 600.0) -> None:
        """Advance virtual time until the condition holds."""
        deadline = self.loop.time() + seconds
        while not condition():
            assert self.loop.time() < deadline, f"the condition did not hold within {seconds:g} s"
            await asyncio.sleep(0.01)

    async def create_topic(self, name: str, partitions: int = 1) -> None:
        await self.world.create_topic(name, partitions)

    async def delete_topic(self, name: str) -> None:
        await self.world.delete_topic(name)

    async def restart(self, how: str = "kill") -> None:
        """Stop the broker with kill -9, a power failure or a clean stop, and start it with the data on its disk."""
        if how == "stop":
            await self.world.broker.stop()
        else:
            self.world.broker.crash(how)  # type: ignore[arg-type]
        await self.world.broker.start()
        await self.until(lambda: not self.state.group_coordinator.group_manager.is_loading)

    async def commit(self, offset: int, version: int = 8, **options: Any) -> list[ErrorCode]:
        """Commit an offset of `t`-0 with OffsetCommit, by default without a member id; return the error codes."""
        response = await self.ask(commit_request(self, version, offset, **options), version)
        return [ErrorCode(p.error_code) for topic in response.topics for p in topic.partitions]

    async def committed(self, group_id: str = GROUP, version: int = 7, topic: str = "t") -> int:
        """Return the committed offset of partition 0 of a topic, with OffsetFetch."""
        if version < 8:
            asked = OffsetFetchRequestTopic(name=topic, partition_indexes=[0])
            response = await self.ask(OffsetFetchRequest(group_id=group_id, topics=[asked]), version)
            assert response.error_code == ErrorCode.NONE
            (answer,) = response.topics
        else:
            wanted = OffsetFetchRequestTopics(name=topic, partition_indexes=[0])
            if version >= 10:
                wanted.topic_id = self.state.metadata.topic_id(topic)  # type: ignore[assignment]
            groups = [OffsetFetchRequestGroup(group_id=group_id, topics=[wanted])]
            response = await self.ask(OffsetFetchRequest(groups=groups), version)
            assert response.groups[0].error_code == ErrorCode.NONE
            (answer,) = response.groups[0].topics
        (partition,) = answer.partitions
        is_unknown = version == 0 and partition.committed_offset == -1
        assert partition.error_code == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_unknown else ErrorCode.NONE)
        return int(partition.committed_offset)


def commit_request(
    cluster: Cluster,
    version: int,
    offset: int,
    *,
    group_id: str = GROUP,
    generation: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
    topic: str = "t",
    partition: int = 0,
    metadata: str = "",
) -> OffsetCommitRequest:
    part = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata=metadata)
    asked = OffsetCommitRequestTopic(name=topic, partitions=[part])
    if version >= 10:
        asked.topic_id = cluster.state.metadata.topic_id(topic)  # type: ignore[assignment]
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[asked],
    )


class Member:
    """A client of the classic protocol that sends one request at a time."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        group_id: str = GROUP,
        instance_id: str | None = None,
        topics: Sequence[str] = ("t",),
        protocols: Sequence[str] = ("range",),
        versions: tuple[int, int, int, int] = (9, 5, 4, 5),
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
    ) -> None:
        self.cluster = cluster
        self.group_id = group_id
        self.instance_id = instance_id
        self.metadata = subscription(*topics)
        self.protocols = protocols
        self.join_version, self.sync_version, self.heartbeat_version, self.leave_version = versions
        self.session_ms = session_ms
        self.rebalance_ms = rebalance_ms
        self.member_id = ""
        self.generation = -1
        self.leader = ""
        self.joined: JoinGroupResponse | None = None
        self.assignment = b""
        self._connection: BrokerConnection | None = None

    @property
    def connection(self) -> BrokerConnection:
        assert self._connection is not None
        return self._connection

    async def connect(self) -> None:
        self._connection = await self.cluster.connect()

    async def find(self) -> None:
        await self.connection.send(FindCoordinatorRequest(key=self.group_id), 2)

    @property
    def is_leader(self) -> bool:
        return self.leader == self.member_id

    async def join_once(self) -> JoinGroupResponse:
        """Send one JoinGroup request and return the response."""
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=name, metadata=self.metadata) for name in self.protocols],
        )
        answer: JoinGroupResponse = await self.connection.send(request, self.join_version)
        if answer.error_code == ErrorCode.NONE:
            self.member_id, self.generation, self.leader = answer.member_id, answer.generation_id, answer.leader
            self.joined = answer
        return answer

    async def join(self) -> ErrorCode:
        """Send JoinGroup, and again with the member id that the coordinator assigned; return the error code."""
        answer = await self.join_once()
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            answer = await self.join_once()
        return ErrorCode(answer.error_code)

    async def sync(self, assignments: Mapping[str, bytes] | None = None) -> ErrorCode:
        """Send SyncGroup. A leader assigns to each member its member id, unless `assignments` are given."""
        if assignments is None:
            members = self.joined.members if self.joined is not None and self.is_leader else []
            assignments = {one.member_id: one.member_id.encode() for one in members}
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=None if self.joined is None else self.joined.protocol_name,
            assignments=[SyncGroupRequestAssignment(member_id=k, assignment=v) for k, v in assignments.items()],
        )
        answer: SyncGroupResponse = await self.connection.send(request, self.sync_version)
        self.assignment = bytes(answer.assignment)
        return ErrorCode(answer.error_code)

    async def heartbeat(self) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        return ErrorCode((await self.connection.send(request, self.heartbeat_version)).error_code)

    async def leave(self) -> ErrorCode:
        if self.leave_version < 3:
            request = LeaveGroupRequest(group_id=self.group_id, member_id=self.member_id)
        else:
            identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
            request = LeaveGroupRequest(group_id=self.group_id, members=[identity])
        answer = await self.connection.send(request, self.leave_version)
        return ErrorCode(answer.error_code or (answer.members[0].error_code if answer.members else 0))

    async def commit(self, offset: int, **options: Any) -> ErrorCode:
        request = commit_request(
            self.cluster,
            8,
            offset,
            group_id=self.group_id,
            generation=self.generation,
            member_id=self.member_id,
            instance_id=self.instance_id,
            **options,
        )
        (topic,) = (await self.connection.send(request, 8)).topics
        return ErrorCode(topic.partitions[0].error_code)

    async def enter(self) -> None:
        """Join and sync until the member has an assignment."""
        await self.find()
        while True:
            error = await self.join() or await self.sync()
            if error is ErrorCode.NONE:
                return
            assert error in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID), error
            if error is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""

    def vanish(self) -> None:
        """Close the connection without leaving the group."""
        self.connection.close()


async def enter_together(*members: Member) -> None:
    await members[0].find()
    await asyncio.gather(*(member.enter() for member in members))


async def rebalance(*members: Member) -> None:
    """Let all these members join and sync once. The group must not have other members."""
    for step in (Member.join, Member.sync):
        outcomes = await asyncio.gather(*(step(member) for member in members))
        assert set(outcomes) == {ErrorCode.NONE}, outcomes


Talk = Callable[[Cluster], Awaitable[None]]


def play(talk: Talk, *, settings: Mapping[str, str] | None = None, seed: int = 7) -> None:
    """Start a broker, create the topic `t`, run `talk`, and stop the broker."""

    async def main(loop: SimLoop) -> None:
        world = World(loop, seed, settings={**QUICK, **(settings or {})})
        await world.broker.start()
        cluster = Cluster(world)
        await cluster.create_topic("t", 2)
        await cluster.ask(FindCoordinatorRequest(key=GROUP), 2)
        await talk(cluster)
        assert world.broker.server is not None and not world.broker.server.failed.is_set()
        await world.broker.stop()

    run(main, seed)
