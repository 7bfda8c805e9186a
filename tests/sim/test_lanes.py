"""Work on lanes: checkpoints leave the loop alone, a stop waits for them, what finds no handle or room comes back."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.storage.logs import batch

from barnabas.common.steps import run_to_end
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server import broker as server_module
from barnabas.server.replication import group_commit
from barnabas.server.replication.partition import Partition
from barnabas.simulation.loop import SimLoop, leave
from barnabas.simulation.machines import SimWork, World
from barnabas.storage.log_dir import CLEAN_SHUTDOWN_FILE, HIGH_WATERMARK_CHECKPOINT, LogDir

TP = TopicPartition("t", 0)
WATERMARKS = f"/data/{HIGH_WATERMARK_CHECKPOINT}"
SETTINGS = {"replica.high.watermark.checkpoint.interval.ms": "1000", "offsets.topic.num.partitions": "1"}


@pytest.fixture
def world() -> Iterator[World]:
    loop = SimLoop(random.Random(1))
    yield World(loop, 1, SETTINGS)
    leave(loop)


def run(world: World, work: Any) -> Any:
    return world.loop.run_until_complete(work)


def wait_until(world: World, holds: Callable[[], bool], seconds: float = 20.0) -> None:
    """Let virtual time pass until something holds."""

    async def wait() -> None:
        deadline = world.loop.time() + seconds
        while not holds():
            assert world.loop.time() < deadline, "it never came true"
            await asyncio.sleep(0.01)

    run(world, wait())


def start(world: World, partitions: int = 1) -> list[Partition]:
    run(world, world.broker.start())
    server = world.broker.server
    assert server is not None
    run(world, world.spawn(world.broker.node, server.create_topic("t", partitions, {})))
    found = [server.state.replica_manager.get_partition("t", index) for index in range(partitions)]
    return [partition for partition in found if partition is not None]


def append(world: World, partition: Partition) -> None:
    partition.log.append_as_leader(batch(), leader_epoch=0)
    server = world.broker.server
    assert server is not None
    server.state.replica_manager.group_commit.request(partition)
    wait_until(world, lambda: partition.log.recovery_point == partition.log.log_end_offset)
    partition.log.update_high_watermark(partition.log.log_end_offset)


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """Each write of the high watermarks and of the marker, and whether it was a lane's job."""
    found: list[tuple[str, bool]] = []
    on_lane = False
    execute, checkpoint, marker = SimWork._execute, LogDir.write_checkpoint, LogDir.write_clean_shutdown_marker

    def execute_on_lane(work: SimWork, *arguments: Any) -> None:
        nonlocal on_lane
        on_lane = True
        try:
            execute(work, *arguments)
        finally:
            on_lane = False

    def note_checkpoint(log_dir: LogDir, name: str, offsets: Any, moment: int) -> None:
        if name == HIGH_WATERMARK_CHECKPOINT and offsets != log_dir.offsets[name]:
            found.append((str(offsets.get(TP)), on_lane))
        checkpoint(log_dir, name, offsets, moment)

    def note_marker(log_dir: LogDir, broker_epoch: int = -1) -> None:
        found.append(("marker", on_lane))
        marker(log_dir, broker_epoch)

    monkeypatch.setattr(SimWork, "_execute", execute_on_lane)
    monkeypatch.setattr(LogDir, "write_checkpoint", note_checkpoint)
    monkeypatch.setattr(LogDir, "write_clean_shutdown_marker", note_marker)
    return found


def test_high_watermarks_are_written_by_the_lane(world: World, writes: list[tuple[str, bool]]) -> None:
    (partition,) = start(world)
    append(world, partition)
    wait_until(world, lambda: ("1", True) in writes)
    run(world, world.broker.stop())
    assert all(on_lane for _, on_lane in writes)
    assert writes[-1] == ("marker", True)


def test_a_stop_waits_for_a_checkpoint_in_flight(world: World, writes: list[tuple[str, bool]]) -> None:
    (partition,) = start(world)
    append(world, partition)
    wait_until(world, lambda: ("1", True) in writes)
    append(world, partition)
    world.delays.usual = 5.0
    server = world.broker.server
    assert server is not None
    (task,) = run_to_end(server.state.log_manager.checkpoint_steps("replication-offset-checkpoint"))
    server._ports.work.submit(task.lane, task, lambda *_: None)
    partition.log.append_as_leader(batch(), leader_epoch=0)
    partition.log.update_high_watermark(3)
    run(world, world.broker.stop())
    assert [what for what, _ in writes][-3:] == ["2", "3", "marker"]
    assert world.broker.disk.read_bytes(WATERMARKS) == b"0\n1\nt 0 3\n"
    assert world.broker.disk.exists(f"/data/{CLEAN_SHUTDOWN_FILE}")


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOSPC])
def test_a_flush_without_handles_or_room_comes_back(world: World, number: int) -> None:
    (partition,) = start(world)
    fault = world.broker.disk.fail("open", number, "leader-epoch-checkpoint.tmp", times=2)
    begin = world.loop.time()
    append(world, partition)
    assert fault.times == 0
    assert world.loop.time() - begin >= 2 * group_commit.RETRY_SECONDS
    assert not partition.is_offline
    run(world, world.broker.stop())
    assert world.broker.disk.exists(f"/data/{CLEAN_SHUTDOWN_FILE}")


@pytest.mark.parametrize(("number", "goes_offline"), [(errno.EMFILE, False), (errno.ENOSPC, False), (errno.EIO, True)])
def test_a_flush_that_cannot_begin_is_tried_again_or_ends_the_directory(
    world: World, number: int, *, goes_offline: bool
) -> None:
    partition, other = start(world, 2)
    for index in range(2):
        partition.log.append_as_leader(batch(), leader_epoch=index)
        partition.log.roll()
    fault = world.broker.disk.fail("open", number, "t-0/00000000000000000000.index", times=1)
    partition.log.segments[0].close_handles()
    partition.log.segments[0].indexes.offset._has_content = True
    server = world.broker.server
    assert server is not None
    server.state.replica_manager.group_commit.request(partition)
    if goes_offline:
        wait_until(world, lambda: partition.is_offline and other.is_offline)
        assert server.failed.is_set()
    else:
        wait_until(world, lambda: partition.log.recovery_point == 2)
        append(world, other)
    assert fault.times == 0
    assert not server.state.replica_manager.group_commit._busy


def test_a_round_takes_a_bounded_number_of_partitions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = []
    run_together = group_commit.run_together

    def count(tasks: Any) -> None:
        rounds.append(len(tasks))
        run_together(tasks)

    monkeypatch.setattr(group_commit, "PARTITIONS_PER_FLUSH", 3)
    monkeypatch.setattr(group_commit, "run_together", count)
    partitions = start(world, 8)
    server = world.broker.server
    assert server is not None
    rounds.clear()
    for partition in partitions:
        partition.log.append_as_leader(batch(), leader_epoch=0)
        server.state.replica_manager.group_commit.request(partition)
    wait_until(world, lambda: all(partition.log.recovery_point == 1 for partition in partitions))
    assert rounds == [3, 3, 2]


def test_who_may_linger_shares_a_round_with_those_who_come_after(world: World) -> None:
    first, second, third, urgent = start(world, 4)
    server = world.broker.server
    assert server is not None
    flushes = server.state.replica_manager.group_commit

    def write(partition: Partition, *, may_linger: bool) -> None:
        partition.log.append_as_leader(batch(), leader_epoch=0)
        flushes.request(partition, may_linger=may_linger)

    begin = world.loop.time()
    write(first, may_linger=True)
    wait_until(world, lambda: first.log.recovery_point == 1)
    assert world.loop.time() - begin < group_commit.LINGER_S, "nobody has flushed lately"
    write(first, may_linger=True)
    write(second, may_linger=True)
    write(third, may_linger=True)
    write(urgent, may_linger=False)
    write(third, may_linger=False)
    wait_until(world, lambda: urgent.log.recovery_point == third.log.recovery_point - 1 == 1)
    assert world.loop.time() - begin < group_commit.LINGER_S, "who may not linger does not wait"
    assert (first.log.recovery_point, second.log.recovery_point) == (1, 0)
    wait_until(world, lambda: first.log.recovery_point == 2 and second.log.recovery_point == 1)
    assert world.loop.time() - begin >= group_commit.LINGER_S


def test_a_stop_waits_for_those_who_linger(world: World) -> None:
    first, second = start(world, 2)
    server = world.broker.server
    assert server is not None
    for partition in (first, second):
        partition.log.append_as_leader(batch(), leader_epoch=0)
        server.state.replica_manager.group_commit.request(partition, may_linger=True)
    run(world, server.state.replica_manager.finish_flushes())
    assert second.log.recovery_point == 1


def test_a_stop_waits_for_a_round_however_long_the_disk_takes(world: World) -> None:
    (partition,) = start(world)
    append(world, partition)
    partition.log.append_as_leader(batch(), leader_epoch=0)
    server = world.broker.server
    assert server is not None
    world.delays.slow_chance, world.delays.slow = 1.0, 1000 * group_commit.FINISH_SECONDS
    server.state.replica_manager.group_commit.request(partition)
    run(world, asyncio.sleep(0))
    world.delays.slow_chance = 0.0
    run(world, world.broker.stop())
    assert world.loop.time() > 3 * group_commit.FINISH_SECONDS, "the disk was quick enough"
    assert not server.state.log_manager.held.offline
    assert world.broker.disk.exists(f"/data/{CLEAN_SHUTDOWN_FILE}")


def test_no_file_stays_open_for_a_round_that_failed(world: World) -> None:
    (partition,) = start(world)
    append(world, partition)
    partition.log.append_as_leader(batch(), leader_epoch=0)
    server = world.broker.server
    assert server is not None
    world.broker.disk.fail("fdatasync", errno.EIO, "t-0", times=1)
    server.state.replica_manager.group_commit.request(partition)
    wait_until(world, lambda: partition.is_offline)
    run(world, asyncio.sleep(0))
    assert not partition.log._unsynced.is_in_use
    assert partition.log.active_segment.records._file is None


def test_a_topic_made_on_a_full_disk_gets_its_leader_when_there_is_room(world: World) -> None:
    start(world)
    server = world.broker.server
    assert server is not None
    fault = world.broker.disk.fail("open", errno.ENOSPC, "/new-0/", times=None)
    run(world, world.spawn(world.broker.node, server.create_topic("new", 1, {})))
    manager = server.state.replica_manager
    wait_until(world, lambda: world.loop.time() > 3 * server_module.REPLICA_RETRY_MS / 1000, 60)
    assert manager.get_partition("new", 0) is None
    world.broker.disk.faults.remove(fault)
    wait_until(world, lambda: manager.get_partition("new", 0) is not None, 60)
    assert manager.get_leader_partition("new", 0).is_leader
    state = server.state.metadata.partition(TopicPartition("new", 0))
    assert state is not None
    assert state.leader == server.state.broker_id
    run(world, world.broker.stop())


def test_a_deletion_without_handles_comes_back(world: World) -> None:
    start(world)
    server = world.broker.server
    assert server is not None
    run(world, world.spawn(world.broker.node, server.delete_topic("t")))
    fault = world.broker.disk.fail("fsync_dir", errno.EMFILE, "/data", times=1)
    wait_until(world, lambda: not any(name.startswith("t-0") for name in world.broker.disk.list_dir("/data")), 120)
    assert fault.times == 0
    assert server.state.log_manager.held.online_dirs
