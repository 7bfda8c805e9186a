"""Apache Kafka's own Java clients of 0.8.2.2, 0.10.2.2, 3.9.1 and 4.4.0: small programs with the whole scenario."""

import shutil
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.compat.report import COLUMNS, ClientReport
from tests.java import JVM_FLAGS, compile_java, jars, require_java, run_java

PROGRAMS = Path(__file__).parent / "java"
OLD_FEATURES = ["none", "gzip", "snappy", "lz4", "acks", "nulls", "large", "offsets"]

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]


def program(parts: Sequence[str], coordinates: str, folder: Path) -> list[Path]:
    """Class path of a program made of some folders of `tests/compat/java`."""
    require_java()
    classpath = jars(coordinates)
    for part in parts:
        shutil.copytree(PROGRAMS / part, folder / parts[0], dirs_exist_ok=True)
    return [compile_java(folder / parts[0], classpath), *classpath]


def create_topic(bootstrap: str, partitions: int) -> str:
    topic = f"java-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
    return topic


@pytest.mark.parametrize("version", ["3.9.1", "4.4.0"])
def test_modern_client(version: str, broker: str, compat: Callable[[str, str], ClientReport], tmp_path: Path) -> None:
    classpath = program(("modern", "plain", "poll", "report"), f"org.apache.kafka:kafka-clients:{version}", tmp_path)
    with compat("Java", version) as client:
        result = run_java("Modern", classpath, [broker], timeout=200)
        client.take_lines(result.stdout + result.stderr, COLUMNS)


def test_client_of_0_10(broker: str, compat: Callable[[str, str], ClientReport], tmp_path: Path) -> None:
    classpath = program(("v0_10", "plain", "poll_0_10", "report"), "org.apache.kafka:kafka-clients:0.10.2.2", tmp_path)
    with compat("Java", "0.10.2.2") as client:
        result = run_java("Client010", classpath, [broker], timeout=200)
        client.take_lines(result.stdout + result.stderr, [*OLD_FEATURES, "timestamps"])


def test_clients_of_0_8(broker: str, compat: Callable[[str, str], ClientReport], tmp_path: Path) -> None:
    classpath = program(("v0_8", "report"), "org.apache.kafka:kafka_2.11:0.8.2.2", tmp_path)
    flags = [*JVM_FLAGS, f"-Dtopic30={create_topic(broker, 30)}"]
    with compat("Java", "0.8.2.2") as client:
        result = run_java("Client08", classpath, broker.split(":"), timeout=200, flags=flags)
        client.take_lines(result.stdout + result.stderr, [*OLD_FEATURES, "partitions"])


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_oldest_and_newest_share_a_topic(codec: str, broker: str, tmp_path: Path) -> None:
    """0.8.2.2 and 4.1-era clients write to one topic in turn, and each reads what the other wrote."""
    from tests.compat.test_confluent_kafka import Scenario

    classpath = program(("v0_8", "report"), "org.apache.kafka:kafka_2.11:0.8.2.2", tmp_path)
    scenario = Scenario(broker)
    topic = create_topic(broker, 1)
    host, port = broker.split(":")
    for _ in range(2):
        result = run_java("Client08", classpath, [host, port, "write", topic, "100", codec])
        assert result.returncode == 0, result.stdout + result.stderr
        values = [{"key": b"new%d" % n, "value": b"new value %d" % n, "headers": [("h", b"1")]} for n in range(100)]
        scenario.send(topic, values, compression_type=codec)
    newest = [(each.offset(), each.key(), each.value()) for each in scenario.read(topic, 0, 400)]
    assert [offset for offset, _, _ in newest] == list(range(400))
    assert newest[0][1] == b"k0" and newest[0][2].startswith(b"old 0.")
    assert newest[150][1:] == (b"new50", b"new value 50")
    result = run_java("Client08", classpath, [host, port, "read", topic])
    assert result.returncode == 0, result.stdout + result.stderr
    lines = [line for line in result.stdout.splitlines() if line[:1].isdigit()]
    assert lines == [f"{offset} {key.decode()} {value.decode()}" for offset, key, value in newest]
