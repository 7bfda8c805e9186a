"""kafka-python's newest release against the broker."""

import time
import uuid
from collections.abc import Callable
from contextlib import closing
from typing import Any

import kafka
import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from kafka.errors import KafkaError, OffsetOutOfRangeError
from tests.compat.report import ClientReport
from tests.server_process import wait_until


class Scenario:
    """One broker address with the client's calls in short form."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = KafkaAdminClient(bootstrap_servers=bootstrap)

    def create(self, partitions: int = 1, configs: dict[str, str] | None = None) -> str:
        topic = f"kpy-{uuid.uuid4().hex[:8]}"
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, topic_configs=configs or {})
        self.admin.create_topics([new])
        return topic

    def send(self, topic: str, messages: list[dict[str, Any]], **config: Any) -> list[int]:
        """Send and return the offsets; an undelivered record raises."""
        producer = KafkaProducer(bootstrap_servers=self.bootstrap, linger_ms=5, **config)
        futures = [producer.send(topic, **message) for message in messages]
        producer.flush(30)
        offsets = [future.get(30).offset for future in futures]
        producer.close()
        return offsets

    def consumer(self, **config: Any) -> KafkaConsumer:
        settings: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap,
            "auto_offset_reset": "none",
            "group_id": None,
        }
        return KafkaConsumer(enable_auto_commit=False, **settings, **config)

    def read(self, topic: str, offset: int, count: int) -> list:
        partition = TopicPartition(topic, 0)
        consumer = self.consumer()
        try:
            consumer.assign([partition])
            consumer.seek(partition, offset)
            return poll(consumer, count)
        finally:
            consumer.close()


def poll(consumer: KafkaConsumer, count: int) -> list:
    got: list = []
    deadline = time.monotonic() + 60
    while len(got) < count and time.monotonic() < deadline:
        for records in consumer.poll(500).values():
            got.extend(records)
    assert len(got) >= count, f"{len(got)} of {count} records came"
    return got[:count]


@pytest.mark.timeout(180)
def test_kafka_python(broker: str, compat: Callable[[str, str], ClientReport]) -> None:
    scenario = Scenario(broker)
    with closing(scenario.admin), compat("kafka-python", kafka.__version__) as client:
        with client.feature("create"):
            topic = scenario.create(3)
            wait_until(lambda: topic in scenario.admin.list_topics(), timeout_s=60, what="the topic is listed")
            scenario.admin.delete_topics([topic])
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            with client.feature(codec):
                topic = scenario.create()
                values = [b"%06d " % n + b"some text to compress " * 5 for n in range(1000)]
                sent = scenario.send(topic, [{"value": each} for each in values], compression_type=codec_name(codec))
                assert sent == list(range(1000))
                assert [each.value for each in scenario.read(topic, 0, 1000)] == values
        with client.feature("acks"):
            for acks in (0, 1, "all"):
                topic = scenario.create()
                scenario.send(topic, [{"value": b"%d" % n} for n in range(20)], acks=acks, enable_idempotence=False)
                assert [each.value for each in scenario.read(topic, 0, 20)] == [b"%d" % n for n in range(20)]
        with client.feature("idempotent"):
            topic = scenario.create()
            messages = [{"value": b"%d" % n} for n in range(1000)]
            assert scenario.send(topic, messages, enable_idempotence=True, batch_size=1000) == list(range(1000))
        with client.feature("headers"):
            topic = scenario.create()
            scenario.send(topic, [{"value": b"v", "headers": [("a", b"1"), ("a", b"2")]}])
            assert list(scenario.read(topic, 0, 1)[0].headers) == [("a", b"1"), ("a", b"2")]
        with client.feature("nulls"):
            topic = scenario.create()
            scenario.send(topic, [{"key": None, "value": b"v"}, {"key": b"k", "value": None}])
            assert [(each.key, each.value) for each in scenario.read(topic, 0, 2)] == [(None, b"v"), (b"k", None)]
        with client.feature("large"):
            topic = scenario.create()
            value = bytes(range(256)) * 3600
            scenario.send(topic, [{"value": value}])
            assert scenario.read(topic, 0, 1)[0].value == value
            with pytest.raises(KafkaError, match=r"(?i)large"):
                scenario.send(topic, [{"value": b"x" * 2_000_000}], max_request_size=5_000_000)
        with client.feature("partitions"):
            check_partitions(scenario)
        with client.feature("offsets"):
            check_offsets(scenario)
        with client.feature("timestamps"):
            topic = scenario.create()
            start = int(time.time() * 1000) - 100_000
            scenario.send(topic, [{"value": b"%d" % n, "timestamp_ms": start + n * 1000} for n in range(50)])
            partition = TopicPartition(topic, 0)
            consumer = scenario.consumer()
            found = consumer.offsets_for_times({partition: start + 20_500})[partition]
            consumer.close()
            assert (found.offset, found.timestamp) == (21, start + 21_000)
        with client.feature("delete-records"):
            topic = scenario.create()
            scenario.send(topic, [{"value": b"%d" % n} for n in range(10)])
            partition = TopicPartition(topic, 0)
            scenario.admin.delete_records({partition: 4})
            consumer = scenario.consumer()
            assert consumer.beginning_offsets([partition]) == {partition: 4}
            consumer.close()
        with client.feature("configs"):
            topic = scenario.create(configs={"retention.ms": "1000000"})
            described = scenario.admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
            assert "1000000" in str(described)
        with client.feature("topics"):
            names = {scenario.create() for _ in range(100)}
            wait_until(lambda: names <= set(scenario.admin.list_topics()), timeout_s=60, what="all topics are listed")
            scenario.admin.delete_topics(list(names))
    scenario.admin.close()


def codec_name(codec: str) -> str | None:
    return None if codec == "none" else codec


def check_partitions(scenario: Scenario) -> None:
    topic = scenario.create(30)
    sent = [{"value": b"%d-%d" % (index, n), "partition": index} for index in range(30) for n in range(10)]
    scenario.send(topic, sent)
    partitions = [TopicPartition(topic, index) for index in range(30)]
    consumer = scenario.consumer()
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    got = poll(consumer, 300)
    consumer.close()
    assert {each.value for each in got} == {message["value"] for message in sent}


def check_offsets(scenario: Scenario) -> None:
    topic = scenario.create()
    scenario.send(topic, [{"value": b"%d" % n} for n in range(100)])
    partition = TopicPartition(topic, 0)
    consumer = scenario.consumer()
    try:
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        assert consumer.position(partition) == 0
        consumer.seek_to_end(partition)
        assert consumer.position(partition) == 100
        consumer.seek(partition, 42)
        assert poll(consumer, 1)[0].offset == 42
        consumer.seek(partition, 1000)
        with pytest.raises(OffsetOutOfRangeError):
            poll(consumer, 1)
    finally:
        consumer.close()
