"""Quotas that are stored by the controllers of a KRaft cluster limit the clients of a Barnabas broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.barnabas_server import BarnabasServer
from tests.kafka import KafkaControllers
from tests.server.data_plane import at, batch, fetch, produce

from barnabas.clients.admin import Admin, NewTopic
from barnabas.clients.connection import BrokerConnection, ConnectionOptions
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(120)]

DEADLINE_S = 30
# Throttle times of a few seconds instead of ten.
WINDOWS = {"quota.window.num": "2", "controller.quota.window.num": "2"}
METADATA = MetadataRequest(topics=[])


class Throttled:
    """A connection of a client id, which repeats requests until the broker throttles it."""

    def __init__(self, connection: BrokerConnection) -> None:
        self.connection = connection

    @classmethod
    @asynccontextmanager
    async def open(cls, port: int, client_id: str) -> AsyncIterator[Throttled]:
        connection = await BrokerConnection.open("127.0.0.1", port, ConnectionOptions(client_id=client_id))
        try:
            yield cls(connection)
        finally:
            connection.close()

    async def until(self, request: Any, version: int, *, is_throttled: bool) -> Any:
        """Return the first response with a throttle time, or without one."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                response: Any = await self.connection.send(request, version)
                if (response.throttle_time_ms > 0) is is_throttled:
                    return response

    async def check_muted_for(self, throttle_time_ms: int) -> None:
        """Check that the next request is not handled before the end of the throttle time (KIP-219)."""
        began = time.monotonic()
        await self.connection.send(METADATA, 9)
        assert time.monotonic() - began > throttle_time_ms / 1000 * 0.8


async def test_quotas_of_the_controllers_limit_clients_of_barnabas(tmp_path: Path) -> None:
    controllers = KafkaControllers(tmp_path / "controllers", properties=WINDOWS)
    properties = {
        "process.roles": "broker",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": controllers.bootstrap,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "default.replication.factor": "1",
        **WINDOWS,
    }
    server = BarnabasServer(tmp_path / "barnabas", properties=properties)
    with controllers:
        try:
            await asyncio.to_thread(server.start)
            async with Admin(server.bootstrap) as admin:
                await check_quotas(server.port, admin)
        finally:
            server.kill()


async def check_quotas(port: int, admin: Admin) -> None:
    quotas = {
        "producer": "producer_byte_rate",
        "consumer": "consumer_byte_rate",
        "requester": "request_percentage",
        "creator": "controller_mutation_rate",
    }
    values = {"producer_byte_rate": 2000.0, "consumer_byte_rate": 2000.0, "request_percentage": 0.01}
    await admin.create_topics([NewTopic("t", 1, 1)])
    for client_id, key in quotas.items():
        await admin.alter_quotas({"client-id": client_id}, {key: values.get(key, 1.0)})
    records = batch(b"x" * 8000)

    async with Throttled.open(port, "producer") as producer:
        response = await producer.until(produce(records), 9, is_throttled=True)
        await producer.check_muted_for(response.throttle_time_ms)

    async with Throttled.open(port, "consumer") as consumer:
        response = await consumer.until(fetch(at(0)), 11, is_throttled=True)
        await consumer.check_muted_for(response.throttle_time_ms)

    async with Throttled.open(port, "requester") as requester:
        response = await requester.until(METADATA, 9, is_throttled=True)
        await requester.check_muted_for(response.throttle_time_ms)

    async with Throttled.open(port, "creator") as creator:
        # The controller refuses strict requests of a client over its quota, and the broker throttles the client.
        wanted = [CreatableTopic(name=f"created-{number}", num_partitions=4, replication_factor=1) for number in (1, 2)]
        response = await creator.connection.send(CreateTopicsRequest(topics=wanted, timeout_ms=10_000), 7)
        assert sorted(topic.error_code for topic in response.topics) == [
            ErrorCode.NONE,
            ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ]
        assert response.throttle_time_ms > 0
        await creator.check_muted_for(response.throttle_time_ms)
        # Topics that the broker creates for a client count for the client's quota on this broker.
        names = [MetadataRequestTopic(name=f"automatic-{number}") for number in range(6)]
        creation = MetadataRequest(topics=names, allow_auto_topic_creation=True)
        response = await creator.connection.send(creation, 9)
        assert response.throttle_time_ms > 0

    async with Throttled.open(port, "free") as free:
        requests: list[tuple[Any, int]] = [(produce(records), 9), (fetch(at(0)), 11), (METADATA, 9)]
        for request, version in requests:
            response = await free.connection.send(request, version)
            assert response.throttle_time_ms == 0

    for client_id, key in quotas.items():
        await admin.alter_quotas({"client-id": client_id}, {key: None})
    for client_id, (request, version) in zip(("producer", "consumer", "requester"), requests, strict=True):
        async with Throttled.open(port, client_id) as former:
            await former.until(request, version, is_throttled=False)
