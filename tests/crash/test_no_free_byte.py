"""A disk without a free byte: the broker starts, serves what it has, lets retention make room, and is whole again."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from tests.barnabas_server import BarnabasServer
from tests.server_process import wait_until

SIZE = 32 << 20
RECORD = 100_000
SETTINGS = {
    "log.segment.bytes": "1000000",
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "100",
    "offsets.topic.num.partitions": "1",
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BarnabasServer]:
    broker = BarnabasServer(tmp_path / "broker", properties=SETTINGS)
    broker.log_dir.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(broker.log_dir)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting a small tmpfs needs root")
    try:
        with broker:
            yield broker
    finally:
        subprocess.run(["umount", "-l", str(broker.log_dir)], check=True)


def fill(disk: Path) -> None:
    """Leave nothing."""
    with (disk / "filler").open("ab", buffering=0) as file:
        for piece in (1 << 20, 4096, 1):
            try:
                while file.write(bytes(piece)):
                    pass
            except OSError:
                continue


def produce(broker: BarnabasServer, count: int, timeout_s: float) -> int:
    """How many records were acknowledged."""
    settings = {"bootstrap.servers": broker.bootstrap, "acks": "all", "message.timeout.ms": int(timeout_s * 1000)}
    producer = Producer(settings | {"batch.num.messages": 1})
    refused: list[object] = []
    for _ in range(count):
        producer.produce("t", bytes(RECORD), partition=0, on_delivery=lambda e, _: refused.append(e) if e else None)
    assert producer.flush(timeout_s + 10) == 0
    return count - len(refused)


def read(broker: BarnabasServer, start: int, end: int) -> int:
    """How many records there are between two offsets."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.auto.commit": False})
    found = 0
    try:
        consumer.assign([TopicPartition("t", 0, start)])
        while found < end - start:
            messages = consumer.consume(1, timeout=60)
            assert messages, "no more records"
            for message in messages:
                assert message.error() is None, message.error()
                assert len(message.value() or b"") == RECORD
            found += len(messages)
    finally:
        consumer.close()
    return found


def ends(broker: BarnabasServer) -> tuple[int, int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
    try:
        return consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=60)
    finally:
        consumer.close()


@pytest.mark.parametrize("how", ["clean", "kill"])
def test_a_full_disk_is_started_on_again_and_again_and_heals(broker: BarnabasServer, how: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("t", 1, 1), NewTopic("doomed", 1, 1)])["t"].result()
    assert produce(broker, 60, 30) == 60
    reserve = broker.log_dir / ".reserve"
    whole = reserve.stat().st_size
    assert whole > 0
    for _ in range(3):
        fill(broker.log_dir)
        if how == "clean":
            assert broker.stop() == 0
            assert (broker.log_dir / ".kafka_cleanshutdown").exists()
        else:
            broker.kill()
        fill(broker.log_dir)
        broker.start()
        start, end = ends(broker)
        assert read(broker, start, end) == end - start >= 60
        assert produce(broker, 20, 1) < 20, "there is no room for all"
        assert reserve.stat().st_size > whole // 2
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics(["doomed"])["doomed"].result()
    resource = ConfigResource(
        ResourceType.TOPIC,
        "t",
        incremental_configs=[
            ConfigEntry("retention.bytes", "2000000", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("file.delete.delay.ms", "100", incremental_operation=AlterConfigOpType.SET),
        ],
    )
    admin.incremental_alter_configs([resource])[resource].result()
    wait_until(lambda: ends(broker)[0] > 0, timeout_s=60, what="retention makes room")
    wait_until(lambda: produce(broker, 1, 3) == 1, timeout_s=60, what="records are taken again")
    (broker.log_dir / "filler").unlink()
    wait_until(lambda: reserve.stat().st_size == whole, timeout_s=60, what="the reserve is whole again")
    assert produce(broker, 30, 30) == 30
    assert broker.stop() == 0
    assert "Traceback" not in broker.log.read_text()
