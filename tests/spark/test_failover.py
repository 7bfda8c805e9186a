"""Brokers that die while Spark reads and writes: others lead then, and are asked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.server_process import wait_until

from barnabas.arrow.client import BlockingClient, ClientSettings
from barnabas.arrow.offset_range import OffsetRange
from barnabas.arrow.range_reader import RangeReader
from barnabas.protocol.special_timestamps import LATEST
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.spark.task_producer import TaskProducer, new_identity
from barnabas.testing import Cluster

TP = TopicPartition("t", 0)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3, {"t": 1}) as cluster:
        yield cluster


def written(client: BlockingClient, count: int) -> None:
    producer = TaskProducer(client, new_identity(client))
    for _ in range(count):
        producer.append(TP, b"k", b"v", (), 1000)
    producer.flush()


def test_who_leads_now_is_asked_when_a_leader_has_died(cluster: Cluster) -> None:
    settings = ClientSettings(cluster.bootstrap, {"request.timeout.ms": "15000"})
    with BlockingClient(settings) as finding, BlockingClient(settings) as reading, BlockingClient(settings) as writing:
        written(writing, 10)
        for client in (finding, reading):
            assert client.find_offsets({TP: LATEST}) == {TP: 10}
        dead = cluster.leader("t")
        cluster.kill(dead)
        wait_until(lambda: cluster.leader("t") not in (dead, -1), timeout_s=60, what="another leader")
        assert finding.find_offsets({TP: LATEST}) == {TP: 10}
        reader = RangeReader(reading, fail_on_data_loss=True, poll_timeout_ms=15_000, headers=False)
        assert sum(len(table) for table in reader.read(OffsetRange(TP, 0, 10))) == 10
        written(writing, 5)
        assert finding.find_offsets({TP: LATEST}) == {TP: 15}


def test_a_leader_that_hangs_is_asked_last(cluster: Cluster) -> None:
    """It takes connections and answers nothing; of the brokers that are known it is the first one."""
    settings = ClientSettings(cluster.bootstrap, {"request.timeout.ms": "1000"})
    with BlockingClient(settings) as writing, BlockingClient(settings) as reading:
        written(writing, 10)
        if cluster.leader("t") != 1:
            cluster.move_leader("t", 0, 1)
        reading.refresh(["t"])
        assert reading.leader(TP) == 1
        cluster.pause(1)
        wait_until(lambda: cluster.leader("t") not in (1, -1), timeout_s=60, what="another leader")
        reader = RangeReader(reading, fail_on_data_loss=True, poll_timeout_ms=10_000, headers=False)
        assert sum(len(table) for table in reader.read(OffsetRange(TP, 0, 10))) == 10
        cluster.resume(1)
