"""Connections: one request at a time, answers in order, bounded buffers, limits, and the clients that overstep them."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Awaitable, Callable

import pytest
from tests.frames import framed
from tests.server.network.open_connections import open_connections
from tests.waiting import until

from barnabas.protocol.errors import ProtocolError
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.network import socket_server
from barnabas.server.network.connection import READ_AHEAD_BYTES, Connection
from barnabas.server.network.socket_server import (
    FRAME_SECONDS,
    MAX_CREATION_PAUSE_SECONDS,
    STALL_SECONDS,
    SocketServer,
)
from barnabas.simulation.loop import SimLoop, run
from barnabas.simulation.network import SimNetwork

Talk = Callable[["World"], Awaitable[None]]
TWO_LISTENERS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
}


class World:
    """A socket server with a handler that the test answers by hand, on a simulated network."""

    def __init__(self, loop: SimLoop, settings: dict[str, str]) -> None:
        self.loop = loop
        self.network = SimNetwork(loop, random.Random(1))
        self.waiting: list[tuple[Connection, bytes]] = []
        self.seen: list[bytes] = []
        self.answer_at_once = True
        config = BrokerConfig.from_properties({"listeners": "PLAINTEXT://127.0.0.1:0", **settings})
        self.server = SocketServer(config, self.handle, loop, "machine")

    def handle(self, connection: Connection, data: memoryview, start: int, end: int) -> None:
        frame = bytes(data[start:end])
        self.seen.append(frame)
        if frame.startswith(b"bad"):
            raise ProtocolError("bad")
        if self.answer_at_once:
            self.answer(connection, frame)
        else:
            self.waiting.append((connection, frame))

    def answer(self, connection: Connection, frame: bytes) -> None:
        connection.send([struct.pack(">i", len(frame)), frame], len(frame) + 4)

    async def connect(self, listener: int = 0) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.server.listeners[listener].port)


def play(talk: Talk, properties: dict[str, str] | None = None, **settings: str) -> None:
    async def main(loop: SimLoop) -> None:
        world = World(loop, {name.replace("_", "."): value for name, value in settings.items()} | (properties or {}))
        await world.server.bind()
        await world.server.start()
        await talk(world)
        await world.server.close()

    run(main, seed=5)


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    (length,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(length)


def test_pipelined_requests_are_answered_in_order() -> None:
    async def talk(world: World) -> None:
        reader, writer = await world.connect()
        bodies = [f"request {number}".encode() for number in range(50)]
        writer.write(b"".join(map(framed, bodies)))
        assert [await read_frame(reader) for _ in bodies] == bodies

    play(talk)


def test_the_next_request_waits_for_the_answer_to_the_one_before() -> None:
    async def talk(world: World) -> None:
        world.answer_at_once = False
        reader, writer = await world.connect()
        writer.write(framed(b"first") + framed(b"second"))
        await until(lambda: world.waiting)
        await asyncio.sleep(10)
        assert world.seen == [b"first"]
        world.answer(*world.waiting.pop())
        assert await read_frame(reader) == b"first"
        await until(lambda: world.waiting)
        world.answer(*world.waiting.pop())
        assert await read_frame(reader) == b"second"

    play(talk)


def test_what_a_busy_connection_pipelines_is_bounded() -> None:
    async def talk(world: World) -> None:
        world.answer_at_once = False
        _, writer = await world.connect()
        body = bytes(60_000)
        for _ in range(100):
            writer.write(framed(body))
        await until(lambda: world.waiting)
        await asyncio.sleep(5)
        connection, _ = world.waiting[0]
        assert READ_AHEAD_BYTES <= connection._reader.pending <= READ_AHEAD_BYTES + (1 << 18)
        world.answer_at_once = True
        world.answer(*world.waiting.pop())
        await until(lambda: len(world.seen) == 100)

    play(talk)


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n", struct.pack(">i", -1), struct.pack(">i", 2**31 - 1), framed(b"bad")],
    ids=["http", "negative", "huge", "undecodable"],
)
def test_garbage_closes_its_own_connection_only(garbage: bytes) -> None:
    async def talk(world: World) -> None:
        reader, writer = await world.connect()
        healthy_reader, healthy_writer = await world.connect()
        writer.write(garbage)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await read_frame(reader)
        healthy_writer.write(framed(b"still here"))
        assert await read_frame(healthy_reader) == b"still here"
        assert open_connections(world.server) == 1

    play(talk)


def test_too_many_connections_are_refused() -> None:
    async def talk(world: World) -> None:
        kept = [await world.connect() for _ in range(2)]
        await until(lambda: open_connections(world.server) == 2)
        reader, _ = await world.connect()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await read_frame(reader)
        kept[0][1].write(framed(b"still served"))
        assert await read_frame(kept[0][0]) == b"still served"

    play(talk, max_connections="2")


def test_a_listener_has_a_limit_of_its_own() -> None:
    async def talk(world: World) -> None:
        _kept = await world.connect(1)
        await until(lambda: open_connections(world.server) == 1)
        reader, _ = await world.connect(1)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await read_frame(reader)
        reader, writer = await world.connect(0)
        writer.write(framed(b"served"))
        assert await read_frame(reader) == b"served"
        _kept[1].close()
        await until(lambda: open_connections(world.server) == 1)
        reader, writer = await world.connect(1)
        writer.write(framed(b"served again"))
        assert await read_frame(reader) == b"served again"

    play(talk, TWO_LISTENERS | {"listener.name.internal.max.connections": "1"})


def test_clients_do_not_keep_out_other_brokers() -> None:
    """As `max.connections` is described in Kafka: for a broker the connection goes that was idle longest elsewhere."""

    async def talk(world: World) -> None:
        idle, busy = await world.connect(0), await world.connect(0)
        await until(lambda: open_connections(world.server) == 2)
        await asyncio.sleep(1)
        busy[1].write(framed(b"busy"))
        assert await read_frame(busy[0]) == b"busy"
        reader, writer = await world.connect(1)
        writer.write(framed(b"from a broker"))
        assert await read_frame(reader) == b"from a broker"
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await read_frame(idle[0])
        assert open_connections(world.server) == 2
        refused, _ = await world.connect(0)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await read_frame(refused)
        busy[1].write(framed(b"still served"))
        assert await read_frame(busy[0]) == b"still served"

    play(talk, TWO_LISTENERS | {"inter.broker.listener.name": "INTERNAL", "max.connections": "2"})


def test_at_a_rate_of_0_each_connection_waits_as_long_as_any() -> None:
    """`max.connection.creation.rate` may be 0, in Kafka, too."""

    async def talk(world: World) -> None:
        reader, writer = await world.connect()
        began = world.loop.time()
        writer.write(framed(b"late"))
        assert await read_frame(reader) == b"late"
        assert MAX_CREATION_PAUSE_SECONDS - 1 < world.loop.time() - began < MAX_CREATION_PAUSE_SECONDS + 1
        assert open_connections(world.server) == 1

    play(talk, max_connection_creation_rate="0")


def test_idle_connections_are_closed() -> None:
    async def talk(world: World) -> None:
        _kept = await world.connect()
        await until(lambda: open_connections(world.server) == 1)
        began = world.loop.time()
        await until(lambda: open_connections(world.server) == 0)
        assert 5 <= world.loop.time() - began <= 8

    play(talk, connections_max_idle_ms="5000")


def test_a_connection_that_takes_its_answer_is_not_idle() -> None:
    async def talk(world: World) -> None:
        _kept = await world.connect()
        await until(lambda: open_connections(world.server) == 1)
        connection = next(iter(world.server._connections))
        connection.pause_writing()
        await asyncio.sleep(12)
        assert open_connections(world.server) == 1
        connection.resume_writing()
        taken = world.loop.time()
        await until(lambda: open_connections(world.server) == 0)
        assert 5 <= world.loop.time() - taken <= 8

    play(talk, connections_max_idle_ms="5000")


def test_a_negative_idle_time_closes_no_connection() -> None:
    async def talk(world: World) -> None:
        reader, writer = await world.connect()
        await asyncio.sleep(3600)
        writer.write(framed(b"still here"))
        assert await read_frame(reader) == b"still here"

    play(talk, connections_max_idle_ms="-1")


def test_many_connections_are_looked_at_in_portions_and_none_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(world: World) -> None:
        _kept = [await world.connect() for _ in range(7)]
        await until(lambda: open_connections(world.server) == 7)
        reader, writer = await world.connect()
        looked_at: list[int] = []
        look = world.server._close_if_overdue

        def watched(connection: Connection) -> None:
            looked_at.append(world.loop.steps)
            look(connection)

        monkeypatch.setattr(world.server, "_close_if_overdue", watched)
        while open_connections(world.server) > 1:
            writer.write(framed(b"busy"))
            await read_frame(reader)
            await asyncio.sleep(0.5)
        last = looked_at[-8:]
        assert len(set(last)) == 3, "eight in portions of three"
        writer.write(framed(b"still here"))
        assert await read_frame(reader) == b"still here"

    monkeypatch.setattr(socket_server, "CHECKED_CONNECTIONS_PER_TURN", 3)
    play(talk, connections_max_idle_ms="5000")


def test_a_request_that_dribbles_in_is_cut_off() -> None:
    async def talk(world: World) -> None:
        _, writer = await world.connect()
        writer.write(struct.pack(">i", 1000))
        began = world.loop.time()
        await until(lambda: open_connections(world.server) == 1)
        while open_connections(world.server):
            writer.write(b"x")
            await asyncio.sleep(1)
            assert world.loop.time() - began < FRAME_SECONDS + 5

    play(talk)


def test_a_client_that_takes_no_answers_is_cut_off() -> None:
    async def talk(world: World) -> None:
        _, writer = await world.connect()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await until(lambda: open_connections(world.server) == 1)
        connection = next(iter(world.server._connections))
        connection.pause_writing()
        began = world.loop.time()
        await until(lambda: open_connections(world.server) == 0)
        assert world.loop.time() - began < STALL_SECONDS + 5

    play(talk)


def test_a_request_nobody_waits_for_is_told_so() -> None:
    async def talk(world: World) -> None:
        world.answer_at_once = False
        _, writer = await world.connect()
        writer.write(framed(b"long poll"))
        await until(lambda: world.waiting)
        gone: list[bool] = []
        world.waiting[0][0].on_close = lambda: gone.append(True)
        writer.close()
        await until(lambda: gone)

    play(talk)


def test_a_muted_connection_is_answered_and_then_not_heard_for_that_time() -> None:
    async def talk(world: World) -> None:
        world.answer_at_once = False
        muted, other = await world.connect(), await world.connect()
        muted[1].write(framed(b"first") + framed(b"second"))
        await until(lambda: world.waiting)
        connection, first = world.waiting.pop()
        began = world.loop.time()
        connection.mute(5.0)
        world.answer(connection, first)
        assert await read_frame(muted[0]) == b"first"
        assert world.loop.time() < began + 1
        other[1].write(framed(b"other"))
        await until(lambda: world.seen[-1] == b"other")
        assert world.loop.time() < began + 1
        await until(lambda: b"second" in world.seen)
        assert began + 5.0 <= world.loop.time() < began + 5.1
        world.answer(*world.waiting.pop())
        assert await read_frame(muted[0]) == b"second"
        muted[1].close()
        other[1].close()

    play(talk)


def test_a_muted_connection_that_the_broker_freezes_is_not_heard_again_and_one_that_is_closed_is_forgotten() -> None:
    async def talk(world: World) -> None:
        world.answer_at_once = False
        frozen, closed = await world.connect(), await world.connect()
        for _, writer in (frozen, closed):
            writer.write(framed(b"first") + framed(b"second"))
        await until(lambda: len(world.waiting) == 2)
        for connection, first in world.waiting:
            connection.mute(5.0)
            world.answer(connection, first)
        closed[1].close()
        await until(lambda: open_connections(world.server) == 1)
        world.waiting[0][0].freeze()
        world.waiting[1][0].freeze()
        began = world.loop.time()
        await asyncio.sleep(10)
        assert world.loop.time() >= began + 10 and world.seen == [b"first", b"first"]
        frozen[1].close()

    play(talk)
