"""Java's clients push their metrics, subscribed with Kafka's own tools (KIP-714)."""

from __future__ import annotations

import pytest
from tests.compat.tool_session import ToolSession
from tests.java import require_java
from tests.server.metrics.test_metrics import Values
from tests.server.telemetry.test_pushed_by_clients import SETTINGS, of_client, until

from barnabas.testing import Broker

pytestmark = [pytest.mark.verify, pytest.mark.java, pytest.mark.timeout(240)]
CONFIGS = ("--entity-type", "client-metrics", "--entity-name", "all")


def test_java_is_asked_by_its_own_tools_and_tells() -> None:
    require_java()
    with Broker({"t": 1}, config=SETTINGS) as broker, ToolSession() as tools:
        at = ("--bootstrap-server", broker.bootstrap)
        tools.output("kafka-client-metrics", *at, "--alter", "--name", "all", "--metrics", "*", "--interval", "100")
        assert "all" in tools.output("kafka-client-metrics", *at, "--list")
        match = "match=[client_software_name=apache-kafka-java,client_id=perf-.*]"
        tools.output("kafka-configs", *at, "--alter", *CONFIGS, "--add-config", match)
        assert "interval.ms=100" in tools.output("kafka-configs", *at, "--describe", *CONFIGS)
        load = ("--num-records", "3000", "--throughput", "1500", "--record-size", "10", "--topic", "t")
        producer = ("--producer-props", f"bootstrap.servers={broker.bootstrap}", "client.id=perf-1")
        tools.output("kafka-producer-perf-test", *load, *producer)

        def has_told(told: Values) -> bool:
            rates = of_client(told, "kafka_client_producer_connection_creation_rate", "perf-1")
            return bool(rates and of_client(told, "kafka_client_producer_connection_creation_total", "perf-1"))

        told = until(broker, has_told)
        (about,) = [dict(labels) for name, labels in told if name == "barnabas_client_info"]
        assert (about["client_id"], about["client_software_name"]) == ("perf-1", "apache-kafka-java")
        assert len({name for name, _ in told if name.startswith("kafka_client_producer_")}) > 10
