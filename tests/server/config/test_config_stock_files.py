"""Configurations as Apache Kafka ships them start a broker as they are."""

from __future__ import annotations

import pytest

from barnabas.common.properties import parse_properties
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.config.keys.validators import ConfigError

COMMON = """
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
#log.flush.interval.messages=10000
#log.flush.interval.ms=1000
log.retention.hours=168
#log.retention.bytes=1073741824
#log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
PROTOCOL_MAP = (
    "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,"
    "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL\n"
)
ZOOKEEPER_3_9 = f"""{COMMON}
broker.id=0
#listeners=PLAINTEXT://:9092
log.dirs=/tmp/kafka-logs
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""
KRAFT_3_9 = f"""{COMMON}{PROTOCOL_MAP}
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
log.dirs=/tmp/kraft-combined-logs
"""
KRAFT_BROKER_3_9 = f"""{COMMON}{PROTOCOL_MAP}
process.roles=broker
node.id=2
controller.quorum.voters=1@localhost:9093
listeners=PLAINTEXT://localhost:9092
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092
controller.listener.names=CONTROLLER
log.dirs=/tmp/kraft-broker-logs
"""
SERVER_4_1 = f"""{COMMON}{PROTOCOL_MAP}
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
log.dirs=/tmp/kraft-combined-logs
"""
CONTROLLER_4_1 = f"""{COMMON}
process.roles=controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=CONTROLLER://:9093
advertised.listeners=CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
log.dirs=/tmp/kraft-controller-logs
"""


OPEN = {"allow.insecure.listeners": "true"}


def started(text: str) -> BrokerConfig:
    return BrokerConfig.from_properties(parse_properties(text) | OPEN)


@pytest.mark.parametrize(
    ("text", "broker_id", "log_dir", "ignored"),
    [
        (ZOOKEEPER_3_9, 0, "/tmp/kafka-logs", ""),
        (
            KRAFT_3_9,
            1,
            "/tmp/kraft-combined-logs",
            "controller.listener.names, controller.quorum.voters, process.roles",
        ),
        (
            KRAFT_BROKER_3_9,
            2,
            "/tmp/kraft-broker-logs",
            "",
        ),
        (
            SERVER_4_1,
            1,
            "/tmp/kraft-combined-logs",
            "controller.listener.names, controller.quorum.bootstrap.servers, process.roles",
        ),
    ],
)
def test_a_stock_file_needs_one_word_about_its_listeners_and_is_else_taken_as_it_is(
    text: str, broker_id: int, log_dir: str, ignored: str
) -> None:
    config = started(text)
    assert config.configured_broker_id == broker_id
    assert config.log_dirs == [log_dir]
    assert [listener.name for listener in config.listeners] == ["PLAINTEXT"]
    lines = [notice for notice in config.startup_warnings if notice.startswith("Ignored")]
    assert [line.partition(": ")[2] for line in lines] == [ignored] * bool(ignored)
    assert not any(notice.startswith("Unknown") for notice in config.startup_warnings)


def test_the_file_without_listeners_stays_on_loopback() -> None:
    config = started(ZOOKEEPER_3_9)
    assert config.listeners[0].host == "127.0.0.1"
    assert not any("all interfaces" in notice for notice in config.startup_warnings)


@pytest.mark.parametrize("text", [KRAFT_3_9, SERVER_4_1])
def test_a_file_that_binds_all_interfaces_is_not_served_by_accident(text: str) -> None:
    with pytest.raises(ConfigError, match=r"allow\.insecure\.listeners=true"):
        BrokerConfig.from_properties(parse_properties(text))


@pytest.mark.parametrize("text", [KRAFT_3_9, SERVER_4_1])
def test_a_file_that_binds_all_interfaces_does_so_with_a_warning(text: str) -> None:
    config = started(text)
    (listener,) = config.listeners
    assert (listener.host, listener.advertised_host, listener.advertised_port) == ("", "localhost", 9092)
    assert len([notice for notice in config.startup_warnings if "all interfaces" in notice]) == 1


def test_a_file_for_a_controller_alone_is_refused() -> None:
    with pytest.raises(ConfigError, match="Add the role broker"):
        started(CONTROLLER_4_1)
