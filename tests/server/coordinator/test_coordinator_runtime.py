"""A coordinator's log and the shards made of it, for a coordinator that knows nothing of groups."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest
from tests.server.data_plane import DataPlane, play
from tests.server.partition_states import next_order

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.server.coordinator.coordinator_log import CoordinatorRecord
from barnabas.server.coordinator.coordinator_runtime import CoordinatorRuntime
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.replica import FollowerFetch, LeaderContext
from barnabas.simulation.disk import DiskFault
from barnabas.simulation.machines import WorkDelays

State = dict[bytes, bytes]
SLOW_DISK = WorkDelays(usual=1.0)
BOTH: dict[str, Any] = {"replicas": (1, 2), "isr": (1, 2)}


class Keeper:
    """Keeps values under keys in topic `t`, and notes what its shards go through."""

    def __init__(self, plane: DataPlane) -> None:
        self.plane = plane
        state = plane.state
        self.shards: CoordinatorRuntime[State] = CoordinatorRuntime(
            "t",
            replica_manager=state.replica_manager,
            metadata=state.metadata,
            controller=state.controller,
            now_ms=plane.now_ms,
            loop=plane.loop,
            new_state=dict,
            load=self._build,
            on_loaded=self._resume,
            on_unloaded=self._unload,
        )
        self.log = self.shards.coordinator_log
        self.resumed: list[State] = []
        self.unloaded: list[State] = []
        self.may_resume = asyncio.Event()
        self.may_resume.set()

    async def _build(self, partition: Partition) -> State:
        records = await self.log.load(partition)
        return dict(records.drain())

    async def _resume(self, state: State) -> None:
        self.resumed.append(state)
        await self.may_resume.wait()

    def _unload(self, state: State) -> None:
        self.unloaded.append(state)

    def append(self, *entries: CoordinatorRecord, index: int = 0, timeout_ms: int = 5000) -> asyncio.Future[ErrorCode]:
        outcome: asyncio.Future[ErrorCode] = self.plane.loop.create_future()
        self.log.append(index, entries, outcome.set_result, timeout_ms=timeout_ms)
        return outcome

    async def loaded(self, index: int = 0) -> State:
        self.shards.get_or_load_shard(index)
        await self.plane.until(lambda: not self.shards.is_loading)
        return self.shards.get_loaded_shard(index).state

    def lead_anew(self) -> None:
        """The partition's leader is this broker once more, in the next epoch."""
        partition = self.plane.partition()
        partition.become_leader(next_order(partition, partition.leader_epoch + 1))


def test_what_was_appended_is_there_in_the_next_epoch() -> None:
    async def talk(plane: DataPlane) -> None:
        keeper = Keeper(plane)
        assert await keeper.loaded() == {} and not keeper.resumed, "nothing has to be loaded"
        before = keeper.shards.get_loaded_shard(0)
        assert await keeper.append((b"a", b"1"), (b"b", b"1")) is ErrorCode.NONE
        assert await keeper.append((b"a", b"2"), (b"b", None), (b"c", b"3")) is ErrorCode.NONE
        assert keeper.shards.get_loaded_shard(0) is before
        keeper.lead_anew()
        with pytest.raises(KafkaError) as caught:
            keeper.shards.get_loaded_shard(0)
        assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await keeper.loaded() == {b"a": b"2", b"c": b"3"}
        assert keeper.unloaded == [before.state] and not before.is_loaded
        await keeper.shards.close()
        assert keeper.unloaded[-1] == {b"a": b"2", b"c": b"3"}
        with pytest.raises(KafkaError) as caught:
            keeper.shards.get_loaded_shard(0)
        assert caught.value.code is ErrorCode.NOT_COORDINATOR

    play(talk)


@pytest.mark.parametrize("how", ["another epoch", "another leader", "close"])
def test_what_is_given_up_while_it_resumes_is_unloaded(how: str) -> None:
    async def talk(plane: DataPlane) -> None:
        keeper = Keeper(plane)
        await keeper.append((b"a", b"1"))
        keeper.may_resume.clear()
        keeper.shards.get_or_load_shard(0)
        await plane.until(lambda: keeper.resumed)
        if how == "another leader":
            plane.partition().resign()
        elif how == "another epoch":
            keeper.lead_anew()
        if how == "close":
            await keeper.shards.close()
        else:
            keeper.shards.get_or_load_shard(0)
        keeper.may_resume.set()
        await plane.until(lambda: not keeper.shards.is_loading)
        assert sum(state is keeper.resumed[0] for state in keeper.unloaded) == 1
        if how == "another epoch":
            assert await keeper.loaded() == {b"a": b"1"}

    play(talk)


def test_a_partition_that_cannot_be_read_is_not_served() -> None:
    async def talk(plane: DataPlane) -> None:
        keeper = Keeper(plane)
        broken, sound = plane.partition(index=0).log, plane.partition(index=1).log
        assert broken.directory != sound.directory
        for index in (0, 1):
            await keeper.append((b"a", b"1"), index=index)
        plane.world.broker.disk.faults.append(DiskFault("pread", errno.EIO, path_contains=broken.path))
        keeper.shards.get_or_load_shard(0)
        assert await keeper.loaded(1) == {b"a": b"1"}
        with pytest.raises(KafkaError) as caught:
            keeper.shards.get_loaded_shard(0)
        assert caught.value.code is ErrorCode.NOT_COORDINATOR, "its log directory is offline"
        assert plane.partition(index=0).is_offline

    play(talk, settings={"log.dirs": "/data,/data2"})


def test_an_append_that_takes_long_is_told_once_and_its_outcome_later() -> None:
    async def talk(plane: DataPlane) -> None:
        keeper = Keeper(plane)
        told: list[object] = []
        assert keeper.log.append(
            0, [(b"a", b"1")], told.append, timeout_ms=100, on_overdue=lambda: told.append("overdue")
        )
        assert told == []
        await plane.until(lambda: len(told) == 2)
        assert told == ["overdue", ErrorCode.NONE]
        assert await keeper.append((b"b", b"1"), timeout_ms=100) is ErrorCode.REQUEST_TIMED_OUT
        assert not keeper.log.append(7, [(b"a", b"1")], told.append, timeout_ms=100)
        assert told[2:] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert keeper.log.append(7, [], told.append, timeout_ms=100) and told[3:] == [ErrorCode.NONE]

    play(talk, delays=SLOW_DISK)


def partition_with_others(plane: DataPlane) -> Partition:
    """From its next term on."""
    partition = plane.partition()
    partition._leader_context = LeaderContext(1, plane.loop.time, lambda: 10.0, lambda *_: True, lambda _: True)
    return partition


def test_what_is_loaded_is_served_once_it_is_committed() -> None:
    """It may be cut off with the log until then."""

    async def talk(plane: DataPlane) -> None:
        keeper, manager = Keeper(plane), plane.state.replica_manager
        await keeper.append((b"a", b"1"))
        partition = partition_with_others(plane)
        epoch = partition.leader_epoch
        manager.become_leader(next_order(partition, epoch + 1, **BOTH))
        keeper.append((b"a", b"2"))
        manager.become_leader(next_order(partition, epoch + 2, **BOTH))
        end = partition.log.log_end_offset
        shard = keeper.shards.get_or_load_shard(0)
        await plane.until(lambda: partition.durable_end_offset() == end)
        await asyncio.sleep(1)
        assert partition.log.high_watermark < end
        assert shard is not None and not shard.is_loaded and not keeper.resumed
        with pytest.raises(KafkaError) as caught:
            keeper.shards.get_loaded_shard(0)
        assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        partition.update_follower_fetch_state(FollowerFetch(2, -1, end, 0, knows_epoch=True))
        assert await keeper.loaded() == {b"a": b"2"}
        manager.become_leader(next_order(partition, epoch + 3, **BOTH))
        keeper.append((b"a", b"3"))
        manager.become_leader(next_order(partition, epoch + 4, replicas=(1, 2), isr=(1,)))
        assert await keeper.loaded() == {b"a": b"3"}, "nobody else is left who could lead"

    play(talk, settings={"min.insync.replicas": "2"})


def test_what_is_given_up_before_it_is_committed_is_not_waited_for() -> None:
    async def talk(plane: DataPlane) -> None:
        keeper, manager = Keeper(plane), plane.state.replica_manager
        partition = partition_with_others(plane)
        epoch = partition.leader_epoch
        manager.become_leader(next_order(partition, epoch + 1, **BOTH))
        keeper.append((b"a", b"1"))
        manager.become_leader(next_order(partition, epoch + 2, **BOTH))
        keeper.shards.get_or_load_shard(0)
        manager.become_follower(next_order(partition, epoch + 3, leader=2, **BOTH))
        await plane.until(lambda: not keeper.shards.is_loading)
        assert not keeper.resumed

    play(talk)


def test_a_shard_goes_and_comes_with_the_leadership() -> None:
    """Nobody has to ask for it."""

    async def talk(plane: DataPlane) -> None:
        keeper, manager = Keeper(plane), plane.state.replica_manager
        await keeper.append((b"a", b"1"))
        keeper.shards.start()
        await plane.until(lambda: not keeper.shards.is_loading)
        assert [shard.state for shard in keeper.shards] == [{b"a": b"1"}, {}]
        partition = plane.partition()
        epoch = partition.leader_epoch
        manager.become_follower(next_order(partition, epoch + 1, leader=2, replicas=(1, 2), isr=(1, 2)))
        assert keeper.unloaded == [{b"a": b"1"}]
        assert keeper.shards.find_shard(0) is None
        manager.become_leader(next_order(partition, epoch + 2, isr=(1,)))
        assert keeper.shards.find_shard(0) is not None
        await plane.until(lambda: not keeper.shards.is_loading)
        assert keeper.shards.get_loaded_shard(0).state == {b"a": b"1"}
        with pytest.raises(KafkaError) as caught:
            manager.become_follower(next_order(partition, epoch + 1, leader=2))
        assert caught.value.code is ErrorCode.STALE_CONTROLLER_EPOCH
        await keeper.shards.close()

    play(talk)
