"""Consumers with their own defaults before a backlog larger than one answer: many partitions, a large batch in each.

A partition whose batch does not fit into what is left of an answer is empty in it (KIP-74). Java's consumer gives up on
one that has a part of a batch.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition
from tests.barnabas_server import BarnabasServer
from tests.compat.go_clients import go_client
from tests.compat.test_java import program
from tests.compat.test_kafka_python_1_4 import packages_of_old_release
from tests.foreign_tools import require_tool, run_checked
from tests.golang import run_go
from tests.java import run_java
from tests.node import install_packages, run_node
from tests.spark.conftest import read as read_as_spark

from barnabas.clients import Consumer as BarnabasConsumer
from barnabas.protocol.topic_partition import TopicPartition as BarnabasPartition

HERE = Path(__file__).parent
TOPIC = "backlog"
PARTITIONS = 110
BATCH_BYTES = 800_000
EVERYTHING = f"{PARTITIONS} {PARTITIONS * BATCH_BYTES}"
SECONDS = 150.0

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def backlog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker that has it."""
    target = os.environ.get("BARNABAS_COMPAT_TARGET")
    if target:
        fill(target)
        yield target
        return
    with BarnabasServer(tmp_path_factory.mktemp("broker")) as server:
        fill(server.bootstrap)
        yield server.bootstrap


def fill(bootstrap: str) -> None:
    """One record of that size in each partition, each a batch of its own."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 1})
    for partition in range(PARTITIONS):
        producer.produce(TOPIC, b"v" * BATCH_BYTES, partition=partition)
        producer.poll(0)
    assert producer.flush(SECONDS) == 0


@pytest.mark.java
@pytest.mark.parametrize(
    ("version", "poll"),
    [
        # It asks by the first version of Fetch with the rule.
        pytest.param("0.10.2.2", "poll_0_10", marks=pytest.mark.verify),
        pytest.param("3.9.1", "poll", marks=pytest.mark.verify),
        ("4.4.0", "poll"),
    ],
)
def test_java(backlog: str, version: str, poll: str, tmp_path: Path) -> None:
    classpath = program(("backlog", poll), f"org.apache.kafka:kafka-clients:{version}", tmp_path)
    result = run_java("Backlog", classpath, [backlog, TOPIC], timeout=200)
    assert result.stdout.strip() == EVERYTHING, result.stderr[-2000:]


@pytest.mark.node
@pytest.mark.parametrize("folder", ["kafkajs", pytest.param("platformatic", marks=pytest.mark.verify)])
def test_clients_in_javascript(backlog: str, folder: str) -> None:
    result = run_node(install_packages(HERE / folder), "backlog.js", [backlog, TOPIC, str(PARTITIONS)], timeout=200)
    assert result.stdout.strip() == EVERYTHING, result.stderr[-2000:]


@pytest.mark.golang
@pytest.mark.parametrize(
    "folder",
    ["franzgo", pytest.param("sarama", marks=pytest.mark.verify), pytest.param("kafkago", marks=pytest.mark.verify)],
)
def test_clients_in_go(backlog: str, folder: str) -> None:
    result = run_go(go_client(folder), ["backlog", backlog, TOPIC, str(PARTITIONS)], timeout=200)
    assert result.stdout.strip() == EVERYTHING, result.stderr[-2000:]


def test_confluent_kafka(backlog: str) -> None:
    consumer = Consumer({"bootstrap.servers": backlog, "group.id": "confluent"})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    read: list[int] = []
    deadline = time.monotonic() + SECONDS
    while len(read) < PARTITIONS and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None:
            assert message.error() is None, message.error()
            read.append(len(message.value()))
    consumer.close()
    assert f"{len(read)} {sum(read)}" == EVERYTHING


def test_aiokafka(backlog: str) -> None:
    async def read() -> list[int]:
        async with (
            asyncio.timeout(SECONDS),
            AIOKafkaConsumer(TOPIC, bootstrap_servers=backlog, auto_offset_reset="earliest") as consumer,
        ):
            return [len((await consumer.getone()).value) for _ in range(PARTITIONS)]

    sizes = asyncio.run(read())
    assert f"{len(sizes)} {sum(sizes)}" == EVERYTHING


def test_kafka_python(backlog: str) -> None:
    consumer = KafkaConsumer(bootstrap_servers=backlog, auto_offset_reset="earliest")
    consumer.assign([KafkaPythonPartition(TOPIC, partition) for partition in range(PARTITIONS)])
    sizes: list[int] = []
    deadline = time.monotonic() + SECONDS
    while len(sizes) < PARTITIONS and time.monotonic() < deadline:
        sizes += [len(record.value) for records in consumer.poll(500).values() for record in records]
    consumer.close()
    assert f"{len(sizes)} {sum(sizes)}" == EVERYTHING


@pytest.mark.verify
def test_kafka_python_1_4(backlog: str) -> None:
    command = [sys.executable, "-S", str(HERE / "legacy_backlog.py"), backlog, TOPIC, str(PARTITIONS)]
    packages = {"PYTHONPATH": str(packages_of_old_release())}
    result = subprocess.run(command, env=packages, capture_output=True, text=True, timeout=200, check=False)
    assert result.stdout.strip() == EVERYTHING, result.stderr[-2000:]


@pytest.mark.verify
def test_spark(backlog: str) -> None:
    """The code that Spark's planner and its tasks run."""
    pytest.importorskip("pyspark", reason="pip install barnabas[spark]")
    pytest.importorskip("pyarrow", reason="pip install barnabas[spark]")
    rows = read_as_spark({"kafka.bootstrap.servers": backlog, "subscribe": TOPIC, "startingOffsets": "earliest"})
    assert f"{len(rows)} {sum(len(row['value']) for row in rows)}" == EVERYTHING


def test_kcat(backlog: str) -> None:
    kcat = require_tool("kcat", "apt-get install kcat")
    printed = run_checked([kcat, "-b", backlog, "-C", "-t", TOPIC, "-e", "-q", "-f", "%S\n"])
    sizes = [int(line) for line in printed.split()]
    assert f"{len(sizes)} {sum(sizes)}" == EVERYTHING


def test_our_own(backlog: str) -> None:
    async def read() -> list[int]:
        async with asyncio.timeout(SECONDS), BarnabasConsumer(backlog, auto_offset_reset="earliest") as consumer:
            consumer.assign([BarnabasPartition(TOPIC, partition) for partition in range(PARTITIONS)])
            return [len((await consumer.getone()).value or b"") for _ in range(PARTITIONS)]

    sizes = asyncio.run(read())
    assert f"{len(sizes)} {sum(sizes)}" == EVERYTHING
