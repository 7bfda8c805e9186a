"""APIs that look into partitions, over the logs of a running broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.server.handled import SingleSteps, handled

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.codec import decode_response, encode_response
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.protocol.record_batch_builder import RecordBatchBuilder
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.apis.handlers import delete_records, describe_log_dirs, describe_producers, offset_for_leader_epoch
from barnabas.server.apis.request_context import RequestContext
from barnabas.server.apis.response_budget import is_large_response
from barnabas.server.broker_state import services
from barnabas.server.replication.append_request import AppendRequest
from barnabas.server.replication.described_log_dirs import describe_log_dirs as described
from barnabas.storage.log_validator import CLIENT_RULES
from barnabas.testing.broker import Broker

TIMESTAMP = 1_700_000_000_000


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(topics={"t": 2, "empty": 1}) as running:
        await running.acreate_topic("compacted", 1, {"cleanup.policy": "compact"})
        await running.acreate_topic("__consumer_offsets", 1, {"cleanup.policy": "compact,delete"})
        append(running, "t", 0, count=10, producer_id=7)
        append(running, "compacted", 0, count=1)
        yield running


def append(broker: Broker, topic: str, index: int, *, count: int, producer_id: int = -1) -> None:
    idempotent: dict[str, Any] = (
        {"producer_id": producer_id, "producer_epoch": 3, "base_sequence": 0} if producer_id >= 0 else {}
    )
    builder = RecordBatchBuilder(**idempotent)
    for number in range(count):
        builder.append(b"k%d" % number, b"v", timestamp=TIMESTAMP)
    partition = broker.server.state.replica_manager.get_leader_partition(topic, index)
    partition.append_records_to_leader(memoryview(bytearray(builder.build())), AppendRequest(1, 0, print, CLIENT_RULES))


def ask(broker: Broker, handler: Any, key: ApiKey, version: int, request: Any) -> Any:
    """Asks a handler and sends its answer over the wire of that version."""
    context = SimpleNamespace(broker=services(broker.server.state), api_version=version)
    return over_the_wire(key, version, handled(handler, context, request))


def over_the_wire(key: ApiKey, version: int, answer: Any) -> Any:
    """An answer as a client of that version sees it."""
    body = b"".join(bytes(part) for part in encode_response(answer, version))
    return decode_response(key, version, memoryview(body), 0, len(body))


async def delete(broker: Broker, version: int, *wanted: tuple[str, int, int]) -> list[tuple[int, int]]:
    topics = [
        DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)])
        for topic, index, offset in wanted
    ]
    request = DeleteRecordsRequest(topics=topics, timeout_ms=1000)
    answer = await handled(
        delete_records, cast("RequestContext", SimpleNamespace(broker=services(broker.server.state))), request
    )
    response = over_the_wire(ApiKey.DELETE_RECORDS, version, answer)
    return [(p.low_watermark, p.error_code) for topic in response.topics for p in topic.partitions]


@pytest.mark.parametrize("version", range(3))
async def test_records_are_deleted_up_to_an_offset_or_the_high_watermark(broker: Broker, version: int) -> None:
    log = broker.server.state.replica_manager.get_leader_partition("t", 0).log
    assert await delete(broker, version, ("t", 0, 4)) == [(4, ErrorCode.NONE)]
    assert log.log_start_offset == 4
    assert await delete(broker, version, ("t", 0, 2)) == [(4, ErrorCode.NONE)]
    assert await delete(broker, version, ("t", 0, -1)) == [(10, ErrorCode.NONE)]
    assert log.log_start_offset == log.high_watermark == 10


async def test_records_that_cannot_be_deleted(broker: Broker) -> None:
    wanted = [("t", 0, 11), ("t", 0, -2), ("compacted", 0, 1), ("__consumer_offsets", 0, -1), ("t", 9, 1), ("u", 0, 1)]
    wanted.append(("__transaction_state", 0, 1))
    assert await delete(broker, 2, *wanted) == [
        (-1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (-1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (-1, ErrorCode.POLICY_VIOLATION),
        (-1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


@pytest.mark.parametrize("version", range(6))
async def test_log_directories_in_every_version(broker: Broker, version: int) -> None:
    response = ask(broker, describe_log_dirs, ApiKey.DESCRIBE_LOG_DIRS, version, DescribeLogDirsRequest(topics=None))
    (directory,) = response.results
    state = broker.server.state
    assert directory.log_dir == state.config.log_dirs[0]
    partitions = {(topic.name, p.partition_index): p for topic in directory.topics for p in topic.partitions}
    assert set(partitions) == {("t", 0), ("t", 1), ("empty", 0), ("compacted", 0), ("__consumer_offsets", 0)}
    assert partitions["t", 0].partition_size == state.replica_manager.get_leader_partition("t", 0).log.size > 0
    assert partitions["empty", 0].partition_size == 0
    assert {(p.offset_lag, p.is_future_key) for p in partitions.values()} == {(0, False)}
    if version >= 4:
        assert directory.usable_bytes > 0
    assert not directory.is_cordoned


async def test_only_the_partitions_asked_for_are_described(broker: Broker) -> None:
    wanted = [DescribableLogDirTopic(topic="t", partitions=[1, 9]), DescribableLogDirTopic(topic="u", partitions=[0])]
    response = ask(broker, describe_log_dirs, ApiKey.DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest(topics=wanted))
    (directory,) = response.results
    assert [(topic.name, [p.partition_index for p in topic.partitions]) for topic in directory.topics] == [("t", [1])]


class HeldLog:
    """A log that tells when it is looked at."""

    def __init__(self, looked_at: list[TopicPartition], name: TopicPartition) -> None:
        self._looked_at, self._name = looked_at, name
        self.high_watermark = self.log_end_offset = 10

    @property
    def size(self) -> int:
        self._looked_at.append(self._name)
        return 1


class HeldLogs:
    """Partitions in two directories, as a log manager has them."""

    def __init__(self, *names: TopicPartition) -> None:
        self.looked_at: list[TopicPartition] = []
        self.dirs = [SimpleNamespace(path=path, is_online=True) for path in ("/one", "/two")]
        self.logs: dict[TopicPartition, HeldLog] = {}
        self.places: dict[TopicPartition, str] = {}
        self.future_logs = SimpleNamespace(copies={})
        self.held = SimpleNamespace(is_cordoned=lambda path: False)
        for name in names:
            self.add(name)

    def add(self, name: TopicPartition, path: str = "/one") -> None:
        self.logs[name], self.places[name] = HeldLog(self.looked_at, name), path

    def begin_move(self, name: TopicPartition) -> None:
        copy = SimpleNamespace(log=HeldLog(self.looked_at, name), log_dir=self.dirs[1])
        self.future_logs.copies[name] = copy

    def log_dir_of(self, name: TopicPartition) -> str | None:
        return self.places.get(name)

    def free_bytes(self, path: str) -> int:
        if path == "/two":
            raise OSError("nobody can say")
        return 5

    def describing(self) -> Any:
        """Work on a description of all."""
        disk = SimpleNamespace(total_bytes=lambda path: 9, free_bytes=self.free_bytes)
        log_dirs: Any = SimpleNamespace(describe_log_dirs=partial(described, cast(Any, self), disk))
        ctx = cast("RequestContext", None)
        return describe_log_dirs.handle(
            ctx, DescribeLogDirsRequest(topics=None), replica_manager=log_dirs, sliced_work=cast(Any, SingleSteps())
        )


def told(response: Any) -> set[tuple[str, str, int, bool]]:
    return {
        (result.log_dir, topic.name, one.partition_index, one.is_future_key)
        for result in response.results
        for topic in result.topics
        for one in topic.partitions
    }


def ended(work: Any) -> Any:
    """What work comes to that is done to its end now."""
    while True:
        try:
            work.send(None)
        except StopIteration as end:
            return end.value


def test_a_description_of_all_partitions_rests_after_each() -> None:
    """A broker may have a hundred thousand: everybody else is served in between."""
    names = {TopicPartition(f"t{number % 7}", number) for number in range(1000)}
    held = HeldLogs(*names)
    work, steps = held.describing(), []
    while True:
        before = len(held.looked_at)
        try:
            work.send(None)
        except StopIteration as end:
            response = end.value
            break
        steps.append(len(held.looked_at) - before)
    assert max(steps) == 1
    assert sum(steps) == len(names)
    assert told(response) == {("/one", name.topic, name.partition, False) for name in names}
    assert [topic.name for topic in response.results[0].topics] == sorted({name.topic for name in names})
    assert is_large_response(response), "it is encoded beside the loop"


def test_numbers_do_not_make_an_answer_long() -> None:
    partitions = [MetadataResponsePartition(partition_index=index, replica_nodes=[1, 2, 3]) for index in range(900)]
    few = MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=partitions)])
    assert not is_large_response(few)
    many = MetadataResponse(topics=[MetadataResponseTopic(name=name, partitions=partitions) for name in ("t", "u")])
    assert is_large_response(many)


def test_partitions_come_go_and_move_while_they_are_described() -> None:
    first, *others = (TopicPartition("t", number) for number in range(5))
    deleted, moved, moving, stays = others
    held = HeldLogs(first, *others)
    work = held.describing()
    while first not in held.looked_at:
        work.send(None)
    del held.logs[first], held.places[first]
    del held.logs[deleted], held.places[deleted]
    held.add(moved, "/two")
    held.begin_move(moving)
    held.add(TopicPartition("new", 0))
    held.dirs.append(SimpleNamespace(path="/three", is_online=False))
    response = ended(work)
    assert told(response) == {
        ("/one", "t", first.partition, False),
        ("/two", "t", moved.partition, False),
        ("/one", "t", moving.partition, False),
        ("/two", "t", moving.partition, True),
        ("/one", "t", stays.partition, False),
    }
    assert [result.error_code for result in response.results] == [0, 0, ErrorCode.KAFKA_STORAGE_ERROR]


def test_a_volume_that_cannot_be_asked_is_described_without_its_size() -> None:
    response = ended(HeldLogs(TopicPartition("t", 0)).describing())
    assert [(one.total_bytes, one.usable_bytes) for one in response.results] == [(9, 5), (-1, -1)]
    assert [one.error_code for one in response.results] == [0, 0]


def epoch_end(broker: Broker, version: int, topic: str, epoch: int, current: int = -1) -> tuple[int, int, int]:
    wanted = OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[wanted])])
    response = ask(broker, offset_for_leader_epoch, ApiKey.OFFSET_FOR_LEADER_EPOCH, version, request)
    (answer,) = response.topics[0].partitions
    return answer.error_code, answer.leader_epoch, answer.end_offset


@pytest.mark.parametrize("version", range(5))
async def test_end_of_an_epoch_in_every_version(broker: Broker, version: int) -> None:
    found = -1 if version == 0 else 0
    assert epoch_end(broker, version, "t", 0) == (ErrorCode.NONE, found, 10)
    assert epoch_end(broker, version, "t", 5) == (ErrorCode.NONE, -1, -1)
    assert epoch_end(broker, version, "u", 0) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


async def test_end_of_an_epoch_is_fenced_since_version_2(broker: Broker) -> None:
    assert epoch_end(broker, 2, "t", 0, current=1) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert epoch_end(broker, 2, "t", 0, current=0) == (ErrorCode.NONE, 0, 10)


async def test_producers_of_a_partition(broker: Broker) -> None:
    request = DescribeProducersRequest(
        topics=[
            TopicRequest(name="t", partition_indexes=[0, 1, 2]),
            TopicRequest(name="a b", partition_indexes=[0]),
        ]
    )
    response = ask(broker, describe_producers, ApiKey.DESCRIBE_PRODUCERS, 0, request)
    partitions = [partition for topic in response.topics for partition in topic.partitions]
    assert [partition.error_code for partition in partitions] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    (producer,) = partitions[0].active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 3, 9)
    assert (producer.last_timestamp, producer.coordinator_epoch) == (TIMESTAMP, -1)
    assert producer.current_txn_start_offset == -1
    assert partitions[1].active_producers == []
