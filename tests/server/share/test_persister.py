"""The persister: coordinators on this and other brokers, joined requests, retries, and the end of the broker."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from tests.server.coordinator.share.share_requests import (
    delete,
    delete_data,
    initialize,
    initialize_data,
    read,
    read_data,
    summary,
    summary_data,
    write,
    write_data,
)
from tests.waiting import until

from barnabas.protocol.errors import ConnectionLostError, ErrorCode, KafkaError
from barnabas.protocol.messages import write_share_group_state
from barnabas.protocol.messages.write_share_group_state import WriteShareGroupStateRequest, WriteShareGroupStateResponse
from barnabas.server.coordinator.coordinator_topic import partition_for
from barnabas.server.coordinator.share.share_coordinator import ShareCoordinator
from barnabas.server.coordinator.share.share_partition_key import SharePartitionKey
from barnabas.server.metadata.metadata_cache import MetadataCache
from barnabas.server.metadata.topic_names import SHARE_GROUP_STATE_TOPIC
from barnabas.server.share import persister as persister_module
from barnabas.server.share.persister import MAX_ATTEMPTS, Persister
from barnabas.testing import Cluster

TOPIC_ID = UUID(int=1)
NONE = ErrorCode.NONE
THIS, OTHER = 1, 2
STATE_PARTITIONS = 2


def results(response: Any) -> dict[int, ErrorCode]:
    return {one.partition: ErrorCode(one.error_code) for topic in response.results for one in topic.partitions}


def answered(request: WriteShareGroupStateRequest, *codes: ErrorCode) -> WriteShareGroupStateResponse:
    """A response with these codes in turn, then NONE."""
    left = list(codes)
    return WriteShareGroupStateResponse(
        results=[
            write_share_group_state.WriteStateResult(
                topic_id=topic.topic_id,
                partitions=[
                    write_share_group_state.PartitionResult(
                        partition=one.partition, error_code=left.pop(0) if left else NONE
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


class Brokers:
    """A coordinator on this broker and one on another, both of which answer as the test wants."""

    def __init__(self) -> None:
        self.leaders: dict[int, int] = {0: THIS, 1: OTHER}
        self.local: list[WriteShareGroupStateRequest] = []
        self.sent: list[WriteShareGroupStateRequest] = []
        self.answers: list[ErrorCode | Exception] = []
        """What becomes of the next requests, to either broker: an error of all partitions, or no response."""
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        coordinator = SimpleNamespace(
            partition_for=lambda key: partition_for(key.coordinator_key, STATE_PARTITIONS),
            find_coordinator=self._find,
            **dict.fromkeys(("initialize_state", "read_state", "delete_state", "read_state_summary")),
            write_state=self._write,
        )
        metadata = SimpleNamespace(
            partition=lambda place: SimpleNamespace(leader=self.leaders[place.partition]), brokers={THIS, OTHER}
        )
        self.persister = Persister(
            cast(ShareCoordinator, coordinator),
            cast(MetadataCache, metadata),
            asyncio.get_running_loop(),
            random.Random(1),
            broker_id=THIS,
            send=self._send,
        )

    async def _find(self, key: SharePartitionKey) -> int:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    async def _write(self, request: WriteShareGroupStateRequest) -> WriteShareGroupStateResponse:
        self.local.append(request)
        return self._answer(request)

    async def _send(self, broker_id: int, request: Any, *, lowest: int = 0, highest: int = 0) -> Any:
        assert broker_id == OTHER
        self.sent.append(request)
        await self.may_answer.wait()
        return self._answer(request)

    def _answer(self, request: WriteShareGroupStateRequest) -> WriteShareGroupStateResponse:
        answer = self.answers.pop(0) if self.answers else NONE
        if isinstance(answer, Exception):
            raise answer
        return answered(request, *[answer] * sum(len(topic.partitions) for topic in request.topics))


@pytest.fixture
async def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    monkeypatch.setattr(persister_module, "REQUEST_BACKOFF_MS", 1)
    monkeypatch.setattr(persister_module, "REQUEST_BACKOFF_MAX_MS", 2)
    return Brokers()


def partitions_of(broker: int, count: int, group_id: str = "g") -> list[int]:
    """Partitions that the broker coordinates."""
    wanted = broker - THIS
    found = (
        index
        for index in range(1000)
        if partition_for(SharePartitionKey(group_id, TOPIC_ID, index).coordinator_key, STATE_PARTITIONS) == wanted
    )
    return [next(found) for _ in range(count)]


def writing(*partitions: int, group_id: str = "g") -> WriteShareGroupStateRequest:
    return write(group_id, TOPIC_ID, *(write_data(partition=one) for one in partitions))


async def test_each_share_partition_is_sent_to_its_coordinator(brokers: Brokers) -> None:
    here, there = partitions_of(THIS, 2), partitions_of(OTHER, 2)
    wanted = [here[0], there[0], there[1], here[1]]
    response = await brokers.persister.write_state(writing(*wanted))
    assert list(results(response).items()) == [(one, NONE) for one in wanted]
    (local,), (sent,) = brokers.local, brokers.sent
    assert [one.partition for topic in local.topics for one in topic.partitions] == here
    assert [one.partition for topic in sent.topics for one in topic.partitions] == there


async def test_requests_of_one_group_that_wait_are_sent_together(brokers: Brokers) -> None:
    brokers.may_answer.clear()
    first, *others = partitions_of(OTHER, 5)
    stranger = partitions_of(OTHER, 1, "h")
    tasks = [asyncio.ensure_future(brokers.persister.write_state(writing(first)))]
    await until(lambda: len(brokers.sent) == 1, "the first request is sent")
    later = [*others, others[0]]
    tasks += [asyncio.ensure_future(brokers.persister.write_state(writing(one))) for one in later]
    tasks.append(asyncio.ensure_future(brokers.persister.write_state(writing(*stranger, group_id="h"))))
    await asyncio.sleep(0)
    brokers.may_answer.set()
    assert all(set(results(one).values()) == {NONE} for one in await asyncio.gather(*tasks))
    sent = [
        (one.group_id, [data.partition for topic in one.topics for data in topic.partitions]) for one in brokers.sent
    ]
    # A share-partition is in a request once: its second write is sent with the next one.
    assert sent[:2] == [("g", [first]), ("g", others)]
    assert sorted(sent[2:]) == [("g", [others[0]]), ("h", stranger)]


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ConnectionLostError("lost"),
        KafkaError(ErrorCode.REQUEST_TIMED_OUT, "late"),
    ],
)
async def test_errors_of_a_moving_coordinator_are_retried(brokers: Brokers, error: ErrorCode | Exception) -> None:
    (there,) = partitions_of(OTHER, 1)
    brokers.answers = [error] * 3
    assert results(await brokers.persister.write_state(writing(there))) == {there: NONE}
    assert len(brokers.sent) == 4
    brokers.answers = [error] * (MAX_ATTEMPTS + 1)
    code = error.code if isinstance(error, KafkaError) else error
    assert results(await brokers.persister.write_state(writing(there))) == {there: code}
    assert len(brokers.answers) == 1


@pytest.mark.parametrize("broker", [THIS, OTHER])
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH),
        (ErrorCode.FENCED_STATE_EPOCH, ErrorCode.FENCED_STATE_EPOCH),
        (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST),
        (RuntimeError("unexpected"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_other_errors_are_not_retried(
    brokers: Brokers, broker: int, error: ErrorCode | Exception, expected: ErrorCode
) -> None:
    (partition,) = partitions_of(broker, 1)
    brokers.answers = [error]
    assert results(await brokers.persister.write_state(writing(partition))) == {partition: expected}
    assert len(brokers.local) + len(brokers.sent) == 1


async def test_a_retry_is_sent_to_the_new_coordinator(brokers: Brokers) -> None:
    (there,) = partitions_of(OTHER, 1)
    brokers.may_answer.clear()
    brokers.answers = [ErrorCode.NOT_COORDINATOR]
    task = asyncio.ensure_future(brokers.persister.write_state(writing(there)))
    await until(lambda: len(brokers.sent) == 1, "the request is sent")
    brokers.leaders[1] = THIS
    brokers.may_answer.set()
    assert results(await task) == {there: NONE}
    assert len(brokers.local) == 1


async def test_callers_do_not_wait_for_a_broker_that_stops(brokers: Brokers) -> None:
    brokers.may_answer.clear()
    tasks = [asyncio.ensure_future(brokers.persister.write_state(writing(one))) for one in partitions_of(OTHER, 3)]
    await until(lambda: len(brokers.sent) == 1, "the request is sent")
    await brokers.persister.close()
    found = [results(one) for one in await asyncio.wait_for(asyncio.gather(*tasks), 10)]
    assert {code for one in found for code in one.values()} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    (late,) = results(await brokers.persister.write_state(writing(0))).values()
    assert late is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_a_response_without_a_share_partition_is_an_error(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brokers, "_answer", lambda request: WriteShareGroupStateResponse())
    (there,) = partitions_of(OTHER, 1)
    assert results(await brokers.persister.write_state(writing(there))) == {there: ErrorCode.UNKNOWN_SERVER_ERROR}


SETTINGS = {"share.coordinator.state.topic.num.partitions": 6, "share.coordinator.state.topic.min.isr": 2}
PARTITIONS = 6


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(brokers=3, topics={"t": PARTITIONS}, config=SETTINGS) as running:
        yield running


def persister_of(cluster: Cluster, broker: int) -> Persister:
    return cluster.server(broker).state.persister


async def test_the_state_is_the_same_on_all_brokers_of_a_cluster(cluster: Cluster) -> None:
    topic_id = cluster.server(1).state.metadata.topic_id("t")
    assert topic_id is not None
    everything = range(PARTITIONS)
    initialized = await persister_of(cluster, 1).initialize_state(
        initialize("g", topic_id, *(initialize_data(one) for one in everything))
    )
    assert results(initialized) == dict.fromkeys(everything, NONE)
    for broker in cluster.brokers:
        data = [write_data((10 * broker, 10 * broker + 5, 2, 1), partition=one, start=0) for one in everything]
        assert results(await persister_of(cluster, broker).write_state(write("g", topic_id, *data))) == dict.fromkeys(
            everything, NONE
        )
    for broker in cluster.brokers:
        response = await persister_of(cluster, broker).read_state(
            read("g", topic_id, *(read_data(one) for one in everything))
        )
        for one in response.results[0].partitions:
            assert [(batch.first_offset, batch.last_offset) for batch in one.state_batches] == [
                (10 * other, 10 * other + 5) for other in cluster.brokers
            ]
    leaders = {cluster.leader(SHARE_GROUP_STATE_TOPIC, index) for index in range(6)}
    assert leaders == set(cluster.brokers), "the test has coordinators on all brokers"
    deleted = await persister_of(cluster, 2).delete_state(delete("g", topic_id, *map(delete_data, everything)))
    assert results(deleted) == dict.fromkeys(everything, NONE)
    found = await persister_of(cluster, 3).read_state_summary(summary("g", topic_id, *map(summary_data, everything)))
    assert {one.start_offset for one in found.results[0].partitions} == {-1}


async def test_writes_survive_the_moves_of_their_coordinators(cluster: Cluster) -> None:
    topic_id = cluster.server(1).state.metadata.topic_id("t")
    assert topic_id is not None
    await persister_of(cluster, 1).initialize_state(
        initialize("g", topic_id, *(initialize_data(one) for one in range(PARTITIONS)))
    )
    written = dict.fromkeys(range(PARTITIONS), 0)
    is_over = False

    async def keep_writing(index: int, broker: int) -> None:
        while not is_over:
            number = written[index]
            data = write_data((2 * number, 2 * number, 2, 1), partition=index, start=0)
            assert results(await persister_of(cluster, broker).write_state(write("g", topic_id, data))) == {index: NONE}
            written[index] += 1

    tasks = [asyncio.ensure_future(keep_writing(index, 1 + index % 3)) for index in range(PARTITIONS)]
    for _ in range(2):
        for index in range(6):
            before = dict(written)
            await cluster.amove_leader(SHARE_GROUP_STATE_TOPIC, index)
            await until(lambda: all(written[one] > before[one] for one in written), "all share-partitions are written")  # noqa: B023
    is_over = True
    await asyncio.wait_for(asyncio.gather(*tasks), 60)
    response = await persister_of(cluster, 2).read_state(
        read("g", topic_id, *(read_data(one, leader_epoch=1) for one in range(PARTITIONS)))
    )
    for one in response.results[0].partitions:
        assert [batch.first_offset for batch in one.state_batches] == [
            2 * number for number in range(written[one.partition])
        ]
