"""The nemesis injects several faults into a cluster at a time, and repairs them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from ..server.metadata.metadata_store import Delete
from .broker_world import BrokerWorld, ClusterMachine
from .chance import chance
from .cluster import ClusterWorld
from .disk import Mode
from .node import SimNode

CONTROLLER = "/kafka/controller"
STOP_SECONDS = 10.0
"""A clean stop that takes longer is ended by kill, as an operator would do."""
START_SECONDS = 20.0
"""A start that takes longer is repeated."""
START_PAUSE = 0.1
HOUR_MS = 3_600_000
TAIL_CHANCE = 0.05
SLOW_DISK_CHANCE = 0.1
SLOW_ZOOKEEPER_CHANCE = 0.05
BREAK_CHANCE = 0.02
ACTS = (
    "kill",
    "power",
    "power of all",
    "stop",
    "pause",
    "cut",
    "cut off",
    "cut one way",
    "cut from zookeeper",
    "slow link",
    "reset",
    "expire",
    "zookeeper down",
    "move controller",
    "clock jump",
    "disk full",
)
"""Occasional faults."""
STATES = ("tail", "slow disk", "slow zookeeper", "zookeeper breaks", "flush-late", "produce-answer-lost")
"""Permanent faults."""
NEEDS_DISK = frozenset({"power", "power of all"})
"""A broker that acknowledges from the page cache gives no guarantee for these."""


@dataclass(frozen=True, slots=True)
class Harm:
    """The extent of the faults. Times are seconds."""

    faults: frozenset[str]
    """Names from `ACTS` and `STATES`."""
    seconds: float
    """Duration of the occasional faults."""
    gap: float
    """Maximum time between two acts of one nemesis."""
    downtime: float
    """Maximum duration of an act."""
    nemeses: int
    """Number of simultaneous faults."""


class BrokerNemesis:
    """Injects faults of brokers, links and disks until its time is over. Each broker has one fault at a time."""

    def __init__(self, world: BrokerWorld, plan: Harm) -> None:
        self.world = world
        self.plan = plan
        self.random = chance(f"{world.seed}/nemesis")
        self.done: list[str] = []
        """The injected faults, for the report of a failure."""
        self._suffering: set[ClusterMachine] = set()
        self._ends_at = 0.0
        self._acts: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "kill": lambda: self._crash("kill"),
            "power": lambda: self._crash(self.random.choice(("A", "B"))),
            "power of all": self._crash_all,
            "stop": self._stop,
            "pause": self._pause,
            "cut": self._cut,
            "cut off": self._cut_off,
            "cut one way": self._cut_one_way,
            "slow link": self._slow_link,
            "reset": self._reset,
            "clock jump": self._jump_clock,
            "disk full": self._fill_disk,
        }

    def set_states(self) -> None:
        """Apply the permanent faults of network, disks and brokers."""
        world, faults = self.world, self.plan.faults
        world.fault_points = faults
        world.network.faults.tail_chance = TAIL_CHANCE if "tail" in faults else 0.0
        world.delays.slow_chance = SLOW_DISK_CHANCE if "slow disk" in faults else 0.0

    async def rage(self) -> None:
        """Inject faults until the time is over; every act is repaired when this returns."""
        acts = [act for act in self._acts if act in self.plan.faults]
        self._ends_at = self.world.loop.time() + self.plan.seconds
        await asyncio.gather(*(self._go_on(acts) for _ in range(self.plan.nemeses)))

    async def _go_on(self, acts: list[str]) -> None:
        loop = self.world.loop
        while loop.time() < self._ends_at:
            await asyncio.sleep(self.random.random() * self.plan.gap)
            if acts:
                act = self.random.choice(acts)
                self.done.append(f"{loop.time():.3f} {act}")
                await self._acts[act]()

    def calm_down(self) -> None:
        """Remove the permanent faults and restore all links."""
        world = self.world
        world.fault_points = frozenset()
        world.delays.slow_chance = world.network.faults.tail_chance = 0.0
        world.network.heal()

    async def bring_up(self, broker: ClusterMachine) -> None:
        """Start a broker, with retries after failures and hangs, as a supervisor does."""
        while True:
            task = broker.begin()
            await asyncio.wait([task], timeout=START_SECONDS)
            if task.done() and task.exception() is None:
                return
            why = repr(task.exception()) if task.done() else f"{START_SECONDS:g} s are over"
            self.done.append(f"{self.world.loop.time():.3f} {broker.node.name} did not start: {why}")
            broker.crash("kill")
            await asyncio.sleep(START_PAUSE)

    # -- acts ------------------------------------------------------------------------------------------------------

    def _victim(self) -> ClusterMachine | None:
        whole = [broker for broker in self.world.running if broker not in self._suffering]
        return self.random.choice(whole) if whole else None

    async def _last(self) -> None:
        await asyncio.sleep(self.random.random() * self.plan.downtime)

    async def _crash(self, mode: Mode) -> None:
        broker = self._victim()
        if broker is not None:
            self._suffering.add(broker)
            broker.crash(mode)
            await self._return(broker)

    async def _crash_all(self) -> None:
        """Turn off the power of a whole room."""
        gone = [broker for broker in self.world.running if broker not in self._suffering]
        self._suffering.update(gone)
        for broker in gone:
            broker.crash(self.random.choice(("A", "B")))
        await asyncio.gather(*map(self._return, gone))

    async def _stop(self) -> None:
        broker = self._victim()
        if broker is None:
            return
        self._suffering.add(broker)
        await self._end(broker)
        await self._return(broker)

    async def _end(self, broker: ClusterMachine) -> None:
        """Stop it cleanly, or kill it if that takes too long."""
        task = self.world.loop.create_task(broker.stop())
        await asyncio.wait([task], timeout=STOP_SECONDS)
        if not task.done() or task.exception() is not None:
            broker.crash("kill")
            await asyncio.wait([task])
            task.exception()

    async def _return(self, broker: ClusterMachine) -> None:
        await self._last()
        await self.bring_up(broker)
        self._suffering.discard(broker)

    async def _pause(self) -> None:
        broker = self._victim()
        if broker is not None:
            self._suffering.add(broker)
            self.world.loop.frozen.add(broker.node)
            await self._last()
            self.world.loop.frozen.discard(broker.node)
            self._suffering.discard(broker)

    async def _between(self, first: SimNode, second: SimNode, *, both_ways: bool = True) -> None:
        self.world.network.cut(first, second, both_ways=both_ways)
        await self._last()
        self.world.network.mend(first, second)

    def _two(self) -> tuple[SimNode, SimNode]:
        first, second = self.random.sample(list(self.world.brokers.values()), 2)
        return first.node, second.node

    def _one(self) -> SimNode:
        return self.random.choice(list(self.world.brokers.values())).node

    async def _cut(self) -> None:
        await self._between(*self._two())

    async def _cut_one_way(self) -> None:
        await self._between(*self._two(), both_ways=False)

    async def _cut_off(self) -> None:
        """Cut it off from all other brokers, at times from their metadata, too; clients still reach it."""
        lonely = self._one()
        others = [broker.node for broker in self.world.brokers.values() if broker.node is not lonely]
        if self.random.random() < 0.5:
            others += self._metadata_nodes()
        for other in others:
            self.world.network.cut(lonely, other)
        await self._last()
        for other in others:
            self.world.network.mend(lonely, other)

    def _metadata_nodes(self) -> list[SimNode]:
        """Return the machines that have the metadata of the cluster."""
        return []

    async def _slow_link(self) -> None:
        first, second = self._two()
        self.world.network.slow[first, second] = self.random.random() * 0.5
        await self._last()
        self.world.network.mend(first, second)

    async def _reset(self) -> None:
        self.world.network.reset_some(self.random.random())

    async def _jump_clock(self) -> None:
        broker = self.random.choice(list(self.world.brokers.values()))
        broker.clock_ahead_ms = self.random.randrange(-HOUR_MS, HOUR_MS)

    async def _fill_disk(self) -> None:
        broker = self._victim()
        if broker is not None:
            self._suffering.add(broker)
            broker.disk.capacity = broker.disk.used + self.random.randrange(20_000)
            await self._last()
            # The disk may have been replaced by now, with the same size: by the survivor of a crash.
            broker.disk.capacity = None
            self._suffering.discard(broker)


class Nemesis(BrokerNemesis):
    """A nemesis of a cluster with a ZooKeeper, and of its sessions."""

    world: ClusterWorld

    def __init__(self, world: ClusterWorld, plan: Harm) -> None:
        super().__init__(world, plan)
        acts = self._acts | {
            "cut from zookeeper": self._cut_from_zookeeper,
            "expire": self._expire,
            "zookeeper down": self._zookeeper_down,
            "move controller": self._move_controller,
        }
        # The order decides which act a seed draws.
        self._acts = {name: acts[name] for name in ACTS}

    async def rage(self) -> None:
        ensemble, faults = self.world.ensemble, self.plan.faults
        ensemble.slow_chance = SLOW_ZOOKEEPER_CHANCE if "slow zookeeper" in faults else 0.0
        ensemble.break_chance = BREAK_CHANCE if "zookeeper breaks" in faults else 0.0
        await super().rage()

    def calm_down(self) -> None:
        self.world.ensemble.slow_chance = self.world.ensemble.break_chance = 0.0
        super().calm_down()

    def _metadata_nodes(self) -> list[SimNode]:
        return [self.world.ensemble.node]

    async def _cut_from_zookeeper(self) -> None:
        await self._between(self._one(), self.world.ensemble.node)

    async def _expire(self) -> None:
        sessions = list(self.world.ensemble.sessions)
        if sessions:
            self.world.ensemble.expire(self.random.choice(sessions))

    async def _zookeeper_down(self) -> None:
        self.world.ensemble.go_down()
        await self._last()
        self.world.ensemble.come_up()

    async def _move_controller(self) -> None:
        """Reassign partitions, as operators do."""
        ensemble = self.world.ensemble
        if ensemble.tree.look(CONTROLLER) is not None:
            session = ensemble.tree.open_session()
            ensemble.commit([Delete(CONTROLLER)], session)
            ensemble.tree.end_session(session)
