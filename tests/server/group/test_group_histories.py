"""Groups under virtual time and bad luck: members join, leave, crash, fall asleep and come back; the broker dies.

What must hold whatever happens: a partition has one owner in a generation; what was committed is never older later
on; and when calm returns the group gets to one generation in which every partition is somebody's.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from contextlib import suppress

import pytest
from tests.server.group.members import GROUP, QUICK, Cluster, Member
from tests.sim.loop import SimLoop, run
from tests.sim.network import NetworkFaults
from tests.sim.world import WorkDelays, World

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from barnabas.server.group.states import GroupState

PARTITIONS = 4
CALM_S = 150.0
RETRIABLE = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


class History:
    """What members and onlookers have seen, checked as it comes."""

    def __init__(self) -> None:
        self.owners: dict[tuple[int, int], str] = {}
        """(generation, partition) -> member id."""
        self.acknowledged = [-1] * PARTITIONS
        self.rebalances = 0

    def owns(self, generation: int, member_id: str, partitions: list[int]) -> None:
        self.rebalances = max(self.rebalances, generation)
        for partition in partitions:
            owner = self.owners.setdefault((generation, partition), member_id)
            assert owner == member_id, f"generation {generation}: {partition} is {owner}'s and {member_id}'s"

    def committed(self, partition: int, offset: int) -> None:
        self.acknowledged[partition] = max(self.acknowledged[partition], offset)

    def saw(self, before: list[int], offsets: list[int]) -> None:
        for partition, offset in enumerate(offsets):
            assert offset >= before[partition], f"{partition} went back from {before[partition]} to {offset}"


class Run:
    """One seed."""

    def __init__(self, loop: SimLoop, seed: int) -> None:
        rng = self.random = random.Random(f"{seed}/groups")
        settings = {**QUICK, "log.segment.bytes": str(rng.choice([2000, 1 << 20]))}
        if rng.random() < 0.5:
            settings["group.initial.rebalance.delay.ms"] = str(rng.choice([500, 3000]))
        delays = WorkDelays(usual=rng.choice([0.001, 0.4]), slow_chance=rng.choice([0.0, 0.1]))
        self.world = World(loop, seed, settings, NetworkFaults(split_chance=0.2), delays)
        self.cluster = Cluster(self.world)
        self.history = History()
        self.seconds = rng.uniform(60, 240)
        self.people = rng.randint(2, 5)
        self.is_calm = False
        self.is_over = False

    async def go(self) -> History:
        await self.world.broker.start()
        await self.cluster.create_topic("t", PARTITIONS)
        await self.cluster.ask(FindCoordinatorRequest(key=GROUP), 2)
        people = [asyncio.ensure_future(self._live(number)) for number in range(self.people)]
        onlooker = asyncio.ensure_future(self._look_on())
        await self._nemesis()
        self.is_calm = True
        await asyncio.sleep(CALM_S)
        for task in (*people, onlooker):
            if task.done():
                task.result()
        group = self.cluster.group()
        assert group is not None and group.state is GroupState.STABLE, group and group.state
        owned = {partition for generation, partition in self.history.owners if generation == group.generation}
        assert owned == set(range(PARTITIONS)), f"nobody has {set(range(PARTITIONS)) - owned}"
        assert len(group.members) == self.people and not group.pending_members
        self.is_over = True
        await asyncio.gather(*people, onlooker)
        await self.world.broker.stop()
        return self.history

    async def _nemesis(self) -> None:
        loop, rng = self.world.loop, self.random
        while loop.time() < self.seconds:
            await asyncio.sleep(rng.uniform(5, 60))
            how = rng.choice(["kill", "A", "B", "stop", "nothing"])
            if how == "stop":
                await self.world.broker.stop()
            elif how != "nothing":
                self.world.broker.crash(how)  # type: ignore[arg-type]
            if how != "nothing":
                await asyncio.sleep(rng.uniform(0, 15))
                await self.world.broker.start()

    async def _live(self, number: int) -> None:
        """One place at the table, taken by one process after another."""
        rng = random.Random(f"{self.random.random()}/{number}")
        instance_id = f"static-{number}" if rng.random() < 0.4 else None
        versions = rng.choice([(9, 5, 4, 5), (8, 5, 4, 5), (5, 3, 3, 3)] + ([] if instance_id else [(0, 0, 0, 0)]))
        while not self.is_over:
            member = Member(
                self.cluster,
                instance_id=instance_id,
                versions=versions,
                protocols=("range", f"own-{number}"),
                session_ms=rng.choice([6000, 10_000]),
                rebalance_ms=rng.choice([6000, 20_000]),
            )
            with suppress(KafkaError, OSError):
                await Process(self, member, rng).work()
            await asyncio.sleep(rng.uniform(0.1, 3))

    async def _look_on(self) -> None:
        while not self.is_over:
            before = list(self.history.acknowledged)
            with suppress(KafkaError, OSError, NotNowError):
                self.history.saw(before, await fetch(self.cluster))
            await asyncio.sleep(1)


class NotNowError(Exception):
    """Ask again later."""


class SuddenDeathError(Exception):
    """The process ends without a word."""


async def fetch(cluster: Cluster) -> list[int]:
    """The committed offsets of all partitions."""
    asked = OffsetFetchRequestTopic(name="t", partition_indexes=list(range(PARTITIONS)))
    response = await cluster.ask(OffsetFetchRequest(group_id=GROUP, topics=[asked]), 6)
    if response.error_code:
        raise NotNowError
    return [partition.committed_offset for partition in response.topics[0].partitions]


class Process:
    """A consumer from its start to its end, which may be sudden."""

    def __init__(self, run: Run, member: Member, rng: random.Random) -> None:
        self.run = run
        self.member = member
        self.random = rng
        self.positions: dict[int, int] = {}

    @property
    def is_over(self) -> bool:
        return self.run.is_over

    def _has_bad_luck(self, chance: float) -> bool:
        return not self.run.is_calm and self.random.random() < chance

    async def work(self) -> None:
        member = self.member
        await member.connect()
        with suppress(SuddenDeathError):
            while not self.is_over and await self._enter():
                await self._consume()
                if self._has_bad_luck(0.05):
                    await member.leave()
                    break
        member.vanish()

    async def _enter(self) -> bool:
        """Join and sync; False if this process has been replaced."""
        member = self.member
        while not self.is_over:
            if not member.member_id and self._has_bad_luck(0.1):
                await member.join_once()
                raise SuddenDeathError  # perhaps with an id that it was given and will never use
            error = await member.join()
            if error is ErrorCode.NONE:
                if self._has_bad_luck(0.05):
                    raise SuddenDeathError
                if self._has_bad_luck(0.05):
                    await asyncio.sleep(self.random.uniform(1, 25))
                error = await member.sync(self._plan())
            if error is ErrorCode.NONE:
                return await self._take_over()
            if error is ErrorCode.FENCED_INSTANCE_ID:
                return False
            self._note(error)
            await asyncio.sleep(self.random.uniform(0.05, 0.5))
        return False

    def _plan(self) -> dict[str, bytes]:
        joined = self.member.joined
        if joined is None or not self.member.is_leader or joined.skip_assignment:
            return {}
        members = [one.member_id for one in joined.members]
        return {
            name: json.dumps([p for p in range(PARTITIONS) if members[p % len(members)] == name]).encode()
            for name in members
        }

    async def _take_over(self) -> bool:
        member, history = self.member, self.run.history
        partitions: list[int] = json.loads(member.assignment or b"[]")
        history.owns(member.generation, member.instance_id or member.member_id, partitions)
        while True:
            before = list(history.acknowledged)
            try:
                offsets = await fetch(self.run.cluster)
            except NotNowError:
                await asyncio.sleep(0.2)
                continue
            history.saw(before, offsets)
            self.positions = {partition: max(offsets[partition], 0) for partition in partitions}
            return True

    async def _consume(self) -> None:
        """Commit and beat until there is a reason to join again."""
        member, rng, history = self.member, self.random, self.run.history
        while not self.is_over:
            if self._has_bad_luck(0.02):
                raise SuddenDeathError
            if self._has_bad_luck(0.02):
                await asyncio.sleep(rng.uniform(5, 40))  # asleep, and a zombie afterwards
            for partition in self.positions:
                offset = self.positions[partition] + rng.randint(1, 5)
                error = await member.commit(offset, partition=partition)
                if error is ErrorCode.NONE:
                    self.positions[partition] = offset
                    history.committed(partition, offset)
                elif error not in RETRIABLE:
                    self._note(error)
                    return
            error = await member.heartbeat()
            if error is not ErrorCode.NONE and error not in RETRIABLE:
                self._note(error)
                return
            await asyncio.sleep(rng.uniform(0.3, 2))

    def _note(self, error: ErrorCode) -> None:
        """What a client makes of an error before it joins again."""
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member.member_id = ""
        elif error is ErrorCode.FENCED_INSTANCE_ID:
            raise SuddenDeathError
        else:
            known = {
                ErrorCode.REBALANCE_IN_PROGRESS,
                ErrorCode.ILLEGAL_GENERATION,
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            }
            assert error in known | RETRIABLE | {ErrorCode.REQUEST_TIMED_OUT}, error.name


def play_seed(seed: int) -> History:
    async def main(loop: SimLoop) -> History:
        return await Run(loop, seed).go()

    history: History = run(main, seed, most_steps=50_000_000)
    return history


def play_seeds(seeds: range, check: Callable[[History], None] = lambda history: None) -> int:
    rebalances = 0
    for seed in seeds:
        try:
            history = play_seed(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        check(history)
        rebalances += history.rebalances
    return rebalances


@pytest.mark.parametrize("first", range(0, 12, 4))
def test_groups_come_through_whatever_happens(first: int) -> None:
    assert play_seeds(range(first, first + 4)) > 20


@pytest.mark.verify
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(1000, 1400, 100))
def test_groups_come_through_whatever_happens_at_length(first: int) -> None:
    assert play_seeds(range(first, first + 100)) > 1000
