"""Java's AdminClient moves a partition between log directories, and asks for quotas, credentials, access lists."""

import json
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.barnabas_server import BarnabasServer
from tests.compat.test_java import program
from tests.java import run_java

pytestmark = [pytest.mark.java, pytest.mark.timeout(180)]

FEATURES = 8
RECORDS = 8000
"""2000 at first, and again after each of three moves."""


@pytest.mark.parametrize("version", ["3.9.1", "4.4.0"])
def test_moves(version: str, tmp_path: Path) -> None:
    classpath = program(("moves", "futures", "report"), f"org.apache.kafka:kafka-clients:{version}", tmp_path)
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    settings = {"log.dirs": f"{one},{two}", "log.segment.bytes": "16384"}
    with BarnabasServer(tmp_path / "broker", properties=settings) as server:
        result = run_java("Moves", classpath, [server.bootstrap, one, two], timeout=120)
        answers = [json.loads(line) for line in result.stdout.splitlines() if line.startswith('{"feature"')]
        failed = {answer["feature"]: answer["detail"] for answer in answers if not answer["ok"]}
        assert not failed, failed
        assert len(answers) == FEATURES, result.stdout + result.stderr
        assert _count(server.bootstrap) == RECORDS
        server.stop()
        server.start()
        assert _count(server.bootstrap) == RECORDS
        assert (Path(one) / "moving-0").is_dir() and not (Path(two) / "moving-0").exists()


def _count(bootstrap: str) -> int:
    """How many records the partition has, read one by one."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "counter", "enable.auto.commit": False})
    place = TopicPartition("moving", 0, 0)
    consumer.assign([place])
    _, end = consumer.get_watermark_offsets(place, timeout=60)
    offsets: list[int] = []
    while len(offsets) < end:
        message = consumer.poll(60)
        assert message is not None, f"{len(offsets)} of {end} records"
        assert message.error() is None
        offsets.append(message.offset())
    consumer.close()
    assert offsets == list(range(end))
    return len(offsets)
