"""Changed settings act on open logs at once and are there again after a restart."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from tests.server.config.config_client import ConfigClient

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.config_resources import ConfigOperation, ConfigResourceType, ConfigSource
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.record_batch_builder import RecordBatchBuilder
from barnabas.testing.broker import Broker

SET, DELETE, _, _ = ConfigOperation
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
