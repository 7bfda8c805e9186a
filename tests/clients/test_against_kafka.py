"""Our clients against Apache Kafka itself: what they send is taken, what others sent is read as Kafka means it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from tests.kafka import LAST_WITH_ZOOKEEPER, NEWEST, KafkaServer

from barnabas.clients.admin import Admin, ConfigChange, ConfigResource, NewTopic, raise_first
from barnabas.clients.consumer import Consumer
from barnabas.clients.producer import Producer
from barnabas.protocol.config_resources import ConfigResourceType, ConfigSource
from barnabas.protocol.topic_partition import TopicPartition

pytestmark = [pytest.mark.verify, pytest.mark.java, pytest.mark.timeout(240)]


@pytest.fixture(scope="module", params=[NEWEST, LAST_WITH_ZOOKEEPER])
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with KafkaServer(tmp_path_factory.mktemp("kafka"), version=request.param, heap="400m") as server:
        yield server


async def committed(bootstrap: str, topic: str, isolation: str, count: int) -> list[bytes | None]:
    consumer = Consumer(bootstrap, auto_offset_reset="earliest", isolation_level=isolation)  # type: ignore[arg-type]
    async with consumer:
        consumer.assign([TopicPartition(topic, 0)])
        values: list[bytes | None] = []
        while len(values) < count:
            batch = await consumer.getmany(timeout_ms=60_000)
            assert batch, f"only {values}"
            values += [record.value for records in batch.values() for record in records]
        values += [r.value for records in (await consumer.getmany(timeout_ms=500)).values() for r in records]
    return values


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_records_there_and_back(kafka: KafkaServer, codec: str) -> None:
    topic = f"codec-{codec}"
    async with Admin(kafka.bootstrap) as admin:
        raise_first(await admin.create_topics([NewTopic(topic, 2, 1)]))
    sent = [(b"k%d" % i, b"v%d" % i * 30, [("h", b"%d" % i)]) for i in range(3000)]
    async with Producer(kafka.bootstrap, compression=codec) as producer:
        futures = [await producer.send(topic, value, key=key, headers=headers) for key, value, headers in sent]
        where = await asyncio.gather(*futures)
    got: dict[Any, Any] = {}
    async with Consumer(kafka.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        while len(got) < len(sent):
            for records in (await consumer.getmany(timeout_ms=10_000)).values():
                got |= {(r.partition, r.offset): (r.key, r.value, list(r.headers)) for r in records}
    assert [got[metadata.partition, metadata.offset] for metadata in where] == sent


async def test_transactions_of_another_client_are_read_as_they_ended(kafka: KafkaServer) -> None:
    def write() -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "tx"})
        producer.init_transactions(60)
        for number in range(10):
            producer.begin_transaction()
            for i in range(5):
                producer.produce("tx", b"%d-%d" % (number, i), partition=0)
            producer.flush()
            producer.commit_transaction(30) if number % 3 else producer.abort_transaction(30)

    async with Admin(kafka.bootstrap) as admin:
        raise_first(await admin.create_topics([NewTopic("tx", 1, 1)]))
    await asyncio.get_running_loop().run_in_executor(None, write)
    everything = [b"%d-%d" % (number, i) for number in range(10) for i in range(5)]
    kept = [value for value in everything if int(value.split(b"-")[0]) % 3]
    assert await committed(kafka.bootstrap, "tx", "read_uncommitted", len(everything)) == everything
    assert await committed(kafka.bootstrap, "tx", "read_committed", len(kept)) == kept


async def test_administration(kafka: KafkaServer) -> None:
    resource = ConfigResource(ConfigResourceType.TOPIC, "adm")
    async with Admin(kafka.bootstrap) as admin:
        raise_first(await admin.create_topics([NewTopic("adm", 1, 1, {"retention.ms": "5000"})]))
        raise_first(await admin.create_partitions({"adm": 3}))
        raise_first(await admin.alter_configs({resource: [ConfigChange("segment.bytes", "1048576")]}))
        own: dict[str, str | None] = {}
        async with asyncio.timeout(60):
            # A KRaft broker hears of a change from its controller, some time after the change was answered.
            while own != {"retention.ms": "5000", "segment.bytes": "1048576"}:
                entries = (await admin.describe_configs([resource]))[resource]
                own = {entry.name: entry.value for entry in entries if entry.source is ConfigSource.TOPIC}
        cluster = await admin.describe_cluster()
        assert [f"{b.host}:{b.port}" for b in cluster.brokers] == [kafka.bootstrap]
        (log_dir,) = await admin.describe_log_dirs()
        assert TopicPartition("adm", 0) in log_dir.sizes
        partition = TopicPartition("adm", 0)
        async with Producer(kafka.bootstrap) as producer:
            for _ in range(10):
                await producer.send("adm", b"x", partition=0)
        assert await admin.delete_records({partition: 7}) == {partition: 7}
        raise_first(await admin.delete_topics(["adm"]))
