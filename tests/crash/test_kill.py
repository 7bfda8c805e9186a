"""kill -9 under load: every acknowledged record is there after the restart, at the offset that was acknowledged."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.barnabas_server import BarnabasServer

TOPIC = "orders"
PARTITIONS = 4
ROUNDS = int(os.environ.get("BARNABAS_KILL_ROUNDS", "20"))


class Load:
    """A producer that goes on over the broker's deaths, and the list of what it was promised."""

    def __init__(self, bootstrap: str, rng: random.Random) -> None:
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.refused: Counter[str] = Counter()
        self.sent = 0
        self._random = rng
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.size": 50_000,  # what gathers while the broker is down must fit a segment
                "compression.type": rng.choice(["none", "lz4", "zstd"]),
                "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
            }
        )

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None and offset is not None and isinstance(value, bytes)
            self.acknowledged[partition, offset] = value
        else:
            self.refused[error.str()] += 1

    def run_for(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            value = b"%d:" % self.sent + bytes(self._random.randrange(200))
            try:
                self._producer.produce(TOPIC, value, on_delivery=self._delivered, partition=self.sent % PARTITIONS)
                self.sent += 1
            except BufferError:
                self._producer.poll(0.01)
            self._producer.poll(0)

    def finish(self) -> None:
        assert self._producer.flush(60) == 0


def read_all(bootstrap: str) -> dict[tuple[int, int], bytes]:
    """Every record of the topic, by partition and offset."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "enable.auto.commit": False})
    found: dict[tuple[int, int], bytes] = {}
    try:
        for partition in range(PARTITIONS):
            low, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=60)
            consumer.assign([TopicPartition(TOPIC, partition, low)])
            expected = low
            deadline = time.monotonic() + 60
            while expected < high:
                assert time.monotonic() < deadline, f"partition {partition} ends at {expected}, not at {high}"
                for message in consumer.consume(10_000, timeout=0.2):
                    assert message.error() is None, message.error()
                    assert message.offset() == expected, "offsets are contiguous"
                    value = message.value()
                    assert isinstance(value, bytes)
                    found[partition, expected] = value
                    expected += 1
    finally:
        consumer.close()
    return found


def check(load: Load, found: dict[tuple[int, int], bytes]) -> None:
    assert not load.refused, f"a producer that may retry is refused nothing: {load.refused}"
    lost = {where: value for where, value in load.acknowledged.items() if found.get(where) != value}
    assert not lost, f"{len(lost)} acknowledged records are lost or changed, first {min(lost)}"
    values = list(found.values())
    assert len(values) == len(set(values)), "an idempotent producer's record is there twice"


def kill_rounds(folder: Path, rounds: int, seed: int) -> int:
    rng = random.Random(seed)
    broker = BarnabasServer(
        folder,
        properties={
            "log.segment.bytes": "300000",
            "log.flush.offset.checkpoint.interval.ms": "200",
            "num.partitions": "4",
        },
    )
    broker.start()
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
        load = Load(broker.bootstrap, rng)
        load.run_for(0.2)
        for _ in range(rounds):
            load.run_for(rng.uniform(0.005, 0.5))
            broker.kill()
            broker.start()
        load.finish()
        check(load, read_all(broker.bootstrap))
        assert broker.stop() == 0
        broker.start()
        check(load, read_all(broker.bootstrap))
        return len(load.acknowledged)
    finally:
        broker.kill()


def test_nothing_acknowledged_is_lost_in_a_few_kills(tmp_path: Path) -> None:
    assert kill_rounds(tmp_path, 3, seed=1) > 0


@pytest.mark.verify
@pytest.mark.timeout(1800)
def test_nothing_acknowledged_is_lost_in_many_kills(tmp_path: Path) -> None:
    assert kill_rounds(tmp_path, ROUNDS, seed=2) > 0
