"""Operations of a KRaft cluster whose controllers are Apache Kafka's, with a broker of Barnabas."""

from __future__ import annotations

import asyncio
import re
import urllib.request
from pathlib import Path
from uuid import UUID

import pytest
from bench.streams_group_member import StreamsGroupMember
from tests.barnabas_server import BarnabasServer
from tests.compat.test_kraft import DEADLINE_SECONDS, KAFKA, OURS, SCRAM_LOGIN, kraft_cluster
from tests.kafka import KafkaControllerServer, KafkaTools
from tests.server_process import BrokerProcess, free_port, wait_until

from barnabas.clients.admin import Admin
from barnabas.clients.connection import BrokerConnection, ConnectionOptions
from barnabas.clients.producer import Producer
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(300)]


async def test_the_controller_moves_the_leaders_of_a_failed_log_directory(tmp_path: Path) -> None:
    async with kraft_cluster(tmp_path, 1) as cluster:
        await cluster.tool(
            "kafka-topics", OURS, "--create", "--topic", "spread", "--replica-assignment", ",".join(["2:1"] * 6)
        )
        more = tmp_path / "barnabas" / "more"

        async def leaders() -> dict[int, tuple[int, set[int]]]:
            async with Admin(cluster.address(KAFKA)) as admin:
                (topic,) = await admin.describe_topics(["spread"])
                return {index: (one.leader_id, set(one.in_sync_replicas)) for index, one in topic.partitions.items()}

        async with asyncio.timeout(DEADLINE_SECONDS):
            while any(found != (OURS, {KAFKA, OURS}) for found in (await leaders()).values()):
                await asyncio.sleep(0.1)
            # The metadata names leaders and in-sync replicas before the broker has created all logs. A log that was not
            # created when the directory fails is created in the other one.
            async with Admin(cluster.address(OURS)) as admin:
                while sum(
                    one.topic == "spread" for found in await admin.describe_log_dirs([OURS]) for one in found.sizes
                ) < len(await leaders()):
                    await asyncio.sleep(0.1)
        lost = {int(path.name.rpartition("-")[2]) for path in more.glob("spread-*")}
        assert 0 < len(lost) < 6
        more.rename(tmp_path / "removed")
        more.write_text("no directory")
        # New partitions need a folder; the broker finds the failure.
        await cluster.tool(
            "kafka-topics", KAFKA, "--create", "--topic", "new", "--replica-assignment", ",".join(["1:2"] * 4)
        )
        wanted = {index: KAFKA if index in lost else OURS for index in range(6)}
        async with asyncio.timeout(DEADLINE_SECONDS):
            while {index: leader for index, (leader, _) in (await leaders()).items()} != wanted:
                await asyncio.sleep(0.1)
        async with Producer(cluster.addresses) as producer, asyncio.timeout(DEADLINE_SECONDS):
            for index in range(6):
                await producer.send_and_wait("spread", b"after the failure", partition=index)
            # The controller has assigned the directory that is left.
            await cluster.tool("kafka-topics", KAFKA, "--create", "--topic", "later", "--replica-assignment", "2:1")
            await producer.send_and_wait("later", b"after the failure", partition=0)
        # A new start without the directory serves the others; with it, all replicas are in sync again.
        await cluster.stop(OURS)
        more.unlink()
        (tmp_path / "removed").rename(more)
        await cluster.start(OURS)
        async with asyncio.timeout(DEADLINE_SECONDS):
            while any(isr != {KAFKA, OURS} for _, isr in (await leaders()).values()):
                await asyncio.sleep(0.1)


class DynamicQuorum:
    """Controllers that are added to the quorum and removed from it (KIP-853)."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        ports = [free_port() for _ in range(count)]
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)
        self.servers = [
            KafkaControllerServer(
                folder / str(3000 + number),
                heap="256m",
                port=port,
                properties={
                    "node.id": str(3000 + number),
                    "listeners": f"CONTROLLER://127.0.0.1:{port}",
                    "advertised.listeners": f"CONTROLLER://127.0.0.1:{port}",
                    "controller.listener.names": "CONTROLLER",
                    "controller.quorum.bootstrap.servers": self.bootstrap,
                },
            )
            for number, port in enumerate(ports)
        ]
        self.cluster_id = self.servers[0].cluster_id
        for server in self.servers:
            server.cluster_id = self.cluster_id
            server.format_arguments = ["--no-initial-controllers"]
        self.servers[0].format_arguments = ["--standalone"]
        self.tools = KafkaTools()

    def quorum(self, *words: str) -> str:
        return self.tools.output("kafka-metadata-quorum", "--bootstrap-controller", self.bootstrap, *words)

    def add(self, number: int) -> None:
        """Add a controller that runs as an observer."""
        settings = self.servers[number].folder / "server.properties"
        self.tools.output(
            "kafka-metadata-quorum",
            *("--bootstrap-controller", self.bootstrap, "--command-config", str(settings), "add-controller"),
        )

    def remove(self, number: int) -> None:
        described = (self.servers[number].log_dir / "meta.properties").read_text()
        directory = re.search(r"directory\.id=(\S+)", described)
        assert directory is not None
        self.quorum(
            "remove-controller", "--controller-id", str(3000 + number), "--controller-directory-id", directory[1]
        )


def test_barnabas_follows_a_quorum_whose_voters_are_replaced(tmp_path: Path) -> None:
    quorum = DynamicQuorum(tmp_path, 3)
    first, *others = quorum.servers
    port = free_port()
    # The broker has the address of the first controller only, which leaves the quorum.
    broker = BarnabasServer(
        tmp_path / "barnabas",
        port=port,
        properties={
            "broker.id": "1",
            "process.roles": "broker",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": first.bootstrap,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        },
    )
    tools = quorum.tools
    try:
        first.start()
        broker.start()
        for number, server in enumerate(others, start=1):
            server.start()
            wait_until(
                lambda number=number: f"{3000 + number}" in quorum.quorum("describe", "--replication"),  # type: ignore[misc]
                timeout_s=60,
                what="the controller observes",
            )
            quorum.add(number)
        described = tools.output(
            "kafka-metadata-quorum", "--bootstrap-server", broker.bootstrap, "describe", "--status"
        )
        assert "CurrentObservers" in described and '"id": 1' in described, described
        quorum.remove(0)
        first.stop()
        create = ["--create", "--partitions", "2", "--replication-factor", "1"]
        tools.output("kafka-topics", "--bootstrap-server", broker.bootstrap, *create, "--topic", "after")
        replication = tools.output(
            "kafka-metadata-quorum", "--bootstrap-server", broker.bootstrap, "describe", "--replication"
        )
        assert re.search(r"^3001\b", replication, re.M) and not re.search(r"^3000\b", replication, re.M), replication
        # A restart finds the quorum by the voters in its replica of the metadata.
        assert broker.stop() == 0
        broker.start()
        tools.output("kafka-topics", "--bootstrap-server", broker.bootstrap, *create, "--topic", "again")
    finally:
        broker.kill()
        for server in quorum.servers:
            server.kill()


async def test_tokens_telemetry_and_streams_groups_follow_the_metadata_of_the_quorum(tmp_path: Path) -> None:
    async with kraft_cluster(tmp_path, 1) as cluster:
        user = ["--entity-type", "users", "--entity-name", "anna"]
        await cluster.tool("kafka-configs", OURS, "--alter", *user, "--add-config", "SCRAM-SHA-256=[password=secret]")
        sasl = f"127.0.0.1:{cluster.sasl_port}"

        def login(name: str, jaas: str) -> list[str]:
            path = tmp_path / f"{name}.properties"
            mechanism = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
            path.write_text(f"{mechanism}sasl.jaas.config={SCRAM_LOGIN} required {jaas};\n")
            return ["--bootstrap-server", sasl, "--command-config", str(path)]

        by_password = login("password", 'username="anna" password="secret"')
        tools = cluster.tools
        create = ["--create", "--max-life-time-period", "-1"]
        made = await asyncio.to_thread(tools.output, "kafka-delegation-tokens", *by_password, *create)
        token_id, secret, *_ = next(line for line in made.splitlines() if "User:anna" in line).split()
        by_token = login("token", f'username="{token_id}" password="{secret}" tokenauth="true"')
        await asyncio.to_thread(tools.output, "kafka-topics", *by_token, "--list")
        expire = ["--expire", "--expiry-time-period", "-1", "--hmac", secret]
        await asyncio.to_thread(tools.output, "kafka-delegation-tokens", *by_password, *expire)
        refused = await asyncio.to_thread(tools.run, "kafka-topics", *by_token, "--list")
        assert refused.returncode and "invalid credentials" in refused.stdout + refused.stderr

        metrics = ["--alter", "--name", "producers", "--metrics", "org.apache.kafka.producer.", "--interval", "1000"]
        await cluster.tool("kafka-client-metrics", OURS, *metrics)
        host, _, port = cluster.address(OURS).rpartition(":")
        connection = await BrokerConnection.open(host, int(port), ConnectionOptions(client_id="telemetry"))
        async with asyncio.timeout(DEADLINE_SECONDS):
            while True:
                request = GetTelemetrySubscriptionsRequest(client_instance_id=UUID(int=0))
                found = await connection.send(request)
                if found.requested_metrics == ["org.apache.kafka.producer."] and found.push_interval_ms == 1000:
                    break
                await asyncio.sleep(0.1)
            groups = [f"application-{number}" for number in range(8)]
            coordinators = (await connection.send(FindCoordinatorRequest(coordinator_keys=groups))).coordinators
            while any(one.error_code for one in coordinators):
                await asyncio.sleep(0.1)
                coordinators = (await connection.send(FindCoordinatorRequest(coordinator_keys=groups))).coordinators
            assert {one.node_id for one in coordinators} == {KAFKA, OURS}
            for broker_id in cluster.brokers:
                group = next(one.key for one in coordinators if one.node_id == broker_id)
                member = await StreamsGroupMember.open(cluster.address(broker_id), group, "t")
                await member.rejoin()
                while member.active != {0, 1}:
                    await asyncio.sleep(0.1)
                    await member.heartbeat()
        connection.close()


@pytest.mark.nightly
async def test_operators_restart_by_readiness_and_unregister_brokers(tmp_path: Path) -> None:
    async with kraft_cluster(tmp_path, 1) as cluster, Producer(cluster.addresses) as producer:
        await cluster.produce(producer, 10)
        features = await cluster.tool("kafka-features", OURS, "describe")
        assert re.search(r"Feature: metadata.version.*FinalizedVersionLevel: 4.4-IV2", features), features
        barnabas = cluster.brokers[OURS]
        for _ in range(2):
            await cluster.stop(OURS)
            barnabas.launch()
            async with asyncio.timeout(DEADLINE_SECONDS):
                while not await asyncio.to_thread(is_ready, barnabas):
                    await asyncio.sleep(0.05)
            # A broker that is ready can be elected immediately.
            await cluster.tool("kafka-leader-election", OURS, "--election-type", "preferred", "--all-topic-partitions")
            await cluster.until(OURS, lambda found: {leader for leader, _ in found.values()} == {KAFKA, OURS})
            await cluster.produce(producer, 10)
        await cluster.check_group_reads_all(OURS, "after the restarts")
        await cluster.move([KAFKA], [KAFKA])
        await cluster.stop(OURS)
        unregister = ["unregister", "--bootstrap-server", cluster.address(KAFKA), "--id", str(OURS)]
        await asyncio.to_thread(cluster.tools.output, "kafka-cluster", *unregister)
        described = await cluster.tool("kafka-metadata-quorum", KAFKA, "describe", "--status")
        assert "CurrentVoters" in described
        # It registers again as a new broker.
        await cluster.start(OURS)
        await cluster.produce(producer, 10)


def is_ready(broker: BrokerProcess) -> bool:
    """Return whether the broker reports that it is ready, at the address that it printed last."""
    found = re.findall(r"^health http://(\S+)/health$", broker.log_tail(), re.M)
    try:
        with urllib.request.urlopen(f"http://{found[-1]}/ready", timeout=2) as response:
            return bool(response.status == 200)
    except (OSError, IndexError):
        return False
