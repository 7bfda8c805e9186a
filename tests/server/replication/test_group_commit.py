"""Rounds of flushes: who is told of one in which turn of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from barnabas.server.replication.group_commit import FINISH_SECONDS, NOTIFY_SECONDS_PER_TURN, GroupCommit
from barnabas.server.replication.partition import Partition
from barnabas.server.runtime.ports import Ports
from barnabas.simulation.loop import SimLoop, run


def fail(error: BaseException) -> None:
    pytest.fail(str(error))


@dataclass
class Clock:
    """A stopwatch that stands still but for the work that is said to take time."""

    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


@dataclass
class FakeFlush:
    has_only_files: bool = True
    files: tuple[()] = ()
    failure: None = None


@dataclass(eq=False)
class FakeLog:
    directory: str = "d"
    completed: list[FakeFlush] = field(default_factory=list)

    def begin_flush(self) -> FakeFlush:
        return FakeFlush()

    def complete_flush(self, flush: FakeFlush) -> int:
        self.completed.append(flush)
        return 1


@dataclass(eq=False)
class FakePartition:
    """Notes when it is told, which takes its clients so long to be answered."""

    name: str
    diary: list[str]
    clock: Clock
    seconds: float
    is_offline: bool = False
    log: FakeLog = field(default_factory=FakeLog)

    def on_flushed(self, offset: int) -> None:
        self.diary.append(self.name)
        self.clock.seconds += self.seconds


class InstantWork:
    """Syncs that are done as soon as they are asked for."""

    def sync(self, lane: str, files: object, done: Callable[[None, None], None]) -> None:
        asyncio.get_running_loop().call_soon(done, None, None)


@dataclass
class FakePorts:
    stopwatch: Clock
    log_files: int | None = None
    work: InstantWork = field(default_factory=InstantWork)

    def fault(self, name: str) -> bool:
        return False


@pytest.mark.parametrize(
    ("seconds", "may_linger", "turns"),
    [(0.0, False, ["abcdef"]), (NOTIFY_SECONDS_PER_TURN / 2, False, ["ab", "cd", "ef"]), (0.0, True, ["a", "bcdef"])],
    ids=["who takes no time", "who takes long", "where many wait"],
)
def test_a_turn_tells_as_many_as_it_has_time_for(seconds: float, may_linger: bool, turns: list[str]) -> None:
    async def main(loop: SimLoop) -> None:
        clock, diary = Clock(), list[str]()
        commit = GroupCommit(
            cast(Ports, FakePorts(clock)),
            loop,
            lambda _, error: pytest.fail(str(error)),
            lambda error: pytest.fail(str(error)),
        )
        for name in "abcdef":
            partition: Any = FakePartition(name, diary, clock, seconds)
            commit.request(cast(Partition, partition), may_linger=may_linger and name == "a")
        told: list[str] = []
        while sum(map(len, told)) < len("abcdef"):
            before = len(diary)
            await asyncio.sleep(0)
            told.append("".join(diary[before:]))
        assert [names for names in told if names] == turns
        await commit.finish()

    run(main, seed=1)


def test_a_log_that_moved_away_during_a_round_gets_its_files_back() -> None:
    async def main(loop: SimLoop) -> None:
        clock, diary = Clock(), list[str]()
        commit = GroupCommit(
            cast(Ports, FakePorts(clock)),
            loop,
            lambda _, error: pytest.fail(str(error)),
            lambda error: pytest.fail(str(error)),
        )
        partition = FakePartition("a", diary, clock, 0.0)
        log = partition.log
        commit.request(cast(Partition, cast(Any, partition)))
        await asyncio.sleep(0)
        partition.log = FakeLog("other")
        await commit.finish()
        assert len(log.completed) == 1, "it keeps files open for as long as a flush is under way"
        assert not diary, "what was synced is not the log that it has now"

    run(main, seed=1)


def test_a_partition_that_moved_before_its_round_is_synced_on_its_own_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    lanes: list[str] = []
    sync = InstantWork.sync

    def noted(work: InstantWork, lane: str, files: object, done: Callable[[None, None], None]) -> None:
        lanes.append(lane)
        sync(work, lane, files, done)

    monkeypatch.setattr(InstantWork, "sync", noted)

    async def main(loop: SimLoop) -> None:
        clock, diary = Clock(), list[str]()
        commit = GroupCommit(
            cast(Ports, FakePorts(clock)),
            loop,
            lambda _, error: pytest.fail(str(error)),
            lambda error: pytest.fail(str(error)),
        )
        partition = FakePartition("a", diary, clock, 0.0)
        commit.request(cast(Partition, cast(Any, partition)))
        partition.log = FakeLog("other")
        await commit.finish()
        assert (lanes, diary) == (["other"], ["a"])

    run(main, seed=1)


def test_the_end_waits_for_a_round_and_begins_none(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Callable[[None, None], None]] = []
    monkeypatch.setattr(InstantWork, "sync", lambda *arguments: told.append(arguments[-1]))

    async def main(loop: SimLoop) -> None:
        clock, diary = Clock(), list[str]()
        commit = GroupCommit(
            cast(Ports, FakePorts(clock)),
            loop,
            lambda _, error: pytest.fail(str(error)),
            lambda error: pytest.fail(str(error)),
        )
        first, second = (cast(Any, FakePartition(name, diary, clock, 0.0)) for name in "ab")
        commit.request(first)
        await asyncio.sleep(0)
        commit.request(second)
        ending = asyncio.ensure_future(commit.end())
        await asyncio.sleep(10 * FINISH_SECONDS)
        assert not ending.done()
        told.pop()(None, None)
        await ending
        assert diary == ["a"]
        assert not told

    run(main, seed=1)
