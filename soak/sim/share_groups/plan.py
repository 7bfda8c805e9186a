"""The plan that a seed draws for a run with share groups: brokers, groups, members, faults and settings."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields, replace
from typing import Any

from soak.sim.broken_requests import BROKEN_REQUESTS
from soak.sim.cluster.plan import NOW, ClusterPlan
from soak.sim.history import WriterKind

from barnabas.simulation.nemesis import NEEDS_DISK

BROKER_ACTS = ("kill", "power", "stop", "pause", "reset", "expire", "clock jump")
"""Faults of a single broker."""
CLUSTER_ACTS = (
    "power of all",
    "cut",
    "cut off",
    "cut one way",
    "cut from zookeeper",
    "slow link",
    "move controller",
    "zookeeper down",
)
"""Faults that require several brokers."""
SHARE_ACTS = (
    "kill a consumer",
    "pause a consumer",
    "cut a consumer",
    "strike a leader",
    "strike a coordinator",
)
"""Faults of the members, of a partition leader and of a share coordinator."""
MOVE, MOVE_CHANCE = "move a leader", 0.5
"""A change of the leader without a failure, and its probability in runs with several brokers and other faults."""
STATES = ("tail", "slow disk", "flush-late", *BROKEN_REQUESTS)
"""Permanent faults."""


@dataclass(frozen=True, slots=True)
class SharePlan(ClusterPlan):
    """The plan of a run. Times are seconds."""

    groups: int
    members: int
    """The number of members in each group."""
    delivery_count_limit: int
    lock_seconds: float
    """The duration of an acquisition lock."""
    processing: float
    """The longest time that a member processes the records of one read."""
    release_chance: float
    reject_chance: float
    renew_chance: float
    forget_chance: float
    """Probability that a member never acknowledges a record, so that its lock expires."""
    request_timeout_ms: int

    @classmethod
    def draw(cls, seed: int, *, quick: bool = False, brokers: int | None = None) -> SharePlan:
        """Draw the plan of a seed; `quick` for a few simulated seconds."""
        rng = random.Random(f"{seed}/share groups")
        base = ClusterPlan.draw(seed, quick=quick)
        drawn = rng.choice([1, 3])
        brokers = brokers or drawn
        durability = base.settings["acks.all.durability"]
        menu = [*BROKER_ACTS, *(CLUSTER_ACTS if brokers > 1 else ()), *SHARE_ACTS, *STATES]
        share = rng.choice([0.0, 0.2, 0.4, 0.7])
        faults = {fault for fault in menu if rng.random() < share} - (set() if durability == "disk" else NEEDS_DISK)
        if brokers > 1 and faults and random.Random(f"{seed}/{MOVE}").random() < MOVE_CHANCE:
            faults.add(MOVE)
        lock_seconds = rng.choice([1.0, 1.5, 3.0])
        limit = rng.choice([2, 3, 5, 8])
        return cls(
            **{
                **{one.name: getattr(base, one.name) for one in fields(ClusterPlan)},
                "brokers": brokers,
                "partitions": rng.randint(1, 2 if quick else 4),
                "writers": 1,
                "pace": rng.choice([0.02, 0.1]),
                "value_bytes": 10,
                "kinds": (WriterKind(),),
                "seconds": rng.uniform(1.5, 3) if quick else rng.uniform(4, 12),
                "gap": rng.uniform(0.1, 0.6 if quick else 2.0),
                "downtime": rng.uniform(0.02, 0.7 if quick else 3.0),
                "faults": frozenset(faults),
                "core_only": False,
                "work": frozenset(),
                "settings": base.settings | _settings(rng, brokers, lock_seconds, limit),
            },
            groups=rng.choice([1, 1, 2]),
            members=rng.randint(2, 3 if quick else 5),
            delivery_count_limit=limit,
            lock_seconds=lock_seconds,
            processing=rng.choice([0.0, 0.05, 0.2, 2 * lock_seconds]),
            release_chance=rng.choice([0.0, 0.1, 0.3]),
            reject_chance=rng.choice([0.0, 0.05]),
            renew_chance=rng.choice([0.0, 0.1, 0.3]),
            forget_chance=rng.choice([0.0, 0.02, 0.1]),
            request_timeout_ms=rng.choice([1000, 3000]),
        )

    def with_faults(  # type: ignore[override]  # takes further changes instead of kinds of work
        self, faults: frozenset[str], **changes: Any
    ) -> SharePlan:
        """Return the same plan with these faults, which occur often."""
        settings = dict(self.settings)
        if faults & NEEDS_DISK:
            settings["acks.all.durability"] = "disk"
        if "delivery_count_limit" in changes:
            settings["group.share.delivery.count.limit"] = str(changes["delivery_count_limit"])
        return replace(self, faults=faults, gap=min(self.gap, 0.3), nemeses=1, settings=settings, **changes)


def _settings(rng: random.Random, brokers: int, lock_seconds: float, limit: int) -> dict[str, str]:
    replicas, least = (str(brokers), "1" if brokers == 1 else "2")
    return {
        "default.replication.factor": replicas,
        "group.share.assignment.interval.ms": str(rng.choice([0, 1000])),
        "group.share.delivery.count.limit": str(limit),
        "group.share.heartbeat.interval.ms": "300",
        "group.share.min.heartbeat.interval.ms": "300",
        "group.share.min.record.lock.duration.ms": "1000",
        "group.share.min.session.timeout.ms": "1500",
        "group.share.record.lock.duration.ms": str(int(lock_seconds * 1000)),
        "group.share.session.timeout.ms": str(rng.choice([1500, 5000])),
        "inter.broker.protocol.version": NOW,
        "log.dirs": "/data",
        "min.insync.replicas": least,
        "offsets.topic.replication.factor": replicas,
        "share.coordinator.cold.partition.snapshot.interval.ms": str(rng.choice([1000, 300_000])),
        "share.coordinator.snapshot.update.records.per.snapshot": str(rng.choice([0, 5, 50])),
        "share.coordinator.state.topic.min.isr": least,
        "share.coordinator.state.topic.num.partitions": str(rng.choice([1, 3])),
        "share.coordinator.state.topic.prune.interval.ms": str(rng.choice([500, 300_000])),
        "share.coordinator.state.topic.replication.factor": replicas,
    }
