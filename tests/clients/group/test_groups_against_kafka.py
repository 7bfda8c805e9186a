"""Our members and our view of groups on Apache Kafka: the classic protocol, Admin, and groups of KIP-848."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import confluent_kafka
import pytest
from tests.kafka import LAST_WITH_ZOOKEEPER, NEWEST, KafkaServer, KafkaTools
from tests.server_process import wait_until

from barnabas.clients import Admin, Consumer, Producer, RebalanceListener
from barnabas.clients.admin import GroupDescription, NewTopic, raise_first
from barnabas.clients.errors import FencedInstanceIdError
from barnabas.clients.offset_reset import ResetKind, ResetTarget, plan_reset, require_inactive
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition

pytestmark = [pytest.mark.verify, pytest.mark.java, pytest.mark.timeout(240)]

PARTITIONS = 4


@pytest.fixture(scope="module", params=[NEWEST, LAST_WITH_ZOOKEEPER])
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    properties = {"group.min.session.timeout.ms": "1000"}
    with KafkaServer(
        tmp_path_factory.mktemp("kafka"), version=request.param, heap="400m", properties=properties
    ) as server:
        yield server


async def fill(bootstrap: str, topic: str, count: int = 40) -> None:
    async with Admin(bootstrap) as admin:
        raise_first(await admin.create_topics([NewTopic(topic, PARTITIONS, 1)]))
    async with Producer(bootstrap) as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number, partition=number % PARTITIONS)


async def read(consumer: Consumer, count: int) -> list[bytes | None]:
    async with asyncio.timeout(60):
        return [(await consumer.getone()).value for _ in range(count)]


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
async def test_members_share_commit_and_leave(kafka: KafkaServer, strategy: str) -> None:
    topic = group = f"share-{strategy}"
    await fill(kafka.bootstrap, topic)
    lost: list[TopicPartition] = []

    class Listener(RebalanceListener):
        def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
            lost.extend(partitions)

    def member() -> Consumer:
        return Consumer(
            kafka.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            partition_assignment_strategy=[strategy],
            session_timeout_ms=6000,
            heartbeat_interval_ms=200,
        )

    async with member() as first, member() as second:
        first.subscribe([topic], listener=Listener())
        assert len(set(await read(first, 40))) == 40
        second.subscribe([topic], listener=Listener())
        async with asyncio.timeout(60):
            while not len(first.assignment) == len(second.assignment) == PARTITIONS // 2:
                for consumer in (first, second):
                    assert await consumer.getmany(timeout_ms=50) == {}, "read twice"
        assert not first.assignment & second.assignment
    async with Admin(kafka.bootstrap) as admin:
        offsets = (await admin.list_group_offsets([group]))[group]
        assert not isinstance(offsets, KafkaError)
        assert {at.offset for at in offsets.values()} == {10}
        assert (await admin.describe_groups([group]))[group].state == "Empty"  # type: ignore[union-attr]
    assert lost == []


async def test_static_members_are_fenced_and_removed(kafka: KafkaServer) -> None:
    await fill(kafka.bootstrap, "static")
    settings = {
        "group_id": "static",
        "group_instance_id": "a",
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 200,
    }
    async with Consumer(kafka.bootstrap, **settings) as first:  # type: ignore[arg-type]
        first.subscribe(["static"])
        await read(first, 1)
        async with Consumer(kafka.bootstrap, **settings) as second:  # type: ignore[arg-type]
            second.subscribe(["static"])
            await read(second, 1)
            with pytest.raises(FencedInstanceIdError):
                while True:
                    await first.getmany(timeout_ms=1000)
            async with Admin(kafka.bootstrap) as admin:
                assert await admin.remove_members("static", ["a"]) == {"a": None}


async def test_groups_are_seen_reset_and_deleted(kafka: KafkaServer) -> None:
    await fill(kafka.bootstrap, "seen")
    place = TopicPartition("seen", 0)
    async with Admin(kafka.bootstrap) as admin:
        async with Consumer(kafka.bootstrap, group_id="up", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["seen"])
            await read(consumer, 40)
            with pytest.raises(KafkaError, match=r"inactive, but the current state is Stable\."):
                await require_inactive(admin, "up")
            assert (await admin.alter_group_offsets("up", {place: 0}))[place] is not None
            refused = (await admin.delete_groups(["up"]))["up"]
            assert refused is not None
            assert refused.code is ErrorCode.NON_EMPTY_GROUP
        assert await admin.alter_group_offsets("down", {place: 3}) == {place: None}
        assert {g.group_id: g.state for g in await admin.list_groups()}.items() >= {("up", "Empty"), ("down", "Empty")}
        assert [(lag.group_id, lag.lag) for lag in await admin.group_lag(["up", "down"])] == [
            ("down", 7),
            *[("up", 0)] * PARTITIONS,
        ]
        (step,) = await plan_reset(admin, "down", None, ResetTarget(ResetKind.SHIFT, -1))
        assert step == (place, 3, 2)
        assert await admin.delete_group_offsets("down", [place]) == {place: None}
        assert await admin.delete_groups(["up"]) == {"up": None}
        described = (await admin.describe_groups(["up"]))["up"]
        assert isinstance(described, KafkaError)
        assert described.code is ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_group_of_the_newer_protocol_is_described(kafka: KafkaServer) -> None:
    if kafka.version != NEWEST:
        pytest.skip("Kafka 3.9 does not offer the protocol by itself")
    await fill(kafka.bootstrap, "newer")
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": "newer",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["newer"])
    await asyncio.to_thread(
        wait_until, lambda: consumer.poll(0.5) is not None, timeout_s=60, what="librdkafka reads a record"
    )
    async with Admin(kafka.bootstrap) as admin:
        group = (await admin.describe_groups(["newer"]))["newer"]
        assert isinstance(group, GroupDescription)
        assert (group.type, group.assignor, group.state) == ("consumer", "uniform", "Stable")
        assert [len(member.assigned) for member in group.members] == [PARTITIONS]
        assert [g.type for g in await admin.list_groups(types=["consumer"])] == ["consumer"]
        assert {lag.end for lag in await admin.group_lag(["newer"])} == {10}
    await asyncio.to_thread(consumer.close)


async def test_kafkas_own_tool_reads_a_group_of_ours(kafka: KafkaServer) -> None:
    await fill(kafka.bootstrap, "tool")
    async with Consumer(kafka.bootstrap, group_id="tool", auto_offset_reset="earliest", client_id="ours") as consumer:
        consumer.subscribe(["tool"])
        await read(consumer, 40)
        await consumer.commit()
        tools = KafkaTools(kafka.version)
        arguments = ["--bootstrap-server", kafka.bootstrap, "--describe", "--group", "tool"]
        shown = await asyncio.to_thread(tools.output, "kafka-consumer-groups", *arguments)
        rows = [line.split() for line in shown.splitlines() if line.startswith("tool")]
        assert [row[1:6] for row in sorted(rows)] == [["tool", str(p), "10", "10", "0"] for p in range(PARTITIONS)]
        assert {row[-1] for row in rows} == {"ours"}
