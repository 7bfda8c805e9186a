"""docs/configuration.md is what the tables of keys say."""

from __future__ import annotations

from pathlib import Path

from barnabas.protocol.codec import ORDER_OBJECT_BUDGET, REQUEST_OBJECT_BUDGET, STOP_OBJECT_BUDGET
from barnabas.protocol.produce_entries import MOST_PLACES
from barnabas.server.apis.answer_budget import ANSWER_BYTES
from barnabas.server.apis.handlers.describe_configs import MOST_ENTRIES
from barnabas.server.apis.handlers.fetch import MOST_CONVERTED_BYTES
from barnabas.server.apis.handlers.join_group import MOST_METADATA_BYTES, MOST_PROTOCOLS
from barnabas.server.apis.handlers.leave_group import MOST_LEAVERS
from barnabas.server.config.document import render
from barnabas.server.config.keys.catalogue import BROKER_KEYS, TOPIC_KEYS
from barnabas.server.coordinator.allowance import MOST_OF_A_CLIENT, MOST_OF_A_HOST
from barnabas.server.coordinator.group.consumer.beat import MOST_TOPICS
from barnabas.server.network.socket_server import HALF_RECEIVED_BYTES, SMALL_FRAME_BYTES, STALL_SECONDS

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == render(), (
        "write it anew: python -m barnabas.server.config.document > docs/configuration.md"
    )


def test_the_limits_told_are_those_in_force() -> None:
    told = render().partition("## Limits that Apache Kafka does not have")[2].partition("\n## ")[0]
    rows = {
        "in the lists of one request": REQUEST_OBJECT_BUDGET,
        "UpdateMetadata, between brokers": ORDER_OBJECT_BUDGET,
        "StopReplica, between brokers": STOP_OBJECT_BUDGET,
        "of one Produce request": MOST_PLACES,
        "of one request without records": f"{SMALL_FRAME_BYTES >> 20} MiB",
        "one LeaveGroup": MOST_LEAVERS,
        "one JoinGroup": f"{MOST_PROTOCOLS}, {MOST_METADATA_BYTES >> 20} MiB",
        "one ConsumerGroupHeartbeat": MOST_TOPICS,
        "one DescribeConfigs answer": MOST_ENTRIES,
        "that describe groups": f"{ANSWER_BYTES >> 20} MiB",
        "groups made by": f"{MOST_OF_A_CLIENT}, {MOST_OF_A_HOST}",
        "converted for one Fetch": f"{MOST_CONVERTED_BYTES >> 20} MiB",
        "half-received": f"{HALF_RECEIVED_BYTES >> 20} MiB",
        "does not take": f"{STALL_SECONDS:.0f} seconds",
    }
    lines = told.splitlines()
    for what, limit in rows.items():
        (line,) = [one for one in lines if what in one]
        assert f" {limit} |" in line


def test_every_key_is_on_the_page() -> None:
    page = render()
    assert [name for name in [*BROKER_KEYS, *TOPIC_KEYS] if f"`{name}`" not in page] == []
