"""The plan that a seed draws for a run with a streams group: brokers, threads, tasks, faults and settings."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields, replace
from typing import Any

from soak.sim.broken_requests import BROKEN_REQUESTS
from soak.sim.cluster.plan import NOW, ClusterPlan
from soak.sim.share_groups.plan import BROKER_ACTS, CLUSTER_ACTS

from barnabas.simulation.nemesis import NEEDS_DISK

STREAMS_ACTS = ("kill a member", "pause a member", "cut a member", "replace a member", "strike a coordinator")
"""Faults of the members and of the group coordinator."""
STATES = ("tail", "slow disk", "flush-late", *BROKEN_REQUESTS)
"""Permanent faults."""


@dataclass(frozen=True, slots=True)
class StreamsPlan(ClusterPlan):
    """The plan of a run. Times are seconds. `partitions` is the number of tasks of each subtopology."""

    processes: int
    threads: int
    """The number of threads in each process. Each thread is a member."""
    static_chance: float
    """Probability that a thread is a static member."""
    standby_replicas: int
    is_repartitioned: bool
    """Whether the topology has a second, stateless subtopology."""
    session_seconds: float
    rebalance_seconds: float
    """The time within which a member must revoke tasks."""
    revocation: float
    """The longest time that a member takes to revoke tasks."""
    stubborn_chance: float
    """Probability that a member never revokes tasks."""

    @classmethod
    def draw(cls, seed: int, *, quick: bool = False, brokers: int | None = None) -> StreamsPlan:
        """Draw the plan of a seed; `quick` for a few simulated seconds."""
        rng = random.Random(f"{seed}/streams groups")
        base = ClusterPlan.draw(seed, quick=quick)
        drawn = rng.choice([1, 3])
        brokers = brokers or drawn
        durability = base.settings["acks.all.durability"]
        menu = [*BROKER_ACTS, *(CLUSTER_ACTS if brokers > 1 else ()), *STREAMS_ACTS, *STATES]
        share = rng.choice([0.0, 0.2, 0.4, 0.7])
        faults = {fault for fault in menu if rng.random() < share} - (set() if durability == "disk" else NEEDS_DISK)
        session_seconds = rng.choice([1.5, 4.0])
        standby_replicas = rng.choice([0, 1, 2])
        return cls(
            **{
                **{one.name: getattr(base, one.name) for one in fields(ClusterPlan)},
                "brokers": brokers,
                "partitions": rng.randint(2, 6),
                "seconds": rng.uniform(3, 6) if quick else rng.uniform(8, 20),
                "gap": rng.uniform(0.1, 0.8 if quick else 2.0),
                "downtime": rng.uniform(0.02, 0.7 if quick else 3.0),
                "faults": frozenset(faults),
                "core_only": False,
                "work": frozenset(),
                "settings": base.settings | _settings(rng, brokers, session_seconds, standby_replicas),
            },
            processes=rng.randint(2, 3),
            threads=rng.randint(1, 2),
            static_chance=rng.choice([0.0, 0.3]),
            standby_replicas=standby_replicas,
            is_repartitioned=rng.random() < 0.5,
            session_seconds=session_seconds,
            rebalance_seconds=rng.choice([2.0, 5.0]),
            revocation=rng.choice([0.0, 0.3, 1.0]),
            stubborn_chance=rng.choice([0.0, 0.05]),
        )

    @property
    def tasks(self) -> frozenset[tuple[str, int]]:
        """Return all tasks: subtopology id and partition."""
        names = ("0", "1") if self.is_repartitioned else ("0",)
        return frozenset((name, partition) for name in names for partition in range(self.partitions))

    @property
    def stateful_tasks(self) -> frozenset[tuple[str, int]]:
        """Return the tasks that have standby tasks."""
        return frozenset(task for task in self.tasks if task[0] == "0")

    def with_faults(  # type: ignore[override]  # takes further changes instead of kinds of work
        self, faults: frozenset[str], **changes: Any
    ) -> StreamsPlan:
        """Return the same plan with these faults, which occur often."""
        settings = dict(self.settings)
        if faults & NEEDS_DISK:
            settings["acks.all.durability"] = "disk"
        if "standby_replicas" in changes:
            settings["group.streams.num.standby.replicas"] = str(changes["standby_replicas"])
        return replace(self, faults=faults, gap=min(self.gap, 0.4), nemeses=1, settings=settings, **changes)


def _settings(rng: random.Random, brokers: int, session_seconds: float, standby_replicas: int) -> dict[str, str]:
    replicas, least = (str(brokers), "1" if brokers == 1 else "2")
    return {
        "default.replication.factor": replicas,
        "group.streams.assignment.interval.ms": str(rng.choice([0, 1000])),
        "group.streams.heartbeat.interval.ms": "300",
        "group.streams.initial.rebalance.delay.ms": str(rng.choice([0, 1000])),
        "group.streams.min.heartbeat.interval.ms": "300",
        "group.streams.min.session.timeout.ms": "1500",
        "group.streams.num.standby.replicas": str(standby_replicas),
        "group.streams.session.timeout.ms": str(int(session_seconds * 1000)),
        "inter.broker.protocol.version": NOW,
        "log.dirs": "/data",
        "min.insync.replicas": least,
        "offsets.topic.replication.factor": replicas,
    }
