"""Ten transactional Java 4.4.0 producers on three brokers that are killed in turn: no error reaches the application.

`BARNABAS_BROKER_KILLS` sets the number of kills; `BARNABAS_COMPAT_CLUSTER=kafka` runs brokers of Apache Kafka 3.9.1 to
compare.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from soak.cluster.processes import ProcessCluster
from soak.cluster.replicated_cluster import BROKERS
from tests.compat.reporting import ReportingProcess
from tests.compat.test_java import program
from tests.java import JVM_FLAGS, java_command
from tests.server_process import wait_until

KILLS = int(os.environ.get("BARNABAS_BROKER_KILLS", "3"))
SECONDS_OF_A_KILL = 60
PRODUCERS, TOPIC, PARTITIONS = 10, "payments", 6
RECORDS_OF_A_TRANSACTION = 3
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "5",
    "transaction.state.log.replication.factor": "3",
}
PATIENCE_S = 90

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(180 + KILLS * SECONDS_OF_A_KILL)]


class Producers(ReportingProcess):
    """The running program: transactions that it has committed, and errors that its producers have thrown."""

    def __init__(self, command: Sequence[str], errors: Path) -> None:
        self.committed: list[str] = []
        self.counts: Counter[str] = Counter()
        self.errors: list[str] = []
        super().__init__(command, errors)

    def heard(self, word: str, rest: Sequence[str]) -> None:
        if word == "committed":
            self.committed.append(":".join(rest))
            self.counts[rest[0]] += 1
        else:
            self.errors.append(f"{time.strftime('%T')} {word} {' '.join(rest)}")

    def wait_committing(self) -> None:
        """Wait until every producer has committed more."""
        before = self.counts.copy()

        def goes_on() -> bool:
            self.check()
            return all(self.counts[str(one)] > before[str(one)] + 1 for one in range(PRODUCERS))

        wait_until(goes_on, timeout_s=PATIENCE_S, what="every producer commits on")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ProcessCluster]:
    kind = os.environ.get("BARNABAS_COMPAT_CLUSTER", "barnabas")
    with ProcessCluster(tmp_path / "cluster", settings=SETTINGS, kind=kind) as cluster:
        yield cluster


def committed_values(bootstrap: str) -> Counter[str]:
    """How often a reader of committed records finds each value."""
    config = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True}
    consumer = confluent_kafka.Consumer({**config, "isolation.level": "read_committed"})
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    found: Counter[str] = Counter()
    at_end: set[int] = set()
    while len(at_end) < PARTITIONS:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        if message.error():
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
            at_end.add(message.partition())
        else:
            found[message.value().decode()] += 1
    consumer.close()
    return found


def test_no_error_reaches_transactional_producers_while_brokers_are_killed(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    topic = NewTopic(TOPIC, PARTITIONS, len(BROKERS))
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([topic])[TOPIC].result(30)
    classpath = program(("many_transactions",), "org.apache.kafka:kafka-clients:4.4.0", tmp_path)
    arguments = [cluster.bootstrap, TOPIC, str(PARTITIONS), str(PRODUCERS)]
    command = java_command("ManyTransactions", classpath, arguments, JVM_FLAGS)
    with Producers(command, tmp_path / "producers.log") as producers:
        producers.wait_committing()
        for number in range(KILLS):
            victim = str(BROKERS[number % len(BROKERS)])
            cluster.kill(victim)
            producers.wait_committing()
            cluster.start(victim)
            cluster.wait_for_brokers(BROKERS)
            cluster.wait_for_isr(TOPIC, PARTITIONS)
            cluster.wait_for_isr("__transaction_state", 5)
            producers.wait_committing()
            errors = len(producers.errors)
            figures = f"kill {number + 1}: {len(producers.committed)} committed, {errors} errors"
            print(figures, file=sys.stderr, flush=True)
        producers.end()
    assert not producers.errors, "\n".join(producers.errors)
    found = committed_values(cluster.bootstrap)
    torn = {value: count for value, count in found.items() if count != RECORDS_OF_A_TRANSACTION}
    assert not torn, f"not all records of these transactions, or some of them twice: {torn}"
    assert not set(producers.committed) - found.keys(), "committed records are lost"
