"""Random lives of groups under virtual time: members come, go, sleep and crash, the broker dies, connections break.

Whatever happens: a partition has one owner at any time among the members of a generation, commits never go back, no
record is left out, and when it is over everybody who is left shares evenly. If nobody was thrown out, no record is read
twice either.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from tests.clients.group.group_world import PARTITIONS, TOPIC, Diary, GroupWorld, Reader, play

from barnabas.protocol.topic_partition import TopicPartition
from barnabas.simulation.network import NetworkFaults

STRATEGIES = ["range", "roundrobin", "sticky", "cooperative-sticky"]
MAX_READERS = 4
STEPS = 25

GENTLE = ["join", "leave", "produce", "produce", "rest"]
ROUGH = [*GENTLE, "kill", "sleep", "wake", "break", "restart"]


class Noting(Diary):
    """A diary that looks into those of the others."""

    def __init__(self, readers: list[Reader]) -> None:
        super().__init__()
        self._readers = readers

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        super().on_partitions_assigned(assigned)
        mine = [generation_of(reader) for reader in self._readers if reader.diary is self]
        for other in self._readers:
            if other.diary is not self and generation_of(other) in mine:
                both = other.diary.owned & self.owned
                assert not both, f"two members of generation {mine} have {both}"


def generation_of(reader: Reader) -> int:
    """The generation a reader has joined; -1 outside. It has given up by then what the generation gives to others."""
    group = reader.consumer._group
    assert group is not None
    return group.generation.number


class History:
    """One random life."""

    def __init__(self, world: GroupWorld, seed: int, acts: list[str], settings: dict[str, Any]) -> None:
        self.world = world
        self.rng = random.Random(f"{seed}/history")
        self.acts = acts
        strategy = {"partition_assignment_strategy": [self.rng.choice(STRATEGIES)]}
        self.settings: dict[str, Any] = {
            **({} if "group_protocol" in settings else strategy),
            "max_poll_interval_ms": 4_000,
            "auto_commit_interval_ms": self.rng.choice([200, 2_000, 1_000_000]),
            **settings,
        }
        self.readers: list[Reader] = []
        self.everybody: list[Reader] = []
        self.values: set[bytes] = set()
        self.committed: dict[TopicPartition, int] = {}

    async def live(self) -> None:
        for _ in range(STEPS):
            await self.act(self.rng.choice(self.acts))
            await asyncio.sleep(self.rng.random() * 1.5)
            await self.check_commits()
        await self.end()

    async def act(self, act: str) -> None:
        readers, rng = self.readers, self.rng
        if act == "join" and len(readers) < MAX_READERS:
            reader = Reader(self.world, self.settings, [TOPIC], Noting(readers))
            readers.append(reader)
            self.everybody.append(reader)
        elif act == "leave" and readers:
            reader = readers.pop(rng.randrange(len(readers)))
            reader.is_asleep = False
            await reader.stop()
        elif act == "kill" and readers:
            readers.pop(rng.randrange(len(readers))).kill()
        elif act == "sleep" and readers:
            rng.choice(readers).is_asleep = True
        elif act == "wake":
            for reader in readers:
                reader.is_asleep = False
        elif act == "break":
            self.world.world.network.reset_some(rng.random())
        elif act == "restart":
            await self.world.restart()
        elif act == "produce":
            self.values |= await self.world.produce(rng.randrange(1, 60))

    async def check_commits(self) -> None:
        now = await self.world.committed()
        for tp, offset in self.committed.items():
            assert now.get(tp, -1) >= offset, f"the commit of {tp} went back from {offset} to {now.get(tp)}"
        self.committed = now

    async def end(self) -> None:
        """Everything has healed: all that is left is read, and shared."""
        await self.act("wake")
        if not self.readers:
            await self.act("join")
        self.values |= await self.world.produce(PARTITIONS)
        await self.world.until_shared(*self.readers)
        await self.world.until(lambda: self.values <= set(self.read()), "everything is read")
        for reader in self.readers:
            await reader.stop()
        await self.check_commits()
        assert sum(self.committed.values()) == len(self.values)
        if self.acts is GENTLE:
            assert len(self.read()) == len(self.values), "read twice"

    def read(self) -> list[bytes | None]:
        return [value for reader in self.everybody for value in reader.values]


def run(seed: int, acts: list[str], member: dict[str, Any] | None = None, broker: dict[str, str] | None = None) -> None:
    async def story(world: GroupWorld) -> None:
        await History(world, seed, acts, member or {}).live()

    faults = NetworkFaults(tail_chance=0.02) if acts is ROUGH else NetworkFaults()
    play(story, settings={"acks.all.durability": "disk", **(broker or {})}, faults=faults, seed=seed)


@pytest.mark.parametrize("seed", range(12))
def test_gentle_lives(seed: int) -> None:
    run(seed, GENTLE)


@pytest.mark.parametrize("seed", range(100, 112))
def test_rough_lives(seed: int) -> None:
    run(seed, ROUGH)


@pytest.mark.verify
@pytest.mark.parametrize("block", range(4))
def test_many_lives(block: int) -> None:
    for seed in range(1000 + 25 * block, 1025 + 25 * block):
        run(seed, GENTLE if seed % 3 == 0 else ROUGH)
