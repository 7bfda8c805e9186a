"""Damaged batches over the wire: a running broker refuses each by its code and keeps nothing of it, as Kafka does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.barnabas_server import BarnabasServer
from tests.hostile.damaged_batches import DAMAGES, NONE, REFUSED, Damage
from tests.kafka import KafkaServer
from tests.server_process import BrokerProcess

from barnabas.clients.admin import Admin, NewTopic, raise_first
from barnabas.clients.connection import BrokerConnection, ConnectionOptions
from barnabas.protocol.compression import Compression
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.record_batch import iter_batches

CODECS = [Compression.NONE, Compression.GZIP, Compression.ZSTD]
TOPICS = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
}
LIMITS = {"log.message.timestamp.after.max.ms": "3600000"}
"""Kafka's default."""


@pytest.fixture(scope="module")
def barnabas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasServer]:
    with BarnabasServer(tmp_path_factory.mktemp("barnabas"), properties=LIMITS) as server:
        yield server


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with KafkaServer(tmp_path_factory.mktemp("kafka"), heap="400m") as server:
        yield server


class Judge:
    """One connection to a broker with the topics."""

    def __init__(self, connection: BrokerConnection) -> None:
        self._connection = connection

    @classmethod
    async def of(cls, broker: BrokerProcess, name: str) -> Judge:
        """With topics of its own, whose leader is there."""
        host, port = broker.bootstrap.split(":")
        async with Admin(broker.bootstrap) as admin:
            topics = [NewTopic(f"{topic}-{name}", 1, 1, configs=config) for topic, config in TOPICS.items()]
            raise_first(await admin.create_topics(topics))
        return cls(await BrokerConnection.open(host, int(port), ConnectionOptions()))

    async def produce(self, topic: str, records: bytes) -> PartitionProduceResponse:
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
        request = ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[data])
        while True:
            answer = (await self._connection.send(request, 9)).responses[0].partition_responses[0]
            if answer.error_code not in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                return answer  # type: ignore[no-any-return]

    async def end_offset(self, topic: str) -> int:
        wanted = ListOffsetsPartition(partition_index=0, timestamp=-1)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
        return (await self._connection.send(request, 5)).topics[0].partitions[0].offset  # type: ignore[no-any-return]

    async def stored_max_timestamps(self, topic: str) -> list[int]:
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(max_bytes=1 << 20, topics=[FetchTopic(topic=topic, partitions=[wanted])])
        found = (await self._connection.send(request, 12)).responses[0].partitions[0]
        return [batch.max_timestamp for batch in iter_batches(found.records)]

    def close(self) -> None:
        self._connection.close()


def expected(damage: Damage, topic: str, codec: int, *, of_kafka: bool) -> ErrorCode:
    if damage.error is ErrorCode.INVALID_TIMESTAMP and topic == "stamped" and of_kafka:
        return NONE
    if of_kafka and damage.kafka is not None:
        return damage.kafka[codec != Compression.NONE]
    if damage is DAMAGES["a key of -2"] and topic == "compacted":
        return REFUSED
    return damage.error


async def judge_all(broker: BrokerProcess, *, of_kafka: bool) -> None:
    judge = await Judge.of(broker, "all")
    wrong = []
    for topic in TOPICS:
        stored = 0
        for name, damage in DAMAGES.items():
            for codec in CODECS:
                answer = await judge.produce(f"{topic}-all", damage.batch(codec))
                code = expected(damage, topic, codec, of_kafka=of_kafka)
                stored += damage.count if code is NONE else 0
                end = await judge.end_offset(f"{topic}-all")
                if (answer.error_code, end) != (code, stored):
                    wrong.append((topic, name, codec.name, ErrorCode(answer.error_code).name, end - stored))
                    stored = end
                if damage is DAMAGES["a key of -2"] and topic == "compacted":
                    assert [error.batch_index for error in answer.record_errors] == [1]
    judge.close()
    assert wrong == []


async def judge_max_timestamps(broker: BrokerProcess) -> None:
    """What the header says is not believed, but corrected."""
    judge = await Judge.of(broker, "times")
    names = ("nothing wrong", "a largest timestamp too large", "a largest timestamp too small")
    for codec in CODECS:
        for name in names:
            assert (await judge.produce("plain-times", DAMAGES[name].batch(codec))).error_code == 0
    right = DAMAGES["nothing wrong"].base_timestamp
    assert await judge.stored_max_timestamps("plain-times") == [right] * len(names) * len(CODECS)
    judge.close()


async def test_each_damage_is_refused_and_nothing_of_it_is_kept(barnabas: BarnabasServer) -> None:
    await judge_all(barnabas, of_kafka=False)


async def test_a_wrong_largest_timestamp_is_corrected(barnabas: BarnabasServer) -> None:
    await judge_max_timestamps(barnabas)


@pytest.mark.verify
@pytest.mark.java
@pytest.mark.timeout(300)
async def test_kafka_answers_as_the_catalogue_says(kafka: KafkaServer) -> None:
    await judge_all(kafka, of_kafka=True)
    await judge_max_timestamps(kafka)
