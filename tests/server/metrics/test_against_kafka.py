"""Names and labels beside those of Apache Kafka under Prometheus' JMX exporter, by its rules for Kafka."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families as families
from tests.java import jars
from tests.kafka import KafkaServer
from tests.server_process import free_port

from barnabas.testing import Broker

EXPORTER = "io.prometheus.jmx:jmx_prometheus_javaagent:1.0.1"
RULES = r"""
lowercaseOutputName: true
rules:
- {pattern: 'kafka.server<type=(.+), listener=(.+), networkProcessor=(.+)><>(.+):', name: kafka_server_$1_$4,
   type: GAUGE, labels: {listener: "$2", networkProcessor: "$3"}}
- {pattern: 'kafka.server<type=group-coordinator-metrics, protocol=(.+)><>(.+):',
   name: kafka_server_group_coordinator_metrics_$2, type: GAUGE, labels: {protocol: "$1"}}
- {pattern: 'kafka.server<type=group-coordinator-metrics, state=(.+)><>(.+):',
   name: kafka_server_group_coordinator_metrics_$2, type: GAUGE, labels: {state: "$1"}}
- {pattern: 'kafka.server<type=group-coordinator-metrics><>(.+):', name: kafka_server_group_coordinator_metrics_$1,
   type: GAUGE}
- {pattern: 'kafka.server<type=share-coordinator-metrics, topic=(.+), partition=(.+)><>(.+):',
   name: kafka_server_share_coordinator_metrics_$3, type: GAUGE, labels: {topic: "$1", partition: "$2"}}
- {pattern: 'kafka.server<type=share-coordinator-metrics, state=(.+)><>(.+):',
   name: kafka_server_share_coordinator_metrics_$2, type: GAUGE, labels: {state: "$1"}}
- {pattern: 'kafka.server<type=share-coordinator-metrics><>write-total:',
   name: kafka_server_share_coordinator_metrics_write_total, type: COUNTER}
- {pattern: 'kafka.server<type=share-coordinator-metrics><>(.+):', name: kafka_server_share_coordinator_metrics_$1,
   type: GAUGE}
- {pattern: 'kafka.coordinator.(\w+)<type=(.+), name=(.+)><>Value', name: kafka_coordinator_$1_$2_$3, type: GAUGE}
- {pattern: 'kafka.(\w+)<type=(.+), name=(.+)PerSec\w*, (.+)=(.+), (.+)=(.+)><>Count', name: kafka_$1_$2_$3_total,
   type: COUNTER, labels: {"$4": "$5", "$6": "$7"}}
- {pattern: 'kafka.(\w+)<type=(.+), name=(.+)PerSec\w*, (.+)=(.+)><>Count', name: kafka_$1_$2_$3_total,
   type: COUNTER, labels: {"$4": "$5"}}
- {pattern: 'kafka.(\w+)<type=(.+), name=(.+)PerSec\w*><>Count', name: kafka_$1_$2_$3_total, type: COUNTER}
- {pattern: 'kafka.(\w+)<type=(.+), name=(.+), (.+)=(.+), (.+)=(.+)><>Value', name: kafka_$1_$2_$3, type: GAUGE,
   labels: {"$4": "$5", "$6": "$7"}}
- {pattern: 'kafka.(\w+)<type=(.+), name=(.+), (.+)=(.+)><>Value', name: kafka_$1_$2_$3, type: GAUGE,
   labels: {"$4": "$5"}}
- {pattern: 'kafka.(\w+)<type=(.+), name=(.+)><>Value', name: kafka_$1_$2_$3, type: GAUGE}
- {pattern: 'kafka.(\w+)<type=(.+), name=(.+), (.+)=(.+)><>Count', name: kafka_$1_$2_$3_count, type: COUNTER,
   labels: {"$4": "$5"}}
- {pattern: 'kafka.(\w+)<type=(.+), name=(.+), (.+)=(.*)><>(\d+)thPercentile', name: kafka_$1_$2_$3, type: GAUGE,
   labels: {"$4": "$5", quantile: "0.$6"}}
- {pattern: 'kafka.(\w+)<type=(.+), name=(.+)><>Count', name: kafka_$1_$2_$3_count, type: COUNTER}
- {pattern: 'kafka.(\w+)<type=(.+), name=(.+)><>(\d+)thPercentile', name: kafka_$1_$2_$3, type: GAUGE,
   labels: {quantile: "0.$4"}}
"""
NOT_KAFKAS = ("barnabas_", "kafka_consumergroup_", "process_", "python_")
"""Ours, kafka_exporter's, and the interpreter's instead of the JVM's."""

OF_SHARE_GROUPS = (
    "kafka_server_delayedsharefetchmetrics_",
    "kafka_server_sharegroupmetrics_",
    "kafka_server_sharepartitionmetrics_",
)
"""Kafka registers these metrics when the first member of a share group fetches, which no client of this test does."""

Shapes = set[tuple[str, frozenset[str]]]


def shapes(text: str) -> Shapes:
    """Names of samples with the names of their labels; `_count_total` of the exporter was `_count` before its 1.0."""
    samples = [one for family in families(text) for one in family.samples]
    return {(one.name.replace("_count_total", "_count"), frozenset(one.labels)) for one in samples}


def at_work(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", 1)])["t"].result(30)
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(100):
        producer.produce("t", b"v")
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    assert len(consumer.consume(100, timeout=60)) == 100
    consumer.commit(asynchronous=False)
    consumer.close()


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        text: str = answer.read().decode()
        return text


@pytest.mark.java
@pytest.mark.verify
@pytest.mark.timeout(240)
def test_every_name_of_kafkas_is_kafkas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (exporter,) = [jar for jar in jars(EXPORTER) if "javaagent" in jar.name]
    rules, port = tmp_path / "rules.yml", free_port()
    rules.write_text(RULES)
    kafka = KafkaServer(tmp_path / "kafka")
    kafka.prepare()  # before there is an agent that every JVM loads
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-javaagent:{exporter}=127.0.0.1:{port}:{rules}")
    with kafka:
        at_work(kafka.bootstrap)
        theirs = shapes(read(f"http://127.0.0.1:{port}/metrics"))
    with Broker(config={"metrics.listeners": "127.0.0.1:0"}) as broker:
        at_work(broker.bootstrap)
        assert broker.server.metrics is not None
        ours = {
            one
            for one in shapes(read(broker.server.metrics.urls[0]))
            if not one[0].startswith((*NOT_KAFKAS, *OF_SHARE_GROUPS))
        }
    sums = {one for one in ours if one[0].endswith("_sum")}  # which JMX does not have
    assert ours - sums - theirs == set()
