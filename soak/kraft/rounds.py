"""One round: clients of all kinds use a KRaft cluster that has faults. Then the guarantees are checked.

The faults of a round are drawn from its number. The same number repeats the faults, but not their exact timing.
"""

from __future__ import annotations

import random
from contextlib import ExitStack
from dataclasses import dataclass

from soak.cluster.faults import (
    Fault,
    Outcome,
    create_topic,
    delete_topic,
    differing_replicas,
    draw_seconds,
    inject_faults,
)
from soak.cluster.load import JavaLoad, Load
from soak.kraft.clients import GroupLoad, ShareLoad, TransactionLoad
from soak.kraft.processes import KRaftProcessCluster

PARTITIONS = 4
OF_TRANSACTIONS = 2
LONG_SESSIONS = (1.3, 3.0)
"""The duration of a long fault, in sessions."""
PAUSE_S = (5.0, 20.0)
"""The duration for which the active controller is paused."""

BROKER_ROLES = ("leader", "kafka", "barnabas", "follower")
OF_BROKERS = (
    *("kill", "kill", "pause shortly", "pause", "cut from brokers", "cut one way", "cut from controllers"),
    *("cut from controllers shortly", "cut from the active controller", "cut from clients", "isolate", "stop"),
)
OF_CONTROLLERS = ("kill", "kill", "pause", "cut from controllers", "isolate", "restart all")


@dataclass(frozen=True)
class Plan:
    """A round, drawn from its number."""

    number: int
    java: bool
    protocol: str
    """The group protocol of the consumers: classic or consumer."""
    faults: tuple[Fault, ...]

    @classmethod
    def draw(cls, number: int) -> Plan:
        rng = random.Random(number)
        faults = tuple(cls._fault(rng) for _ in range(rng.choice([1, 1, 2])))
        return cls(number, rng.random() < 0.15, rng.choice(["classic", "consumer"]), faults)

    @staticmethod
    def _fault(rng: random.Random) -> Fault:
        role = rng.choice([*BROKER_ROLES, *("controller",) * 2])
        what = rng.choice(OF_CONTROLLERS if role == "controller" else OF_BROKERS)
        seconds = draw_seconds(rng, what, LONG_SESSIONS)
        if role == "controller" and what == "pause":
            seconds = rng.uniform(*PAUSE_S)
        return Fault(role, what, seconds, rng.uniform(0.1, 1.0), rng.random() < 0.5)

    def __str__(self) -> str:
        java = ", Java" if self.java else ""
        return f"round {self.number}, {self.protocol} group{java}: {'; '.join(map(str, self.faults))}"


@dataclass
class KRaftOutcome(Outcome):
    """The outcome of a round with transactions and groups."""

    committed: int = 0
    """Committed transactions."""
    aborted: int = 0
    """Transactions that the cluster aborted."""
    shared: int = 0
    """Records that the share group accepted."""

    def counts(self) -> dict[str, int]:
        """Return the numbers to add up over all rounds, by name."""
        others = {"transactions": self.committed, "aborted": self.aborted, "shared": self.shared}
        return {**super().counts(), **others}


def play(cluster: KRaftProcessCluster, plan: Plan) -> KRaftOutcome:
    """Play a round on a cluster without faults. The cluster has no faults afterwards unless there are violations."""
    outcome = KRaftOutcome(plan)
    with outcome.record_failure():
        _play(cluster, plan, f"round-{plan.number}", outcome)
    return outcome


def _play(cluster: KRaftProcessCluster, plan: Plan, topic: str, outcome: KRaftOutcome) -> None:
    topics = {topic: PARTITIONS, f"{topic}-transactions": OF_TRANSACTIONS}
    for name, partitions in topics.items():
        create_topic(cluster, name, partitions)
    load = Load(cluster.bootstrap, topic, PARTITIONS, per_second=200)
    transactions = TransactionLoad(cluster.bootstrap, f"{topic}-transactions", OF_TRANSACTIONS)
    group = GroupLoad(cluster.bootstrap, topic, f"group-{plan.number}", protocol=plan.protocol)
    share = ShareLoad(cluster.bootstrap, topic, PARTITIONS, f"share-{plan.number}")
    with ExitStack() as clients:
        java = JavaLoad(cluster.bootstrap, topic) if plan.java else None
        if java is not None:
            clients.callback(java.kill)
        for one in (share, group, load, transactions):
            clients.enter_context(one)
        # The clients cannot finish without brokers.
        clients.callback(cluster.heal)
        load.grows()
        transactions.grows()
        if java is not None:
            java.wait_until_it_writes()
        inject_faults(cluster, load, plan.faults, outcome)
        transactions.grows()
        load.finish()
        if java is not None:
            java.finish()
        transactions.end()
        history = load.read_back()
        if java is not None:
            java.add_to(history)
        group.wait_for(history.final)
        share.wait_for(history.final)
    outcome.acknowledged, outcome.shared = len(history.acknowledged), len(share.accepted)
    outcome.committed = transactions.committed
    outcome.aborted = sum(one == "lost" for one in transactions.outcomes.values())
    outcome.violations += [*history.check(), *transactions.check(), *group.violations, *share.violations]
    for name, partitions in topics.items():
        outcome.violations += differing_replicas(cluster, name, partitions)
        delete_topic(cluster, name)
