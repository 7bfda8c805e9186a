"""Clients that begin large requests and do not go on: together they cost one budget, and do not keep others out."""

from __future__ import annotations

import asyncio
import random
import struct
from typing import Any

import pytest

from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.network import socket_server
from barnabas.server.network.connection import Connection
from barnabas.server.network.socket_server import FRAME_SECONDS, SILENT_SECONDS, SocketServer
from barnabas.simulation.loop import SimLoop, run
from barnabas.simulation.network import NetworkFaults, SimNetwork

BUDGET = 4 << 20
LARGE = 3 << 20
CLIENTS = 40
GROWTH = 2 * LARGE + (1 << 20)
"""One connection goes beyond the budget, and a buffer is twice what came at most."""
KEPT_EACH = 1 << 17


class World:
    """Answers each request with its size."""

    def __init__(self, loop: SimLoop) -> None:
        SimNetwork(loop, random.Random(1), NetworkFaults(latency=0.001, jitter=0.001))
        config = BrokerConfig.from_properties({"listeners": "PLAINTEXT://127.0.0.1:0"})
        self.loop = loop
        self.server = SocketServer(config, self.handle, loop, "machine")
        self.most_held = 0
        self.seconds = 0.0
        """How long handling takes."""
        self.keeps = False
        """Whether the bytes of a request are kept for that time."""

    def handle(self, connection: Connection, data: memoryview, start: int, end: int) -> None:
        if self.seconds:
            if self.keeps:
                connection.keep_request()
            self.loop.call_later(self.seconds, self.answer, connection, end - start)
        else:
            self.answer(connection, end - start)

    def answer(self, connection: Connection, size: int) -> None:
        connection.send([struct.pack(">ii", 4, size)], 8)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.server.listeners[0].port)

    async def watch(self) -> None:
        while True:
            readers = [connection._reader for connection in self.server._connections]
            self.most_held = max(self.most_held, sum(len(reader.private or b"") for reader in readers))
            await asyncio.sleep(0.0005)

    async def send(self, size: int, *, piece: int = 1 << 16, upto: int | None = None) -> int:
        """A produce request of that size in pieces, or the beginning of it; the answer."""
        reader, writer = await self.connect()
        data = struct.pack(">i", size) + bytes(size)
        for at in range(0, len(data) if upto is None else upto, piece):
            writer.write(data[at : at + piece])
            await writer.drain()
            await asyncio.sleep(0.001)
        answer = await reader.readexactly(8)
        writer.close()
        return int(struct.unpack(">ii", answer)[1])


def play(talk: Any) -> None:
    async def main(loop: SimLoop) -> None:
        world = World(loop)
        await world.server.bind()
        await world.server.start()
        watching = asyncio.ensure_future(world.watch())
        await talk(world)
        watching.cancel()
        await world.server.close()

    run(main, 1)


@pytest.fixture(autouse=True)
def small_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_server, "HALF_RECEIVED_BYTES", BUDGET)


def test_large_requests_of_many_come_in_turn_within_the_budget() -> None:
    async def talk(world: World) -> None:
        assert await asyncio.gather(*(world.send(LARGE) for _ in range(CLIENTS))) == [LARGE] * CLIENTS
        assert world.most_held <= BUDGET + GROWTH + CLIENTS * KEPT_EACH
        assert not world.server.memory_pool._allocated
        assert not world.server.memory_pool._waiting

    play(talk)


def test_those_who_stop_in_the_middle_keep_others_waiting_for_a_while_only() -> None:
    async def talk(world: World) -> None:
        silent = [asyncio.ensure_future(world.send(LARGE, upto=LARGE - 100_000)) for _ in range(CLIENTS)]
        while not world.server.memory_pool._waiting:
            await asyncio.sleep(0.01)
        began = world.loop.time()
        # A small request needs nothing of the budget.
        assert await world.send(1000) == 1000
        assert world.loop.time() - began < 0.1
        assert await world.send(LARGE) == LARGE
        assert world.loop.time() - began < FRAME_SECONDS + CLIENTS * (SILENT_SECONDS + 2)
        assert world.most_held <= BUDGET + GROWTH + CLIENTS * KEPT_EACH
        ends = await asyncio.gather(*silent, return_exceptions=True)
        assert all(isinstance(end, (asyncio.IncompleteReadError, ConnectionResetError)) for end in ends)
        assert not world.server.memory_pool._allocated
        assert not world.server.memory_pool._waiting

    play(talk)


def test_one_that_goes_away_lets_the_next_go_on() -> None:
    async def talk(world: World) -> None:
        pairs = [await world.connect() for _ in range(4)]
        for _, writer in pairs:
            writer.write(struct.pack(">i", LARGE) + bytes(LARGE // 2))
        while not world.server.memory_pool._waiting:
            await asyncio.sleep(0.01)
        waiting = asyncio.ensure_future(world.send(LARGE))
        await asyncio.sleep(1)
        assert not waiting.done()
        for _, writer in pairs:
            writer.close()
        assert await asyncio.wait_for(waiting, 5) == LARGE

    play(talk)


def test_a_request_that_is_handled_counts_until_it_is_answered_and_is_not_cut_off() -> None:
    async def talk(world: World) -> None:
        world.seconds, world.keeps = 10.0, True
        first = asyncio.ensure_future(world.send(LARGE))
        await asyncio.sleep(5)
        second = asyncio.ensure_future(world.send(LARGE))
        await asyncio.sleep(4)
        assert world.server.memory_pool._waiting, "the first is still in memory"
        assert await first == LARGE
        began = world.loop.time()
        assert await second == LARGE
        assert world.loop.time() - began < 15
        assert not world.server.memory_pool._allocated

    play(talk)


def test_a_request_that_waits_without_its_bytes_does_not_keep_others_out() -> None:
    async def talk(world: World) -> None:
        world.seconds = 60.0
        first = asyncio.ensure_future(world.send(LARGE))
        await asyncio.sleep(5)
        assert not world.server.memory_pool._allocated
        world.seconds = 0.0
        assert await asyncio.wait_for(world.send(LARGE), 5) == LARGE
        assert await first == LARGE

    play(talk)
