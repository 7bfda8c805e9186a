"""Faults of share groups: members that die, pause or are cut off, and leaders and share coordinators that die."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from soak.sim.cluster.operator import Operator
from soak.sim.share_groups.member import Life, Slot
from soak.sim.share_groups.plan import MOVE, SharePlan
from soak.sim.workload import TOPIC

from barnabas.protocol.topic_partition import TopicPartition
from barnabas.server.metadata.topic_names import SHARE_GROUP_STATE_TOPIC
from barnabas.simulation.cluster import ClusterWorld, SimClusterBroker
from barnabas.simulation.disk import Mode
from barnabas.simulation.nemesis import Nemesis

MODES: tuple[Mode, ...] = ("kill", "A", "B")
PAUSE_FACTOR = 1.5
"""The longest pause of a member, as a multiple of the lock duration."""


class ShareNemesis(Nemesis):
    """An injector of the faults of a plan, until the time of the plan is over."""

    def __init__(self, world: ClusterWorld, plan: SharePlan, slots: Sequence[Slot]) -> None:
        super().__init__(world, plan.harm)
        self.partitions = plan.partitions
        self.modes = MODES if plan.settings["acks.all.durability"] == "disk" else MODES[:1]
        self.longest_pause = PAUSE_FACTOR * plan.lock_seconds
        self.slots = slots
        self._operator = Operator(world)
        self._acts |= {
            "kill a consumer": self._kill_consumer,
            "pause a consumer": self._pause_consumer,
            "cut a consumer": self._cut_consumer,
            MOVE: self._move_leader,
            "strike a leader": lambda: self._strike(TOPIC),
            "strike a coordinator": lambda: self._strike(SHARE_GROUP_STATE_TOPIC),
        }

    def _life(self) -> Life | None:
        running = [life for slot in self.slots for life in slot.running]
        return self.random.choice(running) if running else None

    async def _kill_consumer(self) -> None:
        life = self._life()
        if life is not None:
            life.kill()

    async def _pause_consumer(self) -> None:
        """Pause a member, perhaps until its locks have expired. Another process replaces the member."""
        life = self._life()
        if life is not None:
            self.world.loop.frozen.add(life.node)
            await asyncio.sleep(self.random.random() * self.longest_pause)
            self.world.loop.frozen.discard(life.node)

    async def _cut_consumer(self) -> None:
        life = self._life()
        if life is not None:
            broker = self.random.choice(list(self.world.brokers.values()))
            await self._between(life.node, broker.node, both_ways=self.random.random() < 0.5)

    async def _move_leader(self) -> None:
        """Make another replica the preferred leader of a partition, and elect it."""
        partition = TopicPartition(TOPIC, self.random.randrange(self.partitions))
        if self.random.random() < 0.3:
            partition = TopicPartition(SHARE_GROUP_STATE_TOPIC, 0)
        brokers = list(self.world.brokers)
        target = tuple(self.random.sample(brokers, len(brokers)))
        await self._operator.ask(lambda controller: controller.alter_partition_reassignments({partition: target}))
        await self._operator.ask(lambda controller: controller.elect_leaders([partition], allow_unclean=False))

    async def _strike(self, topic: str) -> None:
        """Kill the leader of a partition of a topic."""
        leaders = [one for one in self.world.running if one not in self._suffering and _leads(one, topic)]
        if leaders:
            broker = self.random.choice(leaders)
            self._suffering.add(broker)
            broker.crash(self.random.choice(self.modes))
            await self._return(broker)


def _leads(broker: SimClusterBroker, topic: str) -> bool:
    assert broker.server is not None
    partitions = broker.server.state.replica_manager.partitions
    return any(one.is_leader and one.topic_partition.topic == topic for one in partitions)
