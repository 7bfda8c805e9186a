"""Answers that wait in a box until the end of a turn: each socket gets its own, in order, whole and once."""

from __future__ import annotations

import asyncio
import math
import os
import random
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import uvloop
from bench.wire import connect, fetch_request, metadata_request, produce_request, receive, small_batch
from tests.waiting import until

from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.native import native
from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.network import output
from barnabas.server.network.connection import Connection
from barnabas.server.network.output import (
    MIN_CONNECTIONS_TO_BATCH,
    RESPONSES_PER_BACKGROUND_SEND,
    ResponseBatcher,
    begin_sending_py,
    finish_sending_py,
    is_sending_py,
)
from barnabas.server.network.socket_server import SocketServer
from barnabas.testing import embedded
from barnabas.testing.broker import Broker

NOBODYS = 2**31 - 1
"""The correlation id of requests whose answers nobody waits for."""
TWINS: list[tuple[Any, Any, Any]] = [(begin_sending_py, finish_sending_py, is_sending_py)]
if native is not None:
    TWINS.append((native.begin_sending, native.finish_sending, native.is_sending))


@pytest.fixture(params=TWINS, ids=["python", "compiled"][: len(TWINS)])
def twin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    begin, finish, is_sending = request.param
    monkeypatch.setattr(output, "is_sending", is_sending)
    monkeypatch.setattr(output, "begin_sending", begin)
    monkeypatch.setattr(output, "finish_sending", finish)


class Line:
    """A socket with a client at its other end, and a transport that notes what it is given to send."""

    def __init__(self) -> None:
        self.server, self.client = socket.socketpair()
        self.server.setblocking(False)
        self.client.settimeout(60)
        self.written: list[bytes] = []

    @property
    def number(self) -> int:
        return self.server.fileno()

    @property
    def transport(self) -> Any:
        return self

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def sent(self) -> bytes:
        """What went through the socket and what its transport has to send, which is behind that."""
        self.server.close()
        through = b""
        while data := self.client.recv(1 << 20):
            through += data
        return through + b"".join(self.written)

    def close(self) -> None:
        self.server.close()
        self.client.close()


@pytest.fixture
def lines() -> Iterator[Callable[[int], list[Line]]]:
    with ExitStack() as stack:

        def make(count: int) -> list[Line]:
            made = [Line() for _ in range(count)]
            for line in made:
                stack.callback(line.close)
            return made

        yield make


async def end_of_turn() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def opened(lines: list[Line]) -> ResponseBatcher:
    batcher = ResponseBatcher(asyncio.get_running_loop())
    for line in lines:
        batcher.add_connection(line.number, line.transport)
    return batcher


@pytest.mark.usefixtures("twin")
async def test_each_gets_its_answers_in_order(lines: Callable[[int], list[Line]]) -> None:
    crowd = lines(RESPONSES_PER_BACKGROUND_SEND * 3)
    batcher = opened(crowd)
    for number in range(4):
        for line in crowd:
            batcher.add(line.number, b"%d of %d;" % (number, line.number), more_responses_follow=True)
    await end_of_turn()
    for line in crowd:
        expected = b"".join(b"%d of %d;" % (number, line.number) for number in range(4))
        assert line.sent() == expected


@pytest.mark.usefixtures("twin")
async def test_responses_are_collected_while_the_thread_sends(
    lines: Callable[[int], list[Line]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop does not wait for the thread before the end of the turn, which then sends the rest together."""
    crowd = lines(RESPONSES_PER_BACKGROUND_SEND * 3)
    batcher = opened(crowd)
    begun: list[int] = []
    finished: list[int] = []
    begin, finish = output.begin_sending, output.finish_sending

    def begin_counted(responses: dict[int, bytes]) -> None:
        begun.append(len(responses))
        begin(responses)

    def finish_counted(responses: dict[int, bytes]) -> list[tuple[int, int]]:
        finished.append(len(responses))
        return finish(responses)

    monkeypatch.setattr(output, "begin_sending", begin_counted)
    monkeypatch.setattr(output, "finish_sending", finish_counted)
    monkeypatch.setattr(output, "is_sending", lambda _: True)
    for number, line in enumerate(crowd):
        batcher.add(line.number, b"%d" % number, more_responses_follow=True)
    assert (begun, finished) == ([RESPONSES_PER_BACKGROUND_SEND], [])
    await end_of_turn()
    assert begun == finished == [RESPONSES_PER_BACKGROUND_SEND, 2 * RESPONSES_PER_BACKGROUND_SEND]
    assert [line.sent() for line in crowd] == [b"%d" % number for number in range(len(crowd))]


@pytest.mark.usefixtures("twin")
async def test_what_a_socket_does_not_take_is_for_its_transport(lines: Callable[[int], list[Line]]) -> None:
    crowd = lines(RESPONSES_PER_BACKGROUND_SEND + 5)
    batcher = opened(crowd)
    full, gone, *others = crowd
    gone.client.close()
    answer = b"a" * (4 << 20)
    batcher.add(full.number, answer, more_responses_follow=True)
    for line in (gone, *others):
        batcher.add(line.number, b"short", more_responses_follow=True)
    batcher.add(full.number, b", and more", more_responses_follow=True)
    await end_of_turn()
    assert full.written, "a socket does not take so much"
    assert full.sent() == answer + b", and more"
    assert gone.written == [b"short"]
    assert {line.sent() for line in others} == {b"short"}


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize("count", [1, RESPONSES_PER_BACKGROUND_SEND + 1])
async def test_what_is_sent_past_the_box_comes_behind_what_is_in_it(
    lines: Callable[[int], list[Line]], count: int
) -> None:
    crowd = lines(count)
    batcher = opened(crowd)
    for line in crowd:
        batcher.add(line.number, b"first", more_responses_follow=True)
    for line in crowd:
        batcher.flush(line.number)
        line.server.send(b"".join(line.written) + b", second")
    await end_of_turn()
    assert {line.client.recv(100) for line in crowd} == {b"first, second"}


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize("count", [1, RESPONSES_PER_BACKGROUND_SEND + 1])
async def test_nothing_is_sent_to_whoever_has_the_number_of_a_closed_socket(
    lines: Callable[[int], list[Line]], count: int
) -> None:
    crowd = lines(count)
    batcher = opened(crowd)
    for line in crowd:
        batcher.add(line.number, b"not for the next one", more_responses_follow=True)
    for line in crowd:
        batcher.remove_connection(line.number)
        line.close()
    newcomers = lines(count)
    for line in newcomers:
        batcher.add_connection(line.number, line.transport)
        batcher.add(line.number, b"for me", more_responses_follow=True)
    await end_of_turn()
    assert {line.sent() for line in newcomers} == {b"for me"}


async def test_a_crowd_is_one_until_the_box_is_empty(lines: Callable[[int], list[Line]]) -> None:
    crowd = lines(MIN_CONNECTIONS_TO_BATCH)
    batcher = opened(crowd[1:])
    assert not batcher.is_batching
    batcher.add_connection(crowd[0].number, crowd[0].transport)
    assert batcher.is_batching
    batcher.add(crowd[1].number, b"x", more_responses_follow=True)
    batcher.remove_connection(crowd[0].number)
    assert batcher.is_batching, "the next answer would overtake the one in the box"
    await end_of_turn()
    assert not batcher.is_batching


@pytest.mark.parametrize("more_responses_follow", [False, True])
async def test_the_first_response_of_a_turn_waits_only_for_others(
    lines: Callable[[int], list[Line]], monkeypatch: pytest.MonkeyPatch, more_responses_follow: bool
) -> None:
    crowd = lines(MIN_CONNECTIONS_TO_BATCH)
    batcher = opened(crowd)
    batcher.add(crowd[0].number, b"first", more_responses_follow=more_responses_follow)
    assert batcher.has_waiting is more_responses_follow
    assert crowd[0].written == ([] if more_responses_follow else [b"first"])
    monkeypatch.setattr(output, "TURN_S", math.inf)  # however slow the machine is, this is the same turn
    batcher.add(crowd[1].number, b"second", more_responses_follow=more_responses_follow)
    assert batcher.has_waiting
    await end_of_turn()
    assert [line.sent() for line in crowd[:2]] == [b"first", b"second"]


@pytest.mark.skipif(native is None, reason="there is no compiled code")
def test_two_loops_in_one_process(lines: Callable[[int], list[Line]]) -> None:
    assert native is not None
    ours, theirs = ({line.number: b"%d" % line.number for line in lines(100)} for _ in range(2))
    native.begin_sending(ours)
    native.begin_sending(theirs)
    other: list[Any] = []
    thread = threading.Thread(target=lambda: other.append(native.finish_sending(theirs)))
    thread.start()
    assert native.finish_sending(ours) == []
    thread.join(60)
    assert other == [[]]
    assert native.finish_sending({}) == []


@pytest.mark.skipif(native is None, reason="there is no compiled code")
async def test_the_sender_needs_nobody_to_help_it(lines: Callable[[int], list[Line]]) -> None:
    assert native is not None
    is_sending = native.is_sending
    crowd = lines(RESPONSES_PER_BACKGROUND_SEND)
    answers = {line.number: b"%d" % line.number for line in crowd}
    native.begin_sending(answers)
    for line in crowd:
        assert line.client.recv(100) == b"%d" % line.number
    await until(lambda: not is_sending(answers))
    assert not is_sending({}), "of another loop, or not begun"
    assert native.finish_sending(answers) == []


@pytest.mark.skipif(native is None, reason="there is no compiled code")
def test_begun_answers_outlive_a_change_of_their_dict(lines: Callable[[int], list[Line]]) -> None:
    """A sender that had borrowed the bytes would send freed memory: the sanitizers see that, and mostly the clients."""
    assert native is not None
    crowd = lines(100)
    for _ in range(20):
        answers = {line.number: b"%08d" % line.number * 40 for line in crowd}
        native.begin_sending(answers)
        for number in answers:
            answers[number] = b"replaced" * 40
        assert native.finish_sending(answers) == []
        for line in crowd:
            assert line.client.recv(1000) == b"%08d" % line.number * 40


@pytest.mark.skipif(native is None or not hasattr(os, "fork"), reason="there is no compiled code, or nothing forks")
def test_a_process_that_was_forked_in_the_midst_of_it_has_a_sender_of_its_own() -> None:
    ended = subprocess.run([sys.executable, "-c", FORKS], timeout=100, capture_output=True, text=True)
    assert ended.stdout == "[0, 0, 0, 0]\n", ended.stderr


FORKS = """
import os
import socket
import sys

from barnabas.protocol.native import native


def batch():
    pairs = [socket.socketpair() for _ in range(32)]
    return pairs, {ours.fileno(): b"%d" % ours.fileno() for ours, _ in pairs}


def arrive(pairs):
    for ours, client in pairs:
        client.settimeout(60)
        assert client.recv(100) == b"%d" % ours.fileno()


exits = []
for _ in range(2):
    pairs, answers = batch()
    native.begin_sending(answers)
    for _ in range(2):
        child = os.fork()
        if child == 0:
            pairs, answers = batch()
            native.begin_sending(answers)
            arrive(pairs)
            os._exit(len(native.finish_sending(answers)))
        exits.append(os.waitpid(child, 0)[1])
    arrive(pairs)
    assert native.finish_sending(answers) == []
print(exits)
"""


@pytest.mark.parametrize("wrong", [None, [], {"a": b""}, {1: "text"}, {1: None}, {-1: b""}, {1 << 40: b""}])
@pytest.mark.skipif(native is None, reason="there is no compiled code")
def test_the_compiled_twin_refuses_what_is_none(wrong: Any) -> None:
    assert native is not None
    for function in (native.begin_sending, native.finish_sending):
        with pytest.raises(TypeError):
            function(wrong)


LOOPS = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])


@pytest.mark.usefixtures("twin")
@LOOPS
def test_a_crowd_gets_its_answers_in_order(loop: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Short answers and long ones, those that lie in files among them, to many requests in a row of many clients."""
    monkeypatch.setattr(embedded, "event_loop", loop)
    rng = random.Random(7)
    with Broker(["t", "large"]) as broker, ExitStack() as stack:
        broker.produce("large", [b"x" * 300_000])
        asks = [
            metadata_request("t"),
            metadata_request("unknown to all"),
            produce_request("t", [(0, small_batch())]),
            fetch_request("large", 0, 1 << 20),
            fetch_request("t", 0, 100),
        ]
        clients = [
            stack.enter_context(connect(broker.bootstrap)) for _ in range(2 * RESPONSES_PER_BACKGROUND_SEND + 16)
        ]
        for turn in range(5):
            # No two answers have the same number: none may come to another client.
            numbers = [
                range(6 * (turn * len(clients) + place), 6 * (turn * len(clients) + place) + 6)
                for place in range(len(clients))
            ]
            for client, own in zip(clients, numbers, strict=True):
                kinds = rng.choices(asks, [6, 2, 9, 1, 3], k=6)
                client.sendall(b"".join(map(numbered, kinds, own)))
            for client, own in zip(clients, numbers, strict=True):
                assert [number_of(client) for _ in own] == list(own)
            # Some go in the middle of what they have asked for, and others come.
            for index in rng.sample(range(len(clients)), 10):
                clients[index].sendall(numbered(asks[2], NOBODYS) * 5)
                clients[index].close()
                clients[index] = stack.enter_context(connect(broker.bootstrap))


class BatchedServer:
    """A socket server whose answers all go through the box; a request says with how many bytes it is to be answered."""

    def __init__(self) -> None:
        config = BrokerConfig.from_properties({"listeners": "PLAINTEXT://127.0.0.1:0"})
        self.connections: dict[Connection, None] = {}
        self.server = SocketServer(config, self.handle, asyncio.get_running_loop(), "machine")

    def handle(self, connection: Connection, data: memoryview, start: int, end: int) -> None:
        self.connections[connection] = None
        number, size = struct.unpack(">ii", data[start:end])
        if size < 0:
            raise ProtocolError("it cannot be so short")
        connection.send([struct.pack(">ii", 4 + size, number), bytes(size)], 8 + size)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.server.listeners[0].port)

    @staticmethod
    def requests(count: int, size: int) -> bytes:
        return b"".join(struct.pack(">iii", 8, number, size) for number in range(count))

    @staticmethod
    async def answers(reader: asyncio.StreamReader) -> list[int]:
        """The numbers of all answers until the connection ends."""
        numbers, position, data = [], 0, await reader.read()
        while position < len(data):
            size, number = struct.unpack_from(">ii", data, position)
            numbers.append(number)
            position += 4 + size
        assert position == len(data), "an answer is cut off"
        return numbers


def in_a_crowd(talk: Callable[[BatchedServer], Awaitable[None]], loop: Callable[[], Any]) -> None:
    async def main() -> None:
        crowd = BatchedServer()
        await crowd.server.bind()
        await crowd.server.start()
        async with asyncio.timeout(60):
            await talk(crowd)
        await crowd.server.close()

    with asyncio.Runner(loop_factory=loop) as runner, pytest.MonkeyPatch.context() as patch:
        patch.setattr(output, "MIN_CONNECTIONS_TO_BATCH", 1)
        runner.run(main())


@pytest.mark.parametrize(
    ("loop", "count", "size"),
    [(asyncio.new_event_loop, 3, 10), (uvloop.new_event_loop, 3, 10), (asyncio.new_event_loop, 1000, 10_000)],
    ids=["asyncio", "uvloop", "asyncio, paused"],
)
def test_a_client_that_has_said_all_gets_all_answers(loop: Callable[[], Any], count: int, size: int) -> None:
    """Its transport closes itself as soon as it is empty, and the box must have nothing then."""

    async def talk(crowd: BatchedServer) -> None:
        reader, writer = await crowd.connect()
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(crowd.requests(count, size))
        writer.write_eof()
        await until(lambda: any(not one._transport or one._transport.is_closing() for one in crowd.connections))
        reader._transport.resume_reading()  # type: ignore[attr-defined]
        assert await crowd.answers(reader) == list(range(count))

    in_a_crowd(talk, loop)


@LOOPS
def test_a_connection_is_closed_behind_what_is_in_the_box(loop: Callable[[], Any]) -> None:
    async def talk(crowd: BatchedServer) -> None:
        clients = [await crowd.connect() for _ in range(RESPONSES_PER_BACKGROUND_SEND + 10)]
        for _, writer in clients:
            writer.write(crowd.requests(3, 10) + crowd.requests(1, -1) + crowd.requests(3, 10))
        for reader, _ in clients:
            assert await crowd.answers(reader) == [0, 1, 2]

    in_a_crowd(talk, loop)


def numbered(request: bytes, correlation_id: int) -> bytes:
    return request[:8] + correlation_id.to_bytes(4, "big") + request[12:]


def number_of(client: socket.socket) -> int:
    """The correlation id of the next answer, all of which is read."""
    size = int.from_bytes(exactly(client, 4), "big")
    return int.from_bytes(exactly(client, size)[:4], "big")


def exactly(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += receive(client, size - len(data))
    return data
