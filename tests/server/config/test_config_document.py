"""docs/configuration.md matches the tables of keys."""

from __future__ import annotations

from pathlib import Path

from barnabas.protocol.codec import ORDER_OBJECT_BUDGET, REQUEST_OBJECT_BUDGET, STOP_OBJECT_BUDGET
from barnabas.protocol.compiled_support import MAX_UNKNOWN_TAGS
from barnabas.protocol.decompression_room import FREE_BLOCKS, LEAST_BLOCK_OUTPUT
from barnabas.protocol.gzip_members import SHORT_GZIP_BYTES
from barnabas.protocol.produce_entries import MAX_PARTITIONS
from barnabas.server.apis.handlers.describe_configs import MAX_ENTRIES
from barnabas.server.apis.handlers.fetch import MAX_CONVERTED_BYTES
from barnabas.server.apis.handlers.join_group import MAX_METADATA_BYTES, MAX_PROTOCOLS
from barnabas.server.apis.handlers.leave_group import MAX_LEAVING_MEMBERS
from barnabas.server.apis.large_requests import DECODED_BYTES
from barnabas.server.apis.response_budget import RESPONSE_BYTES
from barnabas.server.config.document import render
from barnabas.server.config.keys.catalogue import BROKER_KEYS, TOPIC_KEYS
from barnabas.server.coordinator.creation_limiter import NAMES_PER_CLIENT, NAMES_PER_HOST
from barnabas.server.coordinator.group.consumer_heartbeat import MAX_TOPICS
from barnabas.server.coordinator.group.zookeeper_offsets import MAX_OFFSETS, MAX_OFFSETS_PER_HOST
from barnabas.server.metadata.consumer_offset_store import LONGEST_GROUP_ID
from barnabas.server.network.socket_server import HALF_RECEIVED_BYTES, SMALL_FRAME_BYTES, STALL_SECONDS

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == render(), (
        "write it again: python -m barnabas.server.config.document > docs/configuration.md"
    )


def test_the_limits_told_are_those_in_force() -> None:
    told = render().partition("## Limits that Apache Kafka does not have")[2].partition("\n## ")[0]
    rows = {
        "in the lists of one request": REQUEST_OBJECT_BUDGET,
        "UpdateMetadata between brokers": ORDER_OBJECT_BUDGET,
        "StopReplica between brokers": STOP_OBJECT_BUDGET,
        "tagged fields of one struct": MAX_UNKNOWN_TAGS,
        "of one Produce request": MAX_PARTITIONS,
        "of one request without records": f"{SMALL_FRAME_BYTES >> 20} MiB",
        "one LeaveGroup": MAX_LEAVING_MEMBERS,
        "one JoinGroup": f"{MAX_PROTOCOLS}, {MAX_METADATA_BYTES >> 20} MiB",
        "one ConsumerGroupHeartbeat": MAX_TOPICS,
        "one DescribeConfigs response": MAX_ENTRIES,
        "that describe groups": f"{RESPONSE_BYTES >> 20} MiB",
        "groups created by": f"{NAMES_PER_CLIENT}, {NAMES_PER_HOST}",
        "written by OffsetCommit 0": f"{NAMES_PER_CLIENT}, {MAX_OFFSETS_PER_HOST}, {MAX_OFFSETS}",
        "group id in OffsetCommit 0": LONGEST_GROUP_ID,
        "converted for one Fetch": f"{MAX_CONVERTED_BYTES >> 20} MiB",
        f"batch, beyond {FREE_BLOCKS}": f"one for each {LEAST_BLOCK_OUTPUT} bytes that they hold",
        f"gzip batch, beyond {SHORT_GZIP_BYTES >> 10} KiB": "eight for each decompressed byte",
        "of more than 64 KB": f"{HALF_RECEIVED_BYTES >> 20} MiB",
        "of more than 32 KB": f"{DECODED_BYTES >> 20} MiB",
        "does not receive": f"{STALL_SECONDS:.0f} seconds",
    }
    lines = told.splitlines()
    for what, limit in rows.items():
        (line,) = [one for one in lines if what in one]
        assert f" {limit} |" in line


def test_every_key_is_on_the_page() -> None:
    page = render()
    assert [name for name in [*BROKER_KEYS, *TOPIC_KEYS] if f"`{name}`" not in page] == []
