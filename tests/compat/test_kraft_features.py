"""Feature levels of a KRaft cluster that change while a Barnabas broker and an Apache Kafka broker run."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.barnabas_server import BarnabasServer
from tests.kafka import KafkaBroker, KafkaControllers, KafkaTools

from barnabas.clients.connection import BrokerConnection, ConnectionOptions
from barnabas.clients.producer import Producer
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from barnabas.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(300)]

DEADLINE_S = 60
UPGRADE, SAFE_DOWNGRADE = 1, 2
MEMBER = "AAAAAAAAAAAAAAAAAAAAAA"
BEATS = {
    "group.version": ConsumerGroupHeartbeatRequest(
        group_id="g", member_id=MEMBER, member_epoch=9, rebalance_timeout_ms=1000, topic_partitions=[]
    ),
    "share.version": ShareGroupHeartbeatRequest(group_id="s", member_id=MEMBER, member_epoch=9),
    "streams.version": StreamsGroupHeartbeatRequest(group_id="t", member_id=MEMBER, member_epoch=9),
}
"""By the feature that permits them. No member has the epoch: the requests change nothing."""
SERVED = {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}


async def levels(connection: BrokerConnection) -> dict[str, int]:
    """Return the finalized levels, which clients see."""
    answer = await connection.send(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)
    return {one.name: one.max_version_level for one in answer.finalized_features}


async def change(connection: BrokerConnection, feature: str, level: int, kind: int) -> ErrorCode:
    update = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=kind)
    answer: Any = await connection.send(UpdateFeaturesRequest(feature_updates=[update], timeout_ms=30_000))
    return ErrorCode(answer.error_code)


async def wait_for_levels(connections: list[BrokerConnection], wanted: Mapping[str, int]) -> None:
    """Wait until both brokers have these levels, and check that they serve the same requests."""
    for connection in connections:
        found: dict[str, int] = {}
        async with asyncio.timeout(DEADLINE_S):
            while {name: level for name, level in found.items() if name != "kraft.version"} != wanted:
                await asyncio.sleep(0.05)
                found = await levels(connection)
        for feature, beat in BEATS.items():
            answer: Any = await connection.send(beat)
            is_served = ErrorCode(answer.error_code) is not ErrorCode.UNSUPPORTED_VERSION
            assert is_served == (feature in wanted), (feature, answer)
            assert not is_served or ErrorCode(answer.error_code) in SERVED, answer


async def run_transaction(bootstrap: str) -> None:
    async with Producer(bootstrap, transactional_id="t") as producer, producer.transaction():
        await producer.send("t", b"1", partition=0)


async def test_both_kinds_follow_upgrades_and_downgrades(tmp_path: Path) -> None:
    controllers = KafkaControllers(tmp_path / "controllers")
    controllers.servers[0].format_arguments = ["--release-version", "4.0"]
    tools = KafkaTools()
    with controllers:
        topics = {
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "offsets.topic.num.partitions": "1",
        }
        properties = {
            **topics,
            "broker.id": "2",
            "process.roles": "broker",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": controllers.bootstrap,
        }
        kafka = KafkaBroker(tmp_path / "kafka", controllers, 1, properties=topics)
        kafka.format_arguments = ["--release-version", "4.0"]
        barnabas = BarnabasServer(tmp_path / "barnabas", properties=properties)
        with barnabas, kafka:
            options = ConnectionOptions(client_id="test", request_timeout_ms=60_000)
            connections = [
                await BrokerConnection.open("127.0.0.1", server.port, options) for server in (barnabas, kafka)
            ]
            ours = connections[0]
            old = await levels(ours)
            await wait_for_levels(connections, old)
            assert (old["metadata.version"], "share.version" in old) == (25, False)
            await run_transaction(barnabas.bootstrap)
            # Between 4.0 and 4.2 no record has changed, so that a downgrade loses nothing.
            for level, kind in ((29, UPGRADE), (25, SAFE_DOWNGRADE)):
                assert await change(ours, "metadata.version", level, kind) is ErrorCode.NONE
                await wait_for_levels(connections, {**old, "metadata.version": level})
            assert await change(ours, "metadata.version", 34, UPGRADE) is not ErrorCode.NONE
            assert await change(ours, "share.version", 3, UPGRADE) is not ErrorCode.NONE
            arguments = ["--bootstrap-server", barnabas.bootstrap, "upgrade", "--release-version", "4.4"]
            await asyncio.to_thread(tools.output, "kafka-features", *arguments)
            new = {**old, "metadata.version": 33, "share.version": 2, "streams.version": 1}
            new |= {name: level for name, level in (await levels(ours)).items() if name not in new}
            await wait_for_levels(connections, new)
            await run_transaction(barnabas.bootstrap)
            for feature, level in (
                ("share.version", 0),
                ("streams.version", 0),
                ("group.version", 0),
                ("transaction.version", 1),
            ):
                assert await change(ours, feature, level, SAFE_DOWNGRADE) is ErrorCode.NONE, feature
                lower = {**new, feature: level}
                await wait_for_levels(connections, {name: one for name, one in lower.items() if one})
                await run_transaction(barnabas.bootstrap)
                assert await change(ours, feature, new[feature], UPGRADE) is ErrorCode.NONE
            await wait_for_levels(connections, new)
            for connection in connections:
                connection.close()
