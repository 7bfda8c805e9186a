"""A connection over real transports with TLS: large answers, pipelining, slow readers and files, on both loops."""

from __future__ import annotations

import asyncio
import os
import ssl
import struct
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.foreign_tools import require_tool, run_checked
from tests.server.network.open_connections import open_connections
from tests.waiting import until

from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.network.connection import READ_AHEAD_BYTES, Connection
from barnabas.server.network.socket_server import SocketServer
from barnabas.storage.filesystem import FileSlice

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
}
PATIENCE_S = 60
MORE_THAN_FITS = 24
"""Megabytes that no two sockets hold between them."""


class World:
    """A socket server behind TLS. A request is the size of its answer, 4 bytes; a negative one wants it from a file."""

    def __init__(self, folder: Path) -> None:
        key, certificate = folder / "key.pem", folder / "certificate.pem"
        request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
        run_checked(
            [*request, "-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
        )
        self.server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server_context.load_cert_chain(certificate, key)
        self.client_context = ssl.create_default_context(cafile=str(certificate))
        self.file = folder / "file"
        self.file.write_bytes(os.urandom(3 << 20))
        self.connections: list[Connection] = []
        self.handled = 0

    def handle(self, connection: Connection, data: memoryview, start: int, end: int) -> None:
        self.handled += 1
        size = struct.unpack_from(">i", data, start)[0]
        if size >= 0:
            connection.send([struct.pack(">i", size), bytes(size)], 4 + size)
        else:
            part = FileSlice(os.open(self.file, os.O_RDONLY), -size, 0)
            connection.send([struct.pack(">i", -size), part], 4 - size)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[int]:
        loop = asyncio.get_running_loop()
        config = BrokerConfig.from_properties({"listeners": "PLAINTEXT://127.0.0.1:0"})
        self.server = SocketServer(config, self.handle, loop, "machine")
        self.server.listeners.append(config.listeners[0])

        def connection() -> Connection:
            self.connections.append(self.server._create_connection(config.listeners[0]))
            return self.connections[-1]

        listening = await loop.create_server(connection, "127.0.0.1", 0, ssl=self.server_context)
        try:
            yield listening.sockets[0].getsockname()[1]
        finally:
            await self.server.close()
            listening.close()

    async def connect(self, port: int, limit: int = 1 << 16) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(
            "127.0.0.1", port, ssl=self.client_context, server_hostname="localhost", limit=limit
        )


def frame(size: int, padding: int = 0) -> bytes:
    return struct.pack(">ii", 4 + padding, size) + bytes(padding)


async def answer(reader: asyncio.StreamReader) -> bytes:
    size = struct.unpack(">i", await reader.readexactly(4))[0]
    return await reader.readexactly(size)


@pytest.fixture(params=LOOPS)
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Any], None]:
    require_tool("openssl", "it makes the certificate")

    def run(talk: Any) -> None:
        async def main() -> None:
            world = World(tmp_path)
            async with asyncio.timeout(PATIENCE_S), world.serving() as port:
                await talk(world, port)

        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(main())

    return run


def test_large_answers_and_pipelined_requests_come_in_order(play: Callable[[Any], None]) -> None:
    async def talk(world: World, port: int) -> None:
        reader, writer = await world.connect(port)
        sizes = [10, 5 << 20, 0, 200_000, 3 << 20, 7] * 3
        writer.write(b"".join(map(frame, sizes)))
        assert [len(await answer(reader)) for _ in sizes] == sizes
        writer.close()

    play(talk)


def test_a_client_that_does_not_read_gets_one_answer_and_then_nothing_is_handled(play: Callable[[Any], None]) -> None:
    async def talk(world: World, port: int) -> None:
        reader, writer = await world.connect(port)
        count, size = 20, 8 << 20
        writer.write(frame(size) * count)
        await until(lambda: bool(world.connections) and world.connections[0].write_stalled is not None)
        _, other = pair = await world.connect(port)
        other.write(frame(5))
        assert len(await answer(pair[0])) == 5
        assert world.handled < 5, "little but the other's"
        for _ in range(count):
            assert len(await answer(reader)) == size
        assert world.connections[0].write_stalled is None
        for each in (writer, other):
            each.close()

    play(talk)


def test_what_a_slow_reader_pipelines_is_bounded(play: Callable[[Any], None]) -> None:
    async def talk(world: World, port: int) -> None:
        reader, writer = await world.connect(port)
        writer.write(frame(16 << 20))
        await until(lambda: bool(world.connections) and world.connections[0].write_stalled is not None)
        count = 4000
        writer.write(frame(0, padding=1000) * count)
        frames = world.connections[0]._reader
        await until(lambda: frames.pending >= READ_AHEAD_BYTES)
        assert frames.pending < 2 * READ_AHEAD_BYTES
        assert len(await answer(reader)) == 16 << 20
        for _ in range(count):
            assert await answer(reader) == b""
        writer.close()

    play(talk)


def test_files_are_read_and_sent_in_order(play: Callable[[Any], None]) -> None:
    async def talk(world: World, port: int) -> None:
        reader, writer = await world.connect(port)
        content = world.file.read_bytes()
        sizes = [-len(content), 5, -(1 << 20), 4 << 20, -len(content)]
        writer.write(b"".join(map(frame, sizes)))
        await until(lambda: world.handled > 0)
        for size in sizes:
            found = await answer(reader)
            assert found == (content[:-size] if size < 0 else bytes(size))
        writer.close()

    play(talk)


def test_of_files_no_more_is_read_than_the_client_takes(play: Callable[[Any], None]) -> None:
    async def talk(world: World, port: int) -> None:
        reader, writer = await world.connect(port)
        content = os.urandom(1 << 20) * MORE_THAN_FITS
        world.file.write_bytes(content)
        tracemalloc.start()
        try:
            writer.write(frame(-len(content)))
            await until(lambda: bool(world.connections) and world.connections[0].write_stalled is not None)
            assert tracemalloc.get_traced_memory()[1] < len(content) // 2
        finally:
            tracemalloc.stop()
        assert await answer(reader) == content
        writer.close()

    play(talk)


def test_a_file_that_is_cut_while_it_is_sent_ends_the_connection(play: Callable[[Any], None]) -> None:
    async def talk(world: World, port: int) -> None:
        reader, writer = await world.connect(port)
        content = os.urandom(1 << 20) * MORE_THAN_FITS
        world.file.write_bytes(content)
        writer.write(frame(-len(content)) + frame(5))
        await until(lambda: bool(world.connections) and world.connections[0].write_stalled is not None)
        os.truncate(world.file, 10)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await answer(reader)
        await until(lambda: open_connections(world.server) == 0)
        assert world.handled <= 2
        writer.close()

    play(talk)


def test_a_broker_that_stops_sends_what_is_ready(play: Callable[[Any], None]) -> None:
    async def talk(world: World, port: int) -> None:
        reader, writer = await world.connect(port)
        writer.write(frame(100_000))
        await until(lambda: world.handled == 1)
        closing = asyncio.ensure_future(world.server.close())
        assert len(await answer(reader)) == 100_000
        assert await reader.read() == b""
        writer.close()
        await closing
        assert open_connections(world.server) == 0

    play(talk)
