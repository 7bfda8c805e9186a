"""Requests that are handled together at the end of a turn of the loop: their order, and connections that change."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import pytest
import uvloop
from tests.frames import framed
from tests.waiting import until

from barnabas.protocol.errors import ProtocolError
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.network import output
from barnabas.server.network.connection import Connection
from barnabas.server.network.request_turn import MAX_KEPT_BYTES, MIN_PRODUCE_BYTES
from barnabas.server.network.socket_server import SocketServer

LOOPS = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
PRODUCE, OTHER, BAD, FAULT = b"\0\0", b"\0\1", b"\0\2", b"\0\3"


def request(kind: bytes, number: int, size: int = MIN_PRODUCE_BYTES) -> bytes:
    return framed(kind + struct.pack(">i", number) + bytes(size))


class Server:
    """A socket server whose handlers answer with the number of the request, and whether it was handled together."""

    def __init__(self) -> None:
        config = BrokerConfig.from_properties({"listeners": "PLAINTEXT://127.0.0.1:0"})
        self.connections: dict[Connection, None] = {}
        self.calls: list[int] = []
        """How many connections each call had requests of."""
        self.before: Callable[[], None] = lambda: None
        """Called before the requests of a call are handled."""
        self.raises = False
        self.sockets = SocketServer(
            config, self.handle, asyncio.get_running_loop(), "machine", handle_together=self.handle_together
        )

    def handle(self, connection: Connection, data: memoryview, start: int, end: int) -> None:
        self.connections[connection] = None
        kind, number = bytes(data[start : start + 2]), data[start + 2 : start + 6]
        if kind == BAD:
            raise ProtocolError("bad")
        if kind == FAULT:
            raise RuntimeError("a fault of the broker")
        connection.send([framed(b"one" + number)], 11)

    def handle_together(
        self, connections: Sequence[Connection], data: memoryview, parts: list[tuple[int, int]], from_write_queue: bool
    ) -> Iterator[tuple[int, int, bytes | None]]:
        self.calls.append(len(connections))
        self.before()
        if self.raises:
            raise RuntimeError("a fault of the broker")
        for part, (start, end) in enumerate(parts):
            answers = b""
            while end - start >= 6 and data[start + 4 : start + 6] == PRODUCE:
                behind = start + 4 + struct.unpack_from(">i", data, start)[0]
                if behind > end:
                    break
                answers += framed(b"all" + data[start + 6 : start + 10])
                start = behind
            if answers:
                yield part, start, answers

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.sockets.listeners[0].port)


def play(talk: Callable[[Server], Awaitable[None]], loop: Callable[[], Any], errors: int = 0) -> None:
    reported: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        server = Server()
        await server.sockets.bind()
        await server.sockets.start()
        async with asyncio.timeout(60):
            await talk(server)
        await server.sockets.close()

    with asyncio.Runner(loop_factory=loop) as runner, pytest.MonkeyPatch.context() as patch:
        patch.setattr(output, "MIN_CONNECTIONS_TO_BATCH", 2)
        runner.run(main())
    assert len(reported) == errors, reported


async def answer(reader: asyncio.StreamReader) -> tuple[bytes, int]:
    (length,) = struct.unpack(">i", await reader.readexactly(4))
    frame = await reader.readexactly(length)
    return frame[:3], struct.unpack(">i", frame[3:])[0]


@LOOPS
def test_requests_of_one_turn_are_handled_together_and_answered_in_order(loop: Callable[[], Any]) -> None:
    async def talk(server: Server) -> None:
        clients = [await server.connect() for _ in range(20)]
        for place, (_, writer) in enumerate(clients):
            writer.write(b"".join(request(PRODUCE, 10 * place + number) for number in range(3)))
            writer.write(request(OTHER, 10 * place + 3) + request(PRODUCE, 10 * place + 4))
        for place, (reader, _) in enumerate(clients):
            found = [await answer(reader) for _ in range(5)]
            assert [number for _, number in found] == list(range(10 * place, 10 * place + 5))
            assert [how for how, _ in found][:4] == [b"all", b"all", b"all", b"one"]
        assert max(server.calls) > 1

    play(talk, loop)


@LOOPS
def test_a_frame_that_arrives_in_pieces_is_handled_when_it_is_complete(loop: Callable[[], Any]) -> None:
    async def talk(server: Server) -> None:
        clients = [await server.connect() for _ in range(4)]
        for size in (MIN_PRODUCE_BYTES, MAX_KEPT_BYTES, 50_000, 2_000_000):
            frame = request(PRODUCE, size, size)
            for cut in (3, 40, 100, len(frame) - 1):
                for _, writer in clients:
                    writer.write(frame + frame[:cut])
                await asyncio.sleep(0.001)
                for _, writer in clients:
                    writer.write(frame[cut:] + request(PRODUCE, 1))
                for reader, _ in clients:
                    assert [(await answer(reader))[1] for _ in range(3)] == [size, size, 1]

    play(talk, loop)


@LOOPS
def test_a_connection_that_pipelines_is_handled_at_once(loop: Callable[[], Any]) -> None:
    async def talk(server: Server) -> None:
        reader, writer = await server.connect()
        writer.write(b"".join(request(PRODUCE, number) for number in range(200)))
        assert [(await answer(reader))[1] for _ in range(200)] == list(range(200))
        assert set(server.calls) == {1}
        assert len(server.calls) < 100

    play(talk, loop)


@LOOPS
def test_invalid_requests_close_only_their_connections(loop: Callable[[], Any]) -> None:
    async def talk(server: Server) -> None:
        clients = [await server.connect() for _ in range(12)]
        for place, (_, writer) in enumerate(clients):
            writer.write(request(PRODUCE, 1) + request((OTHER, BAD, FAULT)[place % 3], 2))
        for place, (reader, writer) in enumerate(clients):
            if place % 3 == 2:  # the response before may be lost
                assert len(await reader.read()) <= 11
                continue
            assert (await answer(reader))[1] == 1
            if place % 3 == 1:
                assert await reader.read() == b""
            else:
                assert await answer(reader) == (b"one", 2)
                writer.write(request(PRODUCE, 3))
                assert (await answer(reader))[1] == 3

    play(talk, loop, errors=4)


@LOOPS
def test_connections_may_be_closed_muted_or_frozen_in_the_turn(loop: Callable[[], Any]) -> None:
    async def talk(server: Server) -> None:
        clients = [await server.connect() for _ in range(12)]
        for reader, writer in clients:
            writer.write(request(OTHER, 0))
            assert await answer(reader) == (b"one", 0)
        connections = list(server.connections)

        def change() -> None:
            server.before = lambda: None
            connections[0].abort()
            connections[1].close()
            connections[2].mute(0.05)
            connections[3].freeze()

        server.before = change
        for _, writer in reversed(clients):
            writer.write(request(PRODUCE, 1))
        for place, (reader, _) in enumerate(clients):
            if place > 3:
                assert (await answer(reader))[1] == 1
        for reader, _ in clients[:2]:
            assert len(await reader.read()) <= 11, "at most a response that was sent before"
        assert (await answer(clients[2][0]))[1] == 1

    play(talk, loop)


@LOOPS
def test_a_fault_of_the_handler_closes_the_connections_and_serves_others(loop: Callable[[], Any]) -> None:
    async def talk(server: Server) -> None:
        clients = [await server.connect() for _ in range(3)]
        server.raises = True
        clients[0][1].write(request(PRODUCE, 1) * 2)
        assert await clients[0][0].read() == b""
        server.raises = False
        clients[1][1].write(request(PRODUCE, 2))
        assert (await answer(clients[1][0]))[1] == 2
        await until(lambda: len(server.sockets._connections) == 2)

    play(talk, loop, errors=1)


@LOOPS
def test_clients_that_close_after_their_requests_get_all_responses(loop: Callable[[], Any]) -> None:
    async def talk(server: Server) -> None:
        clients = [await server.connect() for _ in range(10)]
        for _, writer in clients:
            writer.write(request(PRODUCE, 1) + request(PRODUCE, 2))
            writer.write_eof()
        for reader, _ in clients:
            assert [(await answer(reader))[1] for _ in range(2)] == [1, 2]
            assert await reader.read() == b""

    play(talk, loop)


@LOOPS
def test_requests_that_arrive_while_the_client_is_muted_are_handled_after_its_end(loop: Callable[[], Any]) -> None:
    async def talk(server: Server) -> None:
        reader, writer = await server.connect()
        writer.write(request(OTHER, 0))
        assert await answer(reader) == (b"one", 0)
        (connection,) = server.connections
        connection.mute(0.1)
        for number in range(1, 6):
            writer.write(request(PRODUCE if number % 2 else OTHER, number))
        writer.write_eof()
        assert [(await answer(reader))[1] for _ in range(5)] == [1, 2, 3, 4, 5]
        assert await reader.read() == b""

    play(talk, loop)
