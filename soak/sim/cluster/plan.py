"""The plan of a run, determined by its seed: the brokers, the active faults, and the settings (swarm testing)."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from soak.sim.history import WriterKind
from soak.sim.workload import Load

from barnabas.simulation.nemesis import ACTS, NEEDS_DISK, STATES, Harm

MORE_ACTS = ("stop all", "disk dies", "bits rot", "reassign", "grow")
"""The further faults of `ClusterNemesis`."""
WORK = ("churn", "members")
"""Clients beside those of the topic that is compared with what was sent."""

NOW, BEFORE = "3.9", "2.6"
"""How brokers speak to each other: before 2.7 leaders write the in-sync replicas themselves."""
SHARE_OF_BEFORE = 0.1


@dataclass(frozen=True, slots=True)
class ClusterPlan(Load):
    """One run of one cluster. Times are seconds."""

    brokers: int
    seconds: float
    gap: float
    """Between two acts of one nemesis, at most."""
    downtime: float
    """How long an act lasts, at most."""
    nemeses: int
    core_only: bool
    """Whether one broker stays down while it is looked whether the others go on."""
    kinds: tuple[WriterKind, ...]
    work: frozenset[str]
    settings: dict[str, str]
    is_quick: bool

    @classmethod
    def draw(cls, seed: int, *, quick: bool = False) -> ClusterPlan:
        """`quick` for a few simulated seconds."""
        rng = random.Random(f"{seed}/cluster")
        durability = rng.choice(["disk", "disk", "page-cache"])
        menu = [fault for fault in (*ACTS, *MORE_ACTS, *STATES) if durability == "disk" or fault not in NEEDS_DISK]
        share = rng.choice([0.2, 0.4, 0.7])
        faults = frozenset(fault for fault in menu if rng.random() < share)
        brokers = rng.choice([3, 4]) if "reassign" in faults else 3
        if not quick:
            brokers = rng.choice([brokers, 3, 4, 5])
        return cls(
            seed=seed,
            partitions=1 if quick else rng.randint(1, 3),
            writers=rng.randint(1, 2),
            compression=rng.choice(["none", "none", "none", "lz4", "zstd"]),
            linger_ms=rng.choice([0, 5, 20]),
            batch_size=rng.choice([200, 2000, 16_384]),
            value_bytes=rng.choice([10, 100, 1000]),
            pace=rng.choice([0.05, 0.1, 0.2]),
            brokers=brokers,
            seconds=rng.uniform(1.4, 2.7) if quick else rng.uniform(4, 8),
            faults=faults,
            gap=rng.uniform(0.2, 1.0 if quick else 5.0),
            downtime=rng.uniform(0.02, 1.0 if quick else 5.0),
            nemeses=rng.randint(1, 3),
            core_only=rng.random() < 0.3,
            kinds=(WriterKind(), _second_kind(rng, loses_power=_loses_power(faults, durability))),
            work=frozenset(work for work in WORK if rng.random() < (0.1 if quick else 0.12)),
            settings=_settings(rng, durability, faults) | {"inter.broker.protocol.version": _protocol(seed)},
            is_quick=quick,
        )

    @property
    def speaks_as_before(self) -> bool:
        """Whether leaders write the in-sync replicas themselves, and brokers hear of no ids of topics."""
        return self.settings["inter.broker.protocol.version"] == BEFORE

    @property
    def harm(self) -> Harm:
        """The settings of the nemesis."""
        return Harm(self.faults, self.seconds, self.gap, self.downtime, self.nemeses)

    def with_faults(self, faults: frozenset[str], work: frozenset[str] = frozenset()) -> ClusterPlan:
        """The same with these faults, which come often, and this work."""
        settings, kinds = self.settings | _disks(faults), self.kinds
        if faults & NEEDS_DISK:
            settings["acks.all.durability"] = "disk"
        if _loses_power(faults, settings["acks.all.durability"]):
            kinds = tuple(kind for kind in kinds if kind.acks == "all")
        brokers = max(self.brokers, 4) if "reassign" in faults else self.brokers
        return replace(
            self,
            faults=faults,
            work=work,
            gap=min(self.gap, 0.5),
            nemeses=1,
            brokers=brokers,
            settings=settings,
            kinds=kinds,
        )


def _loses_power(faults: frozenset[str], durability: str) -> bool:
    """Whether what a leader has in its memory may be gone. Whose disk has died is started anew without its memory, too,
    unless that is all that was promised.
    """
    return bool(faults & NEEDS_DISK) or (durability == "disk" and "disk dies" in faults)


def _second_kind(rng: random.Random, *, loses_power: bool) -> WriterKind:
    """Records of acks=1 may be visible, and be lost in a power failure, as this setting permits.

    Followers have it on their disks then, and a leader that comes back as the last one alive does not.
    """
    kind = rng.choice([WriterKind(), WriterKind(is_idempotent=False), WriterKind(1, is_idempotent=False)])
    return WriterKind(is_idempotent=False) if kind.acks == 1 and loses_power else kind


def _protocol(seed: int) -> str:
    """Return the security protocol between brokers."""
    return BEFORE if random.Random(f"{seed}/protocol").random() < SHARE_OF_BEFORE else NOW


def _disks(faults: frozenset[str]) -> dict[str, str]:
    """A broker of which one disk dies has another."""
    return {"log.dirs": "/data,/more" if "disk dies" in faults else "/data"}


def _settings(rng: random.Random, durability: str, faults: frozenset[str]) -> dict[str, str]:
    session_ms = rng.choice([500, 1000, 2000])
    return {
        "acks.all.durability": durability,
        "auto.leader.rebalance.enable": rng.choice(["true", "false"]),
        "controller.socket.timeout.ms": str(rng.choice([1000, 3000])),
        "default.replication.factor": "3",
        "group.consumer.heartbeat.interval.ms": "300",
        "group.consumer.min.heartbeat.interval.ms": "300",
        "group.consumer.min.session.timeout.ms": "1500",
        "group.consumer.session.timeout.ms": "1500",
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.assignment.interval.ms": "0",
        "group.min.session.timeout.ms": "1500",
        # Each replica compacts by itself: what is left would not be the same bytes.
        "log.cleaner.enable": "false",
        "leader.imbalance.check.interval.seconds": "1",
        "log.flush.offset.checkpoint.interval.ms": str(rng.choice([50, 1000, 60_000])),
        "log.index.interval.bytes": str(rng.choice([0, 100, 4096])),
        "log.index.size.max.bytes": str(rng.choice([96, 4096])),
        "log.segment.bytes": str(rng.choice([20_000, 100_000, 1 << 20])),
        "min.insync.replicas": "2",
        "num.replica.fetchers": str(rng.choice([1, 2])),
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "3",
        "replica.fetch.backoff.ms": str(rng.choice([50, 1000])),
        "replica.fetch.max.bytes": str(rng.choice([500, 1 << 20])),
        "replica.fetch.wait.max.ms": str(rng.choice([50, 500])),
        "replica.high.watermark.checkpoint.interval.ms": str(rng.choice([50, 5000])),
        "replica.lag.time.max.ms": str(rng.choice([500, 1000, 3000])),
        "replica.socket.timeout.ms": str(rng.choice([1000, 3000])),
        "zookeeper.session.timeout.ms": str(session_ms),
        **_disks(faults),
    }
