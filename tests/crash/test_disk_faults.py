"""Disks that are full or failing under a live broker: what clients are told, what goes on, what is there afterwards."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.barnabas_server import BarnabasServer
from tests.server_process import wait_until

TOPIC = "orders"
DISK_BYTES = 24 << 20
BALLAST_BYTES = 6 << 20
VALUE_BYTES = 100_000
SETTINGS = {
    "log.flush.offset.checkpoint.interval.ms": "200",
    "log.flush.start.offset.checkpoint.interval.ms": "200",
    "log.index.size.max.bytes": "65536",
    "log.initial.task.delay.ms": "0",
    "log.retention.check.interval.ms": "200",
    "log.segment.bytes": "1000000",
    "replica.high.watermark.checkpoint.interval.ms": "200",
}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own that is soon full."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(disk)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"mounting a small tmpfs needs privileges that this machine does not give: {mounted.stderr}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


class Writer:
    """Sends record after record and keeps what was acknowledged, by offset."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[int, bytes] = {}
        self.errors: list[KafkaError] = []
        self.sent = 0
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "retries": 0, "linger.ms": 0, "message.timeout.ms": 60_000}
        )

    def send(self) -> bool:
        """One record; whether it was acknowledged."""
        before = len(self.acknowledged)
        value = b"%d:" % self.sent + os.urandom(VALUE_BYTES)
        self.sent += 1
        self._producer.produce(TOPIC, value, partition=0, on_delivery=self._delivered)
        assert self._producer.flush(90) == 0, "neither acknowledged nor refused"
        return len(self.acknowledged) > before

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
            return
        offset, value = message.offset(), message.value()
        assert offset is not None and isinstance(value, bytes)
        self.acknowledged[offset] = value


def read_all(bootstrap: str, topic: str = TOPIC) -> dict[int, bytes]:
    """Every record of the topic's only partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "enable.auto.commit": False})
    found: dict[int, bytes] = {}
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
        consumer.assign([TopicPartition(topic, 0, low)])
        deadline = time.monotonic() + 60
        while low + len(found) < high:
            assert time.monotonic() < deadline, f"only {len(found)} of {high - low} records can be read"
            for message in consumer.consume(1000, timeout=0.2):
                assert message.error() is None, message.error()
                offset, value = message.offset(), message.value()
                assert offset is not None and isinstance(value, bytes)
                found[offset] = value
    finally:
        consumer.close()
    return found


def assert_all_there(writer: Writer, found: dict[int, bytes]) -> None:
    lost = [offset for offset, value in writer.acknowledged.items() if found.get(offset) != value]
    assert not lost, f"{len(lost)} acknowledged records are lost or changed, first {min(lost)}"


def create_topic(bootstrap: str, name: str) -> KafkaError | None:
    """Create a topic of one partition; the error if that cannot be."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    try:
        admin.create_topics([NewTopic(name, 1, 1)], operation_timeout=60)[name].result(60)
    except KafkaException as error:
        cause = error.args[0]
        assert isinstance(cause, KafkaError)
        return cause
    return None


def test_a_full_disk_refuses_writes_and_heals(tmp_path: Path, small_disk: Path) -> None:
    broker = BarnabasServer(tmp_path, properties={**SETTINGS, "log.dirs": str(small_disk / "data")})
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(BALLAST_BYTES))
    broker.start()
    try:
        assert create_topic(broker.bootstrap, TOPIC) is None
        writer = Writer(broker.bootstrap)
        wait_until(lambda: not writer.send(), timeout_s=60, what="the disk is full")
        assert {error.code() for error in writer.errors} == {KafkaError.KAFKA_STORAGE_ERROR}
        for name in ("one", "two", "three"):
            create_topic(broker.bootstrap, name)
            writer.send()
            assert_all_there(writer, read_all(broker.bootstrap))
        ballast.unlink()
        wait_until(writer.send, timeout_s=60, what="writes work again")
        assert create_topic(broker.bootstrap, "later") is None
        assert_all_there(writer, read_all(broker.bootstrap))
        assert broker.stop() == 0
        assert "Traceback" not in broker.log.read_text()
        broker.start()
        assert_all_there(writer, read_all(broker.bootstrap))
        assert writer.send()
    finally:
        broker.kill()


def test_a_broker_whose_only_disk_fails_ends_with_an_error(tmp_path: Path) -> None:
    """A limit on the size of files makes every further write fail, as a broken disk does."""
    broker = BarnabasServer(tmp_path, properties=SETTINGS)
    broker.start()
    try:
        assert create_topic(broker.bootstrap, TOPIC) is None
        writer = Writer(broker.bootstrap)
        assert writer.send()
        _, hard = resource.prlimit(broker.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (50_000, hard))
        assert not writer.send()
        assert broker.wait(60) == 1
        broker.start()
        assert_all_there(writer, read_all(broker.bootstrap))
        assert writer.send()
    finally:
        broker.kill()
