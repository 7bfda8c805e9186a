"""An application on a socket of its own: where it listens, and its thread beside a program that does something else."""

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

from .patience import PatientProtocol

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_BACKLOG = 64
_STOP_SECONDS = 1
_WILDCARDS = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - what is not to be listened on unasked

Bound: TypeAlias = socket.socket
"""A socket that listens."""
Ready: TypeAlias = Callable[[uvicorn.Server, str], None]
"""Told of the server and its URL once requests are answered."""
Work: TypeAlias = Callable[[Bound, Ready], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Listen:
    """Where: a host, a port (0: any free one), and other names under which others reach it."""

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
        """Raises OSError."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        return socket.create_server((self.host, self.port), family=family, backlog=_BACKLOG)

    def told_names(self) -> Collection[str]:
        """What it is called beside the local names."""
        return {self.host, *self.names} - _WILDCARDS

    def url(self, bound: socket.socket) -> str:
        """Where it is reached from this machine."""
        host = "127.0.0.1" if self.any_address else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{bound.getsockname()[1]}/"


def http_server(app: ASGIApp, *, with_life: bool) -> uvicorn.Server:
    """For `serve(sockets=[...])`; `with_life` if the application has a lifespan."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            loop="none",
            http=PatientProtocol,
            ws="none",
            lifespan="on" if with_life else "off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_STOP_SECONDS,
        )
    )


class HttpThread:
    """Serves on a loop of its own, so that nobody on another waits for it. Any thread may call."""

    def __init__(self, listen: Listen, work: Work, name: str) -> None:
        """`work` makes the application and serves it on the socket, until its server is told to stop."""
        self._listen = listen
        self._work = work
        self._ready: Future[tuple[uvicorn.Server, str]] = Future()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    async def start(self) -> str:
        """The URL. Raises OSError and what `work` raises."""
        self._thread.start()
        return (await asyncio.wrap_future(self._ready))[1]

    async def stop(self) -> None:
        """Give everything back; who is being answered has a second."""
        if not self._ready.cancel() and self._ready.exception() is None:
            self._ready.result()[0].should_exit = True
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        try:
            with closing(self._listen.bind()) as bound:
                asyncio.run(self._until_stopped(bound))
        except BaseException as error:  # noqa: BLE001 - whoever waits for the start gets it
            if not self._ready.done():
                self._ready.set_exception(error)

    async def _until_stopped(self, bound: socket.socket) -> None:
        await self._work(bound, lambda *told: self._ready.set_result(told))


class BodyTooLargeError(Exception):
    """A request's body is beyond what is allowed; the application answers it."""

    def __init__(self, most: int) -> None:
        super().__init__(f"more than {most} bytes")


def bounded(receive: Receive, most: int) -> Receive:
    """Gives no more of a body than is allowed, whatever its length was said to be. Raises BodyTooLargeError."""
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
class OwnNames:
    """Under which names a server is asked: any page may send requests here, and a stranger's name may lead here."""

    told: frozenset[str]
    any_address: bool

    @classmethod
    def of(cls, names: Collection[str], *, any_address: bool) -> OwnNames:
        return cls(frozenset(name.lower() for name in names) - LOCAL_NAMES, any_address)

    def has_host(self, host: str) -> bool:
        """Whether a `Host` is one of ours: local, told, or with `any_address` an address; no other name."""
        name = without_port(host).lower()
        return name in LOCAL_NAMES or name in self.told or (self.any_address and _is_address(name))


def without_port(host: str) -> str:
    """The name or address of a `Host`."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
