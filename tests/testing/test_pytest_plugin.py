"""The fixtures that come with the package, in a pytest run of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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
    producer.send(kafka_topic, b"%d" % round).get(60)
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


OF_THEIR_OWN = """
import pytest

pytestmark = pytest.mark.kafka(config={"num.partitions": 4})

@pytest.fixture(scope="session")
def kafka_config():
    return {"message.max.bytes": 12345}

def test_shared(kafka_broker, kafka_topic_factory):
    assert kafka_broker.server.config.message_max_bytes == 12345
    name = kafka_topic_factory(partitions=5, config={"retention.ms": 5000})
    assert len(kafka_broker.server.state.metadata.topic(name).partitions) == 5

@pytest.mark.kafka(topics={"t": 3}, config={"message.max.bytes": 2_000_000})
def test_own(kafka):
    assert kafka.server.config.message_max_bytes == 2_000_000
    assert len(kafka.server.state.metadata.topic("t").partitions) == 3

def test_settings_of_the_module(kafka):
    assert kafka.server.config.num_partitions == 4
"""

MANY = """
import pytest

@pytest.mark.parametrize("number", range(8))
@pytest.mark.kafka(partitions=3)
def test_topic(kafka_broker, kafka_topic, number):
    kafka_broker.produce(kafka_topic, [str(number)] * 3)
    assert [one.value for one in kafka_broker.records(kafka_topic)] == [str(number).encode()] * 3
    assert {one.partition for one in kafka_broker.records(kafka_topic)} == {0, 1, 2}
"""

MISTAKES = """
import pytest

@pytest.mark.kafka(topic="t")
def test_unknown(kafka): ...

@pytest.mark.kafka(config={"num.partitions": 3})
def test_in_vain(kafka_topic): ...

@pytest.mark.kafka(topics=["t"])
def test_of_a_shared_broker(kafka_broker): ...

@pytest.mark.kafka(topics=["t"])
def test_of_a_cluster(kafka_cluster): ...

@pytest.mark.kafka(topics=["t"])
def test_of_another(tmp_path): ...
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
    for name, sentence in (("kafka_broker", "loopback port"), ("kafka_topic", "a new topic")):
        (line,) = [line for line in result.stdout.splitlines() if line.startswith(f"{name} ")]
        assert "barnabas" in line or ".src" in line or "pytest_plugin" in line
        assert sentence in result.stdout


def test_a_run_that_wants_no_broker_does_not_load_one(tmp_path: Path) -> None:
    (tmp_path / "test_nothing.py").write_text(
        "import sys\n\ndef test_nothing():\n    assert 'barnabas.server.broker' not in sys.modules\n"
    )
    result = run_pytest(tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr


def test_brokers_as_markers_and_settings_say(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text(OF_THEIR_OWN)
    result = run_pytest(tmp_path, "--strict-markers")
    assert "3 passed" in result.stdout, result.stdout + result.stderr


@pytest.mark.verify
def test_workers_of_xdist_have_a_broker_each(tmp_path: Path) -> None:
    (tmp_path / "test_many.py").write_text(MANY)
    result = run_pytest(tmp_path, "-n", "2")
    assert "8 passed" in result.stdout, result.stdout + result.stderr


def test_markers_that_make_no_sense(tmp_path: Path) -> None:
    (tmp_path / "test_mistakes.py").write_text(MISTAKES)
    result = run_pytest(tmp_path)
    assert "1 passed, 4 errors" in result.stdout, result.stdout + result.stderr
    assert "accepts keyword arguments topics, config, snapshot, clock, schema_registry, partitions" in result.stdout
    assert result.stdout.count("the marker has settings of a broker for fixture `kafka`") >= 3
