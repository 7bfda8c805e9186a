"""The network between processes of one machine, with a door on every way: TCP proxies that can be shut."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.server_process import free_port

CHUNK_BYTES = 65536
CONNECT_S = 5.0
"""The time for which a new connection waits on a way that is shut."""

Way = tuple[str, str]
"""From whom to whom."""


def owners_of(ports: Collection[int], processes: Mapping[str, int]) -> dict[int, str]:
    """Return which of these processes (name -> pid) have the connections from these ports of 127.0.0.1."""
    sockets: dict[str, int] = {}
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            words = line.split()
            if (port := int(words[1][-4:], 16)) in ports:
                sockets[f"socket:[{words[9]}]"] = port
    found: dict[int, str] = {}
    for name, pid in processes.items():
        with contextlib.suppress(OSError):
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    port = sockets.get(str(descriptor.readlink()))
                    if port is not None:
                        found[port] = name
    return found


class Network:
    """Proxies in a thread of their own.

    A way that is shut holds back what is sent on it, as a network does that drops packets: nobody is told, and it
    arrives when the way is open again. With `reset` connections are closed and refused instead, both ways.
    """

    def __init__(self, processes: Callable[[], Mapping[str, int]]) -> None:
        self._processes = processes
        self._shut: dict[Way, bool] = {}
        self._links: dict[asyncio.StreamWriter, Way] = {}
        self._servers: list[asyncio.Server] = []
        self._wanted: dict[int, asyncio.Future[str]] = {}
        self._search: asyncio.Task[None] | None = None
        self._runs = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._runs.wait()
        return self

    async def _run(self) -> None:
        self._loop, self._opened, self._ended = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        self._runs.set()
        await self._ended.wait()
        for server in self._servers:
            server.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    def forward(self, target: str, upstream: int, source: str | None = None, port: int = 0) -> int:
        """Return a port that leads to port `upstream` of `target`; without `source` each connection is looked up."""
        port = port or free_port()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                peer = writer.get_extra_info("peername")
                way = (source or await self._owner(peer[1]), target)
                await self._carry(way, upstream, reader, writer)

        starting = asyncio.start_server(accept, "127.0.0.1", port)
        self._servers.append(asyncio.run_coroutine_threadsafe(starting, self._loop).result())
        return port

    async def _owner(self, port: int) -> str:
        """Return the process that connects from a port. One search is for all connections that wait for one."""
        found = self._wanted[port] = self._loop.create_future()
        if self._search is None or self._search.done():
            self._search = self._loop.create_task(self._find_owners())
        return await found

    async def _find_owners(self) -> None:
        while self._wanted:
            wanted, self._wanted = self._wanted, {}
            owners = await asyncio.to_thread(owners_of, wanted.keys(), self._processes())
            for port, found in wanted.items():
                if not found.done():
                    found.set_result(owners.get(port, "client"))

    def cut(self, ways: Iterable[Way], *, reset: bool = False) -> None:
        """Shut these ways."""

        def shut() -> None:
            self._shut.update(dict.fromkeys(ways, reset))
            self._opened.clear()
            for writer, (source, target) in list(self._links.items()):
                if self._shut.get((source, target)) or self._shut.get((target, source)):
                    writer.transport.abort()

        self._loop.call_soon_threadsafe(shut)

    def heal(self) -> None:
        """Open all ways."""

        def open_all() -> None:
            self._shut.clear()
            self._opened.set()

        self._loop.call_soon_threadsafe(open_all)

    async def _carry(self, way: Way, upstream: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from its first packet to its end."""
        back = (way[1], way[0])
        opened = [writer]
        self._links[writer] = way
        try:
            # A client that cannot connect gives up, and tries again: its attempts must not pile up.
            async with asyncio.timeout(CONNECT_S):
                await self._passable(way)
                await self._passable(back)
            there, beyond = await asyncio.open_connection("127.0.0.1", upstream)
            opened.append(beyond)
            self._links[beyond] = way
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(way, reader, beyond))
                both.create_task(self._pump(back, there, writer))
        except* OSError:
            for one in opened:
                one.transport.abort()
        finally:
            for one in opened:
                self._links.pop(one, None)
                one.close()

    async def _pump(self, way: Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK_BYTES):
            await self._passable(way)
            writer.write(data)
            await writer.drain()
        await self._passable(way)
        writer.write_eof()

    async def _passable(self, way: Way) -> None:
        while way in self._shut:
            if self._shut[way]:
                raise ConnectionResetError
            await self._opened.wait()


class NetworkProcess:
    """A `Network` in a process of its own: clients in this process that need its interpreter do not delay the proxies.

    `processes` (name -> pid) has to be set again when a process has started.
    """

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._commands, commands = context.Pipe()
        self._process = context.Process(target=_serve, args=(commands,), daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.join()

    def forward(self, target: str, upstream: int, source: str | None = None) -> int:
        """As `Network.forward`."""
        port = free_port()
        self._do("forward", target, upstream, source, port)
        return port

    def cut(self, ways: Iterable[Way], *, reset: bool = False) -> None:
        """As `Network.cut`."""
        self._do("cut", list(ways), reset=reset)

    def heal(self) -> None:
        """As `Network.heal`."""
        self._do("heal")

    def set_processes(self, processes: Mapping[str, int]) -> None:
        """Set the pid of each process."""
        self._do("set_processes", dict(processes))

    def _do(self, name: str, *arguments: object, **named: object) -> None:
        self._commands.send((name, arguments, named))
        self._commands.recv()


def _serve(commands: Connection) -> None:
    processes: dict[str, int] = {}
    with Network(lambda: processes) as network, contextlib.suppress(EOFError):
        while True:
            name, arguments, named = commands.recv()
            if name == "set_processes":
                (processes,) = arguments
            else:
                getattr(network, name)(*arguments, **named)
            commands.send(None)
