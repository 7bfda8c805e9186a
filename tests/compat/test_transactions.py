"""Transactions by other projects' clients: commit, abort, fencing, timeout, and consume-transform-produce."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.barnabas_server import BarnabasServer
from tests.compat.go_clients import go_client
from tests.compat.tool_session import ToolSession
from tests.golang import run_go
from tests.java import compile_java, jars, require_java, run_java
from tests.node import install_packages, run_node
from tests.server_process import wait_until

from barnabas.testing import Cluster

PROGRAM = Path(__file__).parent / "java" / "transactions"
SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
OF_CLUSTER = {
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
}


@pytest.fixture(scope="module", params=["one broker", pytest.param("three brokers", marks=pytest.mark.verify)])
def transactional(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Brokers that look for overdue transactions often."""
    if request.param == "three brokers":
        with Cluster(brokers=3, config={**SETTINGS, **OF_CLUSTER}) as cluster:
            yield cluster.address(1)
        return
    with BarnabasServer(tmp_path_factory.mktemp("broker"), properties=SETTINGS) as server:
        yield server.bootstrap


def create(bootstrap: str, *suffixes: str) -> str:
    """Topics of two partitions; what their names begin with."""
    prefix = f"txn-{uuid.uuid4().hex[:8]}"
    topics = [NewTopic(prefix + suffix, 2, -1) for suffix in suffixes or ("",)]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics(topics).values():
        future.result(30)
    return prefix


def committed(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """What librdkafka's consumer sees of the first partition."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    values = []
    while True:
        message = consumer.poll(60)
        assert message is not None
        if message.error():
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
            break
        values.append(message.value())
    consumer.close()
    return values


def wait_committed(bootstrap: str, topic: str, wanted: list[bytes]) -> None:
    """Markers are written behind the answer to who commits."""
    what = "what is committed can be read, nothing else"
    wait_until(lambda: committed(bootstrap, topic) == wanted, timeout_s=60, what=what)


@pytest.mark.java
@pytest.mark.timeout(240)
@pytest.mark.parametrize("version", ["3.9.1", "4.4.0"])
def test_java(version: str, transactional: str) -> None:
    require_java()
    classpath = jars(f"org.apache.kafka:kafka-clients:{version}")
    topic = create(transactional, "-a", "-b", "-c", "-d", "-e")
    program = [compile_java(PROGRAM, classpath), *classpath]
    result = run_java("Transactions", program, [transactional, topic], timeout=150)
    lines = [line for line in result.stdout.splitlines() if line.endswith(" ok")]
    assert lines == ["commit and abort ok", "fence ok", "timeout ok", "offsets ok"], result.stdout + result.stderr


def rd_producer(bootstrap: str, transactional_id: str, **settings: Any) -> confluent_kafka.Producer:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0, **settings}
    )
    producer.init_transactions(60)
    return producer


def test_confluent_kafka_commits_and_aborts(transactional: str) -> None:
    topic = create(transactional)
    producer = rd_producer(transactional, topic)
    for number in range(10):
        producer.begin_transaction()
        for index in range(4):
            producer.produce(topic, b"%d.%d" % (number, index), partition=index % 2)
        producer.flush(60)
        producer.abort_transaction(60) if number % 3 == 1 else producer.commit_transaction(60)
    expected = [b"%d.%d" % (number, index) for number in range(10) if number % 3 != 1 for index in (0, 2)]
    wait_committed(transactional, topic, expected)
    assert len(committed(transactional, topic, "read_uncommitted")) == 20


def test_confluent_kafka_is_fenced(transactional: str) -> None:
    topic = create(transactional)
    zombie = rd_producer(transactional, topic)
    zombie.begin_transaction()
    zombie.produce(topic, b"zombie", partition=0)
    zombie.flush(60)
    heir = rd_producer(transactional, topic)
    heir.begin_transaction()
    heir.produce(topic, b"heir", partition=0)
    heir.commit_transaction(60)
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        zombie.commit_transaction(60)
    assert caught.value.args[0].fatal()
    wait_committed(transactional, topic, [b"heir"])


def test_confluent_kafka_is_too_late(transactional: str) -> None:
    topic = create(transactional)
    producer = rd_producer(transactional, topic, **{"transaction.timeout.ms": 3000, "message.timeout.ms": 3000})
    producer.begin_transaction()
    producer.produce(topic, b"late", partition=0)
    producer.flush(60)
    admin = AdminClient({"bootstrap.servers": transactional})
    place = confluent_kafka.TopicPartition(topic, 0)

    def is_over() -> bool:
        wanted = {place: confluent_kafka.admin.OffsetSpec.latest()}
        level = confluent_kafka.IsolationLevel.READ_COMMITTED
        return bool(admin.list_offsets(wanted, isolation_level=level)[place].result(60).offset == 2)

    wait_until(is_over, timeout_s=60, what="the transaction is aborted")
    with pytest.raises(confluent_kafka.KafkaException):
        producer.commit_transaction(60)
    assert committed(transactional, topic) == []


def test_confluent_kafka_moves_offsets_with_records(transactional: str) -> None:
    topic = create(transactional)
    group = f"g-{topic}"
    consumer = confluent_kafka.Consumer({"bootstrap.servers": transactional, "group.id": group})
    producer = rd_producer(transactional, topic)
    place = confluent_kafka.TopicPartition(topic, 0, 5)
    for is_commit in (False, True):
        producer.begin_transaction()
        producer.produce(topic, b"out", partition=0)
        producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), 60)
        producer.commit_transaction(60) if is_commit else producer.abort_transaction(60)
        (found,) = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], timeout=60)
        assert found.offset == (5 if is_commit else confluent_kafka.OFFSET_INVALID)
    consumer.close()


async def test_aiokafka(transactional: str) -> None:
    topic = create(transactional)
    group = f"g-{topic}"
    place = aiokafka.TopicPartition(topic, 0)
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=transactional, transactional_id=topic)
    await producer.start()
    for number in range(6):
        async with asyncio.timeout(60):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"%d" % number, partition=0)
            await producer.send_offsets_to_transaction({place: number}, group)
            await (producer.abort_transaction() if number % 2 else producer.commit_transaction())
    zombie, heir = producer, aiokafka.AIOKafkaProducer(bootstrap_servers=transactional, transactional_id=topic)
    await zombie.begin_transaction()
    await zombie.send_and_wait(topic, b"zombie", partition=0)
    await heir.start()
    with pytest.raises(aiokafka.errors.ProducerFenced):
        await zombie.commit_transaction()
    await heir.stop()
    await zombie.stop()
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=transactional, group_id=group, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    await consumer.start()
    consumer.assign([place])
    assert await consumer.committed(place) == 4
    consumer.seek(place, 0)
    async with asyncio.timeout(60):
        assert [(await consumer.getone()).value for _ in range(3)] == [b"0", b"2", b"4"]
    await consumer.stop()


def test_kafka_python(transactional: str) -> None:
    topic = create(transactional)
    group = f"g-{topic}"
    place = kafka.TopicPartition(topic, 0)
    producer = kafka.KafkaProducer(bootstrap_servers=transactional, transactional_id=topic)
    producer.init_transactions()
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=transactional,
        group_id=group,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        consumer_timeout_ms=60_000,
        enable_auto_commit=False,
    )
    for number in range(6):
        producer.begin_transaction()
        producer.send(topic, b"%d" % number, partition=0).get(60)
        producer.send_offsets_to_transaction({place: kafka.structs.OffsetAndMetadata(number, "", -1)}, group)
        producer.abort_transaction() if number % 2 else producer.commit_transaction()
    producer.close()
    consumer.assign([place])
    assert consumer.committed(place) == 4
    consumer.seek(place, 0)
    assert [message.value for _, message in zip(range(3), consumer, strict=False)] == [b"0", b"2", b"4"]
    consumer.close()


@pytest.mark.node
@pytest.mark.timeout(180)
def test_kafkajs(transactional: str) -> None:
    topic = create(transactional)
    result = run_node(
        install_packages(PROGRAM.parents[1] / "kafkajs"), "transactions.js", [transactional, topic], timeout=150
    )
    assert result.returncode == 0, result.stdout + result.stderr
    found = json.loads(result.stdout.splitlines()[-1])
    assert found == {"seen": ["0", "2", "4"], "expected": ["0", "2", "4"], "all": 6, "offset": "4", "isFenced": True}


@pytest.mark.node
@pytest.mark.verify
@pytest.mark.timeout(180)
def test_platformatic(transactional: str) -> None:
    """What is committed is read with librdkafka: of the transactions that one producer aborted, this client hides the
    last of an answer.
    """
    topic = create(transactional)
    folder = install_packages(PROGRAM.parents[1] / "platformatic")
    result = run_node(folder, "transactions.js", [transactional, topic], timeout=150)
    assert result.returncode == 0, result.stdout + result.stderr
    assert json.loads(result.stdout) == {"offset": "5", "isFenced": True}
    wait_committed(transactional, topic, [b"0", b"2", b"4", b"last"])


@pytest.mark.golang
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("folder", "versions"),
    [
        ("franzgo", []),
        pytest.param("sarama", ["default"], marks=pytest.mark.verify),
        pytest.param("sarama", ["max"], marks=pytest.mark.verify),
    ],
)
def test_clients_in_go(transactional: str, folder: str, versions: list[str]) -> None:
    topic = create(transactional, "", "-copy")
    result = run_go(go_client(folder), ["transactions", transactional, topic, f"{topic}-copy", *versions])
    assert result.returncode == 0, result.stdout + result.stderr
    told = json.loads(result.stdout)
    assert told["seen"] == told["expected"] == told["copied"] == ["0", "2", "4"]
    assert (told["all"], told["isFenced"]) == (7, True)


@pytest.mark.java
@pytest.mark.timeout(170)
def test_kafka_transactions(transactional: str) -> None:
    """Kafka's own script finds what is open, and ends what hangs."""
    topic = create(transactional)
    producer = rd_producer(transactional, topic)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(60)
    with ToolSession() as tools:

        def table(*arguments: str) -> list[dict[str, str]]:
            text = tools.output("kafka-transactions", "--bootstrap-server", transactional, *arguments)
            heads, *rows = [line.split() for line in text.splitlines() if "\t" in line]
            return [dict(zip(heads, row, strict=False)) for row in rows]

        (listed,) = [row for row in table("list") if row["TransactionalId"] == topic]
        assert listed["TransactionState"] == "Ongoing"
        (described,) = table("describe", "--transactional-id", topic)
        assert (described["TransactionState"], described["TopicPartitions"]) == ("Ongoing", f"{topic}-0")
        (known,) = table("describe-producers", "--topic", topic, "--partition", "0")
        assert (known["ProducerId"], known["CurrentTransactionStartOffset"]) == (listed["ProducerId"], "0")
        assert table("find-hanging", "--topic", topic, "--max-transaction-timeout", "1") == []
        place = ("--topic", topic, "--partition", "0", "--start-offset", "0")
        tools.output("kafka-transactions", "--bootstrap-server", transactional, "abort", *place)
        (after,) = table("describe-producers", "--topic", topic, "--partition", "0")
        assert after["CurrentTransactionStartOffset"] == "None"
    assert committed(transactional, topic) == []
