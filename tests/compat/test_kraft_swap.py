"""All brokers of a KRaft cluster become brokers of the other kind under load, one after the other on their folders."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic
from soak.cluster.faults import administer, differing_replicas
from soak.cluster.load import Load
from soak.cluster.replicated_cluster import BROKERS
from soak.kraft.processes import KRaftProcessCluster
from tests.kafka import KafkaTools

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.nightly, pytest.mark.timeout(600)]

PARTITIONS = 3
PATIENCE_S = 120
TOPIC = "swapped"


def swap_all(cluster: KRaftProcessCluster, load: Load, kind: str) -> None:
    """Swap each broker in turn; the next one when all replicas are in sync and all partitions are written."""
    for broker_id in BROKERS:
        cluster.swap(broker_id, kind)
        cluster.wait_for_brokers(timeout_s=PATIENCE_S)
        cluster.wait_for_isr(TOPIC, PARTITIONS, PATIENCE_S)
        load.grows()


def test_kafka_brokers_become_barnabas_and_kafka_again(tmp_path: Path) -> None:
    kinds = dict.fromkeys(BROKERS, "kafka")
    with KRaftProcessCluster(tmp_path, kinds=kinds) as cluster:
        identities = {one: (cluster.log_dir(one) / "meta.properties").read_text() for one in BROKERS}
        wanted = [NewTopic(TOPIC, PARTITIONS, len(BROKERS))]
        administer(cluster, lambda admin: admin.create_topics(wanted, operation_timeout=30)[TOPIC].result(60))
        cluster.wait_for_isr(TOPIC, PARTITIONS)
        with Load(cluster.bootstrap, TOPIC, PARTITIONS, per_second=100) as load:
            load.grows()
            swap_all(cluster, load, "barnabas")
            described = KafkaTools().output(
                "kafka-metadata-quorum", "--bootstrap-server", cluster.bootstrap, "describe", "--replication"
            )
            check_observers(described)
            swap_all(cluster, load, "kafka")
            load.grows_to(500)
            load.finish()
        history = load.read_back()
        assert not history.check()
        assert not differing_replicas(cluster, TOPIC, PARTITIONS)
        for broker_id, before in identities.items():
            assert directory_id(cluster, broker_id) in before
            # Neither kind set a partition's folder aside.
            assert not [path.name for path in cluster.log_dir(broker_id).glob("*-stray")]


def directory_id(cluster: KRaftProcessCluster, broker_id: int) -> str:
    lines = (cluster.log_dir(broker_id) / "meta.properties").read_text().splitlines()
    return next(line for line in lines if line.startswith("directory.id="))


def check_observers(described: str) -> None:
    """Check that each broker is an observer with the directory id of its folder, close to the end of the log."""
    observers = [line.split() for line in described.splitlines() if line.rstrip().endswith("Observer")]
    assert sorted(int(one[0]) for one in observers) == list(BROKERS), described
    # The log has a record each 100 ms.
    assert all(int(one[3]) <= 3 for one in observers), described
