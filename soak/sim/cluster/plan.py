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
"""Clients in addition to the producers and consumers of the main topic."""

NOW, BEFORE = "3.9", "2.6"
"""Values of `inter.broker.protocol.version`: before 2.7, leaders write the ISR to ZooKeeper themselves."""
SHARE_OF_BEFORE = 0.1


@dataclass(frozen=True, slots=True)
class ClusterPlan(Load):
    """The plan of a run. Times are seconds."""

    brokers: int
    seconds: float
    gap: float
    """The maximum time between two faults of one nemesis."""
    downtime: float
    """The maximum duration of a fault."""
    nemeses: int
    core_only: bool
    """Whether one broker is down during the check that the other brokers acknowledge new records."""
    kinds: tuple[WriterKind, ...]
    work: frozenset[str]
    settings: dict[str, str]
    is_quick: bool

    @classmethod
    def draw(cls, seed: int, *, quick: bool = False) -> ClusterPlan:
        """Draw the plan of a seed; `quick` for a few simulated seconds."""
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
        """Return whether leaders write the ISR to ZooKeeper themselves, and brokers do not receive topic ids."""
        return self.settings["inter.broker.protocol.version"] == BEFORE

    @property
    def harm(self) -> Harm:
        """The settings of the nemesis."""
        return Harm(self.faults, self.seconds, self.gap, self.downtime, self.nemeses)

    def with_faults(self, faults: frozenset[str], work: frozenset[str] = frozenset()) -> ClusterPlan:
        """Return the same plan with these faults, which occur often, and this work."""
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
    """Return whether a leader may lose records that are not on its disk.

    After a failed disk a broker restarts without its page cache, unless the durability is `page-cache`.
    """
    return bool(faults & NEEDS_DISK) or (durability == "disk" and "disk dies" in faults)


def _second_kind(rng: random.Random, *, loses_power: bool) -> WriterKind:
    """Draw the guarantees of the second kind of writers: no acks=1 if power failures are possible.

    Records of acks=1 may be visible before they are on the disk of the leader. If the leader loses power and is the
    only live replica afterwards, it no longer has records that its followers have on their disks.
    """
    kind = rng.choice([WriterKind(), WriterKind(is_idempotent=False), WriterKind(1, is_idempotent=False)])
    return WriterKind(is_idempotent=False) if kind.acks == 1 and loses_power else kind


def _protocol(seed: int) -> str:
    """Draw `inter.broker.protocol.version`."""
    return BEFORE if random.Random(f"{seed}/protocol").random() < SHARE_OF_BEFORE else NOW


def _disks(faults: frozenset[str]) -> dict[str, str]:
    """Return the log directories: two if one of them may fail."""
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
        # Each replica compacts separately, so that compacted replicas would not be identical byte for byte.
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
