"""Python's clients as members of groups: they share partitions, commit, leave, come back, outlive a killed broker."""

import asyncio
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.barnabas_server import BarnabasServer
from tests.server_process import wait_until

pytestmark = pytest.mark.timeout(180)

PARTITIONS = 6
PATIENCE_S = 60


class Reader:
    """A member on a thread of its own: reads, and commits what it has read before it reads on."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.group = group
        self.topic = topic
        self.read: list[tuple[int, int]] = []
        self.assigned: set[int] = set()
        self.error: Exception | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Leave the group."""
        self._stopping.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        assert self.error is None

    def _run(self) -> None:
        try:
            self.work(self._stopping.is_set)
        except Exception as error:
            self.error = error

    def work(self, is_over: Callable[[], bool]) -> None:
        raise NotImplementedError


class Confluent(Reader):
    """librdkafka, eager."""

    strategy = "range"

    def work(self, is_over: Callable[[], bool]) -> None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "partition.assignment.strategy": self.strategy,
            }
        )
        consumer.subscribe([self.topic])
        while not is_over():
            messages = consumer.consume(100, 0.1)
            self.assigned = {one.partition for one in consumer.assignment()}
            for message in messages:
                assert message.error() is None, message.error()
                self.read.append((message.partition(), message.offset()))
            if messages:
                consumer.commit(asynchronous=False)
        consumer.close()


class ConfluentCooperative(Confluent):
    """librdkafka, giving up only what others get."""

    strategy = "cooperative-sticky"


class KafkaPython(Reader):
    """kafka-python."""

    def work(self, is_over: Callable[[], bool]) -> None:
        consumer = kafka.KafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=300,
        )
        while not is_over():
            batches = consumer.poll(timeout_ms=100)
            self.assigned = {one.partition for one in consumer.assignment()}
            self.read += [(place.partition, one.offset) for place, batch in batches.items() for one in batch]
            if batches:
                consumer.commit()
        consumer.close()


class Aiokafka(Reader):
    """aiokafka."""

    def work(self, is_over: Callable[[], bool]) -> None:
        asyncio.run(self._consume(is_over))

    async def _consume(self, is_over: Callable[[], bool]) -> None:
        async with aiokafka.AIOKafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=300,
            metadata_max_age_ms=1000,
        ) as consumer:
            while not is_over():
                batches = await consumer.getmany(timeout_ms=100)
                self.assigned = {one.partition for one in consumer.assignment()}
                self.read += [(place.partition, one.offset) for place, batch in batches.items() for one in batch]
                if batches:
                    await consumer.commit()


@pytest.fixture
def topic(broker: str) -> Iterator[str]:
    name = f"groups-{uuid.uuid4().hex[:8]}"
    create_topic(broker, name)
    yield name


def create_topic(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)


def produce(bootstrap: str, topic: str, count: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(count):
        producer.produce(topic, f"{number}".encode(), partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def wait_read(expected: int, *readers: Reader) -> None:
    """All readers together have read so many records, each once."""

    def is_read() -> bool:
        for reader in readers:
            assert reader.error is None, reader.error
        return sum(len(reader.read) for reader in readers) >= expected

    wait_until(is_read, timeout_s=PATIENCE_S, what=f"{expected} records are read")
    everything = [place for reader in readers for place in reader.read]
    assert len(everything) == len(set(everything)) == expected


def wait_shared(first: Reader, second: Reader) -> None:
    wait_until(
        lambda: len(first.assigned) == len(second.assigned) == PARTITIONS // 2 and not first.assigned & second.assigned,
        timeout_s=PATIENCE_S,
        what="two members share the partitions",
    )


@pytest.mark.parametrize("member", [Confluent, ConfluentCooperative, KafkaPython, Aiokafka])
def test_members_share_leave_and_come_back(broker: str, topic: str, member: type[Reader]) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    produce(broker, topic, 300)
    first = member(broker, group, topic)
    wait_read(300, first)
    second = member(broker, group, topic)
    wait_shared(first, second)
    produce(broker, topic, 300)
    wait_read(600, first, second)
    first.stop()
    wait_until(lambda: len(second.assigned) == PARTITIONS, timeout_s=PATIENCE_S, what="one member has everything")
    produce(broker, topic, 300)
    wait_read(900, first, second)
    second.stop()
    produce(broker, topic, 30)
    third = member(broker, group, topic)
    wait_read(930, first, second, third)
    assert len(third.read) == 30
    third.stop()


def test_members_and_offsets_outlive_a_killed_broker(tmp_path: Path) -> None:
    with BarnabasServer(tmp_path, properties={"group.initial.rebalance.delay.ms": "0"}) as server:
        create_topic(server.bootstrap, "t")
        produce(server.bootstrap, "t", 60)
        readers = [Confluent(server.bootstrap, "g", "t")]
        wait_read(60, *readers)
        readers.append(Confluent(server.bootstrap, "g", "t"))
        wait_shared(*readers)
        for round_number in range(2, 4):
            server.kill()
            server.start()
            produce(server.bootstrap, "t", 60)
            wait_read(60 * round_number, *readers)
        for reader in readers:
            with suppress(confluent_kafka.KafkaException):
                reader.stop()
        produce(server.bootstrap, "t", 6)
        last = Confluent(server.bootstrap, "g", "t")
        wait_read(186, *readers, last)
        assert len(last.read) == 6
        last.stop()
