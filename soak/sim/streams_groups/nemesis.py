"""Faults of a streams group: members that die, pause, leave or are cut off, and coordinators that die."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from soak.sim.streams_groups.member import Life, Slot
from soak.sim.streams_groups.plan import StreamsPlan

from barnabas.server.metadata.topic_names import GROUP_METADATA_TOPIC
from barnabas.simulation.cluster import ClusterWorld, SimClusterBroker
from barnabas.simulation.disk import Mode
from barnabas.simulation.nemesis import Nemesis

MODES: tuple[Mode, ...] = ("kill", "A", "B")
PAUSE_FACTOR = 1.5
"""The longest pause of a member, as a multiple of the session timeout."""


class StreamsNemesis(Nemesis):
    """An injector of the faults of a plan, until the time of the plan is over."""

    def __init__(self, world: ClusterWorld, plan: StreamsPlan, slots: Sequence[Slot]) -> None:
        super().__init__(world, plan.harm)
        self.modes = MODES if plan.settings["acks.all.durability"] == "disk" else MODES[:1]
        self.longest_pause = PAUSE_FACTOR * plan.session_seconds
        self.slots = slots
        self._acts |= {
            "kill a member": self._kill_member,
            "pause a member": self._pause_member,
            "cut a member": self._cut_member,
            "replace a member": self._replace_member,
            "strike a coordinator": self._strike,
        }

    def _life(self) -> Life | None:
        running = [life for slot in self.slots for life in slot.running]
        return self.random.choice(running) if running else None

    async def _kill_member(self) -> None:
        life = self._life()
        if life is not None:
            life.kill()

    async def _pause_member(self) -> None:
        """Pause a member, perhaps until its session has expired. Another thread replaces the member."""
        life = self._life()
        if life is not None:
            self.world.loop.frozen.add(life.node)
            await asyncio.sleep(self.random.random() * self.longest_pause)
            self.world.loop.frozen.discard(life.node)

    async def _cut_member(self) -> None:
        life = self._life()
        if life is not None:
            broker = self.random.choice(list(self.world.brokers.values()))
            await self._between(life.node, broker.node, both_ways=self.random.random() < 0.5)

    async def _replace_member(self) -> None:
        """Let a member leave and its successor join."""
        life = self._life()
        if life is not None:
            life.is_leaving = True

    async def _strike(self) -> None:
        """Kill the group coordinator."""
        coordinators = [one for one in self.world.running if one not in self._suffering and _coordinates(one)]
        if coordinators:
            broker = self.random.choice(coordinators)
            self._suffering.add(broker)
            broker.crash(self.random.choice(self.modes))
            await self._return(broker)


def _coordinates(broker: SimClusterBroker) -> bool:
    assert broker.server is not None
    partitions = broker.server.state.replica_manager.partitions
    return any(one.is_leader and one.topic_partition.topic == GROUP_METADATA_TOPIC for one in partitions)
