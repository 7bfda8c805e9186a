"""Streams groups go back and forth between Apache Kafka 4.4.0 and the broker: the same groups, and members go on."""

from __future__ import annotations

import asyncio
import copy
import time
from pathlib import Path
from typing import Any

import pytest
from soak.groups.streams_members import topology
from tests.barnabas_server import BarnabasServer
from tests.kafka import KafkaServer

from barnabas.clients import Admin, NewTopic
from barnabas.clients.connection import BrokerConnection, ConnectionOptions
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.streams_group_describe import DescribedGroup, StreamsGroupDescribeRequest
from barnabas.protocol.messages.streams_group_heartbeat import (
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
)

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(280)]

SETTINGS = {
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.num.standby.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "2",
}
GROUP = "app"
PATIENCE_S = 90
RETRIED = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class Members:
    """Two members by hand: a dynamic one, and a static one with an endpoint and tags."""

    def __init__(self) -> None:
        self.epochs = {"a": 0, "b": 0}
        self.owned: dict[str, tuple[list[TaskIds], list[TaskIds]]] = {"a": ([], []), "b": ([], [])}

    async def beat(self, connection: BrokerConnection, name: str) -> StreamsGroupHeartbeatResponse:
        """One heartbeat; it is repeated while the coordinator is not ready."""
        request = StreamsGroupHeartbeatRequest(group_id=GROUP, member_id=name, member_epoch=self.epochs[name])
        request.active_tasks, request.standby_tasks = self.owned[name]
        request.warmup_tasks = []
        if name == "b":
            request.instance_id = "static"
        if not self.epochs[name]:
            request.rebalance_timeout_ms, request.topology, request.process_id = 60_000, topology(), f"process-{name}"
            if name == "b":
                request.user_endpoint = Endpoint(host="localhost", port=40_000)
                request.client_tags = [KeyValue(key="zone", value="z"), KeyValue(key="rack", value="r")]
        response = await ask(connection, request)
        assert response.error_code == ErrorCode.NONE, response
        self.epochs[name] = response.member_epoch
        if response.active_tasks is not None:
            self.owned[name] = response.active_tasks, response.standby_tasks
        return response

    async def settle(self, connection: BrokerConnection) -> None:
        """Let both members beat until the group is stable."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            for name in self.epochs:
                await self.beat(connection, name)
            if (await describe(connection)).group_state == "Stable":
                return
            assert time.monotonic() < deadline, await describe(connection)
            await asyncio.sleep(0.2)


async def ask(connection: BrokerConnection, request: Any) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        response = await connection.send(request, 1)
        if getattr(response, "error_code", 0) not in RETRIED:
            return response
        assert time.monotonic() < deadline, response
        await asyncio.sleep(0.2)


async def describe(connection: BrokerConnection) -> DescribedGroup:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        (group,) = (await connection.send(StreamsGroupDescribeRequest(group_ids=[GROUP]), 1)).groups
        if group.error_code not in RETRIED:
            found: DescribedGroup = group
            # The order of members and of tags is not a part of the state.
            found.members = sorted(found.members, key=lambda member: member.member_id)
            for member in found.members:
                member.client_tags = sorted(member.client_tags, key=lambda tag: tag.key)
            return found
        assert time.monotonic() < deadline, group
        await asyncio.sleep(0.2)


async def connect(bootstrap: str) -> BrokerConnection:
    """Connect once the coordinator is there."""
    host, _, port = bootstrap.rpartition(":")
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            connection = await BrokerConnection.open(host, int(port), ConnectionOptions("streams", 60_000, 60_000))
            (found,) = (await connection.send(FindCoordinatorRequest(coordinator_keys=[GROUP]), 4)).coordinators
            if found.error_code == ErrorCode.NONE:
                return connection
            connection.close()
        except KafkaError:
            pass
        assert time.monotonic() < deadline
        await asyncio.sleep(0.2)


async def settled(bootstrap: str, members: Members) -> DescribedGroup:
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic("t", 3)])
    connection = await connect(bootstrap)
    await members.settle(connection)
    described = await describe(connection)
    connection.close()
    return described


async def found_and_continued(bootstrap: str, members: Members) -> tuple[DescribedGroup, DescribedGroup]:
    """Return the group as the broker loads it, and after both members have sent heartbeats in their epochs."""
    connection = await connect(bootstrap)
    loaded = await describe(connection)
    await members.settle(connection)
    after = await describe(connection)
    connection.close()
    return loaded, after


def comparable(group: DescribedGroup) -> DescribedGroup:
    """Return the group without its topology: after a restart it has no partition counts until the first heartbeat."""
    without = copy.copy(group)
    without.topology = None
    return without


def test_a_group_moves_from_kafka_to_the_broker_and_back(tmp_path: Path) -> None:
    members = Members()
    with KafkaServer(tmp_path / "kafka", version="4.4.0", heap="512m", properties=SETTINGS) as kafka:
        before = asyncio.run(settled(kafka.bootstrap, members))
        assert [len(one.partitions) for member in before.members for one in member.assignment.active_tasks] == [2, 1]
        kafka.stop()
        settings = kafka.folder / "server.properties"
        with BarnabasServer(tmp_path / "ours", settings=settings, port=kafka.port) as ours:
            loaded, after = asyncio.run(found_and_continued(ours.bootstrap, members))
            assert comparable(loaded) == comparable(before)
            # The hashes of topics differ, so that the group has another epoch, with the same tasks.
            tasks = [(member.assignment, member.target_assignment) for member in before.members]
            assert [(member.assignment, member.target_assignment) for member in after.members] == tasks
            ours.stop()
        kafka.start()
        loaded, last = asyncio.run(found_and_continued(kafka.bootstrap, members))
        assert comparable(loaded) == comparable(after)
        assert [(member.assignment, member.target_assignment) for member in last.members] == tasks
