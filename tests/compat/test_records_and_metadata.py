"""Metadata, Produce and Fetch beside Apache Kafka 4.4.0: automatic creation of topics, and zstd in old versions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.barnabas_server import BarnabasServer
from tests.compat.answers import plain
from tests.kafka import KafkaServer
from tests.server.config.config_client import ConfigClient
from tests.server.data_plane import batch
from tests.server_process import wait_until

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.compression import Compression
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(240)]

KAFKAJS_VERSION = 6
"""The newest version in which a created topic has LEADER_NOT_AVAILABLE here, for kafkajs."""
UNTOLD = {"throttle_time_ms", "host", "port", "cluster_id", "topic_id", "log_append_time_ms", "records"}
DEADLINE_S = 60


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ConfigClient, ConfigClient]]:
    """A client of Apache Kafka and one of Barnabas, each with the topics `stored` and `packed` (zstd)."""
    folders: list[Path] = [tmp_path_factory.mktemp(name) for name in ("theirs", "ours")]
    with (
        KafkaServer(folders[0]) as kafka,
        BarnabasServer(folders[1]) as barnabas,
        closing(ConfigClient(kafka.bootstrap)) as theirs,
        closing(ConfigClient(barnabas.bootstrap)) as ours,
    ):
        for client in (theirs, ours):
            topics = [
                CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("stored", "packed")
            ]
            topics[1].configs = [CreatableTopicConfig(name="compression.type", value="zstd")]
            created = client.call(ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(topics=topics, timeout_ms=30_000))
            assert [topic.error_code for topic in created.topics] == [0, 0]
            wait_for_topics(client, 9, "stored", "packed")
        yield theirs, ours


def errors(client: ConfigClient, version: int, *names: str) -> list[int]:
    """The errors of a Metadata request that may create the topics, in their order."""
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=True
    )
    found = {topic.name: topic.error_code for topic in client.call(ApiKey.METADATA, version, request).topics}
    return [found[name] for name in names]


def wait_for_topics(client: ConfigClient, version: int, *names: str) -> None:
    wait_until(lambda: not any(errors(client, version, *names)), timeout_s=DEADLINE_S, what=f"topics {names}")


@pytest.mark.parametrize("version", range(14))
def test_automatically_created_topics(both: tuple[ConfigClient, ConfigClient], version: int) -> None:
    theirs, ours = both
    names = [f"new-{version}", "a b", ".", "", "x" * 250]
    invalid = [ErrorCode.INVALID_TOPIC_EXCEPTION] * 4
    created = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert errors(theirs, version, *names) == [created, *invalid]
    if version <= KAFKAJS_VERSION:
        created = ErrorCode.LEADER_NOT_AVAILABLE
    assert errors(ours, version, *names) == [created, *invalid]
    for client in both:
        wait_for_topics(client, version, names[0])


@pytest.mark.parametrize("topic", ["stored", "packed"])
def test_zstd_in_every_version(both: tuple[ConfigClient, ConfigClient], topic: str) -> None:
    records = bytes(batch(b"v" * 100, codec=Compression.ZSTD))
    for version in range(3, 10):
        part = PartitionProduceData(index=0, records=records)
        produce = ProduceRequest(
            acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[part])]
        )
        theirs, ours = (plain(client.call(ApiKey.PRODUCE, version, produce), UNTOLD) for client in both)
        assert theirs == ours, version
    for version in range(4, 13):
        wanted = FetchTopic(topic=topic, partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)])
        fetch = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[wanted])
        answers = [client.call(ApiKey.FETCH, version, fetch) for client in both]
        theirs, ours = (plain(answer, UNTOLD | {"session_id"}) for answer in answers)
        assert theirs == ours, version
        # The libraries compress a recompressed batch differently, so that only headers are compared.
        heads = [bytes(answer.responses[0].partitions[0].records)[:8] for answer in answers]
        assert heads == [bytes(8)] * 2, version


def creation_errors(client: ConfigClient, *names: str) -> dict[str, tuple[int, str | None]]:
    """The errors of a CreateTopics request with their messages."""
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    created = client.call(ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(topics=topics, timeout_ms=30_000))
    return {topic.name: (topic.error_code, topic.error_message) for topic in created.topics}


def test_topics_with_the_same_metric_names(both: tuple[ConfigClient, ConfigClient]) -> None:
    found = []
    for client in both:
        results = [creation_errors(client, "x.y", "x_y")]
        wait_for_topics(client, 9, "x.y", "x_y")
        results += [creation_errors(client, "z.a"), creation_errors(client, "m.a_b", "m_a.b", "twice", "twice")]
        wait_for_topics(client, 9, "z.a", "m.a_b")
        results += [creation_errors(client, "z_a", "x_y")]
        errors(client, 9, "n.o", "n_o", "z_a")
        wait_for_topics(client, 9, "n.o", "n_o")
        assert errors(client, 9, "z_a") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        found.append(results)
    assert found[0] == found[1]
    assert found[0][0] == {"x.y": (0, None), "x_y": (0, None)}
    assert found[0][3]["z_a"] == (ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic 'z_a' collides with existing topic: z.a")
