"""aiokafka against the broker."""

import asyncio
import time
import uuid
from collections.abc import Callable
from typing import Any

import aiokafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import MessageSizeTooLargeError, OffsetOutOfRangeError
from tests.compat.report import ClientReport


class Scenario:
    """One broker address with the client's calls in short form."""

    def __init__(self, bootstrap: str, admin: AIOKafkaAdminClient) -> None:
        self.bootstrap = bootstrap
        self.admin = admin

    async def create(self, partitions: int = 1, configs: dict[str, str] | None = None) -> str:
        topic = f"aio-{uuid.uuid4().hex[:8]}"
        await self.admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=configs or {})])
        return topic

    async def wait_listed(self, topics: set[str]) -> None:
        """A broker tells of a new topic a moment after it was made."""
        async with asyncio.timeout(60):
            while not topics <= set(await self.admin.list_topics()):
                continue

    async def send(self, topic: str, messages: list[dict[str, Any]], **config: Any) -> list[int]:
        async with AIOKafkaProducer(bootstrap_servers=self.bootstrap, linger_ms=5, **config) as producer:
            futures = [await producer.send(topic, **message) for message in messages]
            answers = await asyncio.gather(*futures)
        return [answer.offset if answer else -1 for answer in answers]

    def consumer(self) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap, auto_offset_reset="none", enable_auto_commit=False, group_id=None
        )

    async def read(self, topic: str, offset: int, count: int) -> list:
        partition = TopicPartition(topic, 0)
        async with self.consumer() as consumer:
            consumer.assign([partition])
            consumer.seek(partition, offset)
            return await poll(consumer, count)


async def poll(consumer: AIOKafkaConsumer, count: int) -> list:
    async with asyncio.timeout(60):
        return [await consumer.getone() for _ in range(count)]


@pytest.mark.timeout(180)
async def test_aiokafka(broker: str, compat: Callable[[str, str], ClientReport]) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker)
    await admin.start()
    scenario = Scenario(broker, admin)
    with compat("aiokafka", aiokafka.__version__) as client:
        with client.feature("create"):
            topic = await scenario.create(3)
            await scenario.wait_listed({topic})
            await admin.delete_topics([topic])
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            with client.feature(codec):
                topic = await scenario.create()
                values = [b"%06d " % n + b"some text to compress " * 5 for n in range(1000)]
                kind = None if codec == "none" else codec
                await scenario.send(topic, [{"value": each} for each in values], compression_type=kind)
                assert [each.value for each in await scenario.read(topic, 0, 1000)] == values
        with client.feature("acks"):
            for acks in (0, 1, "all"):
                topic = await scenario.create()
                await scenario.send(topic, [{"value": b"%d" % n} for n in range(20)], acks=acks)
                assert [each.value for each in await scenario.read(topic, 0, 20)] == [b"%d" % n for n in range(20)]
        with client.feature("idempotent"):
            topic = await scenario.create()
            messages = [{"value": b"%d" % n} for n in range(1000)]
            offsets = await scenario.send(topic, messages, enable_idempotence=True, max_batch_size=1000)
            assert offsets == list(range(1000))
        with client.feature("headers"):
            topic = await scenario.create()
            await scenario.send(topic, [{"value": b"v", "headers": [("a", b"1"), ("a", b"2")]}])
            assert list((await scenario.read(topic, 0, 1))[0].headers) == [("a", b"1"), ("a", b"2")]
        with client.feature("nulls"):
            topic = await scenario.create()
            await scenario.send(topic, [{"key": None, "value": b"v"}, {"key": b"k", "value": None}])
            got = await scenario.read(topic, 0, 2)
            assert [(each.key, each.value) for each in got] == [(None, b"v"), (b"k", None)]
        with client.feature("large"):
            topic = await scenario.create()
            value = bytes(range(256)) * 3600
            await scenario.send(topic, [{"value": value}])
            assert (await scenario.read(topic, 0, 1))[0].value == value
            with pytest.raises(MessageSizeTooLargeError):
                await scenario.send(topic, [{"value": b"x" * 2_000_000}], max_request_size=5_000_000)
        with client.feature("partitions"):
            await check_partitions(scenario)
        with client.feature("offsets"):
            await check_offsets(scenario)
        with client.feature("timestamps"):
            topic = await scenario.create()
            start = int(time.time() * 1000) - 100_000
            await scenario.send(topic, [{"value": b"%d" % n, "timestamp_ms": start + n * 1000} for n in range(50)])
            partition = TopicPartition(topic, 0)
            async with scenario.consumer() as consumer:
                found = (await consumer.offsets_for_times({partition: start + 20_500}))[partition]
            assert (found.offset, found.timestamp) == (21, start + 21_000)
        with client.feature("delete-records"):
            topic = await scenario.create()
            await scenario.send(topic, [{"value": b"%d" % n} for n in range(10)])
            partition = TopicPartition(topic, 0)
            assert await admin.delete_records({partition: RecordsToDelete(4)}) == {partition: 4}
            async with scenario.consumer() as consumer:
                assert await consumer.beginning_offsets([partition]) == {partition: 4}
        with client.feature("configs"):
            topic = await scenario.create(configs={"retention.ms": "1000000"})
            described = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
            assert "1000000" in str(described)
        with client.feature("topics"):
            names = {await scenario.create() for _ in range(100)}
            await scenario.wait_listed(names)
            await admin.delete_topics(list(names))
    await admin.close()


async def check_partitions(scenario: Scenario) -> None:
    topic = await scenario.create(30)
    sent = [{"value": b"%d-%d" % (index, n), "partition": index} for index in range(30) for n in range(10)]
    await scenario.send(topic, sent)
    partitions = [TopicPartition(topic, index) for index in range(30)]
    async with scenario.consumer() as consumer:
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        got = await poll(consumer, 300)
    assert {each.value for each in got} == {message["value"] for message in sent}


async def check_offsets(scenario: Scenario) -> None:
    topic = await scenario.create()
    await scenario.send(topic, [{"value": b"%d" % n} for n in range(100)])
    partition = TopicPartition(topic, 0)
    async with scenario.consumer() as consumer:
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        assert await consumer.position(partition) == 0
        await consumer.seek_to_end(partition)
        assert await consumer.position(partition) == 100
        consumer.seek(partition, 42)
        assert (await poll(consumer, 1))[0].offset == 42
        consumer.seek(partition, 1000)
        with pytest.raises(OffsetOutOfRangeError):
            await poll(consumer, 1)
