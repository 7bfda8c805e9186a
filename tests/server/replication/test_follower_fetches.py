"""Fetches of followers at the leader of two partitions: when their offsets are applied, and which records they get."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from uuid import UUID

import pytest
from tests.server.data_plane import batch
from tests.server.partition_states import next_order
from tests.server.replication.replicas import bare_replica_manager
from tests.storage.logs import open_log

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.fetch import FetchPartition
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.replication.append_request import AppendRequest
from barnabas.server.replication.delayed_fetch import FetchedPartition, FetchParams, FetchResult
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.replica import FollowerFetch, LeaderContext, Replica
from barnabas.server.runtime.loop_sharing import SlicedWork
from barnabas.simulation.disk import SimDisk
from barnabas.storage.leader_epochs import EpochEnd
from barnabas.storage.log_validator import CLIENT_RULES
from barnabas.storage.log_values import FetchIsolation

LEADER_EPOCH = 3
REPLICAS = (1, 2, 3)
ALWAYS_ELIGIBLE = LeaderContext(1, lambda: 0.0, lambda: 10.0, lambda *_: True, lambda _: True)


class Leader:
    """A ReplicaManager that leads t-0 and t-1 with two followers in sync."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.manager = bare_replica_manager(loop, sliced_work=SlicedWork(loop, time.perf_counter))
        self.partitions = [self._lead(0), self._lead(1)]

    def _lead(self, number: int) -> Partition:
        disk, folder = SimDisk(), f"/data/t-{number}"
        disk.make_dirs(folder)
        log = open_log(folder, fs=disk)
        name = TopicPartition("t", number)
        partition = Partition(name, UUID(int=1), log, self.manager, ALWAYS_ELIGIBLE)
        partition.become_leader(next_order(partition, LEADER_EPOCH, replicas=REPLICAS, isr=REPLICAS))
        self.manager._add_partition(partition)
        return partition

    def replica(self, number: int, follower: int) -> Replica:
        followers = self.partitions[number].followers
        assert followers is not None
        return followers.replicas[follower]

    def append(self, number: int, callback: Any = print) -> None:
        records = memoryview(bytearray(batch(b"v")))
        self.manager.append_records([("t", number, records)], AppendRequest(-1, 60_000, callback, CLIENT_RULES))

    def fetch(self, follower: int, offsets: tuple[int, int], **fields: Any) -> list[FetchResult]:
        fields = {"current_leader_epoch": LEADER_EPOCH, "last_fetched_epoch": -1, **fields}
        wanted = [
            ("t", FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20, **fields))
            for number, offset in enumerate(offsets)
        ]
        params = FetchParams(wanted, 0, 1, 1 << 20, FetchIsolation.LOG_END, follower=follower)
        results: list[FetchResult] = []
        self.manager.fetch_records(params, results.extend)
        return results


def has_records(result: FetchResult) -> bool:
    assert isinstance(result, FetchedPartition)
    return len(result.records) > 0


async def test_a_fetch_returns_records_that_are_appended_because_of_its_own_offsets() -> None:
    """The fetch acknowledges a record of t-1, and the producer's next request is for t-0, which is read first."""
    leader = Leader()
    leader.append(1, lambda _: leader.append(0))
    leader.fetch(3, (0, 1))
    assert leader.partitions[0].log_end_offset == 0, "a follower in sync does not have the record"
    assert [has_records(one) for one in leader.fetch(2, (0, 1))] == [True, False]
    assert leader.partitions[1].high_watermark == 1


async def test_each_offset_of_a_fetch_is_applied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = Leader()
    leader.append(0)
    applied: list[FollowerFetch] = []
    update = Partition.update_follower_fetch_state

    def count(partition: Partition, fetch: FollowerFetch) -> Replica:
        applied.append(fetch)
        return update(partition, fetch)

    monkeypatch.setattr(Partition, "update_follower_fetch_state", count)
    for offsets in ((0, 0), (1, 0), (1, 0)):
        applied.clear()
        leader.fetch(2, offsets)
        assert sorted(one.offset for one in applied) == sorted(offsets)
        assert leader.replica(0, 2).log_end_offset == offsets[0]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"current_leader_epoch": LEADER_EPOCH - 1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"current_leader_epoch": LEADER_EPOCH + 1}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"last_fetched_epoch": LEADER_EPOCH + 1}, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
async def test_the_offset_of_a_fetch_in_another_epoch_is_not_applied(fields: dict[str, Any], error: ErrorCode) -> None:
    leader = Leader()
    leader.append(0)
    leader.fetch(2, (0, 0))
    result = leader.fetch(2, (1, 0), **fields)[0]
    assert isinstance(result, KafkaError)
    assert result.code is error
    assert leader.replica(0, 2).log_end_offset == 0


async def test_the_offset_of_a_follower_with_other_records_is_not_applied() -> None:
    leader = Leader()
    leader.append(0)
    leader.fetch(2, (0, 0))
    partition = leader.partitions[0]
    partition.become_leader(next_order(partition, LEADER_EPOCH + 1, replicas=REPLICAS, isr=REPLICAS))
    leader.append(0)
    result = leader.fetch(2, (2, 0), current_leader_epoch=-1, last_fetched_epoch=LEADER_EPOCH)[0]
    assert isinstance(result, FetchedPartition)
    assert result.diverging_epoch == EpochEnd(LEADER_EPOCH, 1)
    assert leader.replica(0, 2).log_end_offset == 0


@pytest.mark.parametrize("offset", [-1, 2])
async def test_an_offset_outside_of_the_log_is_not_applied(offset: int) -> None:
    leader = Leader()
    leader.append(0)
    leader.fetch(2, (0, 0))
    result = leader.fetch(2, (offset, 0))[0]
    assert isinstance(result, KafkaError)
    assert result.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert leader.replica(0, 2).log_end_offset == 0


async def test_a_broker_without_a_replica_gets_an_error_for_its_partition() -> None:
    leader = Leader()
    leader.append(0)
    assert all(isinstance(result, KafkaError) for result in leader.fetch(4, (1, 0)))
