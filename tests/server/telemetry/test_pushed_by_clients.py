"""Real clients push their metrics, and Prometheus reads them (KIP-714)."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from tests.server.metrics.test_metrics import INHERITED, Values, read, values

from barnabas.clients.admin import Admin, ConfigChange, ConfigResource
from barnabas.clients.connection import BrokerConnection, ConnectionOptions
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.config_resources import ConfigResourceType
from barnabas.server.telemetry import client_metrics_manager
from barnabas.testing import Broker

PATIENCE_S = 60
SETTINGS = {"metrics.listeners": "127.0.0.1:0"}
TELEMETRY = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(["t"], config=SETTINGS) as broker:
        asyncio.run(subscribe(broker.bootstrap, {"metrics": "*", "interval.ms": "100"}))
        yield broker


async def subscribe(bootstrap: str, settings: dict[str, str]) -> None:
    resource = ConfigResource(ConfigResourceType.CLIENT_METRICS, "all")
    async with Admin(bootstrap) as admin:
        (outcome,) = (
            await admin.alter_configs({resource: [ConfigChange(name, value) for name, value in settings.items()]})
        ).values()
    assert outcome is None


def until(broker: Broker, holds: Callable[[Values], object]) -> Values:
    deadline = time.monotonic() + PATIENCE_S
    while not holds(told := values(read(broker))):
        assert time.monotonic() < deadline, sorted({name for name, _ in told if "client" in name})
        time.sleep(0.1)
    return told


def of_client(told: Values, name: str, client_id: str) -> list[float]:
    return [value for (one, labels), value in told.items() if one == name and ("client_id", client_id) in labels]


def test_librdkafka_is_asked_and_tells(broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "app-1", "log_level": 0})
    producer.produce("t", b"v")
    assert producer.flush(PATIENCE_S) == 0
    told = until(broker, lambda told: of_client(told, "kafka_client_producer_connection_creation_total", "app-1"))
    (about,) = [dict(labels) for (name, labels), _ in told.items() if name == "barnabas_client_info"]
    assert about["client_software_name"] == "confluent-kafka-python"
    assert about["client_source_address"] == "127.0.0.1"
    text = read(broker, accept="application/openmetrics-text; version=1.0.0")
    assert any(family.name.startswith("kafka_client_producer_") for family in openmetrics(text))
    if shutil.which("promtool"):
        done = subprocess.run(
            ["promtool", "check", "metrics"],
            input=read(broker),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        complaints = {line.split()[0] for line in done.stderr.splitlines()}
        assert {name for name in complaints if not name.startswith("kafka_client_")} <= INHERITED, done.stderr


async def test_what_cannot_be_read_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def told(config: dict[str, str]) -> set[int]:
        async with Broker(config=config) as broker:
            connection = await BrokerConnection.open("127.0.0.1", broker.port, ConnectionOptions())
            connection.close()
            return {int(key) for key in TELEMETRY & set(connection.api_versions)}

    assert await told(SETTINGS) == TELEMETRY
    assert await told({}) == set()
    monkeypatch.setattr(client_metrics_manager, "find_spec", lambda _: None)
    assert await told(SETTINGS) == set()
