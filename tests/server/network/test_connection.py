"""One connection and a transport of the test's own: an answer from a file that has to wait for what is before it."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.server.network.connection import JOIN_BYTES, Connection
from barnabas.server.network.output import ResponseBatcher
from barnabas.server.runtime.write_queue import WriteQueue
from barnabas.storage.filesystem import FileSlice

CONTENT = bytes(range(256)) * (JOIN_BYTES // 128)


class FakeTransport:
    """Has `unsent` bytes of its own to send through a socket."""

    def __init__(self, stream: socket.socket, unsent: int) -> None:
        self.stream = stream
        self.unsent = unsent
        self.ends: list[str] = []

    def get_extra_info(self, name: str) -> socket.socket | None:
        return self.stream if name == "socket" else None

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def set_write_buffer_limits(self, high: int) -> None:
        assert high == 0

    def close(self) -> None:
        self.ends.append("closed")

    def abort(self) -> None:
        self.ends.append("aborted")


class Waiting:
    """A connection on which a request is in hand, while the client has not taken all of the answer before it."""

    def __init__(self, file: Path) -> None:
        self.stream, self.client = socket.socketpair()
        self.stream.setblocking(False)
        self.client.settimeout(10)
        self.transport: Any = FakeTransport(self.stream, unsent=7000)
        loop = asyncio.get_running_loop()
        server: Any = SimpleNamespace(
            loop=loop, admit=lambda _: True, response_batcher=ResponseBatcher(loop), write_queue=WriteQueue(loop)
        )
        reader: Any = SimpleNamespace(buffer=None, close=lambda: None, pending=0, private=None)
        listener: Any = None
        handle: Any = None
        self.connection = Connection(server, listener, handle, reader)
        self.connection.connection_made(cast(Any, self.transport))
        self.connection.pause_writing()
        self.file = file

    def answer(self) -> None:
        """From a file of `CONTENT`."""
        part = FileSlice(os.open(self.file, os.O_RDONLY), len(CONTENT), 0)
        self.connection.send([b"head", part], 4 + len(part))

    def nothing_came(self) -> bool:
        self.client.setblocking(False)
        try:
            return not self.client.recv(1)
        except BlockingIOError:
            return True
        finally:
            self.client.settimeout(10)

    async def received(self, size: int) -> bytes:
        data = bytearray()
        loop = asyncio.get_running_loop()
        self.client.setblocking(False)
        while len(data) < size:
            data += await asyncio.wait_for(loop.sock_recv(self.client, size - len(data)), 10)
        return bytes(data)

    def descriptors(self) -> int:
        names = Path("/proc/self/fd").iterdir()
        return sum(str(name.readlink()) == str(self.file) for name in names if name.is_symlink())


@pytest.fixture
async def waiting(tmp_path: Path) -> Any:
    (tmp_path / "file").write_bytes(CONTENT)
    made = Waiting(tmp_path / "file")
    yield made
    made.stream.close()
    made.client.close()


async def test_it_is_sent_when_the_transport_is_empty(waiting: Waiting) -> None:
    waiting.answer()
    assert waiting.nothing_came()
    waiting.transport.unsent = 0
    waiting.connection.resume_writing()
    assert await waiting.received(4 + len(CONTENT)) == b"head" + CONTENT
    assert waiting.descriptors() == 0


async def test_a_connection_that_is_closed_first_sends_what_is_before_it_and_keeps_no_file(waiting: Waiting) -> None:
    waiting.answer()
    waiting.connection.close()
    assert waiting.transport.ends == ["closed"], "not aborted"
    waiting.transport.unsent = 0
    waiting.connection.resume_writing()
    assert waiting.nothing_came()
    assert waiting.descriptors() == 0


async def test_a_client_that_goes_away_leaves_no_file_behind(waiting: Waiting) -> None:
    server: Any = waiting.connection._server
    server.remove = lambda _: None
    waiting.answer()
    assert waiting.descriptors() == 1
    waiting.connection.connection_lost(None)
    assert waiting.descriptors() == 0
