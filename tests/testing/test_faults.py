"""Faults on purpose, as clients that nobody here wrote meet them."""

from __future__ import annotations

import asyncio
import struct
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
import uvloop
from confluent_kafka import Consumer, Producer
from tests.server.network.open_connections import open_connections

from barnabas.clients.admin import Admin
from barnabas.clients.connection import BrokerConnection, ConnectionOptions
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.record_batch_builder import RecordBatchBuilder
from barnabas.testing import Broker, ErrorCode, KafkaError, exchange

LATE_S = 0.2


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(["t"]) as broker:
        yield broker


def produce(broker: Broker, value: bytes = b"v", **config: Any) -> tuple[Any, float]:
    """Send one record with librdkafka; what came of it, and after how many seconds."""
    settings = {"bootstrap.servers": broker.bootstrap, "retry.backoff.ms": 1, "log_level": 0, "linger.ms": 0, **config}
    producer = Producer(settings)
    producer.list_topics("t", timeout=60)
    outcome: list[Any] = []
    began = time.monotonic()
    producer.produce("t", value, partition=0, callback=lambda error, _: outcome.append(error))
    producer.flush(60)
    return outcome[0] if outcome else "nothing", time.monotonic() - began


def values(broker: Broker) -> list[bytes | None]:
    return [one.value for one in broker.records("t")]


def test_an_error_some_times_and_then_no_more(broker: Broker) -> None:
    with broker.faults.error("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=3) as fault:
        assert produce(broker)[0] is None
    assert [met.api for met in fault.requests] == [ApiKey.PRODUCE] * 3
    assert fault.requests[0].client_id == "rdkafka"
    times = [met.at for met in fault.requests]
    assert times == sorted(times)
    assert fault.requests[0].request.keys == [("t", 0)]
    assert fault.is_over
    assert values(broker) == [b"v"]


def test_an_error_that_the_client_must_not_try_again(broker: Broker) -> None:
    with broker.faults.error("produce", "TOPIC_AUTHORIZATION_FAILED"):
        assert produce(broker)[0].name() == "TOPIC_AUTHORIZATION_FAILED"
    assert produce(broker)[0] is None


def test_an_error_although_it_was_done(broker: Broker) -> None:
    with broker.faults.error("Produce", ErrorCode.REQUEST_TIMED_OUT, handled=True, times=1):
        assert produce(broker)[0] is None
    assert values(broker) == [b"v", b"v"]


def test_an_answer_lost_after_the_append(broker: Broker) -> None:
    """What only an idempotent producer gets right."""
    with broker.faults.disconnect("Produce", handled=True, times=1):
        assert produce(broker)[0] is None
    assert values(broker) == [b"v", b"v"]
    with broker.faults.disconnect("Produce", handled=True, times=1):
        assert produce(broker, b"once", **{"enable.idempotence": True})[0] is None
    assert values(broker) == [b"v", b"v", b"once"]


@pytest.mark.parametrize("handled", [False, True])
def test_silence_until_the_client_has_had_enough(broker: Broker, handled: bool) -> None:
    with broker.faults.silence("Produce", handled=handled) as fault:
        # Time enough to be sent, however busy the machine is: it is waited for to the end.
        settings: dict[str, Any] = {"message.timeout.ms": 2000, "request.timeout.ms": 100, "retries": 0}
        error, _ = produce(broker, **settings)
    assert error.name() in ("_MSG_TIMED_OUT", "_TIMED_OUT")
    assert len(fault.requests) == 1
    assert values(broker) == ([b"v"] if handled else [])


@pytest.mark.parametrize("handled", [False, True])
@pytest.mark.parametrize("late", [0, LATE_S / 2])
def test_a_delay(broker: Broker, late: float, handled: bool) -> None:
    with broker.faults.delay("Produce", LATE_S - late, handled=handled, late=late):
        error, seconds = produce(broker)
    assert error is None
    assert seconds >= LATE_S
    assert values(broker) == [b"v"]


def test_no_delay_is_shorter_than_was_asked_for() -> None:
    """Not by the rest of a millisecond either, which uvloop's timers do not count."""
    seconds, instead = 0.0104, cast(Any, SimpleNamespace(answered_through=lambda later: later))

    async def shortest() -> float:
        loop, waits = asyncio.get_running_loop(), list[float]()
        for _ in range(100):
            began = time.monotonic()
            await exchange._later(seconds, lambda _: None, instead)
            waits.append(time.monotonic() - began)
            began, answered = time.monotonic(), loop.create_future()
            exchange.answer_late(seconds, instead)(lambda context, _: context.set_result(None), answered, None)
            await answered
            waits.append(time.monotonic() - began)
        return min(waits)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(shortest()) >= seconds


@pytest.mark.parametrize("where", [{}, {"topic": "t", "partition": 0}])
def test_an_error_that_comes_late(broker: Broker, where: dict[str, Any]) -> None:
    with broker.faults.error("Produce", "TOPIC_AUTHORIZATION_FAILED", late=LATE_S, **where):
        error, seconds = produce(broker)
    assert error.name() == "TOPIC_AUTHORIZATION_FAILED"
    assert seconds >= LATE_S
    assert values(broker) == []


def test_a_disconnect_that_comes_late(broker: Broker) -> None:
    with broker.faults.disconnect("Produce", late=LATE_S, times=1) as fault:
        error, seconds = produce(broker)
    assert error is None
    assert seconds >= LATE_S
    assert len(fault.requests) == 1
    assert values(broker) == [b"v"]


async def test_throttling() -> None:
    async with Broker(["t"]) as broker:
        broker.faults.throttle("Metadata", LATE_S, times=1)
        connection = await BrokerConnection.open("127.0.0.1", broker.port, ConnectionOptions())
        began = time.monotonic()
        answer = await connection.send(MetadataRequest(topics=[]))
        assert answer.throttle_time_ms == LATE_S * 1000
        assert (await connection.send(MetadataRequest(topics=[]))).throttle_time_ms == 0
        assert time.monotonic() - began >= LATE_S
        connection.close()


async def test_an_answer_of_ones_own() -> None:
    async with Broker(["t"]) as broker:

        def answer(request: MetadataRequest) -> MetadataResponse | None:
            return MetadataResponse(cluster_id="made up") if request.topics == [] else None

        def changed(_: Any, response: MetadataResponse) -> MetadataResponse:
            response.cluster_id = "changed"
            return response

        broker.faults.answer("Metadata", answer)
        connection = await BrokerConnection.open("127.0.0.1", broker.port, ConnectionOptions())
        assert (await connection.send(MetadataRequest(topics=[]))).cluster_id == "made up"
        assert len((await connection.send(MetadataRequest(topics=None))).topics) == 1
        broker.faults.clear()
        broker.faults.change("Metadata", changed)
        assert (await connection.send(MetadataRequest(topics=[]))).cluster_id == "changed"
        connection.close()


async def test_fewer_versions_than_there_are() -> None:
    async with Broker(["t"]) as broker:
        broker.faults.versions(Metadata=4, DescribeCluster=-1)
        connection = await BrokerConnection.open("127.0.0.1", broker.port, ConnectionOptions())
        watch = broker.faults.watch("Metadata")
        await connection.send(MetadataRequest(topics=[]))
        assert [met.version for met in watch.requests] == [4]
        broker.faults.clear()
        broker.faults.versions(Metadata=(3, 5))
        other = await BrokerConnection.open("127.0.0.1", broker.port, ConnectionOptions())
        assert other.api_versions[ApiKey.METADATA] == (3, 5)
        other.close()
        assert ApiKey.DESCRIBE_CLUSTER not in connection.api_versions
        connection.close()


def test_of_several_faults_the_first_that_wants_a_request_has_it(broker: Broker) -> None:
    faults = broker.faults
    with (
        faults.error("Produce", ErrorCode.UNKNOWN_SERVER_ERROR, client_id="somebody else") as other,
        faults.error("Produce", ErrorCode.NOT_ENOUGH_REPLICAS, after=1, times=1) as second,
        faults.watch("Produce", where=lambda request: request.acks == -1) as watch,
    ):
        assert produce(broker)[0] is None
        assert produce(broker)[0] is None
    assert [len(one.requests) for one in (other, second, watch)] == [0, 1, 2]
    assert values(broker) == [b"v", b"v"]


def test_no_room_on_the_disk(broker: Broker) -> None:
    with broker.faults.disk_full():
        with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
            broker.produce("t", ["lost"])
        short: dict[str, Any] = {"message.timeout.ms": 300}
        error, _ = produce(broker, **short)
        assert error.name() == "_MSG_TIMED_OUT"
    assert produce(broker)[0] is None
    assert values(broker) == [b"v"]


def member(broker: Broker) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "g",
            "heartbeat.interval.ms": 50,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe(["t"])
    return consumer


def poll_until(consumer: Consumer, what: Any) -> None:
    deadline = time.monotonic() + 60
    while not what() and time.monotonic() < deadline:
        consumer.poll(0.02)
    assert what()


def test_members_look_for_a_coordinator_that_moved(broker: Broker) -> None:
    consumer = member(broker)
    poll_until(consumer, consumer.assignment)
    with broker.faults.watch("FindCoordinator") as watch:
        broker.faults.coordinator_moves()
        poll_until(consumer, lambda: watch.requests)
    poll_until(consumer, consumer.assignment)
    consumer.close()


def test_members_whose_session_is_over_join_again(broker: Broker) -> None:
    consumer = member(broker)
    poll_until(consumer, consumer.assignment)
    with broker.faults.watch("JoinGroup") as watch:
        broker.faults.sessions_expire("g")
        poll_until(consumer, lambda: watch.requests)
    poll_until(consumer, consumer.assignment)
    consumer.close()


async def test_another_thread_makes_faults_on_the_callers_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Broker() as broker:
        made_by: list[int] = []
        groups = broker.server.state.group_coordinator
        monkeypatch.setattr(groups, "expire_sessions", lambda group: made_by.append(threading.get_ident()))
        await asyncio.to_thread(broker.faults.sessions_expire, "g")
        assert made_by == [threading.get_ident()]


def test_a_fetch_session_that_is_lost_is_made_anew(broker: Broker) -> None:
    with broker.faults.fetch_sessions_lost():
        consumer = member(broker)
        poll_until(consumer, consumer.assignment)
        broker.produce("t", ["a"])
        assert consumer.consume(1, timeout=60)[0].value() == b"a"
        consumer.close()


def test_faults_outlive_a_restart_and_end_with_clear(broker: Broker) -> None:
    fault = broker.faults.error("Produce", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    broker.restart()
    assert produce(broker)[0] is not None
    broker.faults.clear()
    fault.end()
    assert produce(broker)[0] is None


async def test_a_client_of_another_api_notices_nothing() -> None:
    async with Broker(["t"]) as broker:
        broker.faults.error("CreateTopics", ErrorCode.POLICY_VIOLATION)
        async with Admin(broker.bootstrap) as admin:
            assert [one.name for one in await admin.describe_topics()] == ["t"]


@pytest.mark.parametrize(
    ("api", "code", "said"),
    [
        ("Produced", 6, "unknown API 'Produced'; did you mean 'Produce'?"),
        ("Produce", "NOT_LEADER", "unknown error 'NOT_LEADER'; did you mean 'NOT_"),
    ],
)
def test_faults_that_make_no_sense(broker: Broker, api: str, code: int | str, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("?", r"\?")):
        broker.faults.error(api, code)
    with pytest.raises(ValueError, match="at least"):
        broker.faults.error("Produce", 6, times=0)
    assert produce(broker)[0] is None


def test_an_error_of_one_partition_leaves_the_others_alone() -> None:
    with Broker({"t": 3}) as broker:
        outcomes: dict[int, list[Any]] = {0: [], 1: [], 2: []}
        with broker.faults.error("Produce", "INVALID_RECORD", topic="t", partition=1) as fault:
            producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0, "linger.ms": 50})
            for partition, heard in outcomes.items():
                producer.produce(
                    "t",
                    b"v",
                    partition=partition,
                    callback=lambda error, _, heard=heard: heard.append(error),  # type: ignore[misc]
                )
            assert producer.flush(60) == 0
        assert [heard[0] and heard[0].name() for heard in outcomes.values()] == [None, "INVALID_RECORD", None]
        assert [len(broker.records("t", partition)) for partition in outcomes] == [1, 0, 1]
        assert fault.requests != []


@pytest.mark.parametrize("handled", [False, True])
async def test_one_partition_of_a_request_by_name_and_by_id(handled: bool) -> None:
    async with Broker({"t": 2, "u": 1}) as broker:
        connection = await BrokerConnection.open("127.0.0.1", broker.port, ConnectionOptions())
        topic_id = broker.server.state.metadata.topic_id("t")
        builder = RecordBatchBuilder()
        builder.append(None, b"v", timestamp=1)
        records = builder.build()
        for version in (9, 13):
            request = ProduceRequest(
                acks=-1,
                timeout_ms=60_000,
                topic_data=[
                    TopicProduceData(
                        name="t" if version < 13 else "",
                        topic_id=topic_id if version >= 13 else UUID(int=0),
                        partition_data=[PartitionProduceData(index=index, records=records) for index in (0, 1)],
                    )
                ],
            )
            before = await broker.arecords("t")
            with broker.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", topic="t", partition=1, handled=handled):
                answer = await connection.send(request, version)
            (topic,) = {one.name or one.topic_id: one for one in answer.responses}
            codes = {one.index: one.error_code for topics in answer.responses for one in topics.partition_responses}
            assert topic == ("t" if version < 13 else topic_id)
            assert codes == {0: 0, 1: ErrorCode.NOT_LEADER_OR_FOLLOWER}
            written = [one.partition for one in (await broker.arecords("t"))[len(before) :]]
            assert len(await broker.arecords("t")) - len(before) == (2 if handled else 1), written
        connection.close()


def test_a_leader_moves_and_clients_look_for_it() -> None:
    with Broker({"t": 2}) as broker:
        with broker.faults.leader_moves("t", 0, times=3) as fault:
            assert produce(broker)[0] is None
        assert [met.api for met in fault.requests] == [ApiKey.PRODUCE] * 3
        assert values(broker) == [b"v"]
        broker.faults.leader_moves("t", times=2)
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest", "log_level": 0}
        )
        consumer.subscribe(["t"])
        assert [one.value() for one in consumer.consume(1, timeout=60)] == [b"v"]
        consumer.close()


async def test_metadata_of_a_partition_without_a_leader() -> None:
    async with Broker({"t": 2}) as broker:
        connection = await BrokerConnection.open("127.0.0.1", broker.port, ConnectionOptions())
        with broker.faults.error("Metadata", "LEADER_NOT_AVAILABLE", topic="t", partition=1):
            answer = await connection.send(MetadataRequest(topics=None))
        (topic,) = answer.topics
        told = {one.partition_index: (one.error_code, one.leader_id) for one in topic.partitions}
        assert told == {0: (0, broker.server.state.broker_id), 1: (ErrorCode.LEADER_NOT_AVAILABLE, -1)}
        connection.close()


async def test_nothing_of_a_changed_answer_is_in_the_next_one() -> None:
    """The broker keeps what it says of a topic."""

    def without_leader(_: Any, response: MetadataResponse) -> MetadataResponse:
        response.topics[0].partitions[0].leader_id = -1
        return response

    async with Broker(["t"]) as broker:
        connection = await BrokerConnection.open("127.0.0.1", broker.port, ConnectionOptions())
        leaders = []
        for _ in range(2):
            with broker.faults.change("Metadata", without_leader, times=1):
                for _ in range(2):
                    answer = await connection.send(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)
                    leaders.append(answer.topics[0].partitions[0].leader_id)
        assert leaders == [-1, broker.server.state.broker_id] * 2
        connection.close()


async def test_metadata_of_another_topic_are_no_occasion() -> None:
    async with Broker({"t": 1, "u": 1}) as broker:
        connection = await BrokerConnection.open("127.0.0.1", broker.port, ConnectionOptions())
        topic_id = broker.server.state.metadata.topic_id("t")
        with broker.faults.error("Metadata", "LEADER_NOT_AVAILABLE", topic="t", times=2) as fault:
            for topic, code in (
                (MetadataRequestTopic(name="u"), 0),
                (MetadataRequestTopic(name="t"), ErrorCode.LEADER_NOT_AVAILABLE),
                (MetadataRequestTopic(topic_id=topic_id, name=None), ErrorCode.LEADER_NOT_AVAILABLE),
            ):
                answer = await connection.send(MetadataRequest(topics=[topic]), 12)
                assert [part.error_code for one in answer.topics for part in one.partitions] == [code]
        assert len(fault.requests) == 2
        answer = await connection.send(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)
        assert [part.error_code for one in answer.topics for part in one.partitions] == [0], "nothing of it stays"
        connection.close()


def test_errors_of_partitions_that_nobody_could_hear() -> None:
    with Broker(["t"]) as broker:
        with pytest.raises(ValueError, match="requires a topic"):
            broker.faults.error("Produce", "INVALID_RECORD", partition=1)
        with pytest.raises(ValueError, match="is supported by Produce"):
            broker.faults.error("Heartbeat", "INVALID_RECORD", topic="t")
        with pytest.raises(ValueError, match="silence"):
            broker.faults.drip("Fetch", 0)


async def test_an_answer_that_drips() -> None:
    async with Broker(["t"]) as broker:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        with broker.faults.drip("ApiVersions", 200):
            writer.write(struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, 7, -1))
            pieces = []
            size = None
            while size is None or sum(map(len, pieces)) < size + 4:
                pieces.append(await asyncio.wait_for(reader.read(1 << 16), 60))
                whole = b"".join(pieces)
                size = struct.unpack_from(">i", whole)[0] if len(whole) >= 4 else None
        assert len(pieces) > 5
        assert struct.unpack_from(">ih", whole, 4) == (7, 0)
        writer.write(struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, 8, -1))
        assert struct.unpack_from(">i", await asyncio.wait_for(reader.readexactly(8), 60), 4) == (8,)
        writer.close()


async def test_who_goes_while_an_answer_drips_leaves_nothing() -> None:
    async with Broker(["t"]) as broker:
        _, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        with broker.faults.drip("ApiVersions", 1) as fault:
            writer.write(struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, 7, -1))
            while not fault.requests:
                await asyncio.sleep(0.01)
            writer.transport.abort()
            while open_connections(broker.server.sockets):
                await asyncio.sleep(0.01)
