"""Kafka's command-line tools and AdminClient, 3.9.1 and 4.4.0, against three brokers around one ZooKeeper.

`BARNABAS_COMPAT_CLUSTER=kafka` has brokers of Apache Kafka 3.9.1 instead, to compare.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from soak.cluster.processes import ProcessCluster
from tests.compat.test_java import program
from tests.compat.tool_session import ToolSession, scratch_file
from tests.java import JVM_FLAGS, java_command, run_java
from tests.kafka import LAST_WITH_ZOOKEEPER, TOOL_CLASSES, kafka_jars, logging_flags
from tests.server_process import wait_until

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(300)]

PATIENCE_S = 60
LACKS = ("under-replicated", "under-min-isr", "at-min-isr", "unavailable")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    settings = {"auto.leader.rebalance.enable": "false"}
    kind = os.environ.get("BARNABAS_COMPAT_CLUSTER", "barnabas")
    with ProcessCluster(tmp_path_factory.mktemp("cluster"), settings=settings, kind=kind) as cluster:
        yield cluster


class Stage:
    """Kafka's tools of one version, asked about a topic of their own."""

    def __init__(self, cluster: ProcessCluster, tools: ToolSession, folder: Path) -> None:
        self.cluster, self.tools, self.folder = cluster, tools, folder
        self.topic = f"tools-{uuid.uuid4().hex[:8]}"

    def ask(self, tool: str, *arguments: str, at: int | None = None) -> str:
        """What a tool prints, started with the addresses of all brokers or of one."""
        address = self.cluster.bootstrap if at is None else self.cluster.address(at)
        return self.tools.output(tool, "--bootstrap-server", address, *arguments)

    def create(self, replicas: str, *settings: str) -> None:
        """The topic, with these replicas: `1:2,2:1`."""
        configs = [part for one in settings for part in ("--config", one)]
        self.ask("kafka-topics", "--create", "--topic", self.topic, "--replica-assignment", replicas, *configs)
        wanted = replicas.split(",")
        for index, some in enumerate(wanted):
            self.until(lambda index=index, some=some: len(self.isr(index)) == len(some.split(":")))  # type: ignore[misc]
        # Tools ask any of the brokers.
        for broker in (1, 2, 3):
            self.until(lambda broker=broker: self.partitions_known_at(broker) == len(wanted))  # type: ignore[misc]

    def partitions_known_at(self, broker: int) -> int:
        topics = AdminClient({"bootstrap.servers": self.cluster.address(broker)}).list_topics(timeout=PATIENCE_S).topics
        return len(topics[self.topic].partitions) if self.topic in topics else 0

    def isr(self, index: int) -> list[int]:
        found: list[int] = self.cluster.partition(self.topic, index).get("isr", [])
        return sorted(found)

    def leader(self, index: int = 0) -> int:
        return int(self.cluster.partition(self.topic, index)["leader"])

    def lacking(self, what: str, at: int) -> set[str]:
        """Topic and partition of all that `kafka-topics --describe --…-partitions` names."""
        said = self.ask("kafka-topics", "--describe", f"--{what}-partitions", at=at)
        return {"-".join(found) for found in re.findall(r"Topic: (\S+)\s+Partition: (\d+)", said)}

    def lacks(self, at: int = 1, **wanted: set[str]) -> None:
        """Wait until this is what is lacking, and nothing else."""
        goal = {what: wanted.get(what.replace("-", "_"), set()) for what in LACKS}
        found: dict[str, set[str]] = {}

        def is_so() -> bool:
            found.update({what: self.lacking(what, at) for what in LACKS})
            return found == goal

        try:
            self.until(is_so)
        except TimeoutError:
            assert found == goal

    @staticmethod
    def until(holds: Callable[[], bool]) -> None:
        wait_until(holds, timeout_s=PATIENCE_S, what="the tools see what is so", interval_s=0.1)

    def plan(self, replicas: list[int], partitions: int) -> str:
        """A file for kafka-reassign-partitions."""
        wanted = [{"topic": self.topic, "partition": index, "replicas": replicas} for index in range(partitions)]
        return scratch_file(self.folder, json.dumps({"version": 1, "partitions": wanted}))

    def fill(self, records: int, size: int) -> None:
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "acks": "all", "log_level": 0})
        for number in range(records):
            producer.produce(self.topic, bytes(size), partition=number % 2)
        assert producer.flush(PATIENCE_S) == 0


@pytest.fixture(params=[LAST_WITH_ZOOKEEPER, "4.4.0"])
def stage(request: pytest.FixtureRequest, cluster: ProcessCluster, tmp_path: Path) -> Iterator[Stage]:
    with ToolSession(request.param) as tools:
        yield Stage(cluster, tools, tmp_path)
    cluster.heal()
    cluster.wait_for_brokers((1, 2, 3))


def test_what_lacks_replicas_is_named(stage: Stage) -> None:
    stage.create("1:2:3,2:3:1")
    strict, alone = Stage(stage.cluster, stage.tools, stage.folder), Stage(stage.cluster, stage.tools, stage.folder)
    strict.create("1:2:3", "min.insync.replicas=3")
    alone.create("3", "min.insync.replicas=1")
    whole = {f"{stage.topic}-0", f"{stage.topic}-1"}
    below, gone = {f"{strict.topic}-0"}, {f"{alone.topic}-0"}
    stage.lacks(at_min_isr=below | gone)
    stage.cluster.kill("3")
    stage.lacks(under_replicated=whole | below, at_min_isr=whole | gone, under_min_isr=below | gone, unavailable=gone)
    stage.cluster.start("3")
    stage.lacks(at=3, at_min_isr=below | gone)
    for one in (stage, strict, alone):
        stage.ask("kafka-topics", "--delete", "--topic", one.topic)


def test_leaders_are_elected_when_asked(stage: Stage) -> None:
    stage.create("1:2", "min.insync.replicas=1")
    place = ("--topic", stage.topic, "--partition", "0")
    stage.cluster.brokers[1].stop()
    stage.until(lambda: stage.leader() == 2)
    stage.cluster.start("1")
    stage.until(lambda: stage.isr(0) == [1, 2])
    said = stage.ask("kafka-leader-election", "--election-type", "preferred", *place)
    assert f"Successfully completed leader election (PREFERRED) for partitions {stage.topic}-0" in said, said
    stage.until(lambda: stage.leader() == 1)
    said = stage.ask("kafka-leader-election", "--election-type", "preferred", *place)
    assert f"Valid replica already elected for partitions {stage.topic}-0" in said, said


def test_an_unclean_leader_is_elected_only_when_asked(stage: Stage) -> None:
    stage.create("1:2", "min.insync.replicas=1")
    place = ("--topic", stage.topic, "--partition", "0")
    stage.cluster.kill("2")
    stage.until(lambda: stage.isr(0) == [1])
    stage.cluster.kill("1")
    stage.until(lambda: stage.leader() == -1)
    stage.cluster.start("2")
    stage.cluster.wait_for_brokers((2, 3))
    status, said = stage.tools.run(
        "kafka-leader-election", "--bootstrap-server", stage.cluster.address(2), "--election-type", "preferred", *place
    )
    assert status != 0 and "PreferredLeaderNotAvailable" in said, said
    assert (stage.leader(), stage.isr(0)) == (-1, [1])
    said = stage.ask("kafka-leader-election", "--election-type", "unclean", *place, at=2)
    assert f"Successfully completed leader election (UNCLEAN) for partitions {stage.topic}-0" in said, said
    assert (stage.leader(), stage.isr(0)) == (2, [2])
    stage.cluster.start("1")
    stage.until(lambda: stage.isr(0) == [1, 2])


def test_partitions_move_throttled_and_the_move_is_taken_back(stage: Stage) -> None:
    stage.create("1:2,1:2")
    stage.fill(600, 10_000)
    file = ("--reassignment-json-file", stage.plan([2, 3], 2))
    said = stage.ask("kafka-reassign-partitions", *file, "--execute", "--throttle", "1000")
    assert f"Successfully started partition reassignments for {stage.topic}-0,{stage.topic}-1" in said, said
    assert "The inter-broker throttle limit was set to 1000 B/s" in said, said
    underway = stage.ask("kafka-reassign-partitions", "--list")
    assert re.search(rf"{stage.topic}-0: replicas: [\d,]+\. adding: 3\. removing: 1\.", underway), underway
    said = stage.ask("kafka-reassign-partitions", *file, "--verify")
    assert f"Reassignment of partition {stage.topic}-1 is still in progress" in said, said
    rate = ("kafka-configs", "--describe", "--entity-type", "brokers", "--entity-name", "3")
    assert "follower.replication.throttled.rate=1000" in stage.ask(*rate)
    replicas = ("kafka-configs", "--describe", "--entity-type", "topics", "--entity-name", stage.topic)
    # Settings of a topic are told by any broker, which hears of them a moment later.
    stage.until(lambda: "follower.replication.throttled.replicas=0:3,1:3" in stage.ask(*replicas))
    said = stage.ask("kafka-reassign-partitions", *file, "--cancel")
    assert f"Successfully cancelled partition reassignments for: {stage.topic}-0,{stage.topic}-1" in said, said
    assert stage.ask("kafka-reassign-partitions", "--list").strip() == "No partition reassignments found."
    assert "throttled" not in stage.ask(*rate)
    stage.until(lambda: "throttled" not in stage.ask(*replicas))
    stage.until(lambda: [stage.isr(0), stage.isr(1)] == [[1, 2], [1, 2]])
    stage.until(lambda: not list(stage.cluster.log_dir(3).glob(f"{stage.topic}-?")))


def test_partitions_move_and_the_throttle_goes(stage: Stage) -> None:
    stage.create("1:2,1:2")
    stage.fill(600, 10_000)
    file = ("--reassignment-json-file", stage.plan([2, 3], 2))
    stage.ask("kafka-reassign-partitions", *file, "--execute", "--throttle", "1000")
    stage.ask("kafka-reassign-partitions", *file, "--execute", "--additional", "--throttle", "100000000")
    stage.until(lambda: "in progress" not in stage.ask("kafka-reassign-partitions", *file, "--verify"))
    said = stage.ask("kafka-reassign-partitions", *file, "--verify")
    assert f"Reassignment of partition {stage.topic}-0 is completed." in said, said
    assert "throttled" not in stage.ask("kafka-configs", "--describe", "--entity-type", "brokers", "--entity-name", "3")
    assert [stage.isr(0), stage.isr(1)] == [[2, 3], [2, 3]]
    stage.until(lambda: not list(stage.cluster.log_dir(1).glob(f"{stage.topic}-?")))
    assert stage.cluster.replica(2, stage.topic, 0) == stage.cluster.replica(3, stage.topic, 0) != b""


def test_every_broker_has_settings_of_its_own(stage: Stage) -> None:
    one = ("--entity-type", "brokers", "--entity-name", "2")
    all_of_them = ("--entity-type", "brokers", "--entity-default")
    stage.ask("kafka-configs", "--alter", *one, "--add-config", "log.cleaner.threads=2", at=1)
    stage.ask("kafka-configs", "--alter", *all_of_them, "--add-config", "log.retention.ms=1234567", at=3)
    own = stage.ask("kafka-configs", "--describe", *one)
    assert "log.cleaner.threads=2" in own and "DEFAULT_CONFIG:log.cleaner.threads=1" in own, own
    for broker in (1, 2, 3):
        everything = ("kafka-configs", "--describe", "--all", "--entity-type", "brokers", "--entity-name", str(broker))
        stage.until(lambda everything=everything: "log.retention.ms=1234567 " in stage.ask(*everything))  # type: ignore[misc]
        threads = 2 if broker == 2 else 1
        assert f"log.cleaner.threads={threads} " in stage.ask(*everything)
    stage.ask("kafka-configs", "--alter", *one, "--delete-config", "log.cleaner.threads", at=3)
    stage.ask("kafka-configs", "--alter", *all_of_them, "--delete-config", "log.retention.ms", at=2)
    stage.until(lambda: "log.cleaner.threads" not in stage.ask("kafka-configs", "--describe", *one))
    stage.until(lambda: "log.retention.ms" not in stage.ask("kafka-configs", "--describe", *all_of_them))


def test_all_brokers_are_seen(stage: Stage) -> None:
    if stage.tools.version != LAST_WITH_ZOOKEEPER:  # there the class has another name
        versions = stage.ask("kafka-broker-api-versions")
        assert set(re.findall(r"\(id: (\d)", versions)) == {"1", "2", "3"}, versions
    stage.create("1:2:3,2:3:1")
    stage.fill(10, 100)
    described = json.loads(stage.ask("kafka-log-dirs", "--describe", "--topic-list", stage.topic).splitlines()[-1])
    sizes = {one["broker"]: [each["size"] for each in one["logDirs"][0]["partitions"]] for one in described["brokers"]}
    assert len(sizes) == 3 and len({tuple(sorted(each)) for each in sizes.values()}) == 1, sizes
    asked = [("cluster-id", "--bootstrap-server", stage.cluster.address(one)) for one in (1, 2, 3)]
    ids = {stage.tools.output("kafka-cluster", *each) for each in asked}
    assert len(ids) == 1, ids


def test_replicas_are_verified(cluster: ProcessCluster, tmp_path: Path) -> None:
    """kafka-replica-verification, which Kafka 4 no longer has, sees no lag while replicas are the same."""
    with ToolSession(LAST_WITH_ZOOKEEPER) as tools:
        stage = Stage(cluster, tools, tmp_path)
        stage.create("1:2:3,2:3:1")
    stage.fill(500, 1000)
    flags = [*JVM_FLAGS, *logging_flags(LAST_WITH_ZOOKEEPER, "error")]
    tool = TOOL_CLASSES["kafka-replica-verification"]
    asked = ["--broker-list", cluster.bootstrap, "--topics-include", stage.topic, "--report-interval-ms", "500"]
    command = java_command(tool, kafka_jars(LAST_WITH_ZOOKEEPER), asked, flags)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said: list[str] = []
    assert process.stdout
    reading = threading.Thread(target=said.extend, args=(process.stdout,))
    reading.start()
    try:
        verified = rf"max lag is 0 for partition {stage.topic}-\d at offset 250 among 2 partitions"
        wait_until(lambda: any(re.search(verified, line) for line in said), timeout_s=PATIENCE_S, what="verified")
        assert not [line for line in said if "checksum" in line or "Exception" in line], said
    finally:
        process.kill()
        process.wait()
        reading.join()


@pytest.mark.parametrize("version", [LAST_WITH_ZOOKEEPER, "4.4.0"])
def test_admin_client(version: str, cluster: ProcessCluster, tmp_path: Path) -> None:
    parts = ("cluster_admin", "futures", "report")
    classpath = program(parts, f"org.apache.kafka:kafka-clients:{version}", tmp_path)
    topic = f"admin-{uuid.uuid4().hex[:8]}"
    result = run_java("ClusterAdmin", classpath, [cluster.bootstrap, topic], timeout=200)
    answers = [json.loads(line) for line in result.stdout.splitlines() if line.startswith('{"feature"')]
    failed = {answer["feature"]: answer["detail"] for answer in answers if not answer["ok"]}
    assert not failed, failed
    assert len(answers) == 6, result.stdout + result.stderr
