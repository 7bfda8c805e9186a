"""One round: clients write to a cluster with ZooKeeper that has faults. Then the guarantees are checked.

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
from soak.cluster.processes import ZOOKEEPER, ProcessCluster

PARTITIONS = 4
LONG_SESSIONS = (1.3, 2.2)
"""The duration of a long fault, in sessions."""

ROLES = ("leader", "controller", "follower")
OF_BROKERS = (
    *("kill", "kill", "pause shortly", "pause", "cut from brokers", "cut one way", "cut from zookeeper"),
    *("cut from zookeeper shortly", "cut from clients", "isolate", "stop"),
)
OF_ZOOKEEPER = ("kill", "pause shortly", "pause")


@dataclass(frozen=True)
class Plan:
    """A round, drawn from its number."""

    number: int
    java: bool
    faults: tuple[Fault, ...]

    @classmethod
    def draw(cls, number: int) -> Plan:
        rng = random.Random(number)
        return cls(number, rng.random() < 0.25, tuple(cls._fault(rng) for _ in range(rng.choice([1, 1, 2, 3]))))

    @staticmethod
    def _fault(rng: random.Random) -> Fault:
        role = rng.choice([*ROLES, *ROLES, ZOOKEEPER])
        what = rng.choice(OF_ZOOKEEPER if role == ZOOKEEPER else OF_BROKERS)
        seconds = draw_seconds(rng, what, LONG_SESSIONS)
        return Fault(role, what, seconds, rng.uniform(0.1, 1.0), rng.random() < 0.5)

    def __str__(self) -> str:
        clients = "librdkafka and Java" if self.java else "librdkafka"
        return f"round {self.number}, {clients}: {'; '.join(map(str, self.faults))}"


def play(cluster: ProcessCluster, plan: Plan) -> Outcome:
    """Play a round on a cluster without faults. The cluster has no faults afterwards unless there are violations."""
    outcome, topic = Outcome(plan), f"round-{plan.number}"
    with outcome.record_failure():
        create_topic(cluster, topic, PARTITIONS)
        load = Load(cluster.bootstrap, topic, PARTITIONS)
        with ExitStack() as clients:
            java = JavaLoad(cluster.bootstrap, topic) if plan.java else None
            if java is not None:
                clients.callback(java.kill)
            clients.enter_context(load)
            # The clients cannot finish without brokers.
            clients.callback(cluster.heal)
            load.grows()
            if java is not None:
                java.wait_until_it_writes()
            inject_faults(cluster, load, plan.faults, outcome)
            load.finish()
            if java is not None:
                java.finish()
        history = load.read_back()
        if java is not None:
            java.add_to(history)
        outcome.acknowledged = len(history.acknowledged)
        outcome.violations += history.check()
        outcome.violations += differing_replicas(cluster, topic, PARTITIONS)
        delete_topic(cluster, topic)
    return outcome
