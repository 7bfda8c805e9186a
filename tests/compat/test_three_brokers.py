"""Foreign clients on three brokers: they write with acks all, read as a group, and outlive brokers that are killed."""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.compat.members import PARTITIONS, SESSION_MS, MemberProcess
from tests.compat.reporting import PATIENCE_S, ReportingProcess
from tests.compat.test_groups import command_of
from tests.compat.test_java import program
from tests.java import java_command
from tests.node import install_packages
from tests.server_process import wait_until

from barnabas.testing import Cluster

pytestmark = pytest.mark.timeout(240)

HERE = Path(__file__).parent
MORE = 30
"""So many records of each partition show that a client goes on."""


class WriterProcess(ReportingProcess):
    """A running writer: `sent` are the numbers that were acknowledged, in that order, `failed` what was not."""

    def __init__(self, command: Sequence[str], errors: Path) -> None:
        self.sent: list[int] = []
        self.failed: list[Sequence[str]] = []
        super().__init__(command, errors)

    def heard(self, word: str, rest: Sequence[str]) -> None:
        if word == "sent":
            self.sent.append(int(rest[0]))
        else:
            self.failed.append([word, *rest])

    def wait_writing(self) -> None:
        """More is acknowledged in every partition."""
        before = len(self.sent)

        def goes_on() -> bool:
            self.check()
            more = Counter(number % PARTITIONS for number in self.sent[before:])
            return len(more) == PARTITIONS and min(more.values()) >= MORE

        wait_until(goes_on, timeout_s=PATIENCE_S, what=f"more than {before} records are acknowledged")


def writer_of(client: str, version: str, folder: Path) -> list[str]:
    """What starts a writer; arguments are added."""
    if client == "java":
        classpath = program(("writer",), f"org.apache.kafka:kafka-clients:{version}", folder)
        return java_command("Writer", classpath, [])
    if client == "kafkajs":
        return ["node", str(install_packages(HERE / "kafkajs") / "writer.js")]
    return [sys.executable, str(HERE / "python_writer.py"), client]


def stored(bootstrap: str, topic: str) -> dict[int, tuple[int, int]]:
    """Where each number stands; raises AssertionError for one that is there twice."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    ends = [
        consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=PATIENCE_S)[1]
        for partition in range(PARTITIONS)
    ]
    found: dict[int, tuple[int, int]] = {}
    with closing(consumer):
        for _ in range(sum(ends)):
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            assert message.error() is None, message.error()
            number = int(message.value())
            assert number not in found, f"{number} is there twice"
            found[number] = (message.partition(), message.offset())
    return found


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    config = {"min.insync.replicas": 2, "group.min.session.timeout.ms": 1000}
    with Cluster(brokers=3, topics={"orders": PARTITIONS}, config=config) as cluster:
        yield cluster


@pytest.mark.parametrize(
    ("client", "version", "strategy"),
    [
        pytest.param("confluent", "", "range"),
        pytest.param("kafka-python", "", "range", marks=pytest.mark.verify),
        pytest.param("aiokafka", "", "range", marks=pytest.mark.verify),
        pytest.param("kafkajs", "", "RoundRobin", marks=[pytest.mark.verify, pytest.mark.node]),
        pytest.param("java", "3.9.1", "RangeAssignor", marks=[pytest.mark.verify, pytest.mark.java]),
        pytest.param("java", "4.4.0", "consumer", marks=[pytest.mark.verify, pytest.mark.java]),
    ],
)
def test_leaders_and_coordinators_are_killed(
    cluster: Cluster, client: str, version: str, strategy: str, tmp_path: Path
) -> None:
    writing = [*writer_of(client, version, tmp_path), cluster.bootstrap, "orders", str(PARTITIONS)]
    reading = [*command_of(client, version, tmp_path), cluster.bootstrap, "readers", "orders", strategy]
    with WriterProcess(writing, tmp_path / "writer.log") as writer:
        writer.wait_writing()
        member = MemberProcess([*reading, str(SESSION_MS)], tmp_path / "member.log")

        def wait_reading() -> None:
            member.check()
            before = len(member.got)
            wait_until(lambda: len(member.got) > before + MORE, timeout_s=PATIENCE_S, what="the member reads on")

        wait_reading()
        # Every broker once: whoever leads a partition, coordinates the group, or is controller.
        for victim in cluster.brokers:
            cluster.kill(victim)
            writer.wait_writing()
            wait_reading()
            cluster.start(victim)
            for partition in range(PARTITIONS):
                cluster.wait_for_isr("orders", partition, timeout=PATIENCE_S)
        writer.end()
        assert writer.failed == []
        places = stored(cluster.bootstrap, "orders")
        assert set(writer.sent) <= places.keys()
        # A commit whose answer was lost with its broker may count: what a member believes lost may not come again.
        everything = set(places.values())
        wait_until(lambda: member.got >= everything, timeout_s=PATIENCE_S, what="the member has read everything")
        member.leave()
