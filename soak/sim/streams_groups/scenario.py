"""One seeded run: members of a streams group under faults. Afterwards each task must be assigned."""

from __future__ import annotations

import asyncio
import random

from soak.sim.broken_requests import BROKEN_REQUESTS, BrokenRequests
from soak.sim.cluster.scenario import LIVE_SECONDS, LOOK_SECONDS, READY_SECONDS, ClusterRun
from soak.sim.outcome import Outcome, outcome_of
from soak.sim.streams_groups.ledger import TaskLedger
from soak.sim.streams_groups.member import APPLICATION, INPUT, Life, Slot
from soak.sim.streams_groups.nemesis import StreamsNemesis
from soak.sim.streams_groups.plan import StreamsPlan

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.errors import KafkaError
from barnabas.server.controller.admin_manager import TopicCreation
from barnabas.server.coordinator.group.streams.streams_group import StreamsGroup, StreamsGroupState
from barnabas.simulation.cluster import SimClusterBroker
from barnabas.simulation.loop import SimLoop

SETTLE_SECONDS = 60.0
"""All tasks must be assigned within this time after the last fault."""
KEYS = frozenset({ApiKey.STREAMS_GROUP_HEARTBEAT})
"""Requests that may be lost or late."""


class StreamsRun(ClusterRun):
    """The run of one plan."""

    plan: StreamsPlan
    nemesis: StreamsNemesis  # type: ignore[assignment]  # has its own faults

    def __init__(self, loop: SimLoop, plan: StreamsPlan) -> None:
        super().__init__(loop, plan)
        self.ledger = TaskLedger(plan, loop.time)
        self.slots = [Slot(self, number) for number in range(plan.processes * plan.threads)]
        self.nemesis = StreamsNemesis(self.world, plan, self.slots)
        self.nemesis.set_states()
        self.errors: list[str] = []
        self.is_finished = False
        """Whether all tasks are assigned, so that the members may end."""
        if plan.brokers == 1:
            self.invariants.least_in_sync = 1

    def check(self) -> list[str]:
        return [*self.invariants.violations, *self.errors, *self.ledger.violations]

    def check_unfinished(self) -> list[str]:
        return self.check()

    @property
    def acknowledged(self) -> int:
        """Return the number of assignments that members have acknowledged."""
        return self.ledger.acknowledged

    @property
    def summary(self) -> str:
        plan = self.plan
        epoch = max((epoch for epoch, _ in self.ledger.owners), default=0)
        return (
            f"{plan.brokers} brokers, {plan.processes} processes of {plan.threads} threads ({len(self.ledger.lives)}"
            f" lives), {len(plan.tasks)} tasks, {self.acknowledged} acknowledged, epoch {epoch}"
        )

    def trace(self) -> object:
        return sorted(self.ledger.owners.items()), self.ledger.acknowledged

    async def go(self) -> None:
        world, plan = self.world, self.plan
        await asyncio.gather(*map(self.nemesis.bring_up, world.brokers.values()))
        await self._create_input()
        ways = plan.faults & frozenset(BROKEN_REQUESTS)
        if ways:
            world.network.meddle = BrokenRequests(random.Random(f"{plan.seed}/broken requests"), ways, KEYS).meddle
        members = [self.loop.create_task(slot.keep_going()) for slot in self.slots]
        await self.nemesis.rage()
        self.nemesis.calm_down()
        world.network.meddle = None
        self.is_over = True
        await self._settle()
        self.is_finished = True
        await self._within(LIVE_SECONDS, "the members have not ended", asyncio.gather(*members))
        await self._become_whole()
        self.invariants.look()

    async def _create_input(self) -> None:
        wish = TopicCreation(INPUT, self.plan.partitions, self.plan.brokers)
        deadline = self.loop.time() + READY_SECONDS
        while not self.invariants.partition_count(INPUT):
            await self.operator.ask(lambda controller: controller.create_topics([wish]))
            assert self.loop.time() < deadline, "stuck: the topic is not created"
            await asyncio.sleep(LOOK_SECONDS)

    async def _settle(self) -> None:
        """Wait until the members and the coordinator agree that each task has one active member and its standbys."""
        deadline = self.loop.time() + SETTLE_SECONDS
        while found := self._differences():
            assert self.loop.time() < deadline, f"stuck: {found[0]} after {SETTLE_SECONDS} s"
            await asyncio.sleep(LOOK_SECONDS)

    def _differences(self) -> list[str]:
        running = [life for slot in self.slots for life in slot.running]
        if len(running) != len(self.slots):
            return [f"{len(running)} members run instead of {len(self.slots)}"]
        return self.ledger.differences(running) or self._differences_of_coordinator(running)

    def _differences_of_coordinator(self, running: list[Life]) -> list[str]:
        groups = [group for group in map(_group_of, self.world.running) if group is not None]
        if len(groups) != 1:
            return [f"{len(groups)} brokers coordinate the group"]
        members = sorted(life.name for life in running)
        if groups[0].state is not StreamsGroupState.STABLE or sorted(groups[0].members) != members:
            return [f"the group is {groups[0].state_name} with the members {sorted(groups[0].members)}"]
        return []


def _group_of(broker: SimClusterBroker) -> StreamsGroup | None:
    """Return the group if this broker coordinates it."""
    assert broker.server is not None
    try:
        group = broker.server.state.group_coordinator.group_manager.find_group(APPLICATION)
    except KafkaError:
        return None
    return group if isinstance(group, StreamsGroup) else None


def play(plan: StreamsPlan) -> Outcome[StreamsPlan]:
    """Carry out a plan and check the result."""
    command = f"python -m soak.sim.streams_groups --seed {plan.seed}{' --quick' if plan.is_quick else ''}"
    return outcome_of(StreamsRun, plan, command)


def play_seed(seed: int, *, quick: bool = False) -> Outcome[StreamsPlan]:
    """Carry out the plan that a seed draws."""
    return play(StreamsPlan.draw(seed, quick=quick))
