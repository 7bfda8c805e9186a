"""The network between processes of one machine: a TCP proxy on every link. The proxy can cut its link."""

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
"""The time for which a new connection waits on a link that is cut."""

Way = tuple[str, str]
"""A link in one direction: the source node and the target node."""


def owners_of(ports: Collection[int], processes: Mapping[str, int]) -> dict[int, str]:
    """Return the name of the process (name -> pid) that owns the connection from each of these ports of 127.0.0.1."""
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
    """TCP proxies that run in a separate thread.

    A link that is cut holds back the bytes sent over it, like a network that drops packets: neither end receives an
    error, and the bytes arrive when the link is healed. With `reset`, connections are closed and refused in both
    directions.
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
        """Open a proxy to port `upstream` of `target`, and return its port.

        Without `source`, the proxy finds the process at the other end of each connection.
        """
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
        """Return the process that connects from a port. All waiting connections share one search."""
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
        """Cut these links."""

        def shut() -> None:
            self._shut.update(dict.fromkeys(ways, reset))
            self._opened.clear()
            for writer, (source, target) in list(self._links.items()):
                if self._shut.get((source, target)) or self._shut.get((target, source)):
                    writer.transport.abort()

        self._loop.call_soon_threadsafe(shut)

    def heal(self) -> None:
        """Heal all links."""

        def open_all() -> None:
            self._shut.clear()
            self._opened.set()

        self._loop.call_soon_threadsafe(open_all)

    async def _carry(self, way: Way, upstream: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection until it ends."""
        back = (way[1], way[0])
        opened = [writer]
        self._links[writer] = way
        try:
            # A client that cannot connect gives up and retries: its attempts must not accumulate.
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
    """A `Network` in a separate process, so that clients in this process do not delay the proxies.

    Call `set_processes` (name -> pid) again after a process has started.
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
        """Call `Network.forward` in the process of the proxies."""
        port = free_port()
        self._do("forward", target, upstream, source, port)
        return port

    def cut(self, ways: Iterable[Way], *, reset: bool = False) -> None:
        """Call `Network.cut` in the process of the proxies."""
        self._do("cut", list(ways), reset=reset)

    def heal(self) -> None:
        """Call `Network.heal` in the process of the proxies."""
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
