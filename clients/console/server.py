"""The console as a server: an application on a socket, in this thread or, beside a broker, in one of its own."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import closing
from functools import partial

from ..http_server import Bound, HttpThread, Listen, Ready, http_server
from ..reach import Reach
from .app import console_app
from .cluster import WatchedCluster
from .guard import PageGuard
from .own_broker import OwnBroker


async def serve(reach: Reach, listen: Listen, ready: Callable[[str], None], own: OwnBroker | None = None) -> None:
    """Serve until a signal, or cancelled. `ready` is told the URL. Raises OSError, BrokerUnreachableError."""
    with closing(listen.bind()) as bound:
        await _serve(WatchedCluster(reach, own), listen, bound, lambda server, url: ready(url))


class ConsoleThread(HttpThread):
    """A console on a loop of its own; raises BrokerUnreachableError, too, when it starts."""

    def __init__(self, reach: Reach, listen: Listen, own: OwnBroker | None = None) -> None:
        async def work(bound: Bound, ready: Ready) -> None:
            await _serve(WatchedCluster(reach, own), listen, bound, ready)

        super().__init__(listen, work, "barnabas-console")


async def _serve(cluster: WatchedCluster, listen: Listen, bound: Bound, ready: Ready) -> None:
    token = secrets.token_urlsafe(24)
    guard = partial(PageGuard, token=token, names=listen.told_names(), any_address=listen.any_address)
    server = http_server(console_app(cluster, guard, token), with_life=True)
    try:
        await cluster.start()
        ready(server, listen.url(bound))
        await server.serve(sockets=[bound])
    finally:
        await cluster.close()
