"""One connection: versions, pipelining, peers that are late, silent or no Kafka."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.clients.scripted_broker import SERVED, SILENCE, ScriptedCluster, play

from barnabas.clients.connection import Connection, ConnectionOptions
from barnabas.clients.errors import (
    BrokerUnreachableError,
    ConnectionLostError,
    RequestTimeoutError,
    UnsupportedVersionError,
)
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.metadata import MetadataRequest

OPTIONS = ConnectionOptions(client_id="me", request_timeout_ms=1000)


async def connect(host: str = "broker1", port: int = 9092) -> Connection:
    return await Connection.open(host, port, OPTIONS)


@pytest.mark.parametrize("newest", [0, 1, 2, 3, 4])
def test_versions_are_agreed_with_brokers_of_any_age(newest: int) -> None:
    async def story(cluster: ScriptedCluster) -> None:
        cluster.versions = SERVED | {ApiKey.API_VERSIONS: (0, newest), ApiKey.FETCH: (2, 7)}
        connection = await connect()
        assert connection.version_for(ApiKey.FETCH) == 7
        assert connection.version_for(ApiKey.FETCH, highest=5) == 5
        assert connection.supports(ApiKey.FETCH, 7)
        assert not connection.supports(ApiKey.FETCH, 8)
        assert not connection.supports(ApiKey.DESCRIBE_CLUSTER)
        for bounds in ({"lowest": 8}, {"highest": 1}):
            with pytest.raises(UnsupportedVersionError, match="does not serve FETCH"):
                connection.version_for(ApiKey.FETCH, **bounds)

    play(story)


def test_requests_are_pipelined_and_answered_in_order() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        connection = await connect()
        futures = [connection.send(MetadataRequest(topics=[]), version % 14) for version in range(50)]
        assert connection.in_flight_count == 50
        responses = await asyncio.gather(*futures)
        assert {response.brokers[0].host for response in responses} == {"broker1"}
        assert connection.in_flight_count == 0

    play(story)


def test_a_late_response_ends_the_connection_and_all_that_wait_on_it() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        connection = await connect()
        cluster.before = lambda node, key, request: SILENCE
        started = cluster.loop.time()
        patient = connection.send(MetadataRequest(topics=[]), timeout_ms=60_000)
        hasty = connection.send(MetadataRequest(topics=[]))
        for future in (patient, hasty):
            with pytest.raises(RequestTimeoutError, match="did not answer a METADATA request"):
                await future
        assert cluster.loop.time() - started == pytest.approx(1.0)
        assert not connection.is_open
        with pytest.raises(ConnectionLostError):
            connection.send(MetadataRequest(topics=[]))

    play(story)


def test_a_closed_connection_fails_what_is_in_flight() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        connection = await connect()
        cluster.before = lambda node, key, request: SILENCE
        future = connection.send(MetadataRequest(topics=[]))
        await asyncio.sleep(0.1)
        cluster.disconnect_all()
        with pytest.raises(ConnectionLostError, match="closed the connection"):
            await future

    play(story)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x00\x00\x00\x04\x7f\xff\xff\xff",
        b"\x00\x00\x00\x02\x00\x00",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x0a\x00\x00\x00\x01\x00\x00\x7f\xff\xff\xff",
    ],
)
def test_a_peer_that_is_no_broker_is_left(answer: bytes) -> None:
    class NoBroker(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            transport.write(answer)

    async def story(cluster: ScriptedCluster) -> None:
        await cluster.loop.create_server(NoBroker, "web", 80)
        with pytest.raises(ConnectionLostError):
            await connect("web", 80)

    play(story)


def test_an_address_where_nobody_listens() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        with pytest.raises(BrokerUnreachableError, match="cannot reach broker at broker1:1"):
            await connect(port=1)

    play(story)
