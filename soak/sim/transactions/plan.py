"""The plan that a seed draws for a run with transactions: brokers, copiers, faults and settings."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from soak.sim.cluster.plan import NOW, ClusterPlan

from barnabas.simulation.nemesis import NEEDS_DISK

Manner = Literal["assigned", "classic", "consumer"]
"""The subscription of copiers: manual assignment of one partition to each copier, or a group of either protocol."""

BROKER_ACTS = ("kill", "power", "stop", "pause", "reset", "expire", "clock jump")
"""The faults of a single broker."""
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
"""The faults that require several brokers."""
TRANSACTION_ACTS = (
    "strike a coordinator",
    "kill a copier",
    "zombie",
    "twin",
    "cut a copier",
    "desert",
    "change the version",
)
"""The faults of transactions. A deserter begins a transaction and disappears."""
STATES = ("tail", "slow disk", "flush-late", "produce-answer-lost", "requests lost", "answers lost", "requests late")
"""The faults that last for the whole run."""
DEATHS, LONG_MS = frozenset({"kill", "stop", "expire", "strike a coordinator", "move controller", "slow link"}), 60_000
"""The failures of brokers, and a transaction timeout that is longer than each of these failures."""
CROWDED = 0.5
"""The share of the long runs with many copiers that never pause."""
TV_2 = 2
UNSAFE_BEFORE_V2 = frozenset({"cut", "cut off", "cut one way", "slow link", "cut a copier"})
"""The faults that delay requests, perhaps until the next transaction. If the next transaction has the same epoch, as in
transaction version 1, late requests cannot be distinguished from new requests (KIP-890)."""


@dataclass(frozen=True, slots=True)
class TransactionPlan(ClusterPlan):
    """The plan of a run. Times are seconds."""

    manner: Manner
    copiers: int
    input_records: int
    """The number of records in each partition of the input. The input has one partition per copier."""
    most_records: int
    """The maximum number of records of the input in one transaction."""
    abort_chance: float
    linger: float
    """The maximum time that a copier waits before it ends a transaction."""
    timeout_ms: int
    """The value of `transaction.timeout.ms`."""
    request_timeout_ms: int
    reader_min_bytes: int
    """The value of `fetch.min.bytes` of readers."""
    version: int
    """The level of `transaction.version` at the start."""

    @property
    def is_v2(self) -> bool:
        """Return whether every transaction has a separate producer epoch."""
        return self.version == TV_2 and "change the version" not in self.faults

    @property
    def only_brokers_die(self) -> bool:
        """Return whether no transaction times out, and every request has a response unless its broker dies."""
        return self.faults <= DEATHS and self.timeout_ms >= LONG_MS

    @classmethod
    def draw(cls, seed: int, *, quick: bool = False, brokers: int | None = None) -> TransactionPlan:
        """Draw the plan of a seed; `quick` for a few simulated seconds."""
        rng = random.Random(f"{seed}/transactions")
        base = ClusterPlan.draw(seed, quick=quick)
        is_crowded = not quick and rng.random() < CROWDED
        drawn = rng.choice([1] * 7 + [3] if is_crowded else [1, 1, 3])
        brokers = brokers or drawn
        durability = base.settings["acks.all.durability"]
        menu = [*BROKER_ACTS, *(CLUSTER_ACTS if brokers > 1 else ()), *TRANSACTION_ACTS, *STATES]
        share = rng.choice([0.0, 0.05, 0.1, 0.2, 0.3] if is_crowded else [0.0, 0.2, 0.4, 0.7])
        version = rng.choice([2, 2, 1, 0])
        faults = {fault for fault in menu if rng.random() < share} - (set() if durability == "disk" else NEEDS_DISK)
        if version < TV_2 or "change the version" in faults:
            faults -= UNSAFE_BEFORE_V2
        plan = cls(
            **{
                **{one.name: getattr(base, one.name) for one in fields(ClusterPlan)},
                "brokers": brokers,
                "partitions": rng.randint(1, 3),
                "linger_ms": 0,
                "seconds": rng.uniform(1, 2) if quick else rng.uniform(2, 6),
                "gap": rng.uniform(0.1, 0.6 if quick else 1.5),
                "downtime": rng.uniform(0.02, 0.7 if quick else 2.0),
                "faults": frozenset(faults),
                "core_only": False,
                "work": frozenset(),
                "settings": base.settings | _settings(rng, brokers),
            },
            manner=rng.choice(("assigned", "assigned", "classic", "consumer")),
            copiers=rng.randint(1, 3) if quick else rng.randint(1, 6),
            input_records=300 if quick else 1500,
            most_records=rng.choice([1, 3, 10]),
            abort_chance=rng.choice([0.0, 0.1, 0.3]),
            linger=rng.choice([0.0, 0.0, 0.0, 0.05, 0.8]),
            timeout_ms=rng.choice([500, 1000, 4000]),
            request_timeout_ms=rng.choice([300, 1000, 3000]),
            reader_min_bytes=1 if quick else rng.choice([1, 1000, 4000]),
            version=version,
        )
        return plan._crowded(rng) if is_crowded else plan

    def _crowded(self, rng: random.Random) -> TransactionPlan:
        """Return the same plan with many copiers without pauses. Most transactions occur in these runs."""
        return replace(
            self,
            copiers=rng.randint(6, 12),
            seconds=rng.uniform(8, 20) if self.faults else rng.uniform(2, 4),
            gap=rng.uniform(0.3, 3.0),
            downtime=rng.uniform(0.02, 0.7),
            input_records=4000,
            most_records=rng.choice([1, 3]),
            abort_chance=rng.choice([0.0, 0.05, 0.2]),
            linger=0.0,
            reader_min_bytes=rng.choice([1000, 4000]),
        )

    def with_faults(  # type: ignore[override]  # takes further changes instead of kinds of work
        self, faults: frozenset[str], **changes: Any
    ) -> TransactionPlan:
        """Return the same plan with these faults, which occur often."""
        settings = dict(self.settings)
        if faults & NEEDS_DISK:
            settings["acks.all.durability"] = "disk"
        return replace(self, faults=faults, gap=min(self.gap, 0.3), nemeses=1, settings=settings, **changes)


def _settings(rng: random.Random, brokers: int) -> dict[str, str]:
    replicas, least = (str(brokers), "1" if brokers == 1 else "2")
    return {
        "default.replication.factor": replicas,
        "inter.broker.protocol.version": NOW,
        "min.insync.replicas": least,
        "log.dirs": "/data",
        "offsets.topic.replication.factor": replicas,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(rng.choice([200, 1000, 5000])),
        "transaction.state.log.min.isr": least,
        "transaction.state.log.num.partitions": str(rng.choice([1, 2])),
        "transaction.state.log.replication.factor": replicas,
    }
