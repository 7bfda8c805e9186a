"""Members of streams groups that behave like clients: one heartbeat at a time, revocation before new tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, cast

from soak.groups.members import Cluster

from barnabas.clients.connection import BrokerConnection
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.streams_group_describe import DescribedGroup, StreamsGroupDescribeRequest
from barnabas.protocol.messages.streams_group_heartbeat import (
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from barnabas.server.coordinator.group.streams.streams_group import StreamsGroup

APPLICATION = "app"
Tasks = set[tuple[str, int]]
"""Tasks by subtopology id and partition number."""

SETTINGS = {"group.streams.initial.rebalance.delay.ms": "0", "group.streams.assignment.interval.ms": "0"}
"""Broker settings without delays of assignments."""


def topology(*sources: str, epoch: int = 0, changelog: str | None = "log") -> Topology:
    """Return a topology of one subtopology, which is stateful if there is a changelog."""
    changelogs = []
    if changelog is not None:
        compacted = [KeyValue(key="cleanup.policy", value="compact")]
        changelogs = [TopicInfo(name=f"{APPLICATION}-{changelog}", topic_configs=compacted)]
    one = Subtopology(subtopology_id="0", source_topics=list(sources or ["t"]), state_changelog_topics=changelogs)
    return Topology(epoch=epoch, subtopologies=[one])


class StreamsMember:
    """A member, which is a thread of an application.

    `active` and `standby` are the current tasks; `granted` has the active and standby tasks of the last assignment.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        *,
        process: str | None = None,
        instance_id: str | None = None,
        with_topology: Topology | None = None,
        endpoint: Endpoint | None = None,
        rebalance_ms: int = 30_000,
        group_id: str = APPLICATION,
    ) -> None:
        self.cluster = cluster
        self.group_id = group_id
        self.member_id = name
        self.process = process or name
        self.instance_id = instance_id
        self.topology = with_topology or topology()
        self.endpoint = endpoint
        self.rebalance_ms = rebalance_ms
        self.epoch = 0
        self.endpoint_epoch = 0
        self.active: Tasks = set()
        self.standby: Tasks = set()
        self.granted: tuple[Tasks, Tasks] = set(), set()
        self.statuses: dict[int, str] = {}
        self.last: StreamsGroupHeartbeatResponse | None = None
        self._reported: tuple[Tasks, Tasks] | None = None
        self._connection: BrokerConnection | None = None

    async def connect(self) -> StreamsMember:
        self._connection = await self.cluster.connect("streams")
        return self

    def vanish(self) -> None:
        """Close the connection without leaving the group."""
        assert self._connection is not None
        self._connection.close()

    async def send(self, version: int = 1, **fields: Any) -> StreamsGroupHeartbeatResponse:
        """Send a heartbeat with only these fields, and return the response."""
        assert self._connection is not None
        request = StreamsGroupHeartbeatRequest(
            **{
                "group_id": self.group_id,
                "member_id": self.member_id,
                "member_epoch": self.epoch,
                "endpoint_information_epoch": self.endpoint_epoch,
                "instance_id": self.instance_id,
                **fields,
            }
        )
        answer: StreamsGroupHeartbeatResponse = await self._connection.send(request, version)
        return answer

    def joining_fields(self) -> dict[str, Any]:
        """Return the fields of a heartbeat that joins."""
        return {
            "member_epoch": 0,
            "rebalance_timeout_ms": self.rebalance_ms,
            "topology": self.topology,
            "process_id": self.process,
            "user_endpoint": self.endpoint,
            "active_tasks": [],
            "standby_tasks": [],
            "warmup_tasks": [],
        }

    async def beat(self, **more: Any) -> ErrorCode:
        """Send a heartbeat as clients do, with the changed fields or, to join, all fields; return its error code."""
        fields: dict[str, Any] = {}
        if not self.epoch:
            fields = self.joining_fields()
        elif self._reported != (self.active, self.standby):
            fields = {"active_tasks": wire(self.active), "standby_tasks": wire(self.standby), "warmup_tasks": []}
        reported = set(self.active), set(self.standby)
        answer = await self.send(**(fields | more))
        if answer.error_code == ErrorCode.NONE:
            self._reported = reported
            self._take(answer)
        return ErrorCode(answer.error_code)

    def _take(self, answer: StreamsGroupHeartbeatResponse) -> None:
        self.last = answer
        self.epoch, self.endpoint_epoch = answer.member_epoch, answer.endpoint_information_epoch
        self.statuses = {one.status_code: one.status_detail for one in answer.status or ()}
        if answer.active_tasks is not None:
            self.granted = tasks(answer.active_tasks), tasks(answer.standby_tasks or ())

    def let_go(self) -> bool:
        """Revoke the tasks that are not in the last assignment; return whether there were any."""
        before = len(self.active), len(self.standby)
        self.active &= self.granted[0]
        self.standby &= self.granted[1]
        return (len(self.active), len(self.standby)) != before

    def take(self) -> None:
        """Adopt all tasks of the last assignment."""
        self.active, self.standby = set(self.granted[0]), set(self.granted[1])

    async def turn(self) -> ErrorCode:
        """Send a heartbeat, confirm a revocation with another heartbeat, and adopt the assignment."""
        code = await self.beat()
        if code is ErrorCode.NONE and self.let_go():
            code = await self.beat()
        if code is ErrorCode.NONE:
            self.take()
        return code

    async def leave(self, epoch: int = -1) -> ErrorCode:
        """Leave permanently, or with epoch -2 as a static member that will return."""
        answer = await self.send(member_epoch=epoch)
        self.epoch, self._reported = 0, None
        self.active, self.standby = set(), set()
        return ErrorCode(answer.error_code)

    def fenced(self) -> None:
        """Abandon all tasks, so that the next heartbeat joins again."""
        self.epoch, self._reported = 0, None
        self.active, self.standby = set(), set()
        self.granted = set(), set()


def wire(owned: Tasks) -> list[TaskIds]:
    names = sorted({name for name, _ in owned})
    return [
        TaskIds(subtopology_id=name, partitions=sorted(one for other, one in owned if other == name)) for name in names
    ]


def tasks(found: Iterable[TaskIds]) -> Tasks:
    return {(one.subtopology_id, partition) for one in found for partition in one.partitions}


async def streams_members(cluster: Cluster, *names: str, **options: Any) -> list[StreamsMember]:
    return [await StreamsMember(cluster, name, **options).connect() for name in names]


def streams_group(cluster: Cluster, group_id: str = APPLICATION) -> StreamsGroup:
    found = cluster.state.group_coordinator.group_manager.find_group(group_id)
    assert isinstance(found, StreamsGroup)
    return found


async def settle(*members: StreamsMember) -> None:
    """Send heartbeats of all members until the group is stable. Raises AssertionError after 30 rounds."""
    for _ in range(30):
        for member in members:
            assert await member.turn() is ErrorCode.NONE
        group = streams_group(members[0].cluster, members[0].group_id)
        if group.state_name == "Stable":
            return
        await asyncio.sleep(0.2)
    raise AssertionError(f"the group does not settle: {group.state_name}")


async def describe_streams(cluster: Cluster, group_id: str = APPLICATION, version: int = 1) -> DescribedGroup:
    response = await cluster.ask(StreamsGroupDescribeRequest(group_ids=[group_id]), version)
    return cast(DescribedGroup, response.groups[0])
