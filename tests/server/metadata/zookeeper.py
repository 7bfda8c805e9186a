"""Sessions with a real ZooKeeper, and a way to it that can be cut where it hurts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from barnabas.server.metadata.zookeeper_settings import ZooKeeperSettings
from barnabas.server.metadata.zookeeper_store import ZooKeeperStore

T = TypeVar("T")


class ThreadedWork:
    """Lanes as threads of the loop's default pool."""

    async def run(self, lane: str, job: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(None, job)

    def submit(self, lane: str, job: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        raise AssertionError("a store waits for what it asks of a lane")

    def sync(self, lane: str, files: Sequence[Any], done: Callable[..., None]) -> None:
        raise AssertionError("a store syncs nothing")

    def close(self) -> None:
        """Threads of the loop's pool end with the loop."""


async def open_zookeeper(connect: str, **settings: Any) -> ZooKeeperStore:
    """A session; `connect` may have a path."""
    settings = {"session_timeout_ms": 6000, **settings}
    loop = asyncio.get_running_loop()
    return await ZooKeeperStore.open(ZooKeeperSettings(connect, **settings), loop=loop, work=ThreadedWork())


class Wire:
    """A proxy in front of a server of which answers can be lost."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listening: asyncio.Server | None = None
        self._connections: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.lose_answers_to = b""
        """A request with these bytes in it reaches the server; its answer does not come back, nor anything after it."""
        self.refusing = False
        """Nobody gets through."""
        self.lost = 0

    async def __aenter__(self) -> Wire:
        self._listening = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self

    @property
    def address(self) -> str:
        assert self._listening is not None
        host, port = self._listening.sockets[0].getsockname()
        return f"{host}:{port}"

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._listening is not None
        self._listening.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Every connection is gone."""
        connections, self._connections = self._connections, []
        for writer in connections:
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            writer.transport.abort()
            return
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        self._connections += [writer, server_writer]
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        back = asyncio.create_task(self._copy(server_reader, writer))
        self._tasks.add(back)
        await self._requests(reader, server_writer, back)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.transport.abort()

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, back: asyncio.Task[None]
    ) -> None:
        while data := await reader.read(65536):
            if self.lose_answers_to and self.lose_answers_to in data:
                self.lose_answers_to = b""
                self.lost += 1
                back.cancel()
                writer.write(data)
                # An orderly end: the server has done all it was sent before it sees the connection close.
                writer.write_eof()
                await asyncio.sleep(0.2)
                self.cut()
                return
            writer.write(data)
        writer.transport.abort()
