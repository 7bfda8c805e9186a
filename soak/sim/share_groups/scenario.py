"""One seeded run: members of share groups under faults. Afterwards each record must be finished in each group."""

from __future__ import annotations

import asyncio
import random
from functools import partial

from soak.sim.broken_requests import BROKEN_REQUESTS, BrokenRequests
from soak.sim.cluster.scenario import LIVE_SECONDS, LOOK_SECONDS, READY_SECONDS, ClusterRun
from soak.sim.outcome import Outcome, outcome_of
from soak.sim.share_groups.member import Slot
from soak.sim.share_groups.nemesis import ShareNemesis
from soak.sim.share_groups.plan import SharePlan
from soak.sim.share_groups.watch import ShareWatch
from soak.sim.workload import TOPIC

from barnabas.clients.admin import Admin, ConfigChange, ConfigResource
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.config_resources import ConfigResourceType
from barnabas.protocol.errors import KafkaError
from barnabas.server.controller.admin_manager import TopicCreation
from barnabas.simulation.loop import SimLoop

FINISH_SECONDS = 120.0
"""The groups must have no lag within this time after the last fault."""
LAG_SECONDS = 0.5
KEYS = frozenset(
    {
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
    }
)
"""Requests that may be lost or late."""


class ShareRun(ClusterRun):
    """The run of one plan."""

    plan: SharePlan
    nemesis: ShareNemesis  # type: ignore[assignment]  # has its own faults

    def __init__(self, loop: SimLoop, plan: SharePlan, watch: ShareWatch) -> None:
        super().__init__(loop, plan)
        self.watch = watch
        self.groups = [f"workers-{number}" for number in range(plan.groups)]
        self.slots = [Slot(self, group, number) for group in self.groups for number in range(plan.members)]
        self.nemesis = ShareNemesis(self.world, plan, self.slots)
        self.nemesis.set_states()
        self.errors: list[str] = []
        self.is_finished = False
        """Whether no group has a lag, so that the members may end."""
        if plan.brokers == 1:
            self.invariants.least_in_sync = 1

    def check(self) -> list[str]:
        written: dict[int, list[int]] = {index: [] for index in range(self.plan.partitions)}
        for partition, offset in self.history.final:
            written[partition].append(offset)
        found = self.watch.check(written, self.groups)
        return [*self.invariants.violations, *self.history.check(), *self.errors, *found]

    def check_unfinished(self) -> list[str]:
        return [*self.invariants.violations, *self.errors, *self.watch.violations]

    @property
    def acknowledged(self) -> int:
        """Return the number of records that were accepted or rejected, in all groups."""
        return self.watch.acknowledged

    @property
    def summary(self) -> str:
        plan = self.plan
        lives = sum(len(slot.lives) for slot in self.slots)
        return (
            f"{plan.brokers} brokers, {plan.groups} groups of {plan.members} members ({lives} lives), "
            f"{len(self.history.acknowledged)} records, {self.acknowledged} acknowledged"
        )

    def trace(self) -> object:
        deliveries = [
            (place, sorted(one.acquired.items()), sorted(one.finished.items()))
            for place, one in sorted(self.watch.partitions.items())
        ]
        return sorted(self.history.acknowledged.items()), deliveries

    async def go(self) -> None:
        world, plan = self.world, self.plan
        await asyncio.gather(*map(self.nemesis.bring_up, world.brokers.values()))
        await self._create_topic()
        await self._within(READY_SECONDS, "the groups are not configured", self._configure_groups())
        self._write()
        ways = plan.faults & frozenset(BROKEN_REQUESTS)
        if ways:
            world.network.meddle = BrokenRequests(random.Random(f"{plan.seed}/broken requests"), ways, KEYS).meddle
        members = [self.loop.create_task(slot.keep_going()) for slot in self.slots]
        await self.nemesis.rage()
        self.nemesis.calm_down()
        world.network.meddle = None
        await self._within(LIVE_SECONDS, "no new record is acknowledged", self._probe_all())
        self.is_over = True
        await self._within(LIVE_SECONDS, "the producers have not ended", asyncio.gather(*self.clients))
        await self._drain()
        node = world.machine("operator")
        await self._within(FINISH_SECONDS, "a group has a lag", world.spawn(node, self._until_finished()))
        self.is_finished = True
        await self._within(LIVE_SECONDS, "the members have not ended", asyncio.gather(*members))
        await self._become_whole()
        self.invariants.look()

    async def _create_topic(self) -> None:
        wish = TopicCreation(TOPIC, self.plan.partitions, self.plan.brokers)
        deadline = self.loop.time() + READY_SECONDS
        while not self._partitions():
            await self.operator.ask(lambda controller: controller.create_topics([wish]))
            assert self.loop.time() < deadline, "stuck: the topic is not created"
            await asyncio.sleep(LOOK_SECONDS)

    async def _configure_groups(self) -> None:
        """Set `share.auto.offset.reset=earliest` for the groups, and wait until all brokers have the setting."""
        world = self.world
        await world.spawn(world.machine("administrator"), self._alter_configs())

        def is_set(group: str) -> bool:
            providers = [
                one.server.state.share_partition_manager.config_provider for one in world.running if one.server
            ]
            return all(one.settings(group).auto_offset_reset == "earliest" for one in providers)

        while not all(map(is_set, self.groups)):
            await asyncio.sleep(LOOK_SECONDS)

    async def _alter_configs(self) -> None:
        changes = [ConfigChange("share.auto.offset.reset", "earliest")]
        async with Admin(self.bootstrap, rng=random.Random(f"{self.plan.seed}/administrator")) as admin:
            left = {ConfigResource(ConfigResourceType.GROUP, group): changes for group in self.groups}
            while left:
                results = await admin.alter_configs(left)
                left = {resource: changes for resource, error in results.items() if error is not None}

    async def _until_finished(self) -> None:
        """Wait until no group has a lag: each record is acknowledged or archived."""
        async with Admin(self.bootstrap, rng=random.Random(f"{self.plan.seed}/operator")) as admin:
            while not all([await self._is_finished(admin, group) for group in self.groups]):
                await asyncio.sleep(LAG_SECONDS)

    async def _is_finished(self, admin: Admin, group: str) -> bool:
        try:
            found = (await admin.list_share_group_offsets([group]))[group]
        except KafkaError as error:
            if not error.code.retriable:
                raise
            return False
        if isinstance(found, KafkaError):
            return False
        lags = [one.lag for one in found.values()]
        return len(lags) == self.plan.partitions and all(lag == 0 for lag in lags)


def play(plan: SharePlan) -> Outcome[SharePlan]:
    """Carry out a plan and check the result."""
    command = f"python -m soak.sim.share_groups --seed {plan.seed}{' --quick' if plan.is_quick else ''}"
    watch = ShareWatch(plan.lock_seconds, plan.delivery_count_limit)
    with watch.installed():
        return outcome_of(partial(ShareRun, watch=watch), plan, command)


def play_seed(seed: int, *, quick: bool = False) -> Outcome[SharePlan]:
    """Carry out the plan that a seed draws."""
    return play(SharePlan.draw(seed, quick=quick))
