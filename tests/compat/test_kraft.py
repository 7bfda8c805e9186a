"""A Barnabas broker and an Apache Kafka broker in one KRaft cluster, whose controllers are Apache Kafka's."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
from tests.barnabas_server import BarnabasServer
from tests.kafka import NEWEST, KafkaBroker, KafkaControllers, KafkaTools
from tests.server_process import BrokerProcess, free_port

from barnabas.clients.admin import Admin
from barnabas.clients.consumer import Consumer
from barnabas.clients.producer import Producer
from barnabas.clients.security import security_of
from barnabas.clients.share_consumer import ShareConsumer
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(240)]

KAFKA, OURS = 1, 2
PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]
DEADLINE_SECONDS = 60.0
SHARED = {
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "2",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "2",
    "group.initial.rebalance.delay.ms": "0",
    "broker.session.timeout.ms": "6000",
}
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "the key of all brokers",
}
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"
States = dict[int, tuple[int, set[int]]]
"""Leader and in-sync replicas of each partition."""


class KRaftCluster:
    """One broker of each kind, and the numbers that were produced."""

    def __init__(self, folder: Path, controllers: KafkaControllers) -> None:
        self._folder = folder
        self._controllers = controllers
        properties = {**SHARED, **AUTHORIZER}
        self.sasl_port = free_port()
        port = free_port()
        listeners = f"PLAINTEXT://127.0.0.1:{port},CLIENTS://127.0.0.1:{self.sasl_port}"
        self.brokers: dict[int, BrokerProcess] = {
            KAFKA: KafkaBroker(folder / "kafka", controllers, KAFKA, properties=properties),
            OURS: BarnabasServer(
                folder / "barnabas",
                port=port,
                properties={
                    **properties,
                    "broker.id": str(OURS),
                    "log.dirs": f"{folder / 'barnabas' / 'data'},{folder / 'barnabas' / 'more'}",
                    "process.roles": "broker",
                    "controller.listener.names": "CONTROLLER",
                    "controller.quorum.bootstrap.servers": controllers.bootstrap,
                    "listeners": listeners,
                    "advertised.listeners": listeners,
                    "listener.security.protocol.map": (
                        "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
                    ),
                    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
                    "metrics.listeners": f"127.0.0.1:{free_port()}",  # without it clients push no metrics
                },
            ),
        }
        self.tools = KafkaTools()
        self.produced: list[int] = []

    @property
    def addresses(self) -> str:
        return ",".join(self.address(one) for one in self.brokers)

    def address(self, broker_id: int) -> str:
        return f"127.0.0.1:{self.brokers[broker_id].port}"

    async def start(self, broker_id: int) -> None:
        await asyncio.to_thread(self.brokers[broker_id].start)

    async def stop(self, broker_id: int) -> None:
        """Stop a broker by a controlled shutdown."""
        await asyncio.to_thread(self.brokers[broker_id].stop)

    async def kill(self, broker_id: int) -> None:
        await asyncio.to_thread(self.brokers[broker_id].kill)

    async def tool(self, name: str, broker_id: int, *arguments: str) -> str:
        address = ["--bootstrap-server", self.address(broker_id)]
        return await asyncio.to_thread(self.tools.output, name, *address, *arguments)

    async def kill_active_controller(self) -> None:
        """Kill the leader of the quorum, which Barnabas finds by a forwarded DescribeQuorum."""
        described = await self.tool("kafka-metadata-quorum", OURS, "describe", "--status")
        leader = re.search(r"LeaderId:\s+(\d+)", described)
        assert leader is not None, described
        await asyncio.to_thread(self._controllers.servers[int(leader[1]) - 3000].kill)

    async def move(self, *replicas: list[int]) -> None:
        """Reassign both partitions of `t` to these brokers, and wait until they are the ISR."""
        plan = self._folder / "plan.json"
        wanted = [{"topic": "t", "partition": index, "replicas": found} for index, found in enumerate(replicas)]
        plan.write_text(json.dumps({"version": 1, "partitions": wanted}))
        await self.tool("kafka-reassign-partitions", OURS, "--reassignment-json-file", str(plan), "--execute")
        isrs = {index: set(found) for index, found in enumerate(replicas)}
        await self.until(OURS, lambda found: {index: isr for index, (_, isr) in found.items()} == isrs)

    async def states(self, broker_id: int) -> States:
        """Return the state of each partition of `t` by the metadata of a broker."""
        async with Admin(self.address(broker_id)) as admin:
            (topic,) = await admin.describe_topics(["t"])
            return {index: (one.leader_id, set(one.in_sync_replicas)) for index, one in topic.partitions.items()}

    async def until(self, broker_id: int, holds: Callable[[States], bool]) -> None:
        found: States = {}
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                while not (len(found) == len(PARTITIONS) and holds(found)):
                    await asyncio.sleep(0.1)
                    found = await self.states(broker_id)
        except TimeoutError:
            raise AssertionError(f"broker {broker_id} has {found}") from None

    async def produce(self, producer: Producer, count: int) -> None:
        for number in range(len(self.produced), len(self.produced) + count):
            await producer.send_and_wait("t", b"%d" % number, partition=number % 2)
            self.produced.append(number)

    async def run_transactions(self) -> None:
        """Commit and abort a transaction by each of several transactional ids, whose coordinators are both brokers."""
        for number in range(4):
            async with Producer(self.addresses, transactional_id=f"copier-{number}") as producer:
                async with producer.transaction() as transaction:
                    for index, partition in enumerate(PARTITIONS, start=len(self.produced)):
                        await producer.send("t", b"%d" % index, partition=partition.partition)
                    await transaction.send_offsets({PARTITIONS[0]: number}, f"group-of-copier-{number}")
                self.produced += [len(self.produced), len(self.produced) + 1]
                with suppress(ZeroDivisionError):
                    async with producer.transaction():
                        await producer.send("t", b"-1", partition=0)
                        raise ZeroDivisionError

    async def check_group_reads_all(self, broker_id: int, group: str) -> None:
        """Check that a group reads each produced number once and in order, whichever broker coordinates it."""
        read: list[int] = []
        async with Consumer(
            self.address(broker_id), group_id=group, auto_offset_reset="earliest", isolation_level="read_committed"
        ) as consumer:
            consumer.subscribe(["t"])
            async with asyncio.timeout(DEADLINE_SECONDS):
                while len(read) < len(self.produced):
                    for records in (await consumer.getmany(timeout_ms=500)).values():
                        read += [int(record.value or b"") for record in records]
            await consumer.commit()
        for odd in (0, 1):
            assert [one for one in read if one % 2 == odd] == [one for one in self.produced if one % 2 == odd]


@asynccontextmanager
async def kraft_cluster(folder: Path, controller_count: int, version: str = NEWEST) -> AsyncIterator[KRaftCluster]:
    """Start controllers, both brokers, and create the topic `t` through the broker of Barnabas."""
    async with AsyncExitStack() as stack:
        controllers = KafkaControllers(
            folder / "controllers", count=controller_count, version=version, properties=AUTHORIZER
        )
        await asyncio.to_thread(stack.enter_context, controllers)
        cluster = KRaftCluster(folder, controllers)
        for broker_id in cluster.brokers:
            await cluster.start(broker_id)
            stack.callback(cluster.brokers[broker_id].kill)
        await cluster.tool("kafka-topics", OURS, "--create", "--topic", "t", "--replica-assignment", "1:2,2:1")
        for broker_id in cluster.brokers:
            await cluster.until(broker_id, lambda found: found == {0: (1, {1, 2}), 1: (2, {1, 2})})
        yield cluster


async def test_both_kinds_lead_and_follow_after_crashes_and_controlled_shutdowns(tmp_path: Path) -> None:
    async with kraft_cluster(tmp_path, 3) as cluster, Producer(cluster.addresses) as producer:
        await cluster.produce(producer, 100)
        await cluster.run_transactions()
        await cluster.kill_active_controller()
        for replicas in (([OURS], [OURS]), ([KAFKA, OURS], [OURS, KAFKA])):
            await cluster.move(*replicas)
            await cluster.produce(producer, 20)
        for broker_id in cluster.brokers:
            for number in range(4):  # the partitions of __consumer_offsets have leaders of both kinds
                await cluster.check_group_reads_all(broker_id, f"group-{number}-of-{broker_id}")
        for victim, other in ((OURS, KAFKA), (KAFKA, OURS)):
            for end in (cluster.kill, cluster.stop):
                await end(victim)
                await cluster.until(other, lambda found: found == {0: (other, {other}), 1: (other, {other})})  # noqa: B023
                await cluster.produce(producer, 50)
                await cluster.run_transactions()
                await cluster.start(victim)
                await cluster.until(other, lambda found: all(isr == {1, 2} for _, isr in found.values()))
        await cluster.tool("kafka-leader-election", OURS, "--election-type", "preferred", "--all-topic-partitions")
        await cluster.until(OURS, lambda found: {leader for leader, _ in found.values()} == {1, 2})
        await cluster.produce(producer, 50)
        for broker_id in cluster.brokers:
            await cluster.check_group_reads_all(broker_id, f"last-of-{broker_id}")
        # With several directories the broker reports where a new replica is.
        assert "reported the log directories of" in cluster.brokers[OURS].log.read_text()


@pytest.mark.parametrize("version", [pytest.param("4.1.2", marks=pytest.mark.nightly), "4.0.2"])
async def test_barnabas_joins_the_controllers_of_earlier_releases(version: str, tmp_path: Path) -> None:
    async with kraft_cluster(tmp_path, 3, version) as cluster, Producer(cluster.addresses) as producer:
        await cluster.produce(producer, 20)
        await cluster.run_transactions()
        await cluster.kill_active_controller()
        await cluster.move([OURS], [OURS])
        await cluster.produce(producer, 20)
        await cluster.move([KAFKA, OURS], [OURS, KAFKA])
        await cluster.kill(OURS)
        await cluster.until(KAFKA, lambda found: found == {0: (KAFKA, {KAFKA}), 1: (KAFKA, {KAFKA})})
        await cluster.produce(producer, 20)
        await cluster.start(OURS)
        await cluster.until(OURS, lambda found: all(isr == {1, 2} for _, isr in found.values()))
        for broker_id in cluster.brokers:
            await cluster.check_group_reads_all(broker_id, f"group-of-{broker_id}")


async def test_settings_quotas_users_and_acls_of_the_controller_apply_to_barnabas(tmp_path: Path) -> None:
    async with kraft_cluster(tmp_path, 1) as cluster, Producer(cluster.address(OURS)) as producer:
        async with (
            ShareConsumer(cluster.address(OURS), group_id="sharing") as sharing,
            asyncio.timeout(DEADLINE_SECONDS),
        ):
            sharing.subscribe(["t"])
            while True:  # a share group begins at the end of the log
                await cluster.produce(producer, 2)
                if await sharing.getmany(timeout_ms=500):
                    break
        topic = ["--entity-type", "topics", "--entity-name", "t"]
        await cluster.tool("kafka-configs", OURS, "--alter", *topic, "--add-config", "max.message.bytes=1000")
        with pytest.raises(KafkaError) as refusal:
            async with asyncio.timeout(DEADLINE_SECONDS):
                while True:  # until the setting has arrived
                    await producer.send_and_wait("t", b"x" * 2000, partition=1)
                    cluster.produced.append(1)
        assert refusal.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert "max.message.bytes=1000" in await cluster.tool("kafka-configs", OURS, "--describe", *topic)
        user = ["--entity-type", "users", "--entity-name", "anna"]
        await cluster.tool("kafka-configs", OURS, "--alter", *user, "--add-config", "SCRAM-SHA-256=[password=secret]")
        await cluster.tool("kafka-configs", OURS, "--alter", *user, "--add-config", "producer_byte_rate=1000000")
        for broker_id in cluster.brokers:
            described = await cluster.tool("kafka-configs", broker_id, "--describe", *user)
            assert "SCRAM-SHA-256=iterations=4096" in described
            assert re.search(r"producer_byte_rate=1000000(\.0)?\b", described)
        rule = ["--add", "--allow-principal", "User:anna", "--topic", "t", "--operation", "Read"]
        await cluster.tool("kafka-acls", OURS, *rule)
        assert "principal=User:anna" in await cluster.tool("kafka-acls", OURS, "--list")
        login = security_of(
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.jaas.config": f'{SCRAM_LOGIN} required username="anna" password="secret";',
            }
        )
        async with Consumer(f"127.0.0.1:{cluster.sasl_port}", auto_offset_reset="earliest", security=login) as consumer:
            consumer.assign([PARTITIONS[1]])
            async with asyncio.timeout(DEADLINE_SECONDS):
                while not await consumer.getmany(timeout_ms=500):
                    pass
        async with Producer(f"127.0.0.1:{cluster.sasl_port}", security=login, enable_idempotence=False) as denied:
            with pytest.raises(KafkaError) as refusal:
                await denied.send_and_wait("t", b"1", partition=1)
        assert refusal.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
