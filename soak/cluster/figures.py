"""Measure how long clients wait after `kill -9` of a broker, also of a leader of 1000 partitions, and at a clean stop.

`python -m soak.cluster.figures` prints the measured times.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from soak.cluster.faults import administer
from soak.cluster.load import Load
from soak.cluster.processes import ProcessCluster
from soak.cluster.replicated_cluster import BROKERS
from tests.server_process import wait_until

PATIENCE_S = 60
PARTITIONS = 6
MANY = 1000


def create(cluster: ProcessCluster, topic: str, assignment: list[list[int]]) -> None:
    """Create a topic with this replica assignment, and wait until all its replicas are in sync."""
    wanted = NewTopic(topic, len(assignment), replica_assignment=assignment)
    administer(cluster, lambda admin: admin.create_topics([wanted], operation_timeout=30)[topic].result(PATIENCE_S))
    cluster.wait_for_isr(topic, len(assignment))


def spread(count: int) -> list[list[int]]:
    """Return an assignment of partitions to all brokers, each of which is the preferred leader in turn."""
    return [[*BROKERS[index % 3 :], *BROKERS[: index % 3]] for index in range(count)]


def after_a_kill(cluster: ProcessCluster) -> float:
    """Return the seconds from the end of a killed leader's session until every partition acknowledges again."""
    create(cluster, "killed", spread(PARTITIONS))
    with Load(cluster.bootstrap, "killed", PARTITIONS) as load:
        load.grows()
        victim = 2
        gone = cluster.on_session_end(victim)
        cluster.kill(str(victim))
        wait_until(lambda: bool(gone), timeout_s=PATIENCE_S, what="the session ends")
        load.grows()
        first = [next(moment for moment in load.acknowledged_at[one] if moment > gone[0]) for one in range(PARTITIONS)]
        cluster.start(str(victim))
        cluster.wait_for_isr("killed", PARTITIONS)
        load.finish()
        violations = load.read_back().check()
        assert not violations, violations[:5]
    return max(first) - gone[0]


def many_led_elsewhere(cluster: ProcessCluster) -> float:
    """Return the seconds from the end of the session until both other brokers report new leaders of 1000 partitions."""
    create(cluster, "many", [[2, 3, 1] if index % 2 else [2, 1, 3] for index in range(MANY)])
    gone = cluster.on_session_end(2)
    cluster.kill("2")
    wait_until(lambda: bool(gone), timeout_s=PATIENCE_S, what="the session ends")
    for survivor in (1, 3):
        admin = AdminClient({"bootstrap.servers": cluster.address(survivor), "log_level": 0})

        def elsewhere(admin: AdminClient = admin) -> bool:
            led = admin.list_topics("many", timeout=PATIENCE_S).topics["many"].partitions.values()
            return all(one.leader in (1, 3) for one in led)

        wait_until(elsewhere, timeout_s=PATIENCE_S, what="other brokers lead all partitions")
    seconds = time.monotonic() - gone[0]
    cluster.start("2")
    cluster.wait_for_isr("many", MANY)
    return seconds


def at_a_clean_stop(cluster: ProcessCluster) -> float:
    """Return the longest time without an acknowledgement from a partition whose leader stops cleanly, in seconds."""
    create(cluster, "stopped", spread(PARTITIONS))
    with Load(cluster.bootstrap, "stopped", PARTITIONS) as load:
        load.grows()
        since = time.monotonic()
        assert cluster.brokers[3].stop() == 0
        load.grows()
        gap = load.longest_gap_s(since)
        load.finish()
        assert not load.history.refused, load.history.refused
    cluster.start("3")
    cluster.wait_for_isr("stopped", PARTITIONS)
    return gap


FIGURES: dict[str, Callable[[ProcessCluster], float]] = {
    "session end to new acknowledgements of all partitions": after_a_kill,
    "longest time without acknowledgement at a clean stop": at_a_clean_stop,
    f"session end to {MANY} partitions led elsewhere": many_led_elsewhere,
}


def measure(folder: Path) -> dict[str, float]:
    """Return all figures, measured on one cluster."""
    with ProcessCluster(folder) as cluster:
        return {what: figure(cluster) for what, figure in FIGURES.items()}


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="figures-") as folder:
        for what, seconds in measure(Path(folder)).items():
            print(f"{seconds:6.2f} s  {what}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
