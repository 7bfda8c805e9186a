"""Handshakes beside the loop: what the lane does, what comes too early, and clients that are gone meanwhile."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.server.network.open_connections import open_connections
from tests.waiting import until

from barnabas.clients.certificates import Authority
from barnabas.clients.connection import BrokerConnection, ConnectionOptions
from barnabas.clients.security import security_of
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.server.network import tls
from barnabas.server.network.tls import HANDSHAKE_LANE, TlsAcceptor
from barnabas.testing.broker import Broker

PATIENCE = 60
RESET = struct.pack("ii", 1, 0)


class World:
    """A broker behind TLS whose lane for handshakes a test can hold."""

    def __init__(self, folder: Path) -> None:
        authority = Authority.new("test CA")
        self.ca, own = folder / "ca.pem", folder / "broker.pem"
        authority.write(self.ca)
        authority.issue("broker", ["127.0.0.1"]).write(own)
        self.context = ssl.create_default_context(cafile=str(self.ca))
        listener = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.type": "PEM"}
        self.broker = Broker(config=listener | {"ssl.keystore.location": str(own)})
        self.free = threading.Event()

    def hold(self) -> None:
        """Have the lane rest until `free` is set."""
        self.free.clear()
        self.broker.server._ports.work.submit(HANDSHAKE_LANE, lambda: self.free.wait(PATIENCE), lambda *_: None)

    @property
    def tls(self) -> ssl.SSLContext:
        """Of the next connection at the broker."""
        listener = self.broker.server.sockets._listener_security["SSL"].tls
        assert listener is not None
        return listener.context

    @property
    def acceptor(self) -> TlsAcceptor:
        (acceptor,) = self.broker.server.sockets._acceptors
        return acceptor

    async def connect(self) -> None:
        """A client that asks something and goes."""
        trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca)}
        options = ConnectionOptions(security=security_of({"security.protocol": "SSL", **trust}))
        connection = await BrokerConnection.open("127.0.0.1", self.broker.port, options)
        assert (await connection.send(MetadataRequest(topics=None), 12)).brokers
        connection.close()

    async def greet(
        self, address: str = "127.0.0.1"
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, ssl.SSLObject, ssl.MemoryBIO, Any]:
        """A client by hand that has sent the beginning of its handshake."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.broker.port, local_addr=(address, 0))
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = self.context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        with suppress(ssl.SSLWantReadError):
            client.do_handshake()
        writer.write(outgoing.read())
        return reader, writer, client, incoming, outgoing


@pytest.fixture(params=["asyncio", "uvloop"])
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Any], None]:
    loops: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
        "asyncio": asyncio.SelectorEventLoop,
        "uvloop": uvloop.new_event_loop,
    }

    def run(talk: Any) -> None:
        async def main() -> None:
            world = World(tmp_path)
            async with asyncio.timeout(PATIENCE), world.broker:
                try:
                    await talk(world)
                finally:
                    world.free.set()

        with asyncio.Runner(loop_factory=loops[request.param]) as runner:
            runner.run(main())

    return run


@pytest.fixture
def computed_by(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each step of a handshake at the broker, whether it was the lane's."""
    steps: list[bool] = []
    compute = ssl.SSLObject.do_handshake

    def noted(tls: ssl.SSLObject) -> None:
        if tls.server_side:
            steps.append(threading.current_thread().name.startswith(HANDSHAKE_LANE))
        compute(tls)

    monkeypatch.setattr(ssl.SSLObject, "do_handshake", noted)
    return steps


def test_all_of_a_handshake_but_its_end_is_the_lanes(play: Callable[[Any], None], computed_by: list[bool]) -> None:
    async def talk(world: World) -> None:
        for _ in range(3):
            await world.connect()
        assert computed_by == [True, False] * 3

    play(talk)


def test_what_follows_a_second_greeting_is_the_lanes(play: Callable[[Any], None], computed_by: list[bool]) -> None:
    """A client that has guessed the wrong group for its key is asked for another: the signature comes after that."""

    async def talk(world: World) -> None:
        world.tls.set_ecdh_curve("prime256v1")
        await world.connect()
        assert computed_by == [True, True, False]

    play(talk)


def test_a_handshake_of_tls_1_2_is_the_lanes_to_its_end(play: Callable[[Any], None], computed_by: list[bool]) -> None:
    async def talk(world: World) -> None:
        world.tls.maximum_version = ssl.TLSVersion.TLSv1_2
        await world.connect()
        assert computed_by == [True, True]

    play(talk)


def test_a_handshake_is_the_lanes_to_its_end_where_certificates_are_asked_for(
    play: Callable[[Any], None], computed_by: list[bool]
) -> None:
    async def talk(world: World) -> None:
        world.tls.verify_mode = ssl.CERT_OPTIONAL
        await world.connect()
        assert computed_by == [True, True]

    play(talk)


def test_a_wrong_end_of_a_handshake_is_told(play: Callable[[Any], None], computed_by: list[bool]) -> None:
    async def talk(world: World) -> None:
        reader, writer, _, _, _ = await world.greet()
        assert await reader.read(1 << 16)
        # An encrypted record that nobody can read, where the hash of all that was said should be.
        writer.write(b"\x17\x03\x03\x00\x35" + bytes(0x35))
        assert (await reader.read())[:3] == b"\x17\x03\x03"
        await until(lambda: not world.acceptor.handshakes)
        assert computed_by == [True, False]
        writer.close()

    play(talk)


def test_others_are_served_while_a_handshake_is_computed(play: Callable[[Any], None]) -> None:
    async def talk(world: World) -> None:
        trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(world.ca)}
        options = ConnectionOptions(security=security_of({"security.protocol": "SSL", **trust}))
        known = await BrokerConnection.open("127.0.0.1", world.broker.port, options)
        world.hold()
        coming = asyncio.ensure_future(world.connect())
        await until(lambda: world.acceptor.handshakes == 1)
        for _ in range(10):
            assert (await known.send(MetadataRequest(topics=None), 12)).brokers
        assert not coming.done()
        world.free.set()
        await coming
        known.close()

    play(talk)


def test_a_request_right_behind_the_handshake_is_answered(play: Callable[[Any], None]) -> None:
    """In one segment with the client's last word."""

    async def talk(world: World) -> None:
        for _ in range(20):
            reader, writer, client, incoming, outgoing = await world.greet()
            while True:
                incoming.write(await reader.read(1 << 16))
                try:
                    client.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    continue
            client.write(struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, 7, -1))
            writer.write(outgoing.read())
            answer = b""
            while len(answer) < 8:
                incoming.write(await reader.read(1 << 16))
                with suppress(ssl.SSLWantReadError):
                    answer += client.read(1 << 16)
            assert struct.unpack_from(">i", answer, 4) == (7,)
            writer.close()

    play(talk)


def test_who_is_gone_while_a_step_is_computed_leaves_nothing_behind(
    play: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "MAX_HANDSHAKES", 5)
    monkeypatch.setattr(tls, "HANDSHAKE_SECONDS", 0.3)

    async def talk(world: World) -> None:
        world.hold()
        peers = [await world.greet() for _ in range(12)]
        for _, writer, *_ in peers[::2]:
            with suppress(OSError):  # those that made room may be closed already
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            writer.transport.abort()
        # Their time is over, and the lane is at it still.
        line = world.broker.server.sockets.handshakes
        assert line is not None
        for reader, writer, *_ in peers[1::2]:
            with suppress(ConnectionError):
                await reader.read()
            writer.close()
        await until(lambda: not len(line))
        # Who comes now has time, however slow the machine is.
        monkeypatch.setattr(tls, "HANDSHAKE_SECONDS", PATIENCE)
        world.free.set()
        await until(lambda: not world.acceptor.handshakes)
        monkeypatch.setattr(tls, "HANDSHAKE_SECONDS", PATIENCE)
        await world.connect()
        await until(lambda: not open_connections(world.broker.server.sockets))

    play(talk)


def test_one_address_does_not_keep_another_out(play: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "MAX_HANDSHAKES", 10)
    monkeypatch.setattr(tls, "HANDSHAKE_SECONDS", PATIENCE)

    async def talk(world: World) -> None:
        world.hold()
        coming = asyncio.ensure_future(world.connect())
        await until(lambda: world.acceptor.handshakes == 1)
        flood = [await world.greet("127.0.0.2") for _ in range(30)]
        # The last of them has come when the first are cut off.
        for reader, *_ in flood[:20]:
            with suppress(ConnectionError):
                await reader.read()
        assert world.acceptor.handshakes == 10
        world.free.set()
        await coming
        for _, writer, *_ in flood:
            writer.close()

    play(talk)


def test_garbage_and_half_a_greeting_end_a_handshake(play: Callable[[Any], None]) -> None:
    async def talk(world: World) -> None:
        for words in (
            b"\x16\x03\x01\x00",
            b"GET / HTTP/1.1\r\n\r\n",
            bytes(300),
            b"\x16\x03\x01\x40\x00" + bytes(20_000),
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", world.broker.port)
            writer.write(words)
            writer.write_eof()
            with suppress(ConnectionError):
                await reader.read()
            writer.close()
        await until(lambda: not world.acceptor.handshakes)
        await world.connect()

    play(talk)


def test_a_broker_stops_in_the_middle_of_handshakes(play: Callable[[Any], None]) -> None:
    async def talk(world: World) -> None:
        world.hold()
        peers = [await world.greet() for _ in range(3)]
        await until(lambda: world.acceptor.handshakes == 3)
        await world.broker.server.sockets.close()
        assert not world.acceptor.handshakes
        for _, writer, *_ in peers:
            writer.close()

    play(talk)
