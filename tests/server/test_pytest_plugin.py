"""The fixtures that come with the package, in a pytest run of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = """
import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

seen = []

@pytest.mark.parametrize("round", range(3))
def test_topic(kafka_broker, kafka_topic, round):
    assert kafka_topic not in seen, "every test has a topic of its own"
    seen.append(kafka_topic)
    for other in seen[:-1]:
        assert other not in kafka_broker.server.state.metadata, "gone when its test is over"
    producer = KafkaProducer(bootstrap_servers=kafka_broker.bootstrap)
    producer.send(kafka_topic, b"%d" % round).get(timeout=10)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=kafka_broker.bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(kafka_topic, 0)])
    assert next(consumer).value == b"%d" % round
    consumer.close()

def test_broker_is_shared(kafka_broker):
    ports.append(kafka_broker.port)

def test_broker_is_still_the_same(kafka_broker):
    assert ports == [kafka_broker.port]

ports = []
"""


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)


def test_fixtures_without_any_setup(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(TESTS)
    result = run_pytest(tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "5 passed" in result.stdout


def test_fixtures_are_listed_with_what_they_do(tmp_path: Path) -> None:
    result = run_pytest(tmp_path, "--fixtures")
    for name, sentence in (("kafka_broker", "loopback port"), ("kafka_topic", "fresh topic")):
        (line,) = [line for line in result.stdout.splitlines() if line.startswith(name)]
        assert "barnabas" in line or ".src" in line or "pytest_plugin" in line
        assert sentence in result.stdout


def test_a_run_that_wants_no_broker_does_not_load_one(tmp_path: Path) -> None:
    (tmp_path / "test_nothing.py").write_text(
        "import sys\n\ndef test_nothing():\n    assert 'barnabas.server.broker' not in sys.modules\n"
    )
    result = run_pytest(tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
