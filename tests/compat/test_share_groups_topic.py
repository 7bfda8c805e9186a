"""Share groups move between Apache Kafka 4.4.0 and the broker: the same groups, whose member continues."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.barnabas_server import BarnabasServer
from tests.kafka import KafkaServer

from barnabas.clients import Admin, NewTopic
from barnabas.clients.connection import BrokerConnection, ConnectionOptions
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import alter_share_group_offsets as altered
from barnabas.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.share_group_describe import DescribedGroup, ShareGroupDescribeRequest
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(280)]

SETTINGS = {
    "group.share.assignment.interval.ms": "0",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "2",
}
GROUP, EMPTY_GROUP, TOPIC, PARTITIONS = "workers", "others", "jobs", 3
PATIENCE_S = 90
RETRIED = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class Found(NamedTuple):
    """The groups as a broker reports them."""

    groups: list[DescribedGroup]
    offsets: dict[tuple[str, str, int], int]


async def ask(connection: BrokerConnection, request: Any, version: int) -> Any:
    """Send a request until the coordinator has loaded the groups."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        response = await connection.send(request, version)
        codes = [getattr(response, "error_code", 0), *(group.error_code for group in getattr(response, "groups", ()))]
        if not any(code in RETRIED for code in codes):
            return response
        assert time.monotonic() < deadline, response
        await asyncio.sleep(0.2)


async def connect(bootstrap: str) -> BrokerConnection:
    """Connect when the broker coordinates the groups."""
    host, _, port = bootstrap.rpartition(":")
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            connection = await BrokerConnection.open(host, int(port), ConnectionOptions("share", 60_000, 60_000))
            (found,) = (await connection.send(FindCoordinatorRequest(coordinator_keys=[GROUP]), 4)).coordinators
            if found.error_code == ErrorCode.NONE:
                return connection
            connection.close()
        except KafkaError:
            pass
        assert time.monotonic() < deadline
        await asyncio.sleep(0.2)


async def beat(connection: BrokerConnection, epoch: int) -> ShareGroupHeartbeatResponse:
    topics = None if epoch else [TOPIC]
    request = ShareGroupHeartbeatRequest(
        group_id=GROUP, member_id="member", member_epoch=epoch, subscribed_topic_names=topics
    )
    response: ShareGroupHeartbeatResponse = await ask(connection, request, 1)
    assert response.error_code == ErrorCode.NONE, response
    return response


async def find(connection: BrokerConnection) -> Found:
    described = await ask(connection, ShareGroupDescribeRequest(group_ids=[GROUP, EMPTY_GROUP]), 1)
    wanted = [DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None) for name in (GROUP, EMPTY_GROUP)]
    offsets = await ask(connection, DescribeShareGroupOffsetsRequest(groups=wanted), 1)
    return Found(
        sorted(described.groups, key=lambda group: group.group_id),
        {
            (group.group_id, topic.topic_name, one.partition_index): one.start_offset
            for group in offsets.groups
            for topic in group.topics
            for one in topic.partitions
        },
    )


async def prepare(bootstrap: str) -> tuple[int, Found]:
    """Create the topic, a group with a member, and a group with a start offset; return the member's epoch."""
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic(TOPIC, PARTITIONS)])
    connection = await connect(bootstrap)
    response, partitions, deadline = await beat(connection, 0), 0, time.monotonic() + PATIENCE_S
    while partitions < PARTITIONS:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.2)
        response = await beat(connection, response.member_epoch)
        if response.assignment is not None:
            partitions = sum(len(topic.partitions) for topic in response.assignment.topic_partitions)
    partition = altered.AlterShareGroupOffsetsRequestPartition(partition_index=1, start_offset=7)
    topic = altered.AlterShareGroupOffsetsRequestTopic(topic_name=TOPIC, partitions=[partition])
    result = await ask(connection, altered.AlterShareGroupOffsetsRequest(group_id=EMPTY_GROUP, topics=[topic]), 0)
    assert result.error_code == ErrorCode.NONE, result
    found = await find(connection)
    while len(found.offsets) <= PARTITIONS:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.2)
        found = await find(connection)
    connection.close()
    return response.member_epoch, found


async def go_on(bootstrap: str, epoch: int) -> tuple[int, Found, Found]:
    """Return the groups as the broker has loaded them, and after a heartbeat of the member in its epoch."""
    connection = await connect(bootstrap)
    loaded = await find(connection)
    response = await beat(connection, epoch)
    after = await find(connection)
    connection.close()
    return response.member_epoch, loaded, after


def assignments(found: Found) -> list[Any]:
    return [
        (group.group_id, group.group_state, member.assignment) for group in found.groups for member in group.members
    ]


def test_groups_move_from_kafka_to_the_broker_and_back(tmp_path: Path) -> None:
    with KafkaServer(tmp_path / "kafka", version="4.4.0", heap="512m", properties=SETTINGS) as kafka:
        epoch, before = asyncio.run(prepare(kafka.bootstrap))
        assert before.offsets[EMPTY_GROUP, TOPIC, 1] == 7
        kafka.stop()
        settings = kafka.folder / "server.properties"
        with BarnabasServer(tmp_path / "ours", settings=settings, port=kafka.port) as ours:
            epoch, loaded, after = asyncio.run(go_on(ours.bootstrap, epoch))
            assert loaded == before
            # The hashes of topics differ, so that the group has another epoch, with the same assignment.
            assert assignments(after) == assignments(before) and after.offsets == before.offsets
            ours.stop()
        kafka.start()
        epoch, loaded, last = asyncio.run(go_on(kafka.bootstrap, epoch))
        assert loaded == after
        assert assignments(last) == assignments(before) and last.offsets == before.offsets
