"""`barnabas cluster migrate`: a standalone Barnabas becomes the first broker of a KRaft cluster, with all its data."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from tests.barnabas_server import BarnabasServer
from tests.kafka import CLEANER_REFERENCE, NEWEST, KafkaBroker, KafkaControllers, KafkaTools
from tests.tools.cli.running import run_command

from barnabas.clients.admin import Admin, ConfigChange, NewTopic, raise_first
from barnabas.clients.consumer import Consumer
from barnabas.clients.producer import Producer
from barnabas.protocol.acl_bindings import AccessControlEntry, AclBinding, ResourcePattern
from barnabas.protocol.acls import AclOperation, AclPermissionType, AclResourceType
from barnabas.protocol.config_resources import ConfigResource, ConfigResourceType
from barnabas.protocol.topic_partition import TopicPartition

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(300)]

DEADLINE_S = 60
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
SETTINGS = {**AUTHORIZER, "offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3"}
ORDERS = ConfigResource(ConfigResourceType.TOPIC, "orders")
GROUP = ConfigResource(ConfigResourceType.GROUP, "readers")
ACL = AclBinding(
    ResourcePattern(AclResourceType.TOPIC, "orders"),
    AccessControlEntry("User:anna", "*", AclOperation.READ, AclPermissionType.ALLOW),
)
NOT_OF_KAFKA_4 = [ConfigChange("message.format.version", "0.11.0"), ConfigChange("segment.bytes", "65536")]
Stored = list[tuple[int, int, int, bytes | None]]
"""Partition, offset, timestamp and value of each record."""


async def fill(bootstrap: str, tools: KafkaTools) -> None:
    async with Admin(bootstrap) as admin:
        raise_first(await admin.create_topics([NewTopic("orders", 2), NewTopic("empty", 1), NewTopic("gone", 1)]))
        raise_first(await admin.alter_configs({ORDERS: [ConfigChange("retention.ms", "7654321"), *NOT_OF_KAFKA_4]}))
        raise_first(await admin.alter_configs({GROUP: [ConfigChange("consumer.session.timeout.ms", "50000")]}))
        await admin.create_acls([ACL])
        raise_first(await admin.delete_topics(["gone"]))
    async with Producer(bootstrap) as producer:
        for number in range(20):
            await producer.send_and_wait("orders", b"%d" % number, partition=number % 2)
    async with Producer(bootstrap, transactional_id="t") as producer:
        async with producer.transaction():
            await producer.send("orders", b"committed", partition=0)
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                await producer.send("orders", b"aborted", partition=0)
                raise ZeroDivisionError
    async with Consumer(bootstrap, group_id="readers", auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("orders", 1)])
        assert [(await consumer.getone()).value for _ in range(4)] == [b"1", b"3", b"5", b"7"]
        await consumer.commit()
    user = ["--bootstrap-server", bootstrap, "--alter", "--entity-type", "users", "--entity-name", "anna"]
    await asyncio.to_thread(tools.output, "kafka-configs", *user, "--add-config", "SCRAM-SHA-256=[password=secret]")
    await asyncio.to_thread(tools.output, "kafka-configs", *user, "--add-config", "producer_byte_rate=1000000")


async def read(bootstrap: str, count: int) -> Stored:
    found: Stored = []
    async with Consumer(bootstrap, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign([TopicPartition("orders", index) for index in (0, 1)])
        async with asyncio.timeout(DEADLINE_S):
            while len(found) < count:
                for partition, records in (await consumer.getmany(timeout_ms=500)).items():
                    found += [(partition.partition, one.offset, one.timestamp, one.value) for one in records]
    return sorted(found)


async def check(bootstrap: str, before: Stored, tools: KafkaTools) -> None:
    assert await read(bootstrap, len(before)) == before
    async with Admin(bootstrap) as admin:
        names = {topic.name for topic in await admin.describe_topics()}
        assert names >= {"orders", "empty"}
        assert "gone" not in names
        assert await admin.describe_acls() == [ACL]
        raise_first(await admin.alter_configs({ORDERS: [ConfigChange("flush.ms", "9000")]}))
    async with Consumer(bootstrap, group_id="readers", auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("orders", 1)])
        assert (await consumer.getone()).value == b"9"
    for kind, name, expected in (
        ("topics", "orders", "retention.ms=7654321"),
        ("groups", "readers", "consumer.session.timeout.ms=50000"),
        ("users", "anna", "SCRAM-SHA-256=iterations=4096"),
        ("users", "anna", "producer_byte_rate=1000000"),
    ):
        arguments = ["--bootstrap-server", bootstrap, "--describe", "--entity-type", kind, "--entity-name", name]
        assert expected in await asyncio.to_thread(tools.output, "kafka-configs", *arguments)


async def write_more(bootstrap: str) -> None:
    async with Producer(bootstrap) as producer:
        assert (await producer.send_and_wait("orders", b"20", partition=1)).offset == 10
    async with Producer(bootstrap, transactional_id="t") as producer, producer.transaction():
        await producer.send("orders", b"committed", partition=1)


async def wait_until_in_sync(bootstrap: str, wanted: set[int]) -> None:
    async with Admin(bootstrap) as admin, asyncio.timeout(DEADLINE_S):
        found: list[set[int]] = []
        while not found or any(one != wanted for one in found):
            await asyncio.sleep(0.1)
            (topic,) = await admin.describe_topics(["orders"])
            found = [set(one.in_sync_replicas) for one in topic.partitions.values()]


def check_dump(capfd: pytest.CaptureFixture[str], tools: KafkaTools, path: Path) -> None:
    """Compare the decoded records with those of kafka-dump-log."""
    status, out, err = run_command(capfd, ["dump-log", "--cluster-metadata-decoder", str(path)])
    assert status == 0, err
    theirs = tools.output("kafka-dump-log", "--cluster-metadata-decoder", "--files", str(path))
    found, wanted = (
        [json.loads(line.partition("payload: ")[2]) for line in text.splitlines() if "payload: " in line]
        for text in (out, theirs)
    )
    # The log may have grown in between.
    assert found
    assert found == wanted[: len(found)]


@pytest.mark.parametrize(
    ("version", "is_clean"),
    [
        (NEWEST, True),
        pytest.param(NEWEST, False, marks=pytest.mark.nightly),
        pytest.param(CLEANER_REFERENCE, True, marks=pytest.mark.nightly),
    ],
)  # before 4.4 the bootstrap records are in another file
def test_a_standalone_broker_becomes_the_first_broker_of_a_quorum(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], version: str, is_clean: bool
) -> None:
    tools = KafkaTools()
    standalone = BarnabasServer(tmp_path / "barnabas", properties=SETTINGS)
    with standalone:
        asyncio.run(fill(standalone.bootstrap, tools))
        before = asyncio.run(read(standalone.bootstrap, 21))
        if is_clean:
            standalone.stop()
    identity = (standalone.log_dir / "meta.properties").read_text()
    controllers = KafkaControllers(tmp_path / "controllers", version=version, properties=AUTHORIZER)
    (server,) = controllers.servers
    server.prepare()
    command = ["cluster", "migrate", "--from", str(standalone.log_dir), str(server.log_dir), "--json"]
    status, _, err = run_command(capfd, command)
    assert status == 1
    cluster_id = next(line.split("=")[1] for line in identity.splitlines() if line.startswith("cluster.id"))
    assert f"Format it with --cluster-id {cluster_id}" in err
    shutil.rmtree(server.folder)
    controllers.cluster_id = server.cluster_id = cluster_id
    server.prepare()
    status, out, err = run_command(capfd, command)
    assert status == 0, err
    assert json.loads(out)["topics"] == 4  # with the topics of offsets and of transactions
    assert json.loads(out)["changed_settings"] == [
        "orders: message.format.version=0.11.0 removed",
        "orders: segment.bytes=65536 changed to 1048576",
    ]
    with controllers:
        properties = {
            **SETTINGS,
            "process.roles": "broker",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": controllers.bootstrap,
        }
        broker = BarnabasServer(tmp_path / "barnabas", port=standalone.port, properties=properties)
        with broker:
            asyncio.run(check(broker.bootstrap, before, tools))
            asyncio.run(write_more(broker.bootstrap))
        if version != NEWEST:
            return
        with broker, KafkaBroker(tmp_path / "kafka", controllers, 2, properties=AUTHORIZER) as other:
            topics = [{"topic": "orders", "partition": index, "replicas": [2, 1]} for index in (0, 1)]
            plan = tmp_path / "plan.json"
            plan.write_text(json.dumps({"version": 1, "partitions": topics}))
            arguments = ["--bootstrap-server", broker.bootstrap, "--reassignment-json-file", str(plan), "--execute"]
            tools.output("kafka-reassign-partitions", *arguments)
            asyncio.run(wait_until_in_sync(broker.bootstrap, {1, 2}))
            election = ["--election-type", "preferred", "--all-topic-partitions"]
            tools.output("kafka-leader-election", "--bootstrap-server", broker.bootstrap, *election)
            assert len(asyncio.run(read(other.bootstrap, 23))) == 23
        folder = server.log_dir / "__cluster_metadata-0"
        for name in ("00000000000000000000-0000000000.checkpoint", "00000000000000000000.log"):
            check_dump(capfd, tools, folder / name)
        # A controller that was started does not accept another handover.
        assert "the controller was started" in run_command(capfd, command)[2]
