"""Folders in a log directory that are not the broker's: it starts, adopts none of them, and deletes nothing in them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.barnabas_server import BarnabasServer


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("how", ["clean", "kill"])
def test_backups_beside_the_partitions_stay_as_they_are(tmp_path: Path, how: str) -> None:
    broker = BarnabasServer(tmp_path / "broker", properties={"log.retention.bytes": "0", "log.roll.ms": "1"})
    with broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result()
        producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
        producer.produce("t", b"kept")
        assert producer.flush(30) == 0
        broker.stop() if how == "clean" else broker.kill()
        data = broker.log_dir
        for name in ("backup-20240101", "t-20240101", "t-00", "backup-7.2024-delete"):
            shutil.copytree(data / "t-0", data / name)
        (data / "backup-20240102").mkdir()
        (data / "backup-20240102" / "precious.txt").write_text("mine")
        foreign = sorted([*data.glob("backup-*"), data / "t-20240101", data / "t-00"])
        before = {folder.name: contents(folder) for folder in foreign}
        broker.start()
        topics = admin.list_topics(timeout=30).topics
        assert {name: len(topic.partitions) for name, topic in topics.items()} == {"t": 1}
        assert broker.stop() == 0
        assert {folder.name: contents(folder) for folder in foreign} == before
        assert "backup-20240101 is left alone: its topic id is that of t" in broker.log_tail()
