"""Connections whose requests wait in the queue of appends while the disk is slow."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

from tests.server.network.test_request_turn import BAD, FAULT, LOOPS, OTHER, PRODUCE, Server, answer, play, request
from tests.waiting import until

from barnabas.server.network.connection import Connection
from barnabas.server.runtime.write_queue import MIN_COUNTED_SECONDS, SECONDS_PER_TURN, WaitingAppend, WriteQueue


class SlowServer(Server):
    """A server whose writes each use up the time of a turn. It handles no requests together."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = self.sockets.write_queue
        self.turn = 0
        self.writes: list[int] = []
        """The turns of the writes."""
        self.seconds = SECONDS_PER_TURN
        self.on_write: Callable[[], None] = lambda: None
        self._count_turn()

    def _count_turn(self) -> None:
        self.turn += 1
        self.next_turn = asyncio.get_running_loop().call_soon(self._count_turn)

    def handle(self, connection: Connection, data: memoryview, start: int, end: int) -> None:
        if bytes(data[start : start + 2]) == PRODUCE:
            self.writes.append(self.turn)
            self.queue.add_time(self.seconds)
            self.on_write()
        super().handle(connection, data, start, end)

    def handle_together(self, *_: object) -> Iterator[Any]:
        return iter(())

    async def connect_served(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Connection]:
        """Return a client and its connection."""
        known = set(self.connections)
        reader, writer = await self.connect()
        writer.write(request(OTHER, 0))
        assert await answer(reader) == (b"one", 0)
        (connection,) = set(self.connections) - known
        return reader, writer, connection

    def hold(self) -> None:
        """Append nothing before `release`."""
        self.queue.must_wait = self.queue._is_turn_used_up = True

    def release(self) -> None:
        self.queue._end_pause()


def play_slowly(talk: Callable[[SlowServer], Awaitable[None]], loop: Callable[[], Any], errors: int = 0) -> None:
    async def main(_: Server) -> None:
        server = SlowServer()
        await server.sockets.bind()
        await server.sockets.start()
        await talk(server)
        await server.sockets.close()
        await until(lambda: not server.queue.must_wait and not len(server.queue))
        server.next_turn.cancel()

    play(main, loop, errors)


@LOOPS
def test_each_turn_has_one_slow_write(loop: Callable[[], Any]) -> None:
    async def talk(server: SlowServer) -> None:
        clients = [await server.connect() for _ in range(20)]
        for place, (_, writer) in enumerate(clients):
            writer.write(b"".join(request(PRODUCE, 10 * place + number) for number in range(5)))
        for place, (reader, _) in enumerate(clients):
            assert [(await answer(reader))[1] for _ in range(5)] == list(range(10 * place, 10 * place + 5))
        assert len(server.writes) == len(set(server.writes)) == 100

    play_slowly(talk, loop)


@LOOPS
def test_fast_writes_are_not_delayed(loop: Callable[[], Any]) -> None:
    async def talk(server: SlowServer) -> None:
        server.seconds = MIN_COUNTED_SECONDS
        reader, writer = await server.connect()
        writer.write(b"".join(request(PRODUCE, number) for number in range(40)))
        assert [(await answer(reader))[1] for _ in range(40)] == list(range(40))
        assert len(set(server.writes)) < 10
        assert not server.queue.must_wait

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
        clients = [await server.connect_served() for _ in range(8)]
        server.hold()
        for place, (_, writer, _) in enumerate(clients):
            following = {4: BAD, 5: FAULT}.get(place, OTHER)
            writer.write(request(PRODUCE, place) + request(following, 10 + place))
        await until(lambda: len(server.queue) == 8)
        clients[1][2].abort()
        clients[2][2].freeze()
        clients[3][2].close()
        server.release()
        for place in (0, 6, 7):
            assert [(await answer(clients[place][0]))[1] for _ in range(2)] == [place, 10 + place]
        for place in (1, 3, 4, 5):
            with suppress(ConnectionResetError):
                assert len(await clients[place][0].read()) <= 11, "at most the response to the first request"
        assert len(server.writes) == 5

    play_slowly(talk, loop, errors=1)


@LOOPS
def test_the_requests_of_a_client_that_closes_are_handled_before_later_ones(loop: Callable[[], Any]) -> None:
    async def talk(server: SlowServer) -> None:
        clients = [await server.connect_served() for _ in range(6)]
        server.hold()
        for place, (_, writer, _) in enumerate(clients):
            # An incomplete request at the end is dropped.
            writer.write(b"".join(request(PRODUCE, 10 * place + number) for number in range(3)))
            writer.write(request(OTHER, 10 * place + 3) + request(PRODUCE, 99)[: place % 3 * 7])
            writer.write_eof()
        await until(lambda: len(server.queue) == 6)
        server.release()
        for place, (reader, _, _) in enumerate(clients):
            assert [(await answer(reader))[1] for _ in range(4)] == list(range(10 * place, 10 * place + 4))
            assert await reader.read() == b""
        assert len(server.writes) == 18
        await until(lambda: not server.sockets._connections)

    play_slowly(talk, loop)


@LOOPS
def test_only_complete_requests_wait_and_a_waiting_client_is_neither_idle_nor_stalled(loop: Callable[[], Any]) -> None:
    async def talk(server: SlowServer) -> None:
        reader, writer, connection = await server.connect_served()
        for size in (100, 5_000, 400_000):
            connection.last_active = 0.0
            server.hold()
            frame = request(PRODUCE, 1, size)
            for cut in (3, 50, len(frame) - 1):
                writer.write(frame[:cut])
                frame = frame[cut:]
                await until(lambda: connection.frame_started is not None)
            assert not connection.is_waiting_to_write
            assert connection.receiving_for(server.sockets.loop.time() + 100) > 0
            writer.write(frame)
            await until(lambda: connection.is_waiting_to_write)
            assert bool(server.sockets.memory_pool._allocated) == (size > 65536), "its memory is in use"
            connection.last_active = -1e9
            server.sockets._close_if_overdue(connection)
            server.release()
            assert (await answer(reader))[1] == 1
            assert connection.last_active > 0
            await until(lambda: not server.queue.must_wait)
            assert not server.sockets.memory_pool._allocated

    play_slowly(talk, loop)


@LOOPS
def test_a_client_that_is_muted_while_its_request_waits_continues_when_both_have_ended(loop: Callable[[], Any]) -> None:
    async def talk(server: SlowServer) -> None:
        first_reader, first_writer, first = await server.connect_served()
        last_reader, last_writer, last = await server.connect_served()
        server.hold()
        first_writer.write(request(PRODUCE, 1) * 2)
        last_writer.write(request(PRODUCE, 2) * 2)
        await until(lambda: len(server.queue) == 2)
        first.mute(0.0)
        last.mute(1000.0)
        await until(lambda: first._muted is None)
        assert first.is_waiting_to_write, "the end of the mute does not end the wait"
        server.release()
        assert [(await answer(first_reader))[1] for _ in range(2)] == [1, 1]
        await until(lambda: not server.queue.must_wait)
        assert not last.is_waiting_to_write
        assert len(server.writes) == 2, "the end of the wait does not end the mute"
        server.hold()
        last._unmute()
        assert last.is_waiting_to_write
        assert len(server.queue) == 1, "it waits once"
        server.release()
        assert [(await answer(last_reader))[1] for _ in range(2)] == [2, 2]
        assert len(server.writes) == 4

    play_slowly(talk, loop)


@LOOPS
def test_a_request_of_a_client_that_does_not_take_its_responses_waits_again(loop: Callable[[], Any]) -> None:
    async def talk(server: SlowServer) -> None:
        reader, writer, connection = await server.connect_served()
        server.hold()
        writer.write(request(PRODUCE, 1) + request(PRODUCE, 2))
        await until(lambda: len(server.queue) == 1)
        connection.pause_writing()
        server.release()
        await until(lambda: not server.queue.must_wait)
        assert not server.writes
        server.hold()
        connection.resume_writing()
        assert len(server.queue) == 1
        server.release()
        assert [(await answer(reader))[1] for _ in range(2)] == [1, 2]

    play_slowly(talk, loop)


async def test_the_time_of_a_turn_ends_with_it() -> None:
    queue = WriteQueue(asyncio.get_running_loop())
    for _ in range(5):
        queue.add_time(SECONDS_PER_TURN * 0.6)
        assert not queue.must_wait
        await asyncio.sleep(0)
    queue.add_time(SECONDS_PER_TURN * 0.6)
    queue.add_time(SECONDS_PER_TURN * 0.6)
    assert queue.must_wait
    await until(lambda: not queue.must_wait)


async def test_tasks_and_appends_continue_in_their_order_one_write_at_a_time() -> None:
    loop = asyncio.get_running_loop()
    reported: list[Any] = []
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    queue = WriteQueue(loop)
    order: list[str] = []

    def append(name: str) -> None:
        assert not queue._seconds or queue._seconds == MIN_COUNTED_SECONDS, "the only write of this turn"
        order.append(name)
        if name == "fault":
            raise RuntimeError(name)
        queue.add_time(SECONDS_PER_TURN)

    async def write(name: str) -> None:
        await queue.wait_for_turn()
        append(name)

    def fail(*_: object) -> Any:
        raise RuntimeError("join")

    queue.join = fail
    queue.add_time(SECONDS_PER_TURN)
    tasks = []
    for number in range(12):
        kind = ("append", "task", "cancelled", "fault")[number % 4]
        if kind in ("append", "fault"):
            queue.wait(WaitingAppend(lambda kind=kind: append(kind)))  # type: ignore[misc]
        else:
            tasks.append(asyncio.ensure_future(write(kind)))
            await asyncio.sleep(0)
            if kind == "cancelled":
                tasks.pop().cancel()
    await until(lambda: not queue.must_wait)
    await asyncio.gather(*tasks)
    assert order == ["append", "task", "fault"] * 3
    assert {str(error) for error in reported} == {"fault", "join"}
