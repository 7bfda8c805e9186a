"""An application on its own socket: its address, and its thread next to another program."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TypeAlias

import uvicorn
from starlette.types import ASGIApp, Message, Receive

from .http_timeouts import TimeoutProtocol

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_BACKLOG = 64
_STOP_SECONDS = 1
MAX_HEAD_BYTES = 16 << 10
"""Limit of an incomplete head, uvicorn's default; set explicitly because it limits the memory of an unauthenticated
connection.
"""
_WILDCARDS = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - addresses that require permission

Bound: TypeAlias = socket.socket
"""A listening socket."""
Ready: TypeAlias = Callable[[uvicorn.Server, str], None]
"""Receives the server and its URL once requests are served."""
Work: TypeAlias = Callable[[Bound, Ready], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """The address: a host, a port (0: any free port), and additional host names."""

    host: str
    port: int
    names: Collection[str] = field(default=())

    @property
    def is_local(self) -> bool:
        return self.host in LOCAL_NAMES

    @property
    def any_address(self) -> bool:
        return self.host in _WILDCARDS

    def bind(self) -> socket.socket:
        """Bind the socket. Raises OSError."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        return socket.create_server((self.host, self.port), family=family, backlog=_BACKLOG)

    def told_names(self) -> Collection[str]:
        """Return the host names in addition to the local names."""
        return {self.host, *self.names} - _WILDCARDS

    def url(self, bound: socket.socket) -> str:
        """Return the URL on this machine."""
        host = "127.0.0.1" if self.any_address else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{bound.getsockname()[1]}/"


def http_server(app: ASGIApp, *, with_life: bool) -> uvicorn.Server:
    """Create a server for `serve(sockets=[...])`; `with_life` if the application has a lifespan."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            loop="none",
            http=TimeoutProtocol,
            ws="none",
            lifespan="on" if with_life else "off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_STOP_SECONDS,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        )
    )


class HttpThread:
    """A server on its own event loop and thread, which other loops do not wait for. Thread-safe."""

    def __init__(self, listen: ListenAddress, work: Work, name: str) -> None:
        """`work` creates the application and serves it on the socket, until its server is stopped."""
        self._listen = listen
        self._work = work
        self._ready: Future[tuple[uvicorn.Server, str]] = Future()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    async def start(self) -> str:
        """Start, and return the URL. Raises OSError and the exceptions of `work`."""
        self._thread.start()
        return (await asyncio.wrap_future(self._ready))[1]

    async def stop(self) -> None:
        """Release all resources; running requests have one second."""
        if not self._ready.cancel() and self._ready.exception() is None:
            self._ready.result()[0].should_exit = True
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        try:
            with closing(self._listen.bind()) as bound:
                asyncio.run(self._until_stopped(bound))
        except BaseException as error:  # noqa: BLE001 - raised to the caller of `start`
            if not self._ready.done():
                self._ready.set_exception(error)

    async def _until_stopped(self, bound: socket.socket) -> None:
        await self._work(bound, lambda *told: self._ready.set_result(told))


class BodyTooLargeError(Exception):
    """A request's body exceeds the limit; the application responds with it."""

    def __init__(self, most: int) -> None:
        super().__init__(f"more than {most} bytes")


def bounded(receive: Receive, most: int) -> Receive:
    """Return the body up to the limit, regardless of its declared length. Raises BodyTooLargeError."""
    seen = 0

    async def receive_bounded() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > most:
            raise BodyTooLargeError(most)
        return message

    return receive_bounded


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """Host names of a server: any page may send requests to it, and a foreign name may resolve to it."""

    told: frozenset[str]
    any_address: bool

    @classmethod
    def of(cls, names: Collection[str], *, any_address: bool) -> AllowedHosts:
        return cls(frozenset(name.lower() for name in names) - LOCAL_NAMES, any_address)

    def has_host(self, host: str) -> bool:
        """Return whether a `Host` is accepted: local, configured, or with `any_address` an address; no other name."""
        name = without_port(host).lower()
        return name in LOCAL_NAMES or name in self.told or (self.any_address and _is_address(name))


def without_port(host: str) -> str:
    """Return the name or address in a `Host`."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
