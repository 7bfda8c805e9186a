"""Groups of the consumer protocol under virtual time and bad luck: members join, leave, crash, fall asleep and come
back, topics grow, the broker dies.

What must hold whatever happens: no partition is with two members that both may think it theirs; the coordinator never
has two owners for one; and when calm returns every partition is somebody's and all have arrived at one epoch.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from uuid import UUID

import pytest
from soak.groups.consumer_members import Consumer, Owned, group_of
from soak.groups.members import GROUP, QUICK, Cluster
from tests.nightly import mark_rest_nightly

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.server.coordinator.group import current_assignment_builder
from barnabas.server.coordinator.group.consumer_group import ConsumerGroup, ConsumerGroupState
from barnabas.server.coordinator.group.consumer_group_manager import ConsumerGroupManager
from barnabas.simulation.loop import SimLoop, run
from barnabas.simulation.machines import WorkDelays, World
from barnabas.simulation.network import NetworkFaults

SESSION_S = 12.0
CALM_S = 120.0
RETRIABLE = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNRELEASED_INSTANCE_ID,
}
ANEW = {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID}
SETTINGS = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(int(SESSION_S * 1000)),
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "1000",
}


class Table:
    """Who has which partition, checked whenever somebody takes one."""

    def __init__(self) -> None:
        self.people: set[Consumer] = set()
        self.epochs = 0

    def took(self, member: Consumer) -> None:
        now = member.cluster.loop.time()
        self.epochs = max(self.epochs, member.epoch)
        for other in self.people - {member}:
            patience = min(SESSION_S, other.rebalance_ms / 1000)
            if now < other.heard_at + patience:
                both = member.owned & other.owned
                assert not both, f"{member.member_id} and {other.member_id} have {both} at {now}"


def check_owners(group: object) -> None:
    """What the coordinator itself believes."""
    if isinstance(group, ConsumerGroup):
        seen: set[tuple[object, int]] = set()
        for member in group.members.values():
            for assignment in (member.assigned, member.revoking):
                for topic_id, partitions in assignment.items():
                    places = {(topic_id, index) for index in partitions}
                    assert not places & seen
                    assert all(group.owner(topic_id, index) == member.member_id for index in partitions)
                    seen |= places


class Run:
    """One seed."""

    def __init__(self, loop: SimLoop, seed: int) -> None:
        rng = self.random = random.Random(f"{seed}/consumer-groups")
        settings = {**QUICK, **SETTINGS, "log.segment.bytes": str(rng.choice([2000, 1 << 20]))}
        delays = WorkDelays(usual=rng.choice([0.001, 0.4]), slow_chance=rng.choice([0.0, 0.1]))
        self.world = World(loop, seed, settings, NetworkFaults(split_chance=0.2), delays)
        self.cluster = Cluster(self.world)
        self.table = Table()
        self.seconds = rng.uniform(60, 240)
        self.people = rng.randint(2, 6)
        self.partitions = rng.randint(1, 7)
        self.topics: dict[str, UUID] = {}
        self.is_calm = False
        self.is_over = False

    async def go(self) -> int:
        await self.world.broker.start()
        await self.cluster.create_topic("t", self.partitions)
        topic_id = self.cluster.state.metadata.topic_id("t")
        assert topic_id is not None
        self.topics = {"t": topic_id}
        await self.cluster.ask(FindCoordinatorRequest(key=GROUP), 2)
        people = [asyncio.ensure_future(self._live(number)) for number in range(self.people)]
        await self._nemesis()
        self.is_calm = True
        await asyncio.sleep(CALM_S)
        for person in people:
            if person.done():
                person.result()
        self._check_end()
        self.is_over = True
        await asyncio.gather(*people)
        await self.world.broker.stop()
        return self.table.epochs

    def _check_end(self) -> None:
        group = group_of(self.cluster)
        assert group.state is ConsumerGroupState.STABLE, group.state
        assert len(group.members) == self.people
        owned = sorted(place for person in self.table.people for place in person.owned)
        assert owned == [("t", index) for index in range(self.partitions)]
        shares = [len(person.owned) for person in self.table.people]
        assert len(shares) == self.people and max(shares) - min(shares) <= 1

    def check_coordinator(self) -> None:
        """No two owners, as far as the broker is there and knows."""
        if self.world.broker.server is not None:
            with suppress(KafkaError):
                check_owners(self.cluster.group())

    async def _nemesis(self) -> None:
        loop, rng = self.world.loop, self.random
        while loop.time() < self.seconds:
            await asyncio.sleep(rng.uniform(3, 40))
            how = rng.choice(["kill", "A", "B", "stop", "grow", "nothing", "nothing"])
            if how == "grow":
                await self._grow()
            elif how == "stop":
                await self.world.broker.stop()
            elif how != "nothing":
                self.world.broker.crash(how)  # type: ignore[arg-type]
            if how in ("kill", "A", "B", "stop"):
                await asyncio.sleep(rng.uniform(0, 8))
                await self.world.broker.start()

    async def _grow(self) -> None:
        count = self.partitions + 1
        topic = CreatePartitionsTopic(name="t", count=count, assignments=None)
        answer = await self.cluster.ask(CreatePartitionsRequest(topics=[topic], timeout_ms=1000), 3)
        if answer.results[0].error_code == ErrorCode.NONE:
            self.partitions = count

    async def _live(self, number: int) -> None:
        """One place at the table, taken by one process after another."""
        rng = random.Random(f"{self.random.random()}/{number}")
        instance_id = f"static-{number}" if rng.random() < 0.4 else None
        lives = 0
        while not self.is_over:
            lives += 1
            member = Consumer(
                self.cluster,
                name=f"m{number}-{lives}",
                instance_id=instance_id,
                assignor=rng.choice([None, "uniform", "uniform"]),
                rebalance_ms=rng.choice([6000, 20_000]),
            )
            member.known_topics = self.topics
            await Process(self, member, rng).work()
            self.table.people.discard(member)
            await asyncio.sleep(rng.uniform(0.1, 3))


class SuddenDeathError(Exception):
    """The process ends without a word."""


class Process:
    """A consumer from its start to its end, which may be sudden."""

    def __init__(self, run: Run, member: Consumer, rng: random.Random) -> None:
        self.run = run
        self.member = member
        self.random = rng

    def _has_bad_luck(self, chance: float) -> bool:
        return not self.run.is_calm and self.random.random() < chance

    async def work(self) -> None:
        member = self.member
        self.run.table.people.add(member)
        connected = False
        with suppress(SuddenDeathError):
            while not self.run.is_over:
                try:
                    if not connected:
                        await member.connect()
                        connected = True
                    if self._has_bad_luck(0.02):
                        await self._leave()
                        return
                    await self._turn()
                except (KafkaError, OSError):
                    connected = False
                    self.needs_all = True
                await asyncio.sleep(self.random.uniform(0.2, 1.2))
        if connected:
            member.vanish()

    needs_all = False
    """After a request without an answer everything is said again."""

    async def _turn(self) -> None:
        member, rng = self.member, self.random
        if self._has_bad_luck(0.02):
            raise SuddenDeathError
        if self._has_bad_luck(0.02):
            await asyncio.sleep(rng.uniform(5, 30))  # asleep, and a zombie afterwards
        sent_at = member.cluster.loop.time()
        error = await member.beat(full=self.needs_all)
        if error is ErrorCode.NONE:
            self.needs_all = False
            member.heard_at = sent_at
            self.run.check_coordinator()
            self._apply()
        elif error in ANEW:
            member.begin_anew()
        elif error is ErrorCode.FENCED_INSTANCE_ID:
            raise SuddenDeathError
        else:
            assert error in RETRIABLE, error.name

    def _apply(self) -> None:
        """Let go at once; what it gets it takes with the next heartbeat that finds nothing to let go of."""
        member = self.member
        before: Owned = set(member.owned)
        if not member.let_go():
            member.take()
        if member.owned - before:
            self.run.table.took(member)

    async def _leave(self) -> None:
        member = self.member
        member.owned = set()
        for_now = member.instance_id is not None and self.random.random() < 0.7
        await member.leave(-2 if for_now else -1)
        member.vanish()


def play_seed(seed: int) -> int:
    async def main(loop: SimLoop) -> int:
        return await Run(loop, seed).go()

    epochs: int = run(main, seed, most_steps=50_000_000)
    return epochs


def play_seeds(seeds: range) -> int:
    epochs = 0
    for seed in seeds:
        try:
            epochs += play_seed(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    return epochs


@pytest.mark.parametrize("first", range(0, 6, 2))
def test_groups_come_through_whatever_happens(first: int) -> None:
    assert play_seeds(range(first, first + 2)) > 15


@pytest.mark.verify
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", mark_rest_nightly(range(1000, 1200, 50), 1))
def test_groups_come_through_whatever_happens_at_length(first: int) -> None:
    assert play_seeds(range(first, first + 50)) > 500


def partitions_given_before_they_are_free(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ConsumerGroup, "is_free", lambda *_: True)


def members_that_are_never_missed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ConsumerGroupManager, "_session_expired", lambda *_: None)


def partitions_taken_away_without_waiting(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(current_assignment_builder, "_may_still_own", lambda *_: False)


@pytest.mark.parametrize(
    "plant",
    [
        partitions_given_before_they_are_free,
        members_that_are_never_missed,
        partitions_taken_away_without_waiting,
    ],
    ids=lambda plant: plant.__name__,
)
def test_a_planted_bug_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        play_seeds(range(24))
