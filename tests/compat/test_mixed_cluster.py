"""Apache Kafka 3.9.1 and Barnabas in one cluster, around one ZooKeeper: each leads, follows, is controller."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.barnabas_server import BarnabasServer
from tests.kafka import LAST_WITH_ZOOKEEPER, KafkaServer, KafkaTools, ZooKeeperServer
from tests.nightly import mark_rest_nightly
from tests.server_process import BrokerProcess, free_port

from barnabas.clients.admin import Admin
from barnabas.clients.certificates import Authority
from barnabas.clients.consumer import Consumer
from barnabas.clients.producer import Producer
from barnabas.protocol.topic_partition import TopicPartition

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(240)]

KAFKA, OURS = 1, 2
PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]
DEADLINE_SECONDS = 60.0
READING: dict[str, Any] = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
ROOT = "mixed"
OPERATIONS = [word for name in ("Alter", "Create", "Describe", "IdempotentWrite") for word in ("--operation", name)]


class Secured:
    """Brokers come to each other by TLS with certificates and a password, and rules let nobody else be one."""

    def __init__(self, folder: Path) -> None:
        self._authority = Authority.new("test CA")
        self._folder = folder
        self._authority.write(folder / "ca.pem")
        self._password = 'username="broker" password="b" user_broker="b"'

    def of(self, broker_id: int, port: int) -> dict[str, str]:
        """A broker's settings; clients come in by `port`."""
        key = self._folder / f"broker-{broker_id}.pem"
        self._authority.issue(f"broker-{broker_id}", ["127.0.0.1"]).write(key)
        listeners = f"PLAINTEXT://127.0.0.1:{port},BROKERS://127.0.0.1:{free_port()}"
        module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        return {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:SASL_SSL",
            "inter.broker.listener.name": "BROKERS",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.brokers.plain.sasl.jaas.config": f"{module} {self._password};",
            "ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(key),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._folder / "ca.pem"),
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:broker",
        }


class MixedCluster:
    """One broker of each kind, and a producer that counts what was acknowledged."""

    def __init__(self, folder: Path, zookeeper: ZooKeeperServer, secured: Secured | None) -> None:
        shared = {
            "zookeeper.connect": f"{zookeeper.address}/{ROOT}",
            "zookeeper.session.timeout.ms": "6000",
            "offsets.topic.num.partitions": "4",
            "offsets.topic.replication.factor": "2",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "4",
            "transaction.state.log.replication.factor": "2",
            "min.insync.replicas": "1",
            "controlled.shutdown.retry.backoff.ms": "500",
        }
        self.brokers: dict[int, BrokerProcess] = {
            KAFKA: KafkaServer(
                folder / "kafka",
                version=LAST_WITH_ZOOKEEPER,
                mode="zookeeper",
                zookeeper=shared["zookeeper.connect"],
                heap="256m",
                properties={**shared, "broker.id": str(KAFKA)},
            ),
            OURS: BarnabasServer(folder / "barnabas", properties={**shared, "broker.id": str(OURS)}),
        }
        if secured is not None:
            for broker_id, broker in self.brokers.items():
                broker.add_properties(secured.of(broker_id, broker.port))
        self.tools = KafkaTools(LAST_WITH_ZOOKEEPER)
        self.acked: list[int] = []

    @property
    def addresses(self) -> str:
        return ",".join(f"127.0.0.1:{one.port}" for one in self.brokers.values())

    async def start(self, broker_id: int) -> None:
        await asyncio.to_thread(self.brokers[broker_id].start)

    async def stop(self, broker_id: int) -> None:
        """A clean stop: ControlledShutdown, then SIGTERM's end."""
        await asyncio.to_thread(self.brokers[broker_id].stop)

    async def kill(self, broker_id: int) -> None:
        await asyncio.to_thread(self.brokers[broker_id].kill)

    async def tool(self, name: str, broker_id: int, *arguments: str) -> str:
        address = f"127.0.0.1:{self.brokers[broker_id].port}"
        return await asyncio.to_thread(self.tools.output, name, "--bootstrap-server", address, *arguments)

    async def described(self, broker_id: int) -> dict[int, tuple[int, set[int]]]:
        """Leader and in-sync replicas of each partition of `t`, as a broker tells Kafka's own tool."""
        found = {}
        for line in (await self.tool("kafka-topics", broker_id, "--describe", "--topic", "t")).splitlines():
            if said := re.search(r"\bPartition: (\d+)\s+Leader: (\S+)\s.*\bIsr: ([\d,]+)", line):
                leader = -1 if said[2] == "none" else int(said[2])
                found[int(said[1])] = (leader, {int(one) for one in said[3].split(",")})
        return found

    async def until(self, broker_id: int, holds: Callable[[dict[int, tuple[int, set[int]]]], bool]) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while True:
                # A broker that has just started, or has lost its controller, may not know of the topic.
                with suppress(AssertionError):
                    found = await self.described(broker_id)
                    if len(found) == len(PARTITIONS) and holds(found):
                        return
                await asyncio.sleep(0.2)

    async def produce(self, producer: Producer, count: int) -> None:
        for number in range(len(self.acked), len(self.acked) + count):
            await producer.send_and_wait("t", b"%d" % number, partition=number % 2)
            self.acked.append(number)

    async def check_all_are_read(self, broker_id: int) -> None:
        """From each partition what was acknowledged, once and in order."""
        read: list[int] = []
        async with Consumer(f"127.0.0.1:{self.brokers[broker_id].port}", **READING) as consumer:
            consumer.assign(PARTITIONS)
            async with asyncio.timeout(DEADLINE_SECONDS):
                while len(read) < len(self.acked):
                    for records in (await consumer.getmany(timeout_ms=500)).values():
                        read += [int(record.value or b"") for record in records]
        for odd in (0, 1):
            assert [one for one in read if one % 2 == odd] == [one for one in self.acked if one % 2 == odd]


def let_clients_in(zookeeper: ZooKeeperServer) -> None:
    """Rules for everybody, before there is a broker: all of topics and groups, and of the cluster what tools need."""
    tree = ["--authorizer-properties", f"zookeeper.connect={zookeeper.address}/{ROOT}"]
    for where in (["--topic", "*", "--group", "*", "--operation", "All"], ["--cluster", *OPERATIONS]):
        who = ["--add", "--force", "--allow-principal", "User:ANONYMOUS"]
        KafkaTools(LAST_WITH_ZOOKEEPER).output("kafka-acls", *tree, *who, *where)


@asynccontextmanager
async def mixed_cluster(folder: Path, first: int, secured: Secured | None = None) -> AsyncIterator[MixedCluster]:
    """Both brokers, of which the one that starts first is controller."""
    async with AsyncExitStack() as stack:
        zookeeper = await asyncio.to_thread(stack.enter_context, ZooKeeperServer(folder / "zookeeper"))
        if secured is not None:
            # Whoever they are, clients may use what there is, and nothing that is for brokers.
            await asyncio.to_thread(let_clients_in, zookeeper)
        cluster = MixedCluster(folder, zookeeper, secured)
        for broker_id in (first, KAFKA + OURS - first):
            await cluster.start(broker_id)
            stack.callback(cluster.brokers[broker_id].kill)
        async with asyncio.timeout(DEADLINE_SECONDS):
            while True:
                try:
                    await cluster.tool(
                        "kafka-topics", first, "--create", "--topic", "t", "--replica-assignment", "1:2,2:1"
                    )
                    break
                except AssertionError:
                    await asyncio.sleep(0.5)
        yield cluster


@pytest.mark.parametrize("first", [KAFKA, OURS])
@pytest.mark.parametrize("is_secured", mark_rest_nightly((True, False), 1))
async def test_each_kind_leads_follows_and_is_controller_after_the_other(
    tmp_path: Path, first: int, is_secured: bool
) -> None:
    second = KAFKA + OURS - first
    secured = Secured(tmp_path) if is_secured else None
    async with mixed_cluster(tmp_path, first, secured) as cluster, Producer(cluster.addresses) as producer:
        await cluster.until(second, lambda found: found == {0: (1, {1, 2}), 1: (2, {1, 2})})
        await cluster.produce(producer, 200)
        await cluster.kill(first)
        await cluster.until(second, lambda found: found == {0: (second, {second}), 1: (second, {second})})
        await cluster.produce(producer, 100)
        await cluster.start(first)
        await cluster.until(second, lambda found: all(isr == {1, 2} for _, isr in found.values()))
        await cluster.tool("kafka-leader-election", second, "--election-type", "preferred", "--all-topic-partitions")
        await cluster.until(first, lambda found: {leader for leader, _ in found.values()} == {1, 2})
        await cluster.produce(producer, 100)
        await cluster.stop(second)
        await cluster.until(first, lambda found: found == {0: (first, {first}), 1: (first, {first})})
        await cluster.produce(producer, 100)
        await cluster.check_all_are_read(first)


@pytest.mark.parametrize("first", mark_rest_nightly((OURS, KAFKA), 1))
async def test_partitions_move_from_one_kind_to_the_other_under_load(tmp_path: Path, first: int) -> None:
    async with mixed_cluster(tmp_path, first) as cluster, Producer(cluster.addresses) as producer:
        stopping = asyncio.Event()

        async def load() -> None:
            while not stopping.is_set():
                await cluster.produce(producer, 10)

        loading = asyncio.create_task(load())
        for target in ([2], [1], [1, 2]):
            wanted = [{"topic": "t", "partition": index, "replicas": target} for index in (0, 1)]
            plan = tmp_path / "plan.json"
            plan.write_text(json.dumps({"version": 1, "partitions": wanted}))
            await cluster.tool("kafka-reassign-partitions", first, "--reassignment-json-file", str(plan), "--execute")
            goal = set(target)
            await cluster.until(first, lambda found, goal=goal: all(isr == goal for _, isr in found.values()))  # type: ignore[misc]
        stopping.set()
        await loading
        assert len(cluster.acked) > 100
        for broker_id in (KAFKA, OURS):
            await cluster.check_all_are_read(broker_id)


@pytest.mark.parametrize("first", mark_rest_nightly((OURS, KAFKA), 1))
async def test_transactions_are_coordinated_by_either_kind_for_partitions_of_the_other(
    tmp_path: Path, first: int
) -> None:
    names = [f"copier-{number}" for number in range(8)]
    async with mixed_cluster(tmp_path, first) as cluster:
        if first == OURS:  # else Kafka has made the node, with no level in it
            await cluster.tool("kafka-features", OURS, "disable", "--feature", "transaction.version")
        await cluster.until(first, lambda found: found == {0: (1, {1, 2}), 1: (2, {1, 2})})

        async def copy(name: str, *, is_commit: bool) -> None:
            """One transaction on both partitions; the coordinator of each name is what its hash says."""
            async with Producer(cluster.addresses, transactional_id=name) as producer:
                try:
                    async with producer.transaction() as transaction:
                        for index in (0, 1):
                            number = len(cluster.acked) // 2 * 2 + index if is_commit else -1
                            await producer.send("t", b"%d" % number, partition=index)
                        await transaction.send_offsets({PARTITIONS[0]: len(cluster.acked)}, f"group-of-{name}")
                        if not is_commit:
                            raise ValueError("given up")
                except ValueError:
                    return
            cluster.acked += [len(cluster.acked), len(cluster.acked) + 1]

        async def copy_all() -> None:
            for name in names:
                await copy(name, is_commit=True)
                await copy(name, is_commit=False)

        # Ours has these topics made by the controller, whoever that is; a broker of Kafka writes them into ZooKeeper.
        ours = f"127.0.0.1:{cluster.brokers[OURS].port}"
        async with Producer(ours, transactional_id=names[0]), Admin(ours) as admin:
            await admin.list_group_offsets(["somebody"])
        await copy_all()
        for victim in (first, KAFKA + OURS - first):
            other = KAFKA + OURS - victim
            await cluster.kill(victim)
            await cluster.until(other, lambda found: {leader for leader, _ in found.values()} == {other})  # noqa: B023
            await copy_all()
            await cluster.start(victim)
            await cluster.until(other, lambda found: all(isr == {1, 2} for _, isr in found.values()))
        for broker_id in (KAFKA, OURS):
            await cluster.check_all_are_read(broker_id)
