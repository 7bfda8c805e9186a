"""Requests about groups of at most a megabyte: none holds the loop up for long, and none asks for gigabytes."""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from soak.hostile.in_process import SETTINGS, HostileConnection
from tests.frames import request_body

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.codec import decode_response
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import decode_response_header
from barnabas.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.server.apis import response_budget
from barnabas.server.apis.kafka_apis import KafkaApis
from barnabas.server.broker import BrokerServer
from barnabas.server.broker_state import services
from barnabas.server.cleaning.worker_pool import WorkerPool
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.runtime.host import host_ports

MEGABYTE = 1_000_000
TURN_S = 0.25
MEMORY_BYTES = 64_000_000
NAMES = [f"{number:x}" for number in range(45_000)]
LONG_NAMES = [f"{number:a<32000}" for number in range(30)]


def fetch(name: str, partitions: list[int], groups: int = 1) -> OffsetFetchRequest:
    topics = [OffsetFetchRequestTopics(name=name, partition_indexes=partitions)]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)] * groups)


def commit(partitions: list[int]) -> OffsetCommitRequest:
    wanted = [OffsetCommitRequestPartition(partition_index=index, committed_offset=1) for index in partitions]
    return OffsetCommitRequest(group_id="h", topics=[OffsetCommitRequestTopic(name="t", partitions=wanted)])


def everything(groups: list[str]) -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in groups])


def delete(partitions: list[int]) -> OffsetDeleteRequest:
    wanted = [OffsetDeleteRequestPartition(partition_index=index) for index in partitions]
    return OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name="t", partitions=wanted)])


def join(names: list[str]) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol(name=name, metadata=b"") for name in names]
    return JoinGroupRequest(
        group_id="j",
        session_timeout_ms=1_800_000,
        rebalance_timeout_ms=1_800_000,
        protocol_type="x",
        protocols=protocols,
    )


def sync(names: list[str]) -> SyncGroupRequest:
    given = [SyncGroupRequestAssignment(member_id=name, assignment=b"") for name in names]
    return SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=given)


def beat(topics: list[str], partitions: list[int]) -> ConsumerGroupHeartbeatRequest:
    owned = [TopicPartitions(topic_id=UUID(int=5), partitions=partitions)]
    return ConsumerGroupHeartbeatRequest(
        group_id="c",
        member_id="m",
        rebalance_timeout_ms=1000,
        subscribed_topic_names=topics,
        topic_partitions=owned if partitions else [],
    )


def requests() -> Iterator[tuple[str, ApiKey, int, Any]]:
    """Each is near a megabyte, or as near as the limit of objects in a request lets it come."""
    numbers = list(range(45_000))
    yield "describe many", ApiKey.DESCRIBE_GROUPS, 6, DescribeGroupsRequest(groups=NAMES)
    yield "describe one", ApiKey.DESCRIBE_GROUPS, 6, DescribeGroupsRequest(groups=["g"] * 45_000)
    yield "describe long names", ApiKey.DESCRIBE_GROUPS, 6, DescribeGroupsRequest(groups=LONG_NAMES)
    yield "describe newer", ApiKey.CONSUMER_GROUP_DESCRIBE, 1, ConsumerGroupDescribeRequest(group_ids=NAMES)
    yield "delete groups", ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=NAMES)
    yield "find many", ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=NAMES)
    yield "find long names", ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=LONG_NAMES)
    yield "list states", ApiKey.LIST_GROUPS, 5, ListGroupsRequest(states_filter=NAMES)
    leaving = [MemberIdentity(member_id=name) for name in NAMES[:16_000]]
    yield "leave", ApiKey.LEAVE_GROUP, 5, LeaveGroupRequest(group_id="g", members=leaving)
    yield "fetch all of many", ApiKey.OFFSET_FETCH, 9, everything(NAMES[:15_000])
    yield "fetch all of one", ApiKey.OFFSET_FETCH, 9, everything(["s"] * 15_000)
    yield "fetch one of one", ApiKey.OFFSET_FETCH, 9, fetch("t", [0], 6_000)
    yield "fetch partitions", ApiKey.OFFSET_FETCH, 9, fetch("t", numbers)
    yield "fetch a partition", ApiKey.OFFSET_FETCH, 9, fetch("t", [0] * 45_000)
    old = [OffsetFetchRequestTopic(name="t", partition_indexes=numbers)]
    for version in (0, 1, 5):
        request = OffsetFetchRequest(group_id="s", topics=old)
        yield f"fetch partitions v{version}", ApiKey.OFFSET_FETCH, version, request
    yield "delete offsets", ApiKey.OFFSET_DELETE, 0, delete(numbers)
    yield "commit unknown", ApiKey.OFFSET_COMMIT, 9, commit(numbers[:15_000])
    yield "commit one", ApiKey.OFFSET_COMMIT, 9, commit([0] * 15_000)
    yield "join", ApiKey.JOIN_GROUP, 9, join(NAMES[:15_000])
    yield "sync", ApiKey.SYNC_GROUP, 5, sync(NAMES[:15_000])
    yield "beat with topics", ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, beat(NAMES, [])
    yield "beat with partitions", ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, beat(["t"], numbers)


class Broker:
    """A broker in this process; what a request costs is counted in processor seconds of the loop's turns."""

    def __init__(self, server: BrokerServer) -> None:
        self._listener = server.listeners[0]
        state, loop = server.state, asyncio.get_running_loop()
        self._apis = KafkaApis(services(state), loop, quotas=state.quotas, turn_queue=state.turn_queue)

    async def ask(self, key: ApiKey, version: int, request: Any) -> tuple[float, Any]:
        """The longest turn, and the answer."""
        frame = request_body(key, version, request)
        assert len(frame) <= 1.05 * MEGABYTE
        connection, buffer = HostileConnection(self._listener), memoryview(bytearray(frame))
        deadline = time.monotonic() + 120
        began = time.thread_time()
        self._apis.handle(connection, buffer, 0, len(buffer))  # type: ignore[arg-type]
        longest = time.thread_time() - began
        while not connection.is_decided:
            assert time.monotonic() < deadline, "no response"
            began = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - began)
        answer = connection.answer
        assert answer is not None, "the connection was closed"
        _, position = decode_response_header(key, version, answer[4:], 0, len(answer) - 4)
        return longest, decode_response(key, version, answer[4:], position, len(answer) - 4)


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Broker]:
    """It has a classic group `g` whose member says a megabyte of itself, and an offset of `s` with four kilobytes."""
    loop = asyncio.get_running_loop()
    settings = {"log.dirs": str(folder), **SETTINGS, "group.initial.rebalance.delay.ms": "0"}
    server = BrokerServer(BrokerConfig.from_properties(settings), host_ports(loop, WorkerPool(loop)), loop)
    await server.start()
    try:
        await server.create_topic("t", 1, {})
        broker = Broker(server)
        await broker.ask(ApiKey.FIND_COORDINATOR, 1, FindCoordinatorRequest(key="g"))
        large = JoinGroupRequestProtocol(name="p", metadata=bytes(900_000))
        joining = join([])
        joining.group_id, joining.protocols = "g", [large]
        _, member = await broker.ask(ApiKey.JOIN_GROUP, 3, joining)
        request = sync([member.member_id])
        request.member_id = member.member_id
        request.assignments[0].assignment = bytes(1000)
        assert (await broker.ask(ApiKey.SYNC_GROUP, 2, request))[1].error_code == ErrorCode.NONE
        place = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="m" * 4000)
        simple = OffsetCommitRequest(group_id="s", topics=[OffsetCommitRequestTopic(name="t", partitions=[place])])
        _, committed = await broker.ask(ApiKey.OFFSET_COMMIT, 8, simple)
        assert committed.topics[0].partitions[0].error_code == ErrorCode.NONE
        yield broker
    finally:
        await server.stop()


async def test_no_request_about_groups_holds_up_the_others(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        longest = {}
        for name, key, version, request in requests():
            gc.collect()
            longest[name] = (await broker.ask(key, version, request))[0]
    assert not {name: seconds for name, seconds in longest.items() if seconds > TURN_S}


@pytest.mark.parametrize("name", ["describe one", "fetch all of one", "fetch one of one", "fetch a partition"])
async def test_what_is_named_again_and_again_is_told_once(tmp_path: Path, name: str) -> None:
    key, version, request = next(tuple(rest) for one, *rest in requests() if one == name)
    async with running(tmp_path) as broker:
        tracemalloc.start()
        try:
            _, answer = await broker.ask(key, version, request)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert len(answer.groups) == 1 and peak < MEMORY_BYTES


async def test_what_has_no_room_in_an_answer_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(response_budget, "RESPONSE_BYTES", 1000)
    later = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    async with running(tmp_path) as broker:
        _, described = await broker.ask(ApiKey.DESCRIBE_GROUPS, 6, DescribeGroupsRequest(groups=["g", "s", "none"]))
        expected = [ErrorCode.NONE, later, ErrorCode.GROUP_ID_NOT_FOUND]
        assert [one.error_code for one in described.groups] == expected
        _, fetched = await broker.ask(ApiKey.OFFSET_FETCH, 9, everything(["s", "g"]))
        assert [one.error_code for one in fetched.groups] == [ErrorCode.NONE, later]
        _, fetched = await broker.ask(ApiKey.OFFSET_FETCH, 9, everything(["g", "s"]))
        assert [one.error_code for one in fetched.groups] == [ErrorCode.NONE, ErrorCode.NONE]


async def test_thousands_of_group_settings_in_one_request(tmp_path: Path) -> None:
    setting = AlterableConfig(name="consumer.session.timeout.ms", config_operation=0, value="50000")
    named = [AlterConfigsResource(resource_type=32, resource_name=name, configs=[setting]) for name in NAMES[:2000]]
    async with running(tmp_path) as broker:
        longest, answer = await broker.ask(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, IncrementalAlterConfigsRequest(resources=named)
        )
    assert {one.error_code for one in answer.responses} == {ErrorCode.NONE}
    assert longest < TURN_S
