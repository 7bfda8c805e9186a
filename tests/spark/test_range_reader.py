"""How a task reads its ranges where leaders answer what they seldom do: a client that says what it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from barnabas.arrow import host
from barnabas.arrow.client import BlockingClient, ClientSettings
from barnabas.arrow.data_loss import DataLossError
from barnabas.arrow.offset_range import OffsetRange
from barnabas.arrow.range_reader import RangeReader
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.protocol.record_batch import RecordBatchBuilder
from barnabas.protocol.special_timestamps import EARLIEST, EARLIEST_LOCAL
from barnabas.protocol.topic_partition import TopicPartition

TP = TopicPartition("t", 0)
Answer = tuple[ErrorCode, bytes]


class Clock:
    """Stands still but for pauses."""

    def __init__(self) -> None:
        self.now = 100.0

    def pause(self, seconds: float, interruption: object = None) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(host, "monotonic", lambda: clock.now)
    monkeypatch.setattr(host, "pause", clock.pause)
    return clock


class Leader:
    """The connection to the one broker; every Fetch gets the next answer, the last one again and again."""

    high_watermark = 100

    def __init__(self, answers: Iterator[Answer], clock: Clock, *, is_known: Callable[[], bool]) -> None:
        self._answers = answers
        self._clock = clock
        self._is_known = is_known
        self._asked: list[Any] = []

    def supports(self, api_key: ApiKey) -> bool:
        return True

    def version_for(self, api_key: ApiKey, **_: Any) -> int:
        return 11

    def send(self, request: Any, **_: Any) -> None:
        self._asked.append(request)

    def ask(self, request: Any, **_: Any) -> Any:
        assert isinstance(request, MetadataRequest)
        topic = MetadataResponseTopic(name="t", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if self._is_known():
            partition = MetadataResponsePartition(partition_index=0, leader_id=1, leader_epoch=1)
            topic = MetadataResponseTopic(name="t", partitions=[partition])
        return MetadataResponse(brokers=[MetadataResponseBroker(node_id=1, host="h", port=1)], topics=[topic])

    def receive(self, *, wait_ms: int = 0) -> FetchResponse:
        assert isinstance(self._asked.pop(0), FetchRequest)
        code, records = next(self._answers)
        if not records:
            self._clock.pause(wait_ms / 1000)
        data = PartitionData(partition_index=0, error_code=code, high_watermark=self.high_watermark, records=records)
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])

    def close(self) -> None:
        """What is in flight is lost."""
        self._asked.clear()


def batch(first: int, count: int) -> bytes:
    builder = RecordBatchBuilder(base_offset=first)
    for offset in range(first, first + count):
        builder.append(b"k", b"v", (), 1000, offset)
    return builder.build()


def reading(
    monkeypatch: pytest.MonkeyPatch,
    clock: Clock,
    answers: list[Answer],
    *,
    offsets: Mapping[int, int] | None = None,
    is_known: Callable[[], bool] = lambda: True,
    fails: bool = True,
) -> Iterator[int]:
    """The offsets of 0 to 99 that are read."""

    def given() -> Iterator[Answer]:
        yield from answers
        while True:
            yield answers[-1]

    leader = Leader(given(), clock, is_known=is_known)
    client = BlockingClient(ClientSettings("h:1", {}))
    monkeypatch.setattr(client, "_open", lambda address: leader)
    monkeypatch.setattr(client, "any_connection", lambda: leader)
    places = {EARLIEST: 0, EARLIEST_LOCAL: 0, **(offsets or {})}
    monkeypatch.setattr(client, "find_offsets", lambda asked: {tp: places[time] for tp, time in asked.items()})
    monkeypatch.setattr(client, "close", leader.close)
    reader = RangeReader(client, fail_on_data_loss=fails, poll_timeout_ms=10_000, headers=False)
    for table in reader.read(OffsetRange(TP, 0, 100)):
        yield from table.offsets.tolist()


def test_the_end_of_a_log_may_be_a_gap(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    found = reading(monkeypatch, clock, [(ErrorCode.NONE, batch(0, 10)), (ErrorCode.NONE, b"")])
    assert list(found) == [*range(10)]


def test_what_lies_in_remote_storage_and_is_slow_to_come_is_no_gap(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """Kafka's leader answers without records when its remote storage has not in time; that is an answer like others."""
    slow = [(ErrorCode.NONE, b"")] * 5
    answers = [(ErrorCode.NONE, batch(0, 10)), *slow, (ErrorCode.NONE, batch(10, 90))]
    found = reading(monkeypatch, clock, answers, offsets={EARLIEST_LOCAL: 100})
    assert list(found) == [*range(100)]
    with pytest.raises(KafkaError, match="no records of t-0 from offset 0"):
        list(reading(monkeypatch, clock, slow, offsets={EARLIEST_LOCAL: 100}))


def test_who_takes_long_with_the_records_has_as_long_for_the_next(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    answers = [(ErrorCode.NONE, batch(0, 10)), (ErrorCode.NONE, b""), (ErrorCode.NONE, batch(10, 90))]
    found = []
    for offset in reading(monkeypatch, clock, answers):
        clock.pause(60)
        found.append(offset)
    assert found == [*range(100)]


def test_a_broker_that_has_just_started_knows_no_topics_yet(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    begin = clock.now
    answers = [
        (ErrorCode.NONE, batch(0, 10)),
        *[(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, b"")] * 2,
        (ErrorCode.NONE, batch(10, 90)),
    ]
    first = True

    def is_known() -> bool:
        nonlocal first
        was, first = first, False
        return was or clock.now > begin + 1

    found = reading(monkeypatch, clock, answers, is_known=is_known)
    assert list(found) == [*range(100)]


def test_a_topic_that_stays_away_is_gone(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    answers = [(ErrorCode.NONE, batch(0, 10)), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, b"")]
    knows = iter([True])
    with pytest.raises(DataLossError, match="topic 't' was deleted"):
        list(reading(monkeypatch, clock, answers, is_known=lambda: next(knows, False)))


def test_records_of_a_topic_that_brokers_do_not_know_for_a_while_are_not_skipped(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """Where data loss does not end the query, nothing would read them later."""
    begin = clock.now

    def is_known() -> bool:
        return clock.now == begin or clock.now > begin + 4.8

    answers = [(ErrorCode.NONE, batch(0, 10)), *[(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, b"")] * 2]
    found = reading(monkeypatch, clock, [*answers, (ErrorCode.NONE, batch(10, 90))], is_known=is_known, fails=False)
    assert list(found) == [*range(100)]
    knows = iter([True])
    gone = reading(monkeypatch, clock, answers, is_known=lambda: next(knows, False), fails=False)
    assert list(gone) == [*range(10)]


def test_a_log_that_was_cut_is_data_loss(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """It may have been cut after the end of the range was found; the leader has the whole timeout to catch up."""
    monkeypatch.setattr(Leader, "high_watermark", 10)
    answers = [(ErrorCode.NONE, batch(0, 10)), (ErrorCode.NONE, b"")]
    began = clock.now
    assert list(reading(monkeypatch, clock, answers, fails=False)) == [*range(10)]
    assert clock.now - began > 10
    with pytest.raises(DataLossError, match="t-0: the log ends at offset 10, before 100"):
        list(reading(monkeypatch, clock, answers))
