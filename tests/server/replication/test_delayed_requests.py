"""Delayed fetches and produce requests of many partitions: each change is checked with its own partition only."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.replication.append_request import AppendResult
from barnabas.server.replication.delayed_fetch import AwaitedRead, DelayedFetch
from barnabas.server.replication.delayed_operation import DelayedOperationPurgatory
from barnabas.server.replication.delayed_produce import DelayedProduce
from barnabas.server.runtime.loop_sharing import SlicedWork
from barnabas.storage.log_values import FetchIsolation

PARTITIONS = 3000
OFFSET = 10


class FakePartition:
    """A partition with 100 bytes for each offset, which counts how often it was checked."""

    def __init__(self, number: int) -> None:
        self.topic_partition = TopicPartition("t", number)
        self.is_leader = True
        self.is_offline = False
        self.leader_epoch = 3
        self.committed = OFFSET
        self.checks = 0
        self.log: Any = SimpleNamespace(
            active_segment=SimpleNamespace(base_offset=0),
            log_start_offset=0,
            log_end_offset=OFFSET + 1000,
            bytes_between=lambda offset, bound: 100 * (bound - offset),
        )

    def read_bound(self, isolation: FetchIsolation) -> int:
        self.checks += 1
        return self.committed

    def check_enough_replicas_reach_offset(self, offset: int) -> tuple[bool, ErrorCode]:
        self.checks += 1
        return self.committed >= offset, ErrorCode.NONE


def purgatory() -> DelayedOperationPurgatory:
    loop = asyncio.get_running_loop()
    return DelayedOperationPurgatory("test", loop, SlicedWork(loop, time.perf_counter))


async def all_watched(waiting: DelayedOperationPurgatory, partitions: list[FakePartition]) -> None:
    while len(waiting.watchers) < len(partitions):
        await asyncio.sleep(0)
    for _ in range(3):  # the check after the last key
        await asyncio.sleep(0)


def parked_fetch(partitions: list[FakePartition], min_bytes: int, responses: list[str]) -> DelayedFetch:
    reads: dict[TopicPartition, Any] = {
        partition.topic_partition: AwaitedRead(partition, OFFSET, 1000, 3, is_led=True)  # type: ignore[arg-type]
        for partition in partitions
    }
    fetch = DelayedFetch(
        reads,
        min_bytes=min_bytes,
        isolation=FetchIsolation.HIGH_WATERMARK,
        respond=lambda: responses.append("responded"),
    )
    assert not fetch.try_complete()
    return fetch


async def test_a_change_of_each_partition_costs_a_fetch_one_check_each() -> None:
    partitions = [FakePartition(number) for number in range(PARTITIONS)]
    responses: list[str] = []
    fetch, waiting = parked_fetch(partitions, 1, responses), purgatory()
    waiting.watch(fetch, [partition.topic_partition for partition in partitions], 60_000)
    await all_watched(waiting, partitions)
    before = sum(partition.checks for partition in partitions)
    for partition in partitions:  # such as a change of its ISR
        waiting.check_and_complete(partition.topic_partition)
    assert sum(partition.checks for partition in partitions) - before == PARTITIONS
    assert responses == []
    partitions[-1].committed += 1
    waiting.check_and_complete(partitions[-1].topic_partition)
    assert responses == ["responded"]


async def test_the_bytes_of_partitions_that_changed_one_by_one_are_added() -> None:
    partitions = [FakePartition(number) for number in range(5)]
    responses: list[str] = []
    fetch, waiting = parked_fetch(partitions, 1500, responses), purgatory()
    waiting.watch(fetch, [partition.topic_partition for partition in partitions], 60_000)

    def change(number: int, committed: int) -> None:
        partitions[number].committed = OFFSET + committed
        waiting.check_and_complete(partitions[number].topic_partition)

    change(0, 5)
    change(1, 6)
    change(0, 5)  # the same bytes do not count twice
    change(2, 2)
    change(2, 1)  # the last stable offset of a follower may fall
    change(3, 2)
    assert responses == []
    change(4, 1)
    assert responses == ["responded"]


async def test_more_than_a_read_returns_does_not_count() -> None:
    partitions = [FakePartition(number) for number in range(2)]
    responses: list[str] = []
    fetch, waiting = parked_fetch(partitions, 1500, responses), purgatory()
    waiting.watch(fetch, [partition.topic_partition for partition in partitions], 60_000)
    for partition in partitions:
        assert responses == []
        partition.committed = OFFSET + 999
        waiting.check_and_complete(partition.topic_partition)
    assert responses == ["responded"]


async def test_a_partition_with_another_leader_completes_a_fetch_of_many() -> None:
    partitions = [FakePartition(number) for number in range(5)]
    responses: list[str] = []
    fetch, waiting = parked_fetch(partitions, 1500, responses), purgatory()
    waiting.watch(fetch, [partition.topic_partition for partition in partitions], 60_000)
    partitions[3].leader_epoch += 1
    waiting.check_and_complete(partitions[2].topic_partition)
    assert responses == []
    waiting.check_and_complete(partitions[3].topic_partition)
    assert responses == ["responded"]


async def test_a_change_of_each_partition_costs_a_produce_request_one_check_each() -> None:
    partitions = [FakePartition(number) for number in range(PARTITIONS)]
    responses: list[list[AppendResult]] = []
    appends: Any = {
        partition.topic_partition: [(partition, OFFSET + 1, number)] for number, partition in enumerate(partitions)
    }
    results: Any = [None] * PARTITIONS
    produce, waiting = DelayedProduce(appends, -1, results, responses.append), purgatory()
    waiting.watch(produce, appends, 60_000)
    await all_watched(waiting, partitions)
    before = sum(partition.checks for partition in partitions)
    for partition in partitions:
        assert not responses
        partition.committed = OFFSET + 1
        waiting.check_and_complete(partition.topic_partition)
    assert sum(partition.checks for partition in partitions) - before == PARTITIONS
    assert responses == [results]


async def test_two_appends_to_one_partition_are_decided_one_after_the_other() -> None:
    (partition,) = partitions = [FakePartition(0)]
    responses: list[list[AppendResult]] = []
    key = partition.topic_partition
    appends: Any = {key: [(partition, OFFSET + 1, 0), (partition, OFFSET + 2, 1)]}
    results: Any = [None, None]
    produce, waiting = DelayedProduce(appends, -1, results, responses.append), purgatory()
    waiting.watch(produce, appends, 60_000)
    for _ in range(2):
        assert not responses
        partitions[0].committed += 1
        waiting.check_and_complete(key)
    assert responses == [results]
