"""One round: clients of all kinds use a KRaft cluster while it has faults; then the promises to them are checked.

The faults of a round are drawn from its number, so that a round is repeated by it (its timing is the machine's).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic
from soak.cluster.load import JavaLoad, Load
from soak.cluster.rounds import HEALED_S, Fault, administer, differing_replicas
from soak.kraft.clients import GroupLoad, ShareLoad, TransactionLoad
from soak.kraft.processes import BROKERS, CLIENT, CONTROLLERS, SESSION_MS, KRaftProcessCluster

PARTITIONS = 4
OF_TRANSACTIONS = 2
SHORTER, LONGER = (0.2, 0.7), (1.3, 3.0)
"""The duration of a fault, in sessions."""
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
        span = SHORTER if "shortly" in what or what in ("kill", "stop") else LONGER
        seconds = rng.uniform(*span) * SESSION_MS / 1000
        if role == "controller" and what == "pause":
            seconds = rng.uniform(*PAUSE_S)
        return Fault(role, what, seconds, rng.uniform(0.1, 1.0), rng.random() < 0.5)

    def __str__(self) -> str:
        java = ", Java" if self.java else ""
        return f"round {self.number}, {self.protocol} group{java}: {'; '.join(map(str, self.faults))}"


@dataclass
class Outcome:
    """The outcome of a round."""

    plan: Plan
    acknowledged: int = 0
    committed: int = 0
    """Transactions."""
    aborted: int = 0
    """Transactions that the cluster aborted."""
    shared: int = 0
    """Records that the share group accepted."""
    longest_gap_s: float = 0.0
    """For which a partition acknowledged nothing, from the first fault on."""
    in_sync_s: float = 0.0
    """From the end of the last fault until all replicas were in sync."""
    violations: list[str] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        """Return the numbers to add up over all rounds, by name."""
        return {
            "acknowledged": self.acknowledged,
            "transactions": self.committed,
            "aborted": self.aborted,
            "shared": self.shared,
        }

    def __str__(self) -> str:
        counts = ", ".join(f"{number} {name}" for name, number in self.counts().items())
        return f"{self.plan}: {counts}, longest gap {self.longest_gap_s:.1f} s, in sync after {self.in_sync_s:.1f} s"


class FaultInjector:
    """Injects faults into a cluster and ends them."""

    def __init__(self, cluster: KRaftProcessCluster, topic: str) -> None:
        self._cluster, self._topic = cluster, topic

    def carry_out(self, fault: Fault) -> None:
        """Begin a fault, wait for its duration, and end it."""
        if fault.what == "restart all":
            self._cluster.restart_controllers()
            return
        begin, end = self._actions(fault, self._node(fault.role))
        begin()
        time.sleep(fault.seconds)
        end()

    def _node(self, role: str) -> str:
        """Return the node that has this role now."""
        cluster = self._cluster
        if role == "controller":
            return cluster.controller()
        leader = cluster.leader(self._topic, 0)
        if role == "leader":
            return str(leader)
        others = [one for one in BROKERS if (one != leader if role == "follower" else cluster.kind[one] == role)]
        return str((others or BROKERS)[0])

    def _actions(self, fault: Fault, node: str) -> tuple[Callable[[], object], Callable[[], object]]:
        """Return the functions that begin and end a fault."""
        cluster, heal = self._cluster, self._cluster.network.heal
        brokers = tuple(map(str, BROKERS))
        what = fault.what.removesuffix(" shortly")
        if what == "kill":
            return (lambda: cluster.kill(node)), (lambda: cluster.start(node))
        if what == "pause":
            return (lambda: cluster.pause(node)), (lambda: cluster.resume(node))
        if what == "stop":
            return (lambda: cluster.stop(node)), (lambda: cluster.start(node))
        ways = {
            "cut from brokers": lambda: cluster.ways(node, brokers),
            "cut one way": lambda: [(node, other) for other in brokers if other != node],
            "cut from controllers": lambda: cluster.ways(node, CONTROLLERS),
            "cut from the active controller": lambda: cluster.ways(node, (cluster.controller(),)),
            "cut from clients": lambda: cluster.ways(node, (CLIENT,)),
            "isolate": lambda: cluster.ways(node, (*brokers, *CONTROLLERS, CLIENT)),
        }[what]()
        return (lambda: cluster.network.cut(ways, reset=fault.reset)), heal


def play(cluster: KRaftProcessCluster, plan: Plan) -> Outcome:
    """Play a round on a cluster without faults; it has none afterwards unless there are violations."""
    outcome, topic = Outcome(plan), f"round-{plan.number}"
    try:
        _play(cluster, topic, outcome)
    except (AssertionError, TimeoutError, RuntimeError, KafkaException) as error:
        outcome.violations.append(f"{type(error).__name__}: {error}")
    return outcome


def _play(cluster: KRaftProcessCluster, topic: str, outcome: Outcome) -> None:
    plan, transactions_topic = outcome.plan, f"{topic}-transactions"
    for name, partitions in ((topic, PARTITIONS), (transactions_topic, OF_TRANSACTIONS)):
        wanted = [NewTopic(name, partitions, len(BROKERS))]
        administer(cluster, lambda admin: admin.create_topics(wanted, operation_timeout=30)[name].result(60))  # noqa: B023
        cluster.wait_for_isr(name, partitions)
    load = Load(cluster.bootstrap, topic, PARTITIONS, per_second=200)
    transactions = TransactionLoad(cluster.bootstrap, transactions_topic, OF_TRANSACTIONS)
    group = GroupLoad(cluster.bootstrap, topic, f"group-{plan.number}", protocol=plan.protocol)
    share = ShareLoad(cluster.bootstrap, topic, PARTITIONS, f"share-{plan.number}")
    with ExitStack() as clients:
        java = JavaLoad(cluster.bootstrap, topic) if plan.java else None
        if java is not None:
            clients.callback(java.kill)
        for one in (share, group, load, transactions):
            clients.enter_context(one)
        # The clients cannot end without brokers.
        clients.callback(cluster.heal)
        load.grows()
        transactions.grows()
        if java is not None:
            java.wait_until_it_writes()
        began = time.monotonic()
        for fault in plan.faults:
            time.sleep(fault.before)
            FaultInjector(cluster, topic).carry_out(fault)
        mended = time.monotonic()
        cluster.heal()
        load.grows(HEALED_S)
        cluster.wait_for_brokers(HEALED_S)
        cluster.wait_for_isr(topic, PARTITIONS, HEALED_S)
        outcome.in_sync_s = time.monotonic() - mended
        outcome.longest_gap_s = load.longest_gap_s(began)
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
    outcome.violations += differing_replicas(cluster, topic, PARTITIONS)
    outcome.violations += differing_replicas(cluster, transactions_topic, OF_TRANSACTIONS)
    for name in (topic, transactions_topic):
        try:
            administer(cluster, lambda admin: admin.delete_topics([name], operation_timeout=30)[name].result(60))  # noqa: B023
        except KafkaException as error:
            # A broker may delete its replicas later.
            if error.args[0].code() != KafkaError.REQUEST_TIMED_OUT:
                raise
