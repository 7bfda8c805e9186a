"""One seeded run: producers and consumers, and a nemesis that kills, cuts power, resets connections and slows disks."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, replace

from soak.sim.outcome import Outcome, outcome_of
from soak.sim.workload import TOPIC, Load, Workload

from barnabas.simulation.disk import Mode
from barnabas.simulation.loop import SimLoop
from barnabas.simulation.machines import BOOTSTRAP, WorkDelays, World
from barnabas.simulation.network import NetworkFaults

FAULT_POINTS = frozenset({"flush-late", "produce-answer-lost", "fetch-session-lost"})


@dataclass(frozen=True, slots=True)
class Plan(Load):
    """The faults, the settings and the workload of a run, all drawn from its seed."""

    seconds: float
    gap: float
    downtime: float
    settings: dict[str, str]

    @classmethod
    def draw(cls, seed: int, *, durability: str = "disk") -> Plan:
        rng = random.Random(f"{seed}/plan")
        menu = [
            "kill",
            "stop",
            "reset",
            "tail",
            "slow_disk",
            *sorted(FAULT_POINTS),
            *(["power"] if durability == "disk" else []),
        ]
        batch_size = rng.choice([200, 2000, 16_384])
        return cls(
            seed=seed,
            partitions=rng.randint(1, 3),
            writers=rng.randint(1, 3),
            seconds=rng.uniform(5, 20),
            faults=frozenset(name for name in menu if rng.random() < 0.6),
            gap=rng.uniform(0.2, 4),
            downtime=rng.uniform(0.02, 2),
            compression=rng.choice(["none", "none", "gzip", "snappy", "lz4", "zstd"]),
            linger_ms=rng.choice([0, 5, 20]),
            batch_size=batch_size,
            value_bytes=rng.choice([10, 100, 1000]),
            pace=0.02,
            settings={
                "acks.all.durability": durability,
                "log.segment.bytes": str(rng.choice([20_000 if batch_size > 2000 else 4096, 20_000, 1 << 20])),
                "log.index.interval.bytes": str(rng.choice([0, 100, 4096])),
                "log.index.size.max.bytes": str(rng.choice([96, 4096])),
                "log.flush.offset.checkpoint.interval.ms": str(rng.choice([50, 1000, 60_000])),
                "replica.high.watermark.checkpoint.interval.ms": str(rng.choice([50, 5000])),
            },
        )


class Run(Workload):
    """A run of a plan with one broker."""

    plan: Plan
    world: World

    def __init__(self, loop: SimLoop, plan: Plan) -> None:
        self.random = random.Random(f"{plan.seed}/run")
        faults = NetworkFaults(tail_chance=0.05 if "tail" in plan.faults else 0.0)
        delays = WorkDelays(slow_chance=0.1 if "slow_disk" in plan.faults else 0.0)
        world = World(loop, plan.seed, plan.settings, faults, delays, plan.faults & FAULT_POINTS)
        super().__init__(world, plan, BOOTSTRAP)

    @property
    def topic_settings(self) -> dict[str, str]:
        """Return the settings of the topic."""
        return {}

    @property
    def lives(self) -> int:
        return self.world.broker.lives

    async def go(self) -> None:
        world, broker = self.world, self.world.broker
        await broker.start()
        await world.create_topic(TOPIC, self.plan.partitions, self.topic_settings)
        writers = [
            world.spawn(world.machine(f"writer-{partition}-{number}"), self._produce(partition, number))
            for partition in range(self.plan.partitions)
            for number in range(self.plan.writers)
        ]
        reader = world.spawn(world.machine("reader"), self._read())
        await self._nemesis()
        self.is_over = True
        world.fault_points = frozenset()
        world.delays.slow_chance = 0.0
        await asyncio.gather(*writers, reader)
        await self._drain()

    async def _nemesis(self) -> None:
        """Inject faults until the time of the plan is over."""
        plan, rng, broker = self.plan, self.random, self.world.broker
        acts = sorted(plan.faults & {"kill", "stop", "reset", "power"})
        deadline = self.loop.time() + plan.seconds
        while self.loop.time() < deadline:
            await asyncio.sleep(rng.random() * plan.gap)
            act = rng.choice(acts) if acts else "rest"
            if act == "reset":
                self.world.network.reset_some(rng.random())
            elif act == "stop":
                await broker.stop()
                await self._restart()
            elif act in ("kill", "power"):
                mode: Mode = "kill" if act == "kill" else rng.choice(("A", "B"))
                broker.crash(mode)
                await self._restart()

    async def _restart(self) -> None:
        await asyncio.sleep(self.random.random() * self.plan.downtime)
        await self.world.broker.start()


def play(seed: int, *, durability: str = "disk", faults: frozenset[str] | None = None) -> Outcome[Plan]:
    """Carry out the plan of a seed and check its history; `faults` replaces the faults that the seed draws."""
    plan = Plan.draw(seed, durability=durability)
    if faults is not None:
        plan = replace(plan, faults=faults, gap=0.3)
    return outcome_of(Run, plan, f"python -m soak.sim --seed {seed} --durability {durability}")
