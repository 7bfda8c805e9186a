"""Apache Kafka 3.9.1 reads our nodes and writes the same, and we read what it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.java import compile_java, jars, run_java

from barnabas.server.metadata import znodes
from barnabas.server.metadata.znodes import (
    BrokerEndpoint,
    BrokerInfo,
    LeaderIsrAndControllerEpoch,
    TopicRegistration,
)

pytestmark = pytest.mark.java

SOURCES = Path(__file__).parent / "znode_oracle"
NOW_MS = 17
BROKER = BrokerInfo(7, (BrokerEndpoint("OUT", "out.example", 9093, "SSL"), BrokerEndpoint("IN", "::1", 9092)), "rack")
NO_RACK = BrokerInfo(7, (BrokerEndpoint("PLAINTEXT", "localhost", 9092),))
TOPIC = TopicRegistration("t", UUID("6f9619ff-8b86-4d01-b42d-00cf4fc964ff"), {0: (1, 2), 1: (2, 1)})
MOVING = TopicRegistration("t", TOPIC.topic_id, {0: (1, 2, 3)}, {0: (3,)}, {0: (1,)})
STATE = LeaderIsrAndControllerEpoch(1, 4, (1, 2), 9)
RECOVERING = LeaderIsrAndControllerEpoch(1, 5, (1,), 9, leader_recovery_state=1)
LEADERLESS = LeaderIsrAndControllerEpoch(-1, 6, (1,), 9)
ELECTED = LeaderIsrAndControllerEpoch(1, 7, (1,), 9, leader_broker_epoch=345)

OURS = [
    ("broker", znodes.encode_broker(BROKER, NOW_MS)),
    ("broker", znodes.encode_broker(NO_RACK, NOW_MS)),
    ("topic", znodes.encode_topic(TOPIC)),
    ("topic", znodes.encode_topic(MOVING)),
    ("state", znodes.encode_state(STATE)),
    ("state", znodes.encode_state(RECOVERING)),
    ("state", znodes.encode_state(LEADERLESS)),
    ("cluster", znodes.encode_cluster_id("AAAAAAAAAAAAAAAAAAAAAA")),
    ("config", znodes.encode_config({"retention.ms": "7", "cleanup.policy": "compact,delete"})),
    ("config", znodes.encode_config({})),
    ("controller", znodes.encode_controller(7, NOW_MS)),
    ("state", znodes.encode_state(ELECTED)),
    ("producer-ids", znodes.encode_producer_id_block(7, 1000, 1999)),
]


@pytest.fixture(scope="module")
def rewritten() -> list[bytes]:
    """Our nodes as Kafka decoded and encoded them, and last the announcement of a changed configuration."""
    classpath = jars("org.apache.kafka:kafka_2.13:3.9.1")
    classes = compile_java(SOURCES, classpath)
    lines = [f"{kind} {data.decode()}" for kind, data in OURS] + ["config-change topics/t"]
    result = run_java("RewriteZnodes", [classes, *classpath], [], stdin="\n".join(lines) + "\n", timeout=60)
    assert result.returncode == 0, result.stderr
    return [line.encode() for line in result.stdout.splitlines()]


def fields(kind: str, data: bytes) -> Any:
    value = json.loads(data)
    if kind == "broker":
        # Kafka writes the time of writing.
        del value["timestamp"]
    if kind == "state":
        # Ours alone, which Kafka skips.
        value.pop("leader_broker_epoch", None)
    return value


def test_kafka_writes_what_we_write(rewritten: list[bytes]) -> None:
    assert len(rewritten) == len(OURS) + 1
    for (kind, ours), kafkas in zip(OURS, rewritten, strict=False):
        assert fields(kind, kafkas) == fields(kind, ours)
    assert json.loads(rewritten[-1]) == json.loads(znodes.encode_config_change("topics", "t"))


def test_we_read_what_kafka_writes(rewritten: list[bytes]) -> None:
    assert [znodes.decode_broker(7, data, -1) for data in rewritten[:2]] == [BROKER, NO_RACK]
    assert [znodes.decode_topic("t", data) for data in rewritten[2:4]] == [TOPIC, MOVING]
    assert [znodes.decode_state(data, 0) for data in rewritten[4:7]] == [STATE, RECOVERING, LEADERLESS]
    assert znodes.decode_cluster_id(rewritten[7]) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert znodes.decode_config(rewritten[8]) == {"retention.ms": "7", "cleanup.policy": "compact,delete"}
    assert znodes.decode_config(rewritten[9]) == {}
    assert znodes.decode_controller(rewritten[10]) == 7
    assert znodes.decode_state(rewritten[11], 0) == ELECTED
    assert znodes.decode_producer_id_block(rewritten[12]) == (1000, 1999)
