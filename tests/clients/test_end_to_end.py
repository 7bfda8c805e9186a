"""Producer, consumer and admin against a real broker over real sockets."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas import Broker
from barnabas.clients.admin import Admin, ConfigChange, ConfigResource, NewTopic, raise_first
from barnabas.clients.consumer import Consumer
from barnabas.clients.errors import BrokerUnreachableError
from barnabas.clients.producer import Producer
from barnabas.protocol.config_resources import ConfigOperation, ConfigResourceType, ConfigSource
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.special_timestamps import EARLIEST, LATEST, MAX_TIMESTAMP
from barnabas.protocol.topic_partition import TopicPartition

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"t{next(_numbers)}"
    broker.create_topic(name, 3)
    return name


@pytest.mark.parametrize("acks", ["all", 1])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_records_go_there_and_back(broker: Broker, topic: str, codec: str, acks: str) -> None:
    sent = {i: (b"key-%d" % i, b"value-%d" % i * 20) for i in range(2000)}
    async with Producer(broker.bootstrap, compression=codec, acks=acks, linger_ms=1) as producer:  # type: ignore[arg-type]
        futures = [
            await producer.send(topic, value, key=key, headers=[("n", b"%d" % i)]) for i, (key, value) in sent.items()
        ]
        where = await asyncio.gather(*futures)
    assert {metadata.partition for metadata in where} == {0, 1, 2}
    async with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, index) for index in range(3)])
        got: dict[Any, Any] = {}
        while len(got) < len(sent):
            for records in (await consumer.getmany(timeout_ms=5000)).values():
                got |= {(record.partition, record.offset): record for record in records}
    for i, metadata in enumerate(where):
        record = got[metadata.partition, metadata.offset]
        assert (record.key, record.value) == sent[i]
        assert list(record.headers) == [("n", b"%d" % i)]


async def test_a_topic_is_created_by_the_first_record(broker: Broker) -> None:
    async with Producer(broker.bootstrap) as producer:
        metadata = await producer.send_and_wait("made-on-the-way", b"x")
    assert metadata.offset == 0


async def test_large_records(broker: Broker, topic: str) -> None:
    value = bytes(range(256)) * 3600
    async with Producer(broker.bootstrap) as producer:
        metadata = await producer.send_and_wait(topic, value, partition=1)
        with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
            await producer.send(topic, bytes(1_100_000))
    settings = {"auto_offset_reset": "earliest", "max_partition_fetch_bytes": 1000}
    async with Consumer(broker.bootstrap, **settings) as consumer:  # type: ignore[arg-type]
        consumer.assign([TopicPartition(topic, 1)])
        record = await asyncio.wait_for(consumer.getone(), 60)
    assert (record.offset, record.value) == (metadata.offset, value)


async def test_a_waiting_consumer_gets_what_is_produced(broker: Broker, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    async with Consumer(broker.bootstrap) as consumer, Producer(broker.bootstrap) as producer:
        consumer.assign([partition])
        assert await consumer.position(partition) == 0
        waiting = asyncio.create_task(consumer.getone())
        await producer.send_and_wait(topic, b"news", partition=0)
        record = await asyncio.wait_for(waiting, 60)
        assert record.value == b"news"


async def test_offsets_by_time(broker: Broker, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    async with Producer(broker.bootstrap, linger_ms=100) as producer:
        for i in range(100):
            await producer.send(topic, b"x", partition=0, timestamp_ms=1_700_000_000_000 + 1000 * i)
    async with Consumer(broker.bootstrap) as consumer:
        found = await consumer.offsets_for_times({partition: 1_700_000_041_500})
        assert found[partition] is not None
        assert found[partition][:2] == (42, 1_700_000_042_000)
        assert await consumer.offsets_for_times({partition: 1_800_000_000_000}) == {partition: None}
    async with Admin(broker.bootstrap) as admin:
        for timestamp, offset in ((EARLIEST, 0), (LATEST, 100), (MAX_TIMESTAMP, 99)):
            assert (await admin.list_offsets({partition: timestamp}))[partition].offset == offset


async def test_delete_records_moves_the_log_start(broker: Broker, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    async with Producer(broker.bootstrap) as producer:
        for _ in range(10):
            await producer.send(topic, b"x", partition=0)
    async with Admin(broker.bootstrap) as admin:
        assert await admin.delete_records({partition: 4}) == {partition: 4}
    async with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        assert (await asyncio.wait_for(consumer.getone(), 60)).offset == 4


async def test_topics_are_created_described_grown_and_deleted(broker: Broker) -> None:
    async with Admin(broker.bootstrap) as admin:
        outcomes = await admin.create_topics(
            [NewTopic("a", 2, configs={"retention.ms": "1000"}), NewTopic("b"), NewTopic("no/name")]
        )
        assert [outcomes[name] for name in "ab"] == [None, None]
        with pytest.raises(KafkaError, match="INVALID_TOPIC_EXCEPTION"):
            raise_first(outcomes)
        assert await admin.create_partitions({"a": 5}) == {"a": None}
        (a,) = await admin.describe_topics(["a"])
        assert sorted(a.partitions) == [0, 1, 2, 3, 4]
        assert {"a", "b"} <= {topic.name for topic in await admin.describe_topics()}
        assert await admin.delete_topics(["a", "b"]) == {"a": None, "b": None}
        (a,) = await admin.describe_topics(["a"])
        assert a.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_configs_are_described_and_altered(broker: Broker, topic: str) -> None:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    async with Admin(broker.bootstrap) as admin:

        async def own() -> dict[str, str | None]:
            entries = (await admin.describe_configs([resource], documentation=True))[resource]
            return {entry.name: entry.value for entry in entries if entry.source is ConfigSource.TOPIC}

        raise_first(await admin.alter_configs({resource: [ConfigChange("retention.ms", "77777")]}))
        assert await own() == {"retention.ms": "77777"}
        delete = ConfigChange("retention.ms", None, ConfigOperation.DELETE)
        raise_first(await admin.alter_configs({resource: [delete]}))
        assert await own() == {}
        outcome = await admin.alter_configs({resource: [ConfigChange("retention.ms", "much")]})
        assert outcome[resource] is not None


async def test_cluster_and_log_dirs(broker: Broker, topic: str) -> None:
    async with Admin(broker.bootstrap) as admin:
        cluster = await admin.describe_cluster()
        assert [f"{b.host}:{b.port}" for b in cluster.brokers] == [broker.bootstrap]
        (log_dir,) = await admin.describe_log_dirs()
        assert TopicPartition(topic, 0) in log_dir.sizes


async def test_nobody_listens() -> None:
    with pytest.raises(BrokerUnreachableError, match=r"cannot reach broker at 127.0.0.1:1: connection refused"):
        await Producer("127.0.0.1:1").start()
