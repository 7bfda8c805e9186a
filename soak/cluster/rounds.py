"""One round: clients write to a cluster of processes while it is hurt; then everything must be as it was promised.

What happens in a round is drawn from its number, so that a round is repeated by it (its timing is the machine's).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from soak.cluster.load import IMPATIENT, JavaLoad, Load
from soak.cluster.processes import BROKERS, CLIENT, SESSION_MS, ZOOKEEPER, ProcessCluster
from tests.server_process import wait_until

PARTITIONS = 4
HEALED_S = 60
SHORTER, LONGER = (0.2, 0.7), (1.3, 2.2)
"""How long a node is away, in sessions."""

ROLES = ("leader", "controller", "follower")
OF_BROKERS = (
    *("kill", "kill", "pause shortly", "pause", "cut from brokers", "cut one way", "cut from zookeeper"),
    *("cut from zookeeper shortly", "cut from clients", "isolate", "stop"),
)
OF_ZOOKEEPER = ("kill", "pause shortly", "pause")


@dataclass(frozen=True)
class Fault:
    """A fault, its target, its duration, and the duration of the load before it, in seconds."""

    role: str
    what: str
    seconds: float
    before: float
    reset: bool

    def __str__(self) -> str:
        how = " with resets" if self.reset and ("cut" in self.what or self.what == "isolate") else ""
        return f"{self.what} {self.role} for {self.seconds:.1f} s{how}"


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
        span = SHORTER if "shortly" in what or what in ("kill", "stop") else LONGER
        seconds = rng.uniform(*span) * SESSION_MS / 1000
        return Fault(role, what, seconds, rng.uniform(0.1, 1.0), rng.random() < 0.5)

    def __str__(self) -> str:
        clients = "librdkafka and Java" if self.java else "librdkafka"
        return f"round {self.number}, {clients}: {'; '.join(map(str, self.faults))}"


@dataclass
class Outcome:
    """The outcome of a round."""

    plan: Plan
    acknowledged: int = 0
    longest_gap_s: float = 0.0
    """For which a partition acknowledged nothing, from the first fault on."""
    in_sync_s: float = 0.0
    """From the end of the last fault until all replicas were in sync."""
    violations: list[str] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        """Return the numbers to add up over all rounds, by name."""
        return {"acknowledged": self.acknowledged}

    def __str__(self) -> str:
        counts = ", ".join(f"{number} {name}" for name, number in self.counts().items())
        return f"{self.plan}: {counts}, longest gap {self.longest_gap_s:.1f} s, in sync after {self.in_sync_s:.1f} s"


class FaultInjector:
    """Injects faults into a cluster and ends them."""

    def __init__(self, cluster: ProcessCluster, topic: str) -> None:
        self._cluster, self._topic = cluster, topic

    def carry_out(self, fault: Fault) -> None:
        """Begin a fault, wait for its duration, and end it."""
        node = self._node(fault.role)
        begin, end = self._actions(fault, node)
        begin()
        time.sleep(fault.seconds)
        end()

    def _node(self, role: str) -> str:
        """Return the node that has this role now."""
        if role == ZOOKEEPER:
            return ZOOKEEPER
        if role == "controller":
            return self._cluster.controller()
        leader = self._leader()
        return str(leader if role == "leader" else next(one for one in BROKERS if one != leader))

    def _leader(self) -> int:
        def leader() -> int:
            return int(self._cluster.partition(self._topic, 0).get("leader", -1))

        wait_until(lambda: leader() >= 0, timeout_s=HEALED_S, what="there is a leader")
        return leader()

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
            return (lambda: cluster.brokers[int(node)].stop()), (lambda: cluster.start(node))
        ways = {
            "cut from brokers": cluster.ways(node, brokers),
            "cut one way": [(node, other) for other in brokers if other != node],
            "cut from zookeeper": cluster.ways(node, (ZOOKEEPER,)),
            "cut from clients": cluster.ways(node, (CLIENT,)),
            "isolate": cluster.ways(node, (*brokers, ZOOKEEPER, CLIENT)),
        }[what]
        return (lambda: cluster.network.cut(ways, reset=fault.reset)), heal


def play(cluster: ProcessCluster, plan: Plan) -> Outcome:
    """Play a round on a cluster that is whole; it is whole again afterwards unless there are violations."""
    outcome, topic = Outcome(plan), f"round-{plan.number}"
    try:
        _play(cluster, topic, outcome)
    except (AssertionError, TimeoutError, RuntimeError, KafkaException) as error:
        outcome.violations.append(f"{type(error).__name__}: {error}")
    return outcome


def _play(cluster: ProcessCluster, topic: str, outcome: Outcome) -> None:
    wanted = [NewTopic(topic, PARTITIONS, len(BROKERS))]
    administer(cluster, lambda admin: admin.create_topics(wanted, operation_timeout=30)[topic].result(60))
    cluster.wait_for_isr(topic, PARTITIONS)
    java = JavaLoad(cluster.bootstrap, topic) if outcome.plan.java else None
    try:
        with Load(cluster.bootstrap, topic, PARTITIONS) as load:
            load.grows()
            if java is not None:
                java.wait_until_it_writes()
            began = time.monotonic()
            for fault in outcome.plan.faults:
                time.sleep(fault.before)
                FaultInjector(cluster, topic).carry_out(fault)
            mended = time.monotonic()
            cluster.heal()
            load.grows(HEALED_S)
            cluster.wait_for_brokers(BROKERS, HEALED_S)
            cluster.wait_for_isr(topic, PARTITIONS, HEALED_S)
            outcome.in_sync_s = time.monotonic() - mended
            outcome.longest_gap_s = load.longest_gap_s(began)
            load.finish()
            if java is not None:
                java.finish()
    finally:
        cluster.heal()
        if java is not None:
            java.kill()
    history = load.read_back()
    if java is not None:
        java.add_to(history)
    outcome.acknowledged = len(history.acknowledged)
    outcome.violations += history.check()
    outcome.violations += differing_replicas(cluster, topic, PARTITIONS)
    try:
        administer(cluster, lambda admin: admin.delete_topics([topic], operation_timeout=30)[topic].result(60))
    except KafkaException as error:
        # A broker that has a session still, but does not answer, deletes its replicas later.
        if error.args[0].code() != KafkaError.REQUEST_TIMED_OUT:
            raise


class ReplicatedCluster(Protocol):
    """A cluster of the brokers 1, 2 and 3, of either control plane."""

    @property
    def bootstrap(self) -> str: ...
    def replica(self, broker_id: int, topic: str, index: int) -> bytes: ...


def administer(cluster: ReplicatedCluster, ask: Callable[[AdminClient], object]) -> None:
    """Have the controller do something, whoever is controller when it hears of it."""

    def done() -> bool:
        try:
            ask(
                AdminClient({"bootstrap.servers": cluster.bootstrap, **IMPATIENT, "socket.timeout.ms": HEALED_S * 1000})
            )
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_CONTROLLER:
                raise
            return False
        return True

    wait_until(done, timeout_s=HEALED_S, what="a controller is found", interval_s=0.1)


def differing_replicas(cluster: ReplicatedCluster, topic: str, partitions: int) -> list[str]:
    """Partitions whose replicas are not the same bytes, after a while in which they may become so."""

    def differing() -> list[str]:
        found = []
        for index in range(partitions):
            replicas = {one: cluster.replica(one, topic, index) for one in BROKERS}
            if len(set(replicas.values())) > 1 or not replicas[BROKERS[0]]:
                sizes = {one: len(data) for one, data in replicas.items()}
                found.append(f"replicas: {topic}-{index} differs, bytes of brokers {sizes}")
        return found

    deadline = time.monotonic() + HEALED_S
    while (found := differing()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found
