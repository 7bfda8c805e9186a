"""The plan that a seed draws for a KRaft cluster: brokers, the behaviour of the quorum, faults and settings."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from soak.sim.history import WriterKind
from soak.sim.workload import Load

from barnabas.simulation.kraft.quorum import QuorumBehavior
from barnabas.simulation.nemesis import NEEDS_DISK, Harm

BROKER_ACTS = (
    *("kill", "power", "power of all", "stop", "pause", "cut", "cut off", "cut one way", "slow link", "reset"),
    *("clock jump", "long turn", "stop all"),
)
QUORUM_ACTS = (
    *("kill controller", "pause controller", "isolate leader", "elect", "cut from controllers", "cut from leader"),
    *("lose responses", "snapshot"),
)
CHANGES = ("reassign", "grow", "replace topic", "alter topic", "alter brokers", "transaction", "prefer")
"""Changes of the metadata by operators."""
STATES = ("tail", "slow disk", "flush-late", "slow commits", "many snapshots")
"""Permanent faults."""
WORK = ("churn", "members")
CLEAN_STOPS = frozenset({"stop", "stop all"})


@dataclass(frozen=True, slots=True)
class KRaftPlan(Load):
    """The plan of a run. Times are seconds."""

    brokers: int
    seconds: float
    gap: float
    """The maximum time between two faults of one nemesis."""
    downtime: float
    """The maximum duration of a fault."""
    nemeses: int
    work: frozenset[str]
    settings: dict[str, str]
    heartbeat: float
    session: float
    fetch_bytes: int
    highest_fetch: int
    election: float
    slow_job: float
    """The longest time of a blocking job with the fault `slow disk`."""
    is_quick: bool

    @classmethod
    def draw(cls, seed: int, *, quick: bool = False) -> KRaftPlan:
        """Draw the plan of a seed; `quick` for a few simulated seconds."""
        rng = random.Random(f"{seed}/kraft")
        durability = rng.choice(["disk", "disk", "page-cache"])
        menu = [
            fault
            for fault in (*BROKER_ACTS, *QUORUM_ACTS, *CHANGES, *STATES)
            if durability == "disk" or fault not in NEEDS_DISK
        ]
        share = rng.choice([0.2, 0.4, 0.7])
        faults = frozenset(fault for fault in menu if rng.random() < share)
        brokers = 3 if quick else rng.choice([2, 3, 3, 4])
        heartbeat = rng.choice([0.1, 0.2, 0.3])
        session = rng.choice([1.0, 1.5, 2.0])
        return cls(
            seed=seed,
            partitions=rng.randint(1, 2) if quick else rng.randint(1, 4),
            writers=1,
            compression=rng.choice(["none", "none", "none", "lz4"]),
            linger_ms=rng.choice([0, 5, 20]),
            batch_size=rng.choice([200, 2000, 16_384]),
            value_bytes=rng.choice([10, 100]),
            pace=rng.choice([0.1, 0.2, 0.4]),
            brokers=brokers,
            seconds=rng.uniform(1.5, 3.5) if quick else rng.uniform(3, 8),
            faults=faults,
            gap=rng.uniform(0.1, 0.7 if quick else 2.0),
            downtime=rng.uniform(0.02, 1.5 if quick else 4.0),
            nemeses=rng.randint(1, 3),
            work=frozenset(work for work in WORK if rng.random() < (0.35 if work == "churn" else 0.15)),
            settings=_settings(rng, durability, heartbeat, session, min(brokers, 3)),
            heartbeat=heartbeat,
            session=session,
            fetch_bytes=rng.choice([200, 1000, 1 << 20]),
            highest_fetch=rng.choice([17, 18]),
            election=rng.choice([0.1, 0.3, 1.0]),
            slow_job=rng.choice([0.5, 0.5, 2.0]),
            is_quick=quick,
        )

    @property
    def kinds(self) -> tuple[WriterKind, ...]:
        """Return the guarantees of the producers."""
        return (WriterKind(),)

    @property
    def harm(self) -> Harm:
        """Return the settings of the nemesis."""
        return Harm(self.faults, self.seconds, self.gap, self.downtime, self.nemeses)

    @property
    def quorum(self) -> QuorumBehavior:
        """Return the behaviour of the controllers."""
        return QuorumBehavior(
            slow_commit_chance=0.3 if "slow commits" in self.faults else 0.0,
            election=self.election,
            stale=2 * self.election,
            snapshot_records=12 if "many snapshots" in self.faults else 60,
            fetch_bytes=self.fetch_bytes,
            highest_fetch=self.highest_fetch,
            session=self.session,
        )

    def with_faults(self, faults: frozenset[str], work: frozenset[str] = frozenset(), **changes: object) -> KRaftPlan:
        """Return the same plan with these faults, which are frequent, and this work."""
        settings = dict(self.settings)
        if faults & NEEDS_DISK:
            settings["acks.all.durability"] = "disk"
        plan = replace(self, faults=faults, work=work, gap=min(self.gap, 0.4), nemeses=1, settings=settings)
        return replace(plan, **changes) if changes else plan  # type: ignore[arg-type]  # fields of the plan


def _settings(rng: random.Random, durability: str, heartbeat: float, session: float, replicas: int) -> dict[str, str]:
    return {
        "acks.all.durability": durability,
        "broker.heartbeat.interval.ms": str(int(heartbeat * 1000)),
        "broker.session.timeout.ms": str(int(session * 1000)),
        "controller.quorum.request.timeout.ms": str(rng.choice([700, 2000])),
        "controller.quorum.fetch.timeout.ms": "2000",
        "controller.quorum.retry.backoff.ms": "20",
        "default.replication.factor": str(replicas),
        "log.segment.delete.delay.ms": str(rng.choice([0, 1000])),
        "group.consumer.heartbeat.interval.ms": "300",
        "group.consumer.min.heartbeat.interval.ms": "300",
        "group.consumer.min.session.timeout.ms": "1500",
        "group.consumer.session.timeout.ms": "1500",
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.assignment.interval.ms": "0",
        "group.min.session.timeout.ms": "1500",
        "log.cleaner.enable": "false",
        "log.dirs": rng.choice(["/data", "/data,/more"]),
        "log.flush.offset.checkpoint.interval.ms": str(rng.choice([50, 1000, 60_000])),
        "log.index.interval.bytes": str(rng.choice([0, 100, 4096])),
        "log.segment.bytes": str(rng.choice([20_000, 1 << 20])),
        "metadata.log.max.record.bytes.between.snapshots": str(rng.choice([1000, 4000, 1 << 20])),
        "metadata.log.segment.bytes": str(rng.choice([8 << 20, 1 << 30])),
        "metadata.max.retention.bytes": str(rng.choice([2000, 100 << 20])),
        "min.insync.replicas": str(min(2, replicas)),
        "num.replica.fetchers": str(rng.choice([1, 2])),
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": str(replicas),
        "replica.fetch.backoff.ms": str(rng.choice([50, 1000])),
        "replica.fetch.wait.max.ms": str(rng.choice([50, 500])),
        "replica.high.watermark.checkpoint.interval.ms": str(rng.choice([50, 5000])),
        "replica.lag.time.max.ms": str(rng.choice([500, 1000, 3000])),
        "replica.socket.timeout.ms": str(rng.choice([1000, 3000])),
        "request.timeout.ms": "2000",
    }
