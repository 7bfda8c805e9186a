"""One connection: versions, pipelining, peers that are late, silent or no Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from tests.clients.scripted_broker import SERVED, SILENCE, ScriptedCluster, play
from tests.protocol.bare_broker import NEWEST, PASSWORD, BareBroker

from barnabas.clients.connection import BrokerConnection, ConnectionOptions
from barnabas.clients.errors import (
    BrokerUnreachableError,
    ConnectionLostError,
    RequestTimeoutError,
    UnsupportedVersionError,
)
from barnabas.clients.security import Security
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages.metadata import MetadataRequest

OPTIONS = ConnectionOptions(client_id="me", request_timeout_ms=1000)


async def connect(host: str = "broker1", port: int = 9092) -> BrokerConnection:
    return await BrokerConnection.open(host, port, OPTIONS)


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
            with pytest.raises(UnsupportedVersionError, match="does not support FETCH"):
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
        with pytest.raises(BrokerUnreachableError, match="web:80 is not a Kafka broker"):
            await connect("web", 80)

    play(story)


def test_a_peer_that_takes_connections_and_never_speaks_is_left_soon() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        await cluster.loop.create_server(asyncio.Protocol, "silent", 80)
        started = cluster.loop.time()
        with pytest.raises(BrokerUnreachableError, match="silent:80 does not respond like a Kafka broker"):
            await BrokerConnection.open("silent", 80, ConnectionOptions(connect_timeout_ms=5000))
        assert cluster.loop.time() - started == pytest.approx(5.0, abs=0.5)

    play(story)


def test_an_address_where_nobody_listens() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        with pytest.raises(BrokerUnreachableError, match="cannot reach broker at broker1:1"):
            await connect(port=1)

    play(story)


class Wire(asyncio.Protocol):
    """A broker on the simulated network."""

    def __init__(self, broker: BareBroker) -> None:
        self._broker = broker

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._broker.receive(data)
        answer, self._broker.out = bytes(self._broker.out), bytearray()
        self._transport.write(answer)
        if self._broker.hung_up:
            self._transport.close()


def play_with(broker: BareBroker, security: Security, told: Callable[[BrokerConnection], Awaitable[None]]) -> None:
    async def story(cluster: ScriptedCluster) -> None:
        await cluster.loop.create_server(lambda: Wire(broker), "secured", 9092)
        await told(await BrokerConnection.open("secured", 9092, replace(OPTIONS, security=security)))

    play(story)


@pytest.mark.parametrize("handshake", [0, 1])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_password_is_proved_before_anything_is_sent(mechanism: str, handshake: int) -> None:
    async def told(connection: BrokerConnection) -> None:
        assert connection.is_open
        await asyncio.gather(*(connection.send(MetadataRequest(topics=[])) for _ in range(3)))

    broker = BareBroker(NEWEST | {ApiKey.SASL_HANDSHAKE: handshake}, has_sasl=True)
    play_with(broker, Security(None, mechanism, "ann", PASSWORD), told)


def test_a_wrong_password_is_said() -> None:
    async def never(connection: BrokerConnection) -> None:
        raise AssertionError("admitted")

    wrong = Security(None, "PLAIN", "ann", "wrong")
    with pytest.raises(KafkaError, match="SASL_AUTHENTICATION_FAILED: who are you"):
        play_with(BareBroker(has_sasl=True), wrong, never)
    old = BareBroker(NEWEST | {ApiKey.SASL_HANDSHAKE: 0}, has_sasl=True)
    with pytest.raises(ConnectionLostError, match="closed the connection during authentication"):
        play_with(old, wrong, never)


@pytest.mark.parametrize("answers", [0, 1])
def test_a_broker_that_falls_silent_at_the_start_is_left(answers: int) -> None:
    """The versions and the password have one deadline together."""

    class Silent(BareBroker):
        def receive(self, data: bytes) -> None:
            if len(self.asked) < answers:
                super().receive(data)

    async def story(cluster: ScriptedCluster) -> None:
        await cluster.loop.create_server(lambda: Wire(Silent(has_sasl=True)), "silent", 9092)
        started = cluster.loop.time()
        with pytest.raises(RequestTimeoutError if answers else BrokerUnreachableError):
            await BrokerConnection.open(
                "silent", 9092, replace(OPTIONS, security=Security(None, "PLAIN", "ann", PASSWORD))
            )
        assert cluster.loop.time() - started == pytest.approx(1.0, abs=0.01)

    play(story)


def test_who_stops_waiting_for_a_connection_leaves_none_behind() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        for moment in range(30):
            opening = asyncio.create_task(connect())
            await asyncio.sleep(moment * 0.0002)
            opening.cancel()
            with suppress(asyncio.CancelledError):
                (await opening).close()
        await asyncio.sleep(1)
        assert not cluster.network.connections

    play(story)


def test_a_bound_on_what_is_in_flight_is_told() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        connection = await BrokerConnection.open("broker1", 9092, replace(OPTIONS, max_in_flight=2))
        assert connection.has_room
        futures = [connection.send(MetadataRequest(topics=[])) for _ in range(2)]
        assert not connection.has_room
        await asyncio.gather(*futures)
        assert connection.has_room

    play(story)
