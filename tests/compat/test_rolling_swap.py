"""Three brokers of one kind become three of the other under load, one at a time and on their own folders, and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from soak.cluster.faults import differing_replicas
from soak.cluster.figures import create, spread
from soak.cluster.load import Load
from soak.cluster.processes import ProcessCluster
from soak.cluster.replicated_cluster import BROKERS
from tests.compat.tool_session import ToolSession, scratch_file
from tests.kafka import LAST_WITH_ZOOKEEPER
from tests.server_process import wait_until

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(900)]

PARTITIONS = 3
PATIENCE_S = 120
KINDS = {"barnabas": "kafka", "kafka": "barnabas"}
SETTINGS = {"zookeeper.session.timeout.ms": "10000", "replica.lag.time.max.ms": "10000"}


def swap_all(cluster: ProcessCluster, load: Load, topic: str, kind: str) -> None:
    """Each broker in turn; the next one when all replicas are in sync and all partitions are written."""
    for broker_id in BROKERS:
        cluster.swap(broker_id, kind)
        cluster.wait_for_brokers(BROKERS, PATIENCE_S)
        cluster.wait_for_isr(topic, PARTITIONS, PATIENCE_S)
        load.grows()


@pytest.mark.parametrize("kind", list(KINDS))
def test_one_kind_is_swapped_for_the_other_and_back(kind: str, tmp_path: Path) -> None:
    with ProcessCluster(tmp_path, settings=SETTINGS, kind=kind) as cluster:
        create(cluster, "swapped", spread(PARTITIONS))
        with Load(cluster.bootstrap, "swapped", PARTITIONS, per_second=100) as load:
            load.grows()
            swap_all(cluster, load, "swapped", KINDS[kind])
            assert set(cluster.kind.values()) == {KINDS[kind]}
            swap_all(cluster, load, "swapped", kind)
            load.grows_to(1001)  # which a quick machine has not when all are swapped
            load.finish()
        history = load.read_back()
        assert not history.check()
        assert len(history.acknowledged) > 1000
        assert not differing_replicas(cluster, "swapped", PARTITIONS)


def test_partitions_are_reassigned_between_kinds_under_load(tmp_path: Path) -> None:
    """Two of one kind and one of the other; replicas go round while they are written, with each kind as controller."""
    with ProcessCluster(tmp_path, settings=SETTINGS) as cluster, ToolSession(LAST_WITH_ZOOKEEPER) as tools:
        cluster.swap(3, "kafka")
        cluster.wait_for_brokers(BROKERS, PATIENCE_S)
        create(cluster, "moved", [[1, 2], [2, 3], [3, 1]])
        with Load(cluster.bootstrap, "moved", PARTITIONS, per_second=100) as load:
            load.grows()
            for kind in ("barnabas", "kafka"):
                make_controller(cluster, kind)
                for replicas in ([3, 1], [2, 3], [1, 2]):
                    move(cluster, tools, replicas, tmp_path)
                    load.grows()
            load.finish()
        assert not load.read_back().check()


def make_controller(cluster: ProcessCluster, kind: str) -> None:
    """Have controllers resign until one of this kind is elected."""

    def is_so() -> bool:
        if cluster.kind[int(cluster.controller())] == kind:
            return True
        cluster.resign_controller()
        return False

    wait_until(is_so, timeout_s=PATIENCE_S, what=f"a controller of {kind}", interval_s=1.0)


def move(cluster: ProcessCluster, tools: ToolSession, replicas: list[int], folder: Path) -> None:
    """All partitions to these brokers, and wait until they are there and nowhere else."""
    wanted = [{"topic": "moved", "partition": index, "replicas": replicas} for index in range(PARTITIONS)]
    plan = scratch_file(folder, json.dumps({"version": 1, "partitions": wanted}))
    arguments = ("--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", plan, "--execute")

    def accepted() -> bool:
        """A controller that has just been elected may not be known to all."""
        return tools.run("kafka-reassign-partitions", *arguments)[0] == 0

    wait_until(accepted, timeout_s=PATIENCE_S, what="the controller takes the reassignment", interval_s=0.5)

    def there() -> bool:
        states = [cluster.partition("moved", index) for index in range(PARTITIONS)]
        return all(sorted(state["isr"]) == sorted(replicas) and state["leader"] in replicas for state in states)

    wait_until(there, timeout_s=PATIENCE_S, what=f"all partitions are on {replicas}")
