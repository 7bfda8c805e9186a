"""The console as a server: an application on a socket, in this thread or, beside a broker, in one of its own."""

from __future__ import annotations

import asyncio
import secrets
import socket
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

import uvicorn

from .app import console_app
from .cluster import Reach, WatchedCluster
from .guard import LOCAL_NAMES, PageGuard
from .own_broker import OwnBroker
from .patience import PatientProtocol

_BACKLOG = 64
_STOP_SECONDS = 1
_WILDCARDS = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - what is not to be listened on unasked


@dataclass(frozen=True, slots=True)
class Listen:
    """Where: a host, a port (0: any free one), and other names under which others reach it."""

    host: str
    port: int
    names: Collection[str] = field(default=())

    @property
    def is_local(self) -> bool:
        return self.host in LOCAL_NAMES


async def serve(reach: Reach, listen: Listen, ready: Callable[[str], None], own: OwnBroker | None = None) -> None:
    """Serve until a signal, or cancelled. `ready` is told the URL. Raises OSError, BrokerUnreachableError."""
    with closing(_bind(listen)) as bound:
        await _serve(WatchedCluster(reach, own), listen, bound, lambda server, url: ready(url))


class ConsoleThread:
    """A console on a loop of its own, so that no broker on another waits for it. Any thread may call."""

    def __init__(self, reach: Reach, listen: Listen, own: OwnBroker | None = None) -> None:
        self._reach = reach
        self._own = own
        self._listen = listen
        self._ready: Future[tuple[uvicorn.Server, str]] = Future()
        self._thread = threading.Thread(target=self._run, name="barnabas-console", daemon=True)

    async def start(self) -> str:
        """The URL. Raises OSError, BrokerUnreachableError."""
        self._thread.start()
        return (await asyncio.wrap_future(self._ready))[1]

    async def stop(self) -> None:
        """Give everything back; who is being answered has a second."""
        if not self._ready.cancel() and self._ready.exception() is None:
            self._ready.result()[0].should_exit = True
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        try:
            with closing(_bind(self._listen)) as bound:
                cluster = WatchedCluster(self._reach, self._own)
                asyncio.run(_serve(cluster, self._listen, bound, lambda *told: self._ready.set_result(told)))
        except BaseException as error:  # noqa: BLE001 - whoever waits for the start gets it
            if not self._ready.done():
                self._ready.set_exception(error)


def _bind(listen: Listen) -> socket.socket:
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    return socket.create_server((listen.host, listen.port), family=family, backlog=_BACKLOG)


async def _serve(
    cluster: WatchedCluster, listen: Listen, bound: socket.socket, ready: Callable[[uvicorn.Server, str], None]
) -> None:
    token = secrets.token_urlsafe(24)
    names = {listen.host, *listen.names} - _WILDCARDS
    guard = partial(PageGuard, token=token, names=names, any_address=listen.host in _WILDCARDS)
    server = uvicorn.Server(
        uvicorn.Config(
            console_app(cluster, guard, token),
            loop="none",
            http=PatientProtocol,
            ws="none",
            lifespan="on",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_STOP_SECONDS,
        )
    )
    try:
        await cluster.start()
        host = "127.0.0.1" if listen.host in _WILDCARDS else listen.host
        ready(server, f"http://{f'[{host}]' if ':' in host else host}:{bound.getsockname()[1]}/")
        await server.serve(sockets=[bound])
    finally:
        await cluster.close()
