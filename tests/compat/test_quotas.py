"""Foreign clients set quotas, see them, and are kept to them: Kafka's kafka-configs, Java's AdminClient, librdkafka."""

import json
import re
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, ThrottleEvent, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.barnabas_server import BarnabasServer
from tests.compat.test_java import program
from tests.compat.tool_session import ToolSession
from tests.java import require_java, run_java

pytestmark = [pytest.mark.java, pytest.mark.timeout(180)]

FEATURES = 8
SHORT_WINDOWS = {"quota.window.num": "3", "controller.quota.window.num": "3"}
"""Two seconds' worth may come at once, instead of ten."""


@pytest.fixture(scope="module")
def tools() -> Iterator[ToolSession]:
    require_java()
    with ToolSession() as session:
        yield session


@pytest.fixture
def server(tmp_path: Path) -> Iterator[BarnabasServer]:
    with BarnabasServer(tmp_path / "broker", properties=SHORT_WINDOWS) as running:
        yield running


@pytest.mark.parametrize("version", [pytest.param("3.9.1", marks=pytest.mark.verify), "4.4.0"])
def test_admin_client(version: str, server: BarnabasServer, tmp_path: Path) -> None:
    classpath = program(("quotas", "futures", "report"), f"org.apache.kafka:kafka-clients:{version}", tmp_path)
    result = run_java("Quotas", classpath, [server.bootstrap], timeout=120)
    answers = [json.loads(line) for line in result.stdout.splitlines() if line.startswith('{"feature"')]
    failed = {answer["feature"]: answer["detail"] for answer in answers if not answer["ok"]}
    assert not failed, failed
    assert len(answers) == FEATURES, result.stdout + result.stderr


class Configs:
    """kafka-configs against one broker."""

    def __init__(self, tools: ToolSession, bootstrap: str) -> None:
        self._tools = tools
        self._at = ("--bootstrap-server", bootstrap)

    def alter(self, *args: str) -> str:
        return self._tools.output("kafka-configs", *self._at, "--alter", *args)

    def describe(self, *args: str) -> str:
        return self._tools.output("kafka-configs", *self._at, "--describe", *args)

    def refusal(self, *args: str) -> str:
        status, text = self._tools.run("kafka-configs", *self._at, "--alter", *args)
        assert status != 0, text
        return text


ENTITIES = [
    (("--entity-type", "users", "--entity-name", "anna"), "user-principal 'anna'"),
    (("--entity-type", "users", "--entity-default"), "the default user-principal"),
    (("--entity-type", "clients", "--entity-name", "an app"), "client-id 'an app'"),
    (("--entity-type", "clients", "--entity-default"), "the default client-id"),
    (
        ("--entity-type", "users", "--entity-name", "anna", "--entity-type", "clients", "--entity-name", "app"),
        "user-principal 'anna', client-id 'app'",
    ),
    (
        ("--entity-type", "users", "--entity-default", "--entity-type", "clients", "--entity-default"),
        "the default user-principal, the default client-id",
    ),
]
HOSTS = [
    (("--entity-type", "ips", "--entity-name", "10.9.8.7"), "ip '10.9.8.7'"),
    (("--entity-type", "ips", "--entity-default"), "the default ip"),
]
SHORT = [("--user", "bert"), ("--client", "b"), ("--ip", "10.0.0.2"), ("--user-defaults",), ("--client-defaults",)]


def test_kafka_configs(server: BarnabasServer, tools: ToolSession) -> None:
    configs = Configs(tools, server.bootstrap)
    for entity, words in ENTITIES:
        quotas = "producer_byte_rate=1048576,consumer_byte_rate=2097152,request_percentage=200.5"
        assert "Completed updating" in configs.alter(*entity, "--add-config", quotas)
        described = configs.describe(*entity)
        assert f"Quota configs for {words} are" in described
        assert set(re.findall(r"\w+=[\d.]+", described)) == {
            "producer_byte_rate=1048576.0",
            "consumer_byte_rate=2097152.0",
            "request_percentage=200.5",
        }
    for entity, words in HOSTS:
        configs.alter(*entity, "--add-config", "connection_creation_rate=1000")
        assert f"Quota configs for {words} are connection_creation_rate=1000.0" in configs.describe(*entity)
    for short in SHORT:
        quota = "connection_creation_rate=500" if "--ip" in short else "controller_mutation_rate=1000"
        configs.alter(*short, "--add-config", quota)
        assert quota in configs.describe(*short)
    everybody = configs.describe("--entity-type", "users")
    assert "user-principal 'anna'" in everybody and "the default user-principal" in everybody
    text = configs.refusal("--client", "b", "--add-config", "producer_byte_rate=-5")
    assert "Quota producer_byte_rate must be greater than 0" in text
    server.stop()
    server.start()
    for entity, words in ENTITIES:
        assert f"Quota configs for {words} are" in configs.describe(*entity)
        configs.alter(*entity, "--delete-config", "producer_byte_rate,consumer_byte_rate,request_percentage")
    assert "producer_byte_rate" not in configs.describe("--entity-type", "users")


def test_perf_tool_is_kept_to_the_rate(server: BarnabasServer, tools: ToolSession) -> None:
    Configs(tools, server.bootstrap).alter("--client", "perf", "--add-config", "producer_byte_rate=300000")
    props = [f"bootstrap.servers={server.bootstrap}", "client.id=perf", "linger.ms=5"]
    load = ("--num-records", "15000", "--record-size", "200", "--throughput", "-1")
    began = time.monotonic()
    answer = tools.output("kafka-producer-perf-test", "--topic", "t", *load, "--producer-props", *props)
    seconds = time.monotonic() - began
    rate = float(re.findall(r"([\d.]+) records/sec", answer)[-1]) * 200
    # 3 MB at 300 kB/s, of which two seconds' worth may come at once.
    assert answer.splitlines()[-1].startswith("15000 records sent")
    assert 150_000 < rate < 450_000, answer
    assert seconds > 6


def test_librdkafka_is_told_to_wait_and_gets_everything(server: BarnabasServer, tools: ToolSession) -> None:
    configs = Configs(tools, server.bootstrap)
    topic = f"quotas-{uuid.uuid4().hex[:8]}"
    at: dict[str, Any] = {"bootstrap.servers": server.bootstrap}
    admin = AdminClient(at)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    quotas = "producer_byte_rate=400000,consumer_byte_rate=400000"
    configs.alter("--user-defaults", "--add-config", quotas)
    waits: list[float] = []

    def throttled(event: ThrottleEvent) -> None:
        waits.append(event.throttle_time)

    producer = Producer({**at, "throttle_cb": throttled, "batch.size": 50_000, "linger.ms": 20})
    began = time.monotonic()
    for number in range(2000):
        producer.produce(topic, number.to_bytes(4, "big") * 250)
        producer.poll(0)
    assert producer.flush(60) == 0
    producer.poll(0)
    rate = 2_000_000 / (time.monotonic() - began)
    assert 130_000 < rate < 700_000
    assert max(waits) > 0, "no wait was heard of"
    # Quotas do not outlive their removal: what was read before counts no more.
    configs.alter("--user-defaults", "--delete-config", "producer_byte_rate")
    waits.clear()
    reading = {**at, "group.id": "g", "enable.auto.commit": False, "fetch.message.max.bytes": 100_000}
    consumer = Consumer({**reading, "throttle_cb": throttled})
    consumer.assign([TopicPartition(topic, 0, 0)])
    began = time.monotonic()
    numbers: list[int] = []
    while len(numbers) < 2000:
        message = consumer.poll(30)
        assert message is not None and message.error() is None, f"{len(numbers)} records"
        numbers.append(int.from_bytes(message.value()[:4], "big"))
    rate = 2_000_000 / (time.monotonic() - began)
    consumer.close()
    assert numbers == list(range(2000))
    assert 100_000 < rate < 700_000
    assert max(waits) > 0, "no wait was heard of"
