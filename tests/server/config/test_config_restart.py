"""Changed settings act on open logs at once and are there again after a restart."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

from tests.server.config.config_client import ConfigClient

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.config_resources import ConfigOperation, ConfigResourceType, ConfigSource
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.record_batch_builder import RecordBatchBuilder
from barnabas.testing.broker import Broker

SET, DELETE, APPEND, _ = ConfigOperation
NONE = (0, None)


def retention(client: ConfigClient) -> tuple[str | None, int]:
    (entry,) = client.describe(ConfigResourceType.TOPIC, "flights", ["retention.ms"]).configs
    return entry.value, entry.config_source


def produce(client: ConfigClient, size: int) -> int:
    """Append one record of `size` bytes; returns the partition's error code."""
    batch = RecordBatchBuilder()
    batch.append(None, bytes(size), timestamp=0)
    partition = PartitionProduceData(index=0, records=batch.build())
    topic = TopicProduceData(name="flights", partition_data=[partition])
    request = ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[topic])
    response = client.call(ApiKey.PRODUCE, 9, request)
    return int(response.responses[0].partition_responses[0].error_code)


def test_changes_act_on_open_logs_at_once() -> None:
    with Broker(["flights"]) as broker, closing(ConfigClient(broker.bootstrap)) as client:
        assert produce(client, 1000) == ErrorCode.NONE
        assert client.edit(ConfigResourceType.TOPIC, "flights", ("max.message.bytes", SET, "500")) == NONE
        assert produce(client, 1000) == ErrorCode.MESSAGE_TOO_LARGE
        assert client.edit(ConfigResourceType.TOPIC, "flights", ("max.message.bytes", DELETE, None)) == NONE
        assert produce(client, 1000) == ErrorCode.NONE
        assert client.edit(ConfigResourceType.BROKER, "", ("message.max.bytes", SET, "500")) == NONE
        assert produce(client, 1000) == ErrorCode.MESSAGE_TOO_LARGE
        assert client.edit(ConfigResourceType.BROKER, "1", ("message.max.bytes", SET, "5000")) == NONE
        assert produce(client, 1000) == ErrorCode.NONE


def test_changes_outlive_the_broker(tmp_path: Path) -> None:
    with Broker(["flights"], data_dir=tmp_path) as broker, closing(ConfigClient(broker.bootstrap)) as client:
        assert client.edit(ConfigResourceType.TOPIC, "flights", ("segment.bytes", SET, "2048")) == NONE
        assert client.edit(ConfigResourceType.BROKER, "", ("log.retention.ms", SET, "60000")) == NONE
        assert client.edit(ConfigResourceType.BROKER, "1", ("log.retention.ms", SET, "90000")) == NONE
        assert client.edit(ConfigResourceType.CLIENT_METRICS, "x", ("interval.ms", SET, "5000")) == NONE
        assert retention(client) == ("90000", ConfigSource.DYNAMIC_BROKER)
    with Broker(data_dir=tmp_path) as broker, closing(ConfigClient(broker.bootstrap)) as client:
        assert retention(client) == ("90000", ConfigSource.DYNAMIC_BROKER)
        assert client.edit(ConfigResourceType.BROKER, "1", ("log.retention.ms", DELETE, None)) == NONE
        assert retention(client) == ("60000", ConfigSource.DYNAMIC_DEFAULT_BROKER)
        (entry,) = client.describe(ConfigResourceType.TOPIC, "flights", ["segment.bytes"]).configs
        assert (entry.value, entry.config_source) == ("2048", ConfigSource.TOPIC)
        (entry,) = client.describe(ConfigResourceType.CLIENT_METRICS, "x", ["interval.ms"]).configs
        assert (entry.value, entry.config_source) == ("5000", ConfigSource.CLIENT_METRICS)
        assert broker.server.config.log_retention_ms == 60_000


def test_an_enormous_list_that_was_appended_to_outlives_the_broker_and_holds_nobody_up(tmp_path: Path) -> None:
    key = "leader.replication.throttled.replicas"
    pieces = [",".join(f"{number}:1" for number in range(first, first + 100)) for first in range(10_000, 14_000, 100)]

    def told(client: ConfigClient) -> str | None:
        (entry,) = client.describe(ConfigResourceType.TOPIC, "flights", [key]).configs
        return entry.value

    with Broker(["flights"], data_dir=tmp_path) as broker, closing(ConfigClient(broker.bootstrap)) as client:
        for one in pieces:
            assert client.edit(ConfigResourceType.TOPIC, "flights", (key, APPEND, one)) == NONE
        # As large as Kafka lets one be, but for some bytes.
        error, _ = client.edit(
            ConfigResourceType.TOPIC, "flights", (key, APPEND, ",".join(f"{number}:2" for number in range(700)))
        )
        assert error == ErrorCode.INVALID_CONFIG
        assert told(client) == ",".join(pieces)
    with Broker(data_dir=tmp_path) as broker, closing(ConfigClient(broker.bootstrap)) as client:
        took = []
        for _ in range(3):
            began = time.perf_counter()
            assert told(client) == ",".join(pieces)
            assert produce(client, 10) == ErrorCode.NONE
            took.append(time.perf_counter() - began)
        assert min(took) < 0.25
        assert client.edit(ConfigResourceType.TOPIC, "flights", (key, APPEND, "7777777:1")) == NONE
        assert told(client) == ",".join([*pieces, "7777777:1"])
