"""MirrorMaker 2 of Kafka 4.3.1 between Apache Kafka 4.4.0 and Barnabas, both ways at once."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from tests.barnabas_server import BarnabasServer
from tests.compat.connect_worker import connect_command, write_settings
from tests.kafka import KafkaServer
from tests.server_process import ServerProcess, wait_until

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(420)]

PARTITIONS, RECORDS = 2, 200
READ = 60
"""How far the group has come in each partition."""
PATIENCE_S = 150
NO_DELAY = {"group.initial.rebalance.delay.ms": "0"}
UNGROUPED = {"group.id": "unused", "enable.auto.commit": False, "enable.partition.eof": True}
EVERY_SECOND = ("refresh.topics", "refresh.groups", "sync.topic.configs", "emit.checkpoints", "sync.group.offsets")


class Side:
    """One of the two clusters, with a topic and a group that are its own."""

    def __init__(self, alias: str, bootstrap: str) -> None:
        self.alias, self.bootstrap = alias, bootstrap
        self.topic, self.group = f"{alias}-flights", f"{alias}-readers"
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def fill(self) -> None:
        """A topic with a setting of its own, and a group in the middle of it."""
        new = NewTopic(self.topic, PARTITIONS, 1, config={"retention.ms": "7654321", "cleanup.policy": "compact"})
        self.admin.create_topics([new])[self.topic].result(30)
        self.write(0)
        self.commit(READ)

    def commit(self, offset: int) -> None:
        """The group has come so far in each partition."""
        places = [TopicPartition(self.topic, partition, offset) for partition in range(PARTITIONS)]
        wanted = [ConsumerGroupTopicPartitions(self.group, places)]

        def are_committed() -> bool:
            """A coordinator that has just come says so of each place."""
            (done,) = self.admin.alter_consumer_group_offsets(wanted).values()
            return all(place.error is None for place in done.result(60).topic_partitions)

        wait_until(are_committed, timeout_s=60, what=f"{self.group} is at {offset}", interval_s=0.1)

    def write(self, first: int) -> None:
        """As many records to each partition, with keys, headers and times."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "compression.type": "zstd"})
        for number in range(first, first + RECORDS):
            for partition in range(PARTITIONS):
                producer.produce(
                    self.topic,
                    key=f"key {number}",
                    value=None if number % 50 == 1 else f"{partition}.{number}",
                    partition=partition,
                    timestamp=1_700_000_000_000 + number,
                    headers=[("number", str(number).encode())],
                )
        assert producer.flush(30) == 0

    def records(self, topic: str) -> list[list[tuple[object, ...]]]:
        """All records of each partition, as far as there are some now; without offsets, as markers have some too."""
        return [self._records_from(topic, partition, 0) for partition in range(PARTITIONS)]

    def _records_from(self, topic: str, partition: int, offset: int) -> list[tuple[object, ...]]:
        consumer = Consumer({**UNGROUPED, "bootstrap.servers": self.bootstrap})
        consumer.assign([TopicPartition(topic, partition, offset)])
        found: list[tuple[object, ...]] = []
        while True:
            message = consumer.poll(30)
            assert message is not None
            if error := message.error():
                assert error.code() == KafkaError._PARTITION_EOF, error
                consumer.close()
                return found
            found.append((message.key(), message.value(), message.headers(), message.timestamp()))

    def topics(self) -> dict[str, int]:
        """How many partitions each topic has."""
        listed = self.admin.list_topics(timeout=30).topics
        return {name: len(topic.partitions) for name, topic in listed.items()}

    def setting(self, topic: str, name: str) -> str:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        return str(self.admin.describe_configs([resource])[resource].result(30)[name].value)

    def has_setting(self, topic: str, name: str, value: str) -> bool:
        return self.setting(topic, name) == value

    def places(self, group: str, topic: str) -> list[int]:
        """What a group has committed of each partition of a topic; -1001 where nothing is."""
        consumer = Consumer({**UNGROUPED, "bootstrap.servers": self.bootstrap, "group.id": group})
        found = consumer.committed([TopicPartition(topic, partition) for partition in range(PARTITIONS)], 30)
        consumer.close()
        return [place.offset for place in found]

    def unread(self, group: str, topic: str) -> int:
        """How many records of the fullest partition a group has not read."""
        places = self.places(group, topic)
        return max(len(self._records_from(topic, partition, max(0, at))) for partition, at in enumerate(places))

    def has_records(self, topic: str) -> bool:
        """Whether a topic is there and something in its first partition."""
        return topic in self.topics() and bool(self._records_from(topic, 0, 0))


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[tuple[Side, Side]]:
    with (
        KafkaServer(tmp_path / "kafka", properties=NO_DELAY) as kafka,
        BarnabasServer(tmp_path / "barnabas", properties=NO_DELAY) as ours,
    ):
        yield Side("apache", kafka.bootstrap), Side("barnabas", ours.bootstrap)


def mirror_settings(one: Side, other: Side) -> dict[str, Any]:
    """Both ways, looking for what is new each second; what comes to `other` comes in transactions."""
    settings: dict[str, Any] = {
        "clusters": f"{one.alias},{other.alias}",
        f"{one.alias}.bootstrap.servers": one.bootstrap,
        f"{other.alias}.bootstrap.servers": other.bootstrap,
        f"{other.alias}.exactly.once.source.support": "enabled",
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": "http://127.0.0.1:0",
        "replication.factor": 1,
        "offset.lag.max": 0,
        "emit.heartbeats.interval.seconds": 1,
        **{f"{name}.interval.seconds": 1 for name in EVERY_SECOND},
        **{f"{kind}.storage.replication.factor": 1 for kind in ("config", "offset", "status")},
        **{f"{kind}.topic.replication.factor": 1 for kind in ("checkpoints", "heartbeats", "offset-syncs")},
    }
    for way in (f"{one.alias}->{other.alias}", f"{other.alias}->{one.alias}"):
        settings |= {
            f"{way}.enabled": "true",
            f"{way}.topics": ".*-flights",
            f"{way}.sync.group.offsets.enabled": "true",
        }
    return settings


class Mirror:
    """MirrorMaker, and what is waited for while it runs."""

    def __init__(self, folder: Path, sides: tuple[Side, Side]) -> None:
        settings = write_settings(folder / "mm2.properties", mirror_settings(*sides))
        command = connect_command("org.apache.kafka.connect.mirror.MirrorMaker", settings)
        self._process = ServerProcess(command, folder / "mirror.log")

    def see(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait until it is so."""
        self._process.wait_ready(condition, timeout_s=PATIENCE_S, what=what)

    def check_first(self, source: Side, target: Side) -> None:
        """The topic, its settings and its records come over, and signs of life with them."""
        copy = f"{source.alias}.{source.topic}"
        self.see(f"{copy} is there", lambda: target.topics().get(copy) == PARTITIONS)
        self.see(f"the records of {copy}", lambda: target.records(copy) == source.records(source.topic))
        for name in ("retention.ms", "cleanup.policy"):
            self.see(f"{name} of {copy}", partial(target.has_setting, copy, name, source.setting(source.topic, name)))
        for topic in ("heartbeats", f"{source.alias}.heartbeats"):
            self.see(topic, partial(target.has_records, topic))

    def check_rest(self, source: Side, target: Side) -> None:
        """What is written later comes over, and where the group is: in the middle about, at the end exactly."""
        copy, middle = f"{source.alias}.{source.topic}", RECORDS + READ
        source.write(RECORDS)
        self.see(f"more records of {copy}", lambda: target.records(copy) == source.records(source.topic))
        # MirrorMaker translates places that were reached while it ran, and then rather to one before.
        source.commit(middle)
        self.see(f"a group in {copy}", lambda: RECORDS - READ <= target.unread(source.group, copy) < 2 * RECORDS)
        source.commit(2 * RECORDS)
        self.see(f"{copy} has been read", lambda: target.unread(source.group, copy) == 0)
        assert target.has_records(f"{source.alias}.checkpoints.internal")

    def end(self) -> None:
        self._process.end()


def test_topics_records_and_groups_come_over_both_ways(sides: tuple[Side, Side], tmp_path: Path) -> None:
    for side in sides:
        side.fill()
    mirror = Mirror(tmp_path, sides)
    try:
        for source, target in (sides, sides[::-1]):
            mirror.check_first(source, target)
        for source, target in (sides, sides[::-1]):
            mirror.check_rest(source, target)
    finally:
        mirror.end()
