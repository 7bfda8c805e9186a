"""Faults of a cluster of processes while clients write to the cluster, and the checks after a round."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from soak.cluster.load import IMPATIENT, Load
from soak.cluster.replicated_cluster import BROKERS, CLIENT, SESSION_MS, ReplicatedCluster
from tests.server_process import wait_until

HEALED_S = 60
SHORT_SESSIONS = (0.2, 0.7)
"""The duration of a short fault, in sessions."""


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


def draw_seconds(rng: random.Random, what: str, long_sessions: tuple[float, float]) -> float:
    """Draw the duration of a fault in seconds: shorter than a session for short faults, else from `long_sessions`."""
    span = SHORT_SESSIONS if "shortly" in what or what in ("kill", "stop") else long_sessions
    return rng.uniform(*span) * SESSION_MS / 1000


@dataclass
class Outcome:
    """The outcome of a round. `str` describes the outcome in one line."""

    plan: object
    acknowledged: int = 0
    longest_gap_s: float = 0.0
    """The longest time after the first fault without an acknowledgement from a partition, in seconds."""
    in_sync_s: float = 0.0
    """The seconds from the end of the last fault until all replicas were in sync."""
    violations: list[str] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        """Return the numbers to add up over all rounds, by name."""
        return {"acknowledged": self.acknowledged}

    def __str__(self) -> str:
        counts = ", ".join(f"{number} {name}" for name, number in self.counts().items())
        return f"{self.plan}: {counts}, longest gap {self.longest_gap_s:.1f} s, in sync after {self.in_sync_s:.1f} s"

    @contextlib.contextmanager
    def record_failure(self) -> Iterator[None]:
        """Make a failure of the block a violation of this round."""
        try:
            yield
        except (AssertionError, TimeoutError, RuntimeError, KafkaException) as error:
            self.violations.append(f"{type(error).__name__}: {error}")


class FaultInjector:
    """An injector of faults into a cluster. The role "leader" means the leader of the first partition of `topic`."""

    def __init__(self, cluster: ReplicatedCluster, topic: str) -> None:
        self._cluster, self._topic = cluster, topic

    def carry_out(self, fault: Fault) -> None:
        """Begin a fault, wait for its duration, and end it."""
        if fault.what == "restart all":
            self._cluster.restart_control_nodes()
            return
        begin, end = self._actions(fault, self._node(fault.role))
        begin()
        time.sleep(fault.seconds)
        end()

    def _node(self, role: str) -> str:
        """Return the node that has this role now. The kind of a broker is also a role."""
        cluster = self._cluster
        if role in cluster.control_nodes:
            return role
        if role == "controller":
            return cluster.controller()
        leader = cluster.leader(self._topic, 0)
        if role == "leader":
            return str(leader)
        others = [one for one in BROKERS if (one != leader if role == "follower" else cluster.kind[one] == role)]
        return str((others or BROKERS)[0])

    def _actions(self, fault: Fault, node: str) -> tuple[Callable[[], object], Callable[[], object]]:
        """Return the functions that begin and end a fault."""
        cluster, control_nodes = self._cluster, self._cluster.control_nodes
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
            "cut from zookeeper": lambda: cluster.ways(node, control_nodes),
            "cut from controllers": lambda: cluster.ways(node, control_nodes),
            "cut from the active controller": lambda: cluster.ways(node, (cluster.controller(),)),
            "cut from clients": lambda: cluster.ways(node, (CLIENT,)),
            "isolate": lambda: cluster.ways(node, (*brokers, *control_nodes, CLIENT)),
        }[what]()
        return (lambda: cluster.network.cut(ways, reset=fault.reset)), cluster.network.heal


def inject_faults(cluster: ReplicatedCluster, load: Load, faults: Iterable[Fault], outcome: Outcome) -> None:
    """Inject faults while a load writes, end them, and wait until all replicas are in sync."""
    began = time.monotonic()
    for fault in faults:
        time.sleep(fault.before)
        FaultInjector(cluster, load.topic).carry_out(fault)
    mended = time.monotonic()
    cluster.heal()
    load.grows(HEALED_S)
    cluster.wait_for_brokers(timeout_s=HEALED_S)
    cluster.wait_for_isr(load.topic, load.partitions, HEALED_S)
    outcome.in_sync_s = time.monotonic() - mended
    outcome.longest_gap_s = load.longest_gap_s(began)


def administer(cluster: ReplicatedCluster, ask: Callable[[AdminClient], object]) -> None:
    """Send requests to the controller, and repeat them until the broker that receives them is the controller."""

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


def create_topic(cluster: ReplicatedCluster, topic: str, partitions: int) -> None:
    """Create a topic with replicas on all brokers, and wait until they are in sync."""
    wanted = [NewTopic(topic, partitions, len(BROKERS))]
    administer(cluster, lambda admin: admin.create_topics(wanted, operation_timeout=30)[topic].result(60))
    cluster.wait_for_isr(topic, partitions)


def delete_topic(cluster: ReplicatedCluster, topic: str) -> None:
    """Delete a topic."""
    try:
        administer(cluster, lambda admin: admin.delete_topics([topic], operation_timeout=30)[topic].result(60))
    except KafkaException as error:
        # A broker that still has a session but does not respond deletes its replicas later.
        if error.args[0].code() != KafkaError.REQUEST_TIMED_OUT:
            raise


def differing_replicas(cluster: ReplicatedCluster, topic: str, partitions: int) -> list[str]:
    """Return the partitions whose replicas do not become identical within `HEALED_S`."""

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
