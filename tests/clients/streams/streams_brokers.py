"""A broker with streams groups for a module of tests: an embedded one, and Apache Kafka 4.4.0."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.kafka import KafkaServer

from barnabas import Broker

SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "group.share.assignment.interval.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.num.standby.replicas": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "2",
}
KAFKA = pytest.param("kafka", marks=[pytest.mark.verify, pytest.mark.java])


@pytest.fixture(scope="module", params=["barnabas", KAFKA])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker."""
    if request.param == "barnabas":
        with Broker(config=SETTINGS) as broker:
            yield broker.bootstrap
        return
    server = KafkaServer(tmp_path_factory.mktemp("kafka"), version="4.4.0", heap="400m", properties=SETTINGS)
    try:
        server.start(timeout_s=300)
        yield server.bootstrap
    finally:
        server.stop()
