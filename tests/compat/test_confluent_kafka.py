"""confluent-kafka (librdkafka) against the broker: the whole scenario of the compatibility table."""

import time
import uuid
from collections.abc import Callable
from typing import Any, cast

import confluent_kafka
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from tests.compat.report import ClientReport
from tests.compat.stored import stored_codecs
from tests.server_process import wait_until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Scenario:
    """One broker address with the client's calls in short form."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(self, partitions: int = 1, config: dict[str, str] | None = None) -> str:
        topic = f"rdk-{uuid.uuid4().hex[:8]}"
        for future in self.admin.create_topics([NewTopic(topic, partitions, 1, config=config or {})]).values():
            future.result(30)
        return topic

    def send(self, topic: str, messages: list[dict[str, Any]], **config: Any) -> list[confluent_kafka.Message]:
        """Send and return the delivery reports; an undelivered record raises its error."""
        reports: list[confluent_kafka.Message] = []
        errors: list[KafkaError] = []

        def done(error: KafkaError | None, message: confluent_kafka.Message) -> None:
            if error:
                errors.append(error)
            reports.append(message)

        settings = {"bootstrap.servers": self.bootstrap, "linger.ms": 5, "message.timeout.ms": 60000, **config}
        producer = Producer({key.replace("_", "."): value for key, value in settings.items()})
        for message in messages:
            producer.produce(topic, on_delivery=done, **message)
        assert producer.flush(30) == 0, "records were left without an answer"
        if errors:
            raise KafkaException(errors[0])
        return reports

    def read(self, topic: str, offset: int, count: int, partition: int = 0) -> list[confluent_kafka.Message]:
        """`count` records from `offset` on; errors raise."""
        settings = {"bootstrap.servers": self.bootstrap, "group.id": "unused", "enable.auto.commit": False}
        consumer = Consumer({**settings, "auto.offset.reset": "error"})
        consumer.list_topics(topic, timeout=30)  # who knows no leader yet asks for offsets after half a second
        consumer.assign([TopicPartition(topic, partition, offset)])
        got: list[confluent_kafka.Message] = []
        deadline = time.monotonic() + 60
        try:
            while len(got) < count and time.monotonic() < deadline:
                for message in consumer.consume(count - len(got), 0.5):
                    if message.error():
                        raise KafkaException(message.error())
                    got.append(message)
        finally:
            consumer.close()
        assert len(got) == count, f"{len(got)} of {count} records came"
        return got

    def offsets(self, topic: str, spec: OffsetSpec) -> int:
        future = self.admin.list_offsets({TopicPartition(topic, 0): spec})[TopicPartition(topic, 0)]
        return int(future.result(30).offset)


@pytest.mark.timeout(180)
def test_confluent_kafka(broker: str, compat: Callable[[str, str], ClientReport]) -> None:
    scenario = Scenario(broker)
    with compat("confluent-kafka", cast(str, confluent_kafka.version())) as client:
        with client.feature("create"):
            topic = scenario.create(3)
            scenario.admin.create_partitions([NewPartitions(topic, 5)])[topic].result(30)
            described = scenario.admin.list_topics(topic, timeout=30).topics[topic]
            assert sorted(described.partitions) == [0, 1, 2, 3, 4]
            with pytest.raises(KafkaException) as refused:
                scenario.admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
            assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
            scenario.admin.delete_topics([topic])[topic].result(30)
        for codec in CODECS:
            with client.feature(codec):
                check_codec(scenario, codec)
        with client.feature("acks"):
            for acks in (0, 1, -1):
                topic = scenario.create()
                scenario.send(topic, [{"value": b"v%d" % n} for n in range(50)], acks=acks)
                assert [each.value() for each in scenario.read(topic, 0, 50)] == [b"v%d" % n for n in range(50)]
        with client.feature("idempotent"):
            topic = scenario.create()
            sent = scenario.send(topic, [{"value": b"%d" % n} for n in range(2000)], enable_idempotence=True)
            assert sorted(each.offset() for each in sent) == list(range(2000))
            assert [each.value() for each in scenario.read(topic, 0, 2000)] == [b"%d" % n for n in range(2000)]
        with client.feature("headers"):
            topic = scenario.create()
            headers = [("a", b"1"), ("a", b"2"), ("none", None), ("empty", b"")]
            scenario.send(topic, [{"key": b"k", "value": b"v", "headers": headers}])
            assert scenario.read(topic, 0, 1)[0].headers() == headers
        with client.feature("nulls"):
            topic = scenario.create()
            scenario.send(
                topic, [{"key": None, "value": b"v"}, {"key": b"k", "value": None}, {"key": b"", "value": b""}]
            )
            got = scenario.read(topic, 0, 3)
            assert [(each.key(), each.value()) for each in got] == [(None, b"v"), (b"k", None), (b"", b"")]
        with client.feature("large"):
            check_large(scenario)
        with client.feature("partitions"):
            check_partitions(scenario)
        with client.feature("offsets"):
            check_offsets(scenario)
        with client.feature("timestamps"):
            check_timestamps(scenario)
        with client.feature("delete-records"):
            topic = scenario.create()
            scenario.send(topic, [{"value": b"%d" % n} for n in range(10)])
            answer = scenario.admin.delete_records([TopicPartition(topic, 0, 4)])
            assert [each.result(30).low_watermark for each in answer.values()] == [4]
            assert scenario.offsets(topic, OffsetSpec.earliest()) == 4
            assert [each.offset() for each in scenario.read(topic, OFFSET_BEGINNING, 6)] == list(range(4, 10))
        with client.feature("configs"):
            check_configs(scenario)
        with client.feature("topics"):
            names = {scenario.create() for _ in range(100)}
            listed = scenario.admin.list_topics(timeout=30).topics
            assert names <= set(listed)
            for future in scenario.admin.delete_topics(list(names)).values():
                future.result(30)


def check_codec(scenario: Scenario, codec: str) -> None:
    topic = scenario.create()
    values = [b"%06d " % n + b"some text to compress " * 10 for n in range(3000)]
    scenario.send(topic, [{"key": b"%d" % n, "value": value} for n, value in enumerate(values)], compression_type=codec)
    assert codec in stored_codecs(scenario.bootstrap, topic)
    got = scenario.read(topic, 0, len(values))
    assert [each.value() for each in got] == values
    assert [each.offset() for each in got] == list(range(len(values)))


def check_large(scenario: Scenario) -> None:
    topic = scenario.create()
    value = bytes(range(256)) * 3600
    scenario.send(topic, [{"value": value}])
    assert scenario.read(topic, 0, 1)[0].value() == value
    with pytest.raises(KafkaException) as refused:
        scenario.send(topic, [{"value": b"x" * 2_000_000}], message_max_bytes=5_000_000)
    assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    scenario.send(topic, [{"value": b"after"}])
    assert scenario.read(topic, 1, 1)[0].value() == b"after"


def check_partitions(scenario: Scenario) -> None:
    topic = scenario.create(30)
    sent = [{"value": b"%d-%d" % (partition, n), "partition": partition} for partition in range(30) for n in range(20)]
    scenario.send(topic, sent)
    settings = {"bootstrap.servers": scenario.bootstrap, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.list_topics(topic, timeout=30)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(30)])
    got: dict[int, list[bytes]] = {}
    deadline = time.monotonic() + 60
    while sum(map(len, got.values())) < 600 and time.monotonic() < deadline:
        for message in consumer.consume(600, 0.5):
            assert not message.error(), message.error()
            got.setdefault(message.partition(), []).append(message.value())
    consumer.close()
    assert got == {partition: [b"%d-%d" % (partition, n) for n in range(20)] for partition in range(30)}


def check_offsets(scenario: Scenario) -> None:
    topic = scenario.create()
    scenario.send(topic, [{"value": b"%d" % n} for n in range(100)])
    assert scenario.offsets(topic, OffsetSpec.earliest()) == 0
    assert scenario.offsets(topic, OffsetSpec.latest()) == 100
    assert [each.offset() for each in scenario.read(topic, OFFSET_BEGINNING, 100)] == list(range(100))
    assert [each.offset() for each in scenario.read(topic, 42, 5)] == [42, 43, 44, 45, 46]
    assert [each.offset() for each in scenario.read(topic, 97, 3)] == [97, 98, 99]
    with pytest.raises(KafkaException) as refused:
        scenario.read(topic, 1000, 1)
    assert refused.value.args[0].code() == KafkaError._AUTO_OFFSET_RESET


def check_timestamps(scenario: Scenario) -> None:
    topic = scenario.create()
    start = int(time.time() * 1000) - 100_000
    scenario.send(topic, [{"value": b"%d" % n, "timestamp": start + n * 1000} for n in range(50)])
    assert scenario.offsets(topic, OffsetSpec.for_timestamp(start + 20_500)) == 21
    assert scenario.offsets(topic, OffsetSpec.for_timestamp(start)) == 0
    assert scenario.offsets(topic, OffsetSpec.for_timestamp(start + 999_000)) == -1
    assert scenario.offsets(topic, OffsetSpec.max_timestamp()) == 49
    assert scenario.read(topic, 20, 1)[0].timestamp() == (1, start + 20_000)


def check_configs(scenario: Scenario) -> None:
    topic = scenario.create(config={"retention.ms": "1000000"})
    resource = ConfigResource(ResourceType.TOPIC, topic)
    described = scenario.admin.describe_configs([resource])[resource].result(30)
    assert described["retention.ms"].value == "1000000"
    assert described["cleanup.policy"].value == "delete"
    change = ConfigEntry("max.message.bytes", "2000", incremental_operation=AlterConfigOpType.SET)
    altered = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
    scenario.admin.incremental_alter_configs([altered])[altered].result(30)

    def altered_value() -> str:
        value: str = scenario.admin.describe_configs([resource])[resource].result(30)["max.message.bytes"].value
        return value

    # Apache Kafka's brokers hear of a change a moment after the controller took it.
    wait_until(lambda: altered_value() == "2000", timeout_s=60, what="the changed config")
    described = scenario.admin.describe_configs([resource])[resource].result(30)
    assert described["retention.ms"].value == "1000000"
    broker = scenario.admin.list_topics(timeout=30).brokers
    own = ConfigResource(ResourceType.BROKER, str(next(iter(broker))))
    assert "log.dirs" in scenario.admin.describe_configs([own])[own].result(30)
