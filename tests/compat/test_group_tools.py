"""Kafka 4.4.0's scripts for groups, topics and settings, each with its options, against the broker."""

import csv
import datetime
import io
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.compat.tool_session import ToolSession, scratch_file

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

PARTITIONS = 3
RECORDS = 100
"""In each partition."""
START_MS = 1_700_000_000_000
STEP_MS = 60_000


@pytest.fixture(scope="module")
def tools() -> Iterator[ToolSession]:
    with ToolSession() as session:
        yield session


class Scene:
    """A topic with records of known times, and a group that has committed offset 50 of each partition."""

    def __init__(self, bootstrap: str, tools: ToolSession) -> None:
        self.bootstrap = bootstrap
        self.topic, self.group = (f"{kind}-{uuid.uuid4().hex[:8]}" for kind in ("topic", "group"))
        self._tools = tools
        admin = AdminClient({"bootstrap.servers": bootstrap})
        # The records are old: they must not be cleaned away meanwhile.
        new = NewTopic(self.topic, PARTITIONS, 1, config={"retention.ms": "-1"})
        admin.create_topics([new])[self.topic].result(30)
        producer = Producer({"bootstrap.servers": bootstrap})
        for number in range(RECORDS):
            for partition in range(PARTITIONS):
                at_ms = START_MS + number * STEP_MS
                producer.produce(self.topic, f"{number}", partition=partition, timestamp=at_ms)
        assert producer.flush(30) == 0
        self.commit(50)

    def consumer(self, **settings: Any) -> Consumer:
        """A consumer of the group."""
        config = {"bootstrap.servers": self.bootstrap, "group.id": self.group, "enable.auto.commit": False, **settings}
        return Consumer(config)

    def commit(self, offset: int) -> None:
        """Commit one offset for all partitions."""
        consumer = self.consumer()
        places = [TopicPartition(self.topic, partition, offset) for partition in range(PARTITIONS)]
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()

    def committed(self) -> list[int]:
        """What is committed now."""
        consumer = self.consumer()
        found = consumer.committed([TopicPartition(self.topic, partition) for partition in range(PARTITIONS)], 30)
        consumer.close()
        return [each.offset for each in found]

    @contextmanager
    def member(self) -> Iterator[Consumer]:
        """A member that has its partitions."""
        consumer = self.consumer(**{"client.id": "looked-at"})
        consumer.subscribe([self.topic])
        deadline = time.monotonic() + 60
        while not consumer.assignment():
            consumer.poll(0.1)
            assert time.monotonic() < deadline, "no assignment came"
        try:
            yield consumer
        finally:
            consumer.close()

    def groups(self, *args: str) -> str:
        """Output of kafka-consumer-groups about this group."""
        return self._tools.output(
            "kafka-consumer-groups", "--bootstrap-server", self.bootstrap, "--group", self.group, *args
        )

    def reset(self, *how: str, execute: bool = True) -> list[int]:
        """Reset offsets; returns the new ones as the tool shows them."""
        end = "--execute" if execute else "--dry-run"
        return self.rows(self.groups("--reset-offsets", *how, end))

    def rows(self, text: str) -> list[int]:
        """The NEW-OFFSET column, by partition."""
        rows = [line.split() for line in text.splitlines() if line.startswith(self.group)]
        assert sorted(int(row[2]) for row in rows) == list(range(len(rows))), text
        return [int(row[3]) for row in sorted(rows, key=lambda row: int(row[2]))]


@pytest.fixture
def scene(broker: str, tools: ToolSession) -> Scene:
    return Scene(broker, tools)


def test_describe_and_list(scene: Scene, tools: ToolSession) -> None:
    with scene.member():
        offsets = [line.split() for line in scene.groups("--describe").splitlines() if line.startswith(scene.group)]
        assert [row[1:6] for row in sorted(offsets)] == [
            [scene.topic, str(partition), "50", str(RECORDS), str(RECORDS - 50)] for partition in range(PARTITIONS)
        ]
        assert {row[8] for row in offsets} == {"looked-at"}
        members = scene.groups("--describe", "--members", "--verbose")
        assert re.search(rf"{scene.group}\s+looked-at-\S+\s+/127.0.0.1\s+looked-at\s+{PARTITIONS}\s", members), members
        assert f"{scene.topic}:0,1,2" in members, members
        state = scene.groups("--describe", "--state")
        assert re.search(rf"{scene.group}\s+127.0.0.1:\d+\s+\(\d+\)\s+range\s+Stable\s+1", state), state
        listed = tools.output("kafka-consumer-groups", "--bootstrap-server", scene.bootstrap, "--list", "--state")
        assert re.search(rf"^{scene.group}\s+Stable$", listed, re.MULTILINE), listed
        refused = scene.groups("--reset-offsets", "--topic", scene.topic, "--to-earliest", "--execute")
        assert "inactive" in refused, refused
        assert "NON_EMPTY" in scene.groups("--delete") or "is not empty" in scene.groups("--delete")
    at = ("kafka-consumer-groups", "--bootstrap-server", scene.bootstrap)
    assert scene.group in tools.output(*at, "--list", "--state", "Empty")
    assert scene.group not in tools.output(*at, "--list", "--state", "Stable")
    types = tools.output(*at, "--list", "--type")
    assert re.search(rf"^{scene.group}\s+Classic\s*$", types, re.MULTILINE), types
    assert scene.group in tools.output("kafka-groups", "--bootstrap-server", scene.bootstrap, "--list")
    everything = tools.output(*at, "--describe", "--all-groups")
    assert scene.group in everything
    assert "has no active members" in scene.groups("--describe")
    _, nobody = tools.run(*at, "--describe", "--group", "nobody")
    assert ("nobody" in nobody and "not exist" in nobody) or "not found" in nobody, nobody


def test_reset_offsets(scene: Scene, tmp_path: Path) -> None:
    of_topic = ("--topic", scene.topic)
    assert scene.reset(*of_topic, "--to-earliest", execute=False) == [0, 0, 0]
    assert scene.committed() == [50, 50, 50]
    assert scene.reset(*of_topic, "--to-earliest") == scene.committed() == [0, 0, 0]
    assert scene.reset(*of_topic, "--to-latest") == scene.committed() == [RECORDS] * 3
    assert scene.reset(*of_topic, "--to-offset", "20") == scene.committed() == [20, 20, 20]
    assert scene.reset(*of_topic, "--to-offset", "100000") == scene.committed() == [RECORDS] * 3
    assert scene.reset(*of_topic, "--shift-by", "-30") == scene.committed() == [70, 70, 70]
    assert scene.reset(*of_topic, "--shift-by", "1000") == scene.committed() == [RECORDS] * 3
    scene.groups("--reset-offsets", "--topic", f"{scene.topic}:0,2", "--shift-by", "-1000", "--execute")
    assert scene.committed() == [0, RECORDS, 0]
    assert scene.reset("--all-topics", "--to-current") == scene.committed() == [0, RECORDS, 0]
    at = datetime.datetime.fromtimestamp((START_MS + 30 * STEP_MS) / 1000 - 1, datetime.UTC)
    assert scene.reset(*of_topic, "--to-datetime", at.strftime("%Y-%m-%dT%H:%M:%S.000+00:00")) == [30, 30, 30]
    assert scene.committed() == [30, 30, 30]
    ago_s = int(time.time() - (START_MS + 60 * STEP_MS) / 1000 + 5)
    assert scene.reset(*of_topic, "--by-duration", f"PT{ago_s}S") == scene.committed() == [60, 60, 60]
    exported = scene.groups("--reset-offsets", *of_topic, "--to-offset", "7", "--export", "--dry-run")
    rows = [row for row in csv.reader(io.StringIO(exported)) if row and row[0] == scene.topic]
    assert sorted(rows) == [[scene.topic, str(partition), "7"] for partition in range(PARTITIONS)]
    plan = scratch_file(tmp_path, "".join(f"{scene.topic},{partition},{partition + 3}\n" for partition in range(3)))
    assert scene.reset("--from-file", plan) == scene.committed() == [3, 4, 5]


def test_delete(scene: Scene, tools: ToolSession) -> None:
    scene.groups("--delete-offsets", "--topic", f"{scene.topic}:1")
    assert scene.committed() == [50, -1001, 50]
    scene.groups("--delete-offsets", "--topic", scene.topic)
    assert scene.committed() == [-1001] * 3
    scene.commit(50)
    with scene.member():
        refused = scene.groups("--delete-offsets", "--topic", f"{scene.topic}:1")
        assert "GROUP_SUBSCRIBED_TO_TOPIC" in refused or "subscribed" in refused, refused
    assert "successful" in scene.groups("--delete")
    listed = tools.output("kafka-consumer-groups", "--bootstrap-server", scene.bootstrap, "--list")
    assert scene.group not in listed.split()


def test_topics(broker: str, tools: ToolSession) -> None:
    at = ("kafka-topics", "--bootstrap-server", broker)
    topic = f"topic-{uuid.uuid4().hex[:8]}"
    of_topic = ("--topic", topic)
    made = (
        "--create",
        *of_topic,
        "--partitions",
        "3",
        "--replication-factor",
        "1",
        "--config",
        "segment.bytes=2097152",
    )
    assert f"Created topic {topic}" in tools.output(*at, *made)
    status, text = tools.run(*at, *made)
    assert status == 1 and "already exists" in text
    tools.output(*at, *made, "--if-not-exists")
    described = tools.output(*at, "--describe", *of_topic)
    assert re.search(
        r"TopicId: \S{22}\s+PartitionCount: 3\s+ReplicationFactor: 1\s+Configs: .*segment.bytes=2097152", described
    )
    assert len(re.findall(r"Partition: \d\s+Leader: (\d+)\s+Replicas: \1\s+Isr: \1", described)) == 3, described
    tools.output(*at, "--alter", *of_topic, "--partitions", "5")
    status, text = tools.run(*at, "--alter", *of_topic, "--partitions", "4")
    assert status == 1 and "5" in text, text
    assert "PartitionCount: 5" in tools.output(*at, "--describe", *of_topic)
    for wrong in ("--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions"):
        assert topic not in tools.output(*at, "--describe", wrong)
    assert topic in tools.output(*at, "--describe", "--topics-with-overrides")
    topic_id = re.findall(r"TopicId: (\S{22})", described)[0]
    assert topic in tools.output(*at, "--describe", "--topic-id", topic_id)
    assert topic in tools.output(*at, "--list", "--exclude-internal").split()
    assert tools.output(*at, "--list", *of_topic) == topic
    assigned = f"{topic}-assigned"
    node = re.findall(r"Leader: (\d+)", described)[0]
    tools.output(*at, "--create", "--topic", assigned, "--replica-assignment", f"{node},{node}")
    assert "PartitionCount: 2" in tools.output(*at, "--describe", "--topic", assigned)
    tools.output(*at, "--delete", "--topic", f"{topic}.*")
    assert topic not in tools.output(*at, "--list")
    status, text = tools.run(*at, "--describe", *of_topic)
    assert status == 1 and "does not exist" in text
    tools.output(*at, "--delete", *of_topic, "--if-exists")


def entities(broker: str) -> dict[str, tuple[tuple[str, ...], str, str]]:
    """What has settings: how kafka-configs names it, one of its settings, and a value that is not the default."""
    return {
        "topic": (("--entity-type", "topics", "--entity-name", broker), "retention.ms", "123456"),
        "broker": (("--entity-type", "brokers", "--entity-name", broker), "log.cleaner.threads", "2"),
        "brokers": (("--entity-type", "brokers", "--entity-default"), "message.max.bytes", "1234567"),
        "group": (("--entity-type", "groups", "--entity-name", "some-group"), "consumer.session.timeout.ms", "50000"),
    }


@pytest.mark.parametrize("kind", ["topic", "broker", "brokers", "group"])
def test_configs(kind: str, broker: str, tools: ToolSession) -> None:
    at = ("kafka-configs", "--bootstrap-server", broker)
    name = ""
    if kind == "topic":
        name = f"topic-{uuid.uuid4().hex[:8]}"
        tools.output("kafka-topics", "--bootstrap-server", broker, "--create", "--topic", name)
    elif kind == "broker":
        name = re.findall(r"id: (\d+)", tools.output("kafka-broker-api-versions", "--bootstrap-server", broker))[0]
    entity, setting, value = entities(name)[kind]
    tools.output(*at, "--alter", *entity, "--add-config", f"{setting}={value}")
    described = tools.output(*at, "--describe", *entity)
    assert f"{setting}={value}" in described, described
    if kind != "brokers":
        everything = tools.output(*at, "--describe", "--all", *entity)
        assert f"{setting}={value}" in everything and everything.count("=") > described.count("="), everything
    tools.output(*at, "--alter", *entity, "--delete-config", setting)
    assert f"{setting}={value}" not in tools.output(*at, "--describe", *entity)
    status, text = tools.run(*at, "--alter", *entity, "--add-config", "no.such.setting=1")
    if kind not in ("broker", "brokers"):
        assert status == 1, text
    status, text = tools.run(*at, "--alter", *entity, "--add-config", f"{setting}=nonsense")
    assert status == 1 and "nonsense" in text, text


def test_settings_from_a_file(broker: str, tools: ToolSession, tmp_path: Path) -> None:
    topic = f"topic-{uuid.uuid4().hex[:8]}"
    tools.output("kafka-topics", "--bootstrap-server", broker, "--create", "--topic", topic)
    entity = ("kafka-configs", "--bootstrap-server", broker, "--entity-type", "topics", "--entity-name", topic)
    path = scratch_file(tmp_path, "retention.ms=1000000\ncleanup.policy=compact,delete\n")
    tools.output(*entity, "--alter", "--add-config-file", path)
    described = tools.output(*entity, "--describe")
    assert "retention.ms=1000000" in described and "cleanup.policy=compact,delete" in described
    tools.output(*entity, "--alter", "--delete-config", "retention.ms", "--add-config", "cleanup.policy=[delete]")
    described = tools.output(*entity, "--describe")
    assert "retention.ms" not in described and "cleanup.policy=delete" in described, described


def test_client_metrics(broker: str, tools: ToolSession) -> None:
    at = ("kafka-client-metrics", "--bootstrap-server", broker)
    name = f"subscription/{uuid.uuid4().hex[:8]}"
    alter, describe = (*at, "--alter", "--name", name), (*at, "--describe", "--name", name)
    assert "doesn't exist" in tools.output(*describe)
    wishes = ("--metrics", "a,b", "--interval", "5000", "--match", "client_id=foo,client_software_version=4\\..*")
    assert tools.output(*alter, *wishes) == f"Altered client metrics config for {name}."
    heading = f"Client metrics configs for {name} are:"
    configured = [heading, "interval.ms=5000", "match=client_id=foo,client_software_version=4\\..*", "metrics=a,b"]
    assert settings_of(tools.output(*describe)) == configured
    assert settings_of(tools.output(*at, "--describe")) == configured
    assert tools.output(*at, "--list") == name
    for option, value, reason in (
        ("--interval", "99", "interval must be between 100 and 3600000"),
        ("--match", "client_id=[a", "Illegal client matching pattern: client_id=[a"),
        ("--match", "nobody=a", "Illegal client matching pattern: nobody=a"),
    ):
        status, text = tools.run(*alter, option, value)
        assert status == 1 and reason in text, text
    tools.output(*alter, "--metrics", "")
    assert settings_of(tools.output(*describe)) == [*configured[:3], "metrics="]
    assert tools.output(*at, "--delete", "--name", name) == f"Deleted client metrics config for {name}."
    assert tools.output(*at, "--list") == ""
    assert "doesn't exist" in tools.output(*describe)


def settings_of(described: str) -> list[str]:
    """The heading, and what is below it by name: the tool says it in the order in which it was told."""
    heading, *settings = (line.strip() for line in described.splitlines())
    return [heading, *sorted(settings)]


def test_cluster_tools(broker: str, tools: ToolSession) -> None:
    at = ("--bootstrap-server", broker)
    assert re.fullmatch(r"Cluster ID: \S{22}", tools.output("kafka-cluster", "cluster-id", *at))
    versions = tools.output("kafka-broker-api-versions", *at)
    for api in ("JoinGroup", "OffsetDelete", "DescribeGroups", "ListGroups"):
        assert re.search(rf"{api}\(\d+\): [\d to]+ \[usable: \d+\]", versions), api
    features = tools.output("kafka-features", *at, "describe")
    assert re.search(r"^Feature: group.version\s.*FinalizedVersionLevel: 1", features, re.MULTILINE)
    status, text = tools.run("kafka-metadata-quorum", *at, "describe", "--status")
    assert status == 1 and "UnsupportedVersionException" in text, text


def test_latency_from_end_to_end(broker: str, tools: ToolSession) -> None:
    topic = f"topic-{uuid.uuid4().hex[:8]}"
    tools.output("kafka-topics", "--bootstrap-server", broker, "--create", "--topic", topic)
    assert "Avg latency" in tools.output("kafka-e2e-latency", broker, topic, "50", "all", "20")


def test_transactions_that_are_not_there(scene: Scene, tools: ToolSession) -> None:
    """The records of the scene come from a producer without a transaction; nothing hangs."""

    def run(*args: str) -> tuple[int, str]:
        return tools.run("kafka-transactions", "--bootstrap-server", scene.bootstrap, *args)

    for filters in ((), ("--duration-filter", "5"), ("--transactional-id-pattern", "a.*")):
        status, text = run("list", *filters)
        assert status == 0 and len(text.splitlines()) == 1, text
    status, text = run("describe", "--transactional-id", "nobody")
    assert status == 1 and "Could not find coordinator" not in text and "nobody" in text, text
    status, text = run("describe-producers", "--topic", scene.topic, "--partition", "0")
    assert status == 0 and "LatestCoordinatorEpoch" in text, text
    status, text = run("find-hanging", "--topic", scene.topic)
    assert status == 0 and len(text.splitlines()) == 1, text
