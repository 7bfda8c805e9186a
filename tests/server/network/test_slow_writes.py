"""Slow writes: one per turn of the loop, and other requests between them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from tests.server.network.test_request_turn import BAD, FAULT, LOOPS, OTHER, PRODUCE, Server, answer, play, request
from tests.waiting import until

from barnabas.server.network.connection import Connection
from barnabas.server.runtime.slow_writes import COUNTED_WRITE_SECONDS, WRITE_SECONDS_PER_TURN


class SlowServer(Server):
    """Its writes use up the time of a turn. It is `Server` without requests that are handled together."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = 0
        self.writes: list[int] = []
        """The turns of the writes."""
        self.others: list[int] = []
        """The number of writes before each other request."""
        self.seconds = WRITE_SECONDS_PER_TURN
        self.on_write: Callable[[], None] = lambda: None
        self.sockets._request_turn = None
        self._count_turn()

    def _count_turn(self) -> None:
        self.turn += 1
        self._next_turn = asyncio.get_running_loop().call_soon(self._count_turn)

    def handle(self, connection: Connection, data: memoryview, start: int, end: int) -> None:
        if bytes(data[start : start + 2]) == PRODUCE:
            self.writes.append(self.turn)
            self.sockets.slow_writes.add(self.seconds)
            self.on_write()
        else:
            self.others.append(len(self.writes))
        super().handle(connection, data, start, end)


def play_slowly(talk: Callable[[SlowServer], Awaitable[None]], loop: Callable[[], Any], errors: int = 0) -> None:
    async def main(_: Server) -> None:
        server = SlowServer()
        await server.sockets.bind()
        await server.sockets.start()
        await talk(server)
        await server.sockets.close()
        server._next_turn.cancel()

    play(main, loop, errors)


@LOOPS
def test_each_turn_has_one_slow_write_and_other_requests_do_not_wait_for_the_rest(loop: Callable[[], Any]) -> None:
    async def talk(server: SlowServer) -> None:
        clients = [await server.connect() for _ in range(20)]
        reader, writer = await server.connect()
        for place, (_, sending) in enumerate(clients):
            sending.write(b"".join(request(PRODUCE, 10 * place + number) for number in range(5)))
        writer.write(request(OTHER, 1))
        assert await answer(reader) == (b"one", 1)
        for place, (receiving, _) in enumerate(clients):
            assert [(await answer(receiving))[1] for _ in range(5)] == list(range(10 * place, 10 * place + 5))
        assert len(server.writes) == len(set(server.writes)) == 100
        assert server.others[0] <= 3, "requests of one turn"

    play_slowly(talk, loop)


@LOOPS
def test_fast_writes_are_not_delayed(loop: Callable[[], Any]) -> None:
    async def talk(server: SlowServer) -> None:
        server.seconds = COUNTED_WRITE_SECONDS
        reader, writer = await server.connect()
        writer.write(b"".join(request(PRODUCE, number) for number in range(40)))
        assert [(await answer(reader))[1] for _ in range(40)] == list(range(40))
        assert len(set(server.writes)) < 10

    play_slowly(talk, loop)


@LOOPS
def test_large_requests_wait_and_pipelined_ones_stay_in_order(loop: Callable[[], Any]) -> None:
    async def talk(server: SlowServer) -> None:
        clients = [await server.connect() for _ in range(4)]
        sizes = [100, 5_000, 70_000, 2_000_000, 90]
        for _, writer in clients:
            for number, size in enumerate(sizes):
                writer.write(request(PRODUCE, number, size) + request(OTHER, 100 + number))
        for reader, _ in clients:
            found = [(await answer(reader))[1] for _ in range(2 * len(sizes))]
            assert found == [number + add for number in range(len(sizes)) for add in (0, 100)]

    play_slowly(talk, loop)


@LOOPS
def test_a_waiting_connection_may_be_closed_frozen_or_invalid_and_the_others_continue(loop: Callable[[], Any]) -> None:
    async def talk(server: SlowServer) -> None:
        clients = [await server.connect() for _ in range(8)]
        for reader, writer in clients:
            writer.write(request(OTHER, 0))
            await answer(reader)
        lost, frozen, closed = list(server.connections)[1:4]

        def change() -> None:
            server.on_write = lambda: None
            lost.abort()
            frozen.freeze()
            closed.close()

        server.on_write = change  # before the second write
        for place, (_, writer) in enumerate(clients):
            behind = {4: BAD, 5: FAULT}.get(place, OTHER)
            writer.write(request(PRODUCE, place) + request(behind, 10 + place))
        for place in (0, 6, 7):
            assert [(await answer(clients[place][0]))[1] for _ in range(2)] == [place, 10 + place]
        for place in (1, 3, 4, 5):
            with suppress(ConnectionResetError):
                assert len(await clients[place][0].read()) <= 11, "at most the response to the first request"
        await until(lambda: not server.sockets.slow_writes.waiting)

    play_slowly(talk, loop, errors=1)


async def test_the_time_of_a_turn_ends_with_it() -> None:
    server = Server()
    slow_writes = server.sockets.slow_writes
    calls: list[bool] = []
    slow_writes.on_continue = lambda: calls.append(slow_writes.are_paused)
    for _ in range(5):
        slow_writes.add(WRITE_SECONDS_PER_TURN * 0.6)
        assert not slow_writes.are_paused
        await asyncio.sleep(0)
    slow_writes.add(WRITE_SECONDS_PER_TURN * 0.6)
    slow_writes.add(WRITE_SECONDS_PER_TURN * 0.6)
    assert slow_writes.are_paused
    await until(lambda: calls)
    assert calls == [False]
