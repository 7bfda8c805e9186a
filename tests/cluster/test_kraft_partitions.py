"""A thousand partitions of a KRaft cluster with brokers of both kinds, which are reassigned under load."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ElectionType, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec, PartitionMetadata
from soak.cluster.load import IMPATIENT, PATIENCE_S, JavaLoad, Load
from soak.cluster.replicated_cluster import BROKERS
from soak.cluster.sequences import sequence_violations
from soak.kraft.clients import GroupLoad
from soak.kraft.processes import KRaftProcessCluster
from soak.sim.history import History, Place, WriterKind
from tests.kafka import KafkaTools
from tests.server_process import wait_until

from barnabas.clients.producer import Producer

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.nightly, pytest.mark.timeout(1200)]

TOPIC = "wide"
PARTITIONS = 1000
WRITTEN, PER_SECOND = 15, 100
"""The partitions to which librdkafka writes all the time, five of each leader: it sends one partition in each request
and has five requests in flight. With 20 partitions of each leader and a busy machine, some partitions waited up to two
minutes for their turn, before the first reassignment as well. Java's producer writes to all partitions."""
DELIVERY_TIMEOUT_S = 600
"""A producer must not give up a record because the machine is busy: that is not a loss of the cluster."""
SESSION_MS = 30_000
"""On a busy machine Kafka's broker sends no heartbeat for more than four seconds while it applies a reassignment. With
that session it is fenced, and some of its partitions were not written for 70 seconds."""
SETTLED_S = 180
BARNABAS = (2, 3)
SETTINGS = {
    "min.insync.replicas": "1",
    "replica.lag.time.max.ms": "30000",
    "request.timeout.ms": "30000",
    # As in Kafka: a sync of hundreds of files for each round of fetches would take seconds on a busy disk.
    "acks.all.durability": "page-cache",
}


def assignment(step: int) -> dict[int, list[int]]:
    """Two replicas of each partition: each broker leads a third of the partitions and follows another third.

    With each step a partition loses the replica on its leader and gets one on the third broker.
    """
    size = len(BROKERS)
    return {index: [BROKERS[(index + step) % size], BROKERS[(index + step + 1) % size]] for index in range(PARTITIONS)}


class Figures:
    """The durations of the parts of the test, for its output."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def measured(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.seconds[what] = time.monotonic() - began

    def __str__(self) -> str:
        return ", ".join(f"{what} {seconds:.1f} s" for what, seconds in self.seconds.items())


class WideTopic:
    """The topic, as each of the brokers describes it."""

    def __init__(self, cluster: KRaftProcessCluster, folder: Path) -> None:
        self._cluster = cluster
        self._plan = folder / "reassignment.json"
        self._tools = KafkaTools()
        self._admins = {
            one: AdminClient({"bootstrap.servers": cluster.brokers[one].bootstrap, **IMPATIENT}) for one in BROKERS
        }

    def create(self) -> None:
        replicas = list(assignment(0).values())
        new = NewTopic(TOPIC, num_partitions=PARTITIONS, replica_assignment=replicas)
        self._admins[BARNABAS[0]].create_topics([new], operation_timeout=60, request_timeout=60)[TOPIC].result(90)
        self.wait_for(0)
        self.wait_for_leaders()

    def wait_for_leaders(self) -> None:
        """Wait until each leader serves its partitions: brokers report leaders before these have taken their roles."""
        latest = {TopicPartition(TOPIC, index): OffsetSpec.latest() for index in range(PARTITIONS)}

        def are_served() -> bool:
            results = self._admins[BARNABAS[0]].list_offsets(latest, request_timeout=30).values()
            return all(one.exception() is None for one in results)

        wait_until(are_served, timeout_s=SETTLED_S, what="all leaders serve their partitions", interval_s=0.5)

    def partitions(self, broker_id: int) -> dict[int, PartitionMetadata]:
        found: dict[int, PartitionMetadata] = (
            self._admins[broker_id].list_topics(TOPIC, timeout=30).topics[TOPIC].partitions
        )
        return found

    def reassign(self, step: int) -> None:
        """Move all partitions with Kafka's tool through Barnabas, and wait until all replicas are in sync."""
        plan = [{"topic": TOPIC, "partition": index, "replicas": one} for index, one in assignment(step).items()]
        self._plan.write_text(json.dumps({"version": 1, "partitions": plan}))
        self._tools.output(
            "kafka-reassign-partitions",
            *("--bootstrap-server", self._cluster.brokers[BARNABAS[step % 2]].bootstrap),
            *("--reassignment-json-file", str(self._plan), "--execute"),
        )
        self.wait_for(step)

    def elect_preferred(self, step: int) -> None:
        """Give each broker a third of the leaders, and wait until all brokers report it."""
        self._admins[BARNABAS[0]].elect_leaders(ElectionType.PREFERRED, None).result(90)
        wanted = {index: replicas[0] for index, replicas in assignment(step).items()}

        def is_done() -> bool:
            return all(
                {index: found.leader for index, found in self.partitions(one).items()} == wanted for one in BROKERS
            )

        wait_until(is_done, timeout_s=SETTLED_S, what="all brokers report the preferred leaders", interval_s=0.5)
        led = Counter(wanted.values())
        followed = Counter(replicas[1] for replicas in assignment(step).values())
        assert min(led.values()) >= PARTITIONS // 3 and min(followed.values()) >= PARTITIONS // 3

    def wait_for(self, step: int) -> None:
        """Wait until all brokers report this assignment, with all replicas in sync and a leader."""
        wanted = assignment(step)

        def is_done() -> bool:
            for broker_id in BROKERS:
                found = self.partitions(broker_id)
                if len(found) < PARTITIONS:
                    return False
                for index, one in found.items():
                    if sorted(one.replicas) != sorted(wanted[index]) or sorted(one.isrs) != sorted(wanted[index]):
                        return False
                    if one.leader not in wanted[index]:
                        return False
            return True

        wait_until(is_done, timeout_s=SETTLED_S, what=f"all replicas of step {step} are in sync", interval_s=0.5)

    def differing_replicas(self, step: int) -> list[str]:
        """Return the partitions whose replicas are not equal byte by byte, after some time to become equal."""

        def differing() -> list[str]:
            return [
                f"{TOPIC}-{index} of the brokers {replicas}"
                for index, replicas in assignment(step).items()
                if len({self._cluster.replica(one, TOPIC, index) for one in replicas}) > 1
            ]

        deadline = time.monotonic() + 60
        while (found := differing()) and time.monotonic() < deadline:
            time.sleep(0.5)
        return found

    def sequence_violations(self, step: int) -> list[str]:
        """Return the batches with wrong sequence numbers in the logs of the leaders."""
        return [
            one
            for index, replicas in assignment(step).items()
            for one in sequence_violations(self._cluster.replica(replicas[0], TOPIC, index), f"{TOPIC}-{index}")
        ]

    def observer_lags(self) -> dict[int, int]:
        """Return the lag of each observer of the metadata log, from a broker of Barnabas."""
        described = self._tools.output(
            "kafka-metadata-quorum",
            *("--bootstrap-server", self._cluster.brokers[BARNABAS[0]].bootstrap, "describe", "--replication"),
        )
        rows = [line.split() for line in described.splitlines()[1:]]
        return {int(row[0]): int(row[3]) for row in rows if row and row[-1] == "Observer"}


async def write_to_all(bootstrap: str, number: int, history: History) -> None:
    """Write a record to each of the partitions with one idempotent producer."""
    async with Producer(bootstrap, request_timeout_ms=60_000) as producer:
        waiting = []
        for index in range(PARTITIONS):
            value = b"round %d of %d" % (number, index)
            history.sent[value] = f"of all-{index}"
            waiting.append((value, await producer.send(TOPIC, value, partition=index)))
        for value, future in waiting:
            written = await future
            history.acknowledged[value] = (written.partition, written.offset)


def read_all(bootstrap: str, topic: str, partitions: int) -> dict[Place, bytes]:
    """Return all records, read from all partitions at the same time."""
    settings = {"group.id": "check", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": bootstrap, **IMPATIENT, **settings})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    found: dict[Place, bytes] = {}
    at_end: set[int] = set()
    deadline = time.monotonic() + PATIENCE_S
    try:
        while len(at_end) < partitions:
            assert time.monotonic() < deadline, f"{partitions - len(at_end)} partitions are not read to their end"
            for message in consumer.consume(1000, timeout=0.5):
                partition, offset, value, error = (
                    message.partition(),
                    message.offset(),
                    message.value(),
                    message.error(),
                )
                assert partition is not None and offset is not None
                if error is None:
                    assert isinstance(value, bytes)
                    found[partition, offset] = value
                    at_end.discard(partition)
                elif error.code() == KafkaError._PARTITION_EOF:
                    at_end.add(partition)
    finally:
        consumer.close()
    return found


def test_a_thousand_partitions_are_moved_between_both_kinds_of_brokers_under_load(tmp_path: Path) -> None:
    figures = Figures()
    with KRaftProcessCluster(tmp_path, settings=SETTINGS, metadata_log={}, session_ms=SESSION_MS) as cluster:
        topic = WideTopic(cluster, tmp_path)
        with figures.measured("creation"):
            topic.create()
        load = Load(cluster.bootstrap, TOPIC, WRITTEN, per_second=PER_SECOND, delivery_timeout_s=DELIVERY_TIMEOUT_S)
        # librdkafka begins a new epoch after OUT_OF_ORDER_SEQUENCE_NUMBER from Kafka's broker, and then writes records
        # of other partitions twice, in a cluster of Kafka's brokers as well (`protocol/sequence_gap_guard.py`). Its
        # records are checked within each epoch, by `sequence_violations`. Java's producer must write no record twice.
        load.history.kinds.update(
            {f"{writer}-{index}": WriterKind(is_idempotent=False) for writer in range(2) for index in range(WRITTEN)}
        )
        java = JavaLoad(cluster.bootstrap, TOPIC, delivery_timeout_s=DELIVERY_TIMEOUT_S)
        with java, GroupLoad(cluster.bootstrap, TOPIC, "readers of all", protocol="consumer") as group:
            with load:
                java.wait_until_it_writes()
                load.grows()
                began = time.monotonic()
                for step in (1, 2, 3):
                    asyncio.run(write_to_all(cluster.bootstrap, step, load.history))
                    with figures.measured(f"reassignment {step}"):
                        topic.reassign(step)
                    with figures.measured(f"election {step}"):
                        topic.elect_preferred(step)
                    load.grows()
                figures.seconds["longest gap of a partition"] = load.longest_gap_s(began)
                load.finish()
            java.finish()
            history = load.read_back(lambda bootstrap, name, _: read_all(bootstrap, name, PARTITIONS))
            java.add_to(history)
            group.wait_for(history.final)
        violations = [*history.check(), *group.violations, *topic.differing_replicas(3), *topic.sequence_violations(3)]
        assert not violations, violations[:10]

        def caught_up() -> bool:
            return topic.observer_lags() == dict.fromkeys(BROKERS, 0)

        wait_until(caught_up, timeout_s=60, what="the observers have no lag", interval_s=0.2)
    print(f"{len(history.acknowledged)} records acknowledged; {figures}")
