"""The state of share-partitions in a simulated cluster: nothing durable is lost, whichever broker fails when.

Each leader of a share-partition is a program that reads the state with a leader epoch of its own and then writes. A
later leader reads all writes that an earlier one got a response for, and an earlier one can no longer write.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from tests.server.coordinator.share.share_requests import (
    initialize,
    initialize_data,
    read,
    read_data,
    write,
    write_data,
)

from barnabas.clients.connection import BrokerConnection, ConnectionOptions
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.server.coordinator.coordinator_log import CoordinatorLog
from barnabas.server.coordinator.share.share_coordinator import ShareCoordinator
from barnabas.server.coordinator.share.share_coordinator_shard import OperationResult, Outcome, ShareCoordinatorShard
from barnabas.server.coordinator.share.share_partition_key import SharePartitionKey
from barnabas.server.runtime.loop_sharing import Steps
from barnabas.simulation import Simulation, SimulationError, simulate

SETTINGS = {
    "share.coordinator.state.topic.min.isr": 2,
    "share.coordinator.state.topic.num.partitions": 2,
    "share.coordinator.snapshot.update.records.per.snapshot": 5,
    "share.coordinator.state.topic.prune.interval.ms": 3000,
    "share.coordinator.cold.partition.snapshot.interval.ms": 4000,
}
RETRIED = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
LEADERS = 4
OFFSETS_OF_LEADER = 30
PARTITIONS = 3


class Client:
    """A client that finds the coordinator again for each attempt."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim

    async def _send(self, address: tuple[str, int], request: Any, version: int) -> Any:
        connection = await BrokerConnection.open(*address, ConnectionOptions("leader", 8000, 8000))
        try:
            return await connection.send(request, version)
        finally:
            connection.close()

    def _bootstrap(self) -> tuple[str, int]:
        host, _, port = self._sim.random.choice(self._sim.bootstrap.split(",")).rpartition(":")
        return host, int(port)

    async def topic_id(self) -> UUID:
        request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        while True:
            try:
                (topic,) = (await self._send(self._bootstrap(), request, 12)).topics
            except (KafkaError, OSError):
                await asyncio.sleep(0.5)
                continue
            if topic.error_code == 0:
                topic_id: UUID = topic.topic_id
                return topic_id

    async def ask(self, key: SharePartitionKey, request: Any, version: int = 0) -> Any:
        """The only partition of the response, once it has no retried error."""
        find = FindCoordinatorRequest(key_type=2, coordinator_keys=[key.coordinator_key])
        while True:
            try:
                (found,) = (await self._send(self._bootstrap(), find, 6)).coordinators
                if found.error_code == 0:
                    response = await self._send((found.host, found.port), request, version)
                    ((partition,),) = (topic.partitions for topic in response.results)
                    if partition.error_code not in RETRIED:
                        return partition
            except (KafkaError, OSError):
                pass
            await asyncio.sleep(self._sim.random.uniform(0.01, 0.5))


class SharePartition:
    """What the leaders of one share-partition know together."""

    def __init__(self, sim: Simulation, topic_id: UUID, index: int) -> None:
        self.sim = sim
        self.key = SharePartitionKey("g", topic_id, index)
        self.attempted: dict[int, int] = {}
        """The highest delivery count that was written for each offset, with a response or not."""
        self.durable: dict[int, int] = {}
        """The highest delivery count for which there was a response."""
        self.start = self.durable_start = 0
        self.fenced_before = 0
        """Leaders with lower epochs can not write."""
        self.last_epoch = 0
        """The highest leader epoch of a read, with a response or not."""
        self.is_over = False

    def check(self, state: Any, leader_epoch: int) -> None:
        assert state.error_code == ErrorCode.NONE, ErrorCode(state.error_code)
        assert self.durable_start <= state.start_offset <= self.start
        found = {
            offset: one.delivery_count
            for one in state.state_batches
            for offset in range(one.first_offset, one.last_offset + 1)
        }
        for offset, count in self.durable.items():
            if offset >= state.start_offset:
                assert found.get(offset, 0) >= count, (self.key.partition, leader_epoch, offset)
        for offset, count in found.items():
            assert offset >= state.start_offset
            assert count <= self.attempted.get(offset, 0), (self.key.partition, leader_epoch, offset)


async def lead(partition: SharePartition, leader_epoch: int) -> None:
    """One leader: reads the state, and writes until another one leads."""
    sim, key, client = partition.sim, partition.key, Client(partition.sim)
    request = read(key.group_id, key.topic_id, read_data(key.partition, leader_epoch=leader_epoch))
    partition.last_epoch = max(partition.last_epoch, leader_epoch)
    state = await client.ask(key, request)
    if state.error_code == ErrorCode.FENCED_LEADER_EPOCH:
        assert partition.last_epoch > leader_epoch
        return
    partition.check(state, leader_epoch)
    partition.fenced_before = max(partition.fenced_before, leader_epoch)
    for _ in range(OFFSETS_OF_LEADER):
        first = sim.random.randrange(partition.start, partition.start + 20)
        last, deliveries = first + sim.random.randrange(4), sim.random.randrange(1, 5)
        for offset in range(first, last + 1):
            partition.attempted[offset] = max(partition.attempted.get(offset, 0), deliveries)
        start = partition.start
        if sim.random.random() < 0.2:
            start = partition.start = start + sim.random.randrange(5)
        data = write_data((first, last, 2, deliveries), partition=key.partition, leader_epoch=leader_epoch, start=start)
        was_fenced = partition.fenced_before > leader_epoch
        result = await client.ask(key, write(key.group_id, key.topic_id, data), 1)
        if result.error_code == ErrorCode.FENCED_LEADER_EPOCH:
            return
        assert result.error_code == ErrorCode.NONE, ErrorCode(result.error_code)
        assert not was_fenced, f"leader {leader_epoch} wrote after leader {partition.fenced_before} had read"
        for offset in range(first, last + 1):
            partition.durable[offset] = max(partition.durable.get(offset, 0), deliveries)
        partition.durable_start = max(partition.durable_start, start)
        await asyncio.sleep(sim.random.uniform(0, 0.3))


async def leaders(partition: SharePartition) -> None:
    """Leaders of which each begins while the one before may still write."""
    tasks = []
    for leader_epoch in range(1, LEADERS + 1):
        tasks.append(asyncio.get_running_loop().create_task(lead(partition, leader_epoch)))
        await asyncio.sleep(partition.sim.random.uniform(1, 8))
    await asyncio.gather(*tasks)
    partition.is_over = True


def scenario(harm: Callable[[Simulation], Any]) -> Callable[[Simulation], Any]:
    async def play(sim: Simulation) -> None:
        await sim.cluster.create_topic("t", partitions=PARTITIONS)
        client = Client(sim)
        topic_id = await client.topic_id()
        partitions = [SharePartition(sim, topic_id, index) for index in range(PARTITIONS)]
        for partition in partitions:
            request = initialize("g", topic_id, initialize_data(partition.key.partition, state_epoch=0, start=0))
            assert (await client.ask(partition.key, request)).error_code == ErrorCode.NONE
        for partition in partitions:
            sim.program(f"leaders of {partition.key.partition}", leaders, partition)
        await harm(sim)
        await sim.until(lambda: all(one.is_over for one in partitions), 600, "that all leaders are over")
        for partition in partitions:
            last = read("g", topic_id, read_data(partition.key.partition, leader_epoch=LEADERS + 1))
            partition.check(await client.ask(partition.key, last), LEADERS + 1)

    return play


async def storm(sim: Simulation) -> None:
    await sim.faults.random(seconds=20)


async def coordinators_killed(sim: Simulation) -> None:
    """One broker after the other loses its power and comes back."""
    for broker in (1, 2, 3, 1):
        await asyncio.sleep(4)
        sim.faults.lose_power(broker)
        await asyncio.sleep(5)
        await sim.faults.start(broker)


@pytest.mark.verify
def test_nothing_durable_is_lost_when_coordinators_lose_their_power() -> None:
    simulate(scenario(coordinators_killed), seeds=3, config=SETTINGS)


@pytest.mark.verify
def test_nothing_durable_is_lost_in_a_storm() -> None:
    simulate(scenario(storm), seeds=5, config=SETTINGS)


@pytest.mark.verify
@pytest.mark.timeout(900)
def test_nothing_durable_is_lost_in_many_storms() -> None:
    simulate(scenario(storm), seeds=range(111, 115), config=SETTINGS)


def respond_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    append = ShareCoordinator._append

    def append_and_respond(self: ShareCoordinator, shard: Any, records: Any, encoded: Any, done: Any) -> None:
        append(self, shard, records, encoded, lambda _: None)
        done(ErrorCode.NONE)

    patch.setattr(ShareCoordinator, "_append", append_and_respond)


def lose_records_when_loading(patch: pytest.MonkeyPatch) -> None:
    replay = CoordinatorLog.replay

    async def replay_most(self: CoordinatorLog, partition: Any, take: Any) -> None:
        numbers = itertools.count(1)
        await replay(self, partition, lambda *record: take(*record) if next(numbers) % 10 else None)

    patch.setattr(CoordinatorLog, "replay", replay_most)


def prune_up_to_the_newest_snapshot(patch: pytest.MonkeyPatch) -> None:
    def newest(self: ShareCoordinatorShard) -> Steps[int]:
        return max((entry.snapshot_offset for entry in self.entries.values()), default=0)
        yield

    patch.setattr(ShareCoordinatorShard, "last_redundant_offset", newest)


def read_without_a_record(patch: pytest.MonkeyPatch) -> None:
    read_state = ShareCoordinatorShard.read_state

    def read_only(self: ShareCoordinatorShard, *arguments: Any, **options: Any) -> Outcome:
        outcome = read_state(self, *arguments, **options)
        return outcome._replace(records=[]) if isinstance(outcome, OperationResult) else outcome

    patch.setattr(ShareCoordinatorShard, "read_state", read_only)


@pytest.mark.verify
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "plant",
    [
        respond_before_the_commit,
        lose_records_when_loading,
        prune_up_to_the_newest_snapshot,
        read_without_a_record,
    ],
)
def test_bugs_that_are_planted_are_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(SimulationError):
        simulate(scenario(coordinators_killed), seeds=10, config=SETTINGS)
