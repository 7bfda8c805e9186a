"""The console's server: the application on a socket, in this thread or, next to a broker, in its own thread."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import closing
from functools import partial

from ..connection_settings import ConnectionSettings
from ..http_server import (
    Bound,
    HttpThread,
    ListenAddress,
    Ready,
    http_server,
)
from .app import console_app
from .cluster import WatchedCluster
from .guard import PageGuard
from .own_broker import OwnBroker


async def serve(
    connection_settings: ConnectionSettings,
    listen: ListenAddress,
    ready: Callable[[str], None],
    own: OwnBroker | None = None,
    *,
    access_token: str | None = None,
) -> None:
    """Serve until a signal or a cancellation. `ready` receives the URL. Raises OSError, BrokerUnreachableError.

    With an `access_token`, which is in the URL, requests for data without it are rejected.
    """
    with closing(listen.bind()) as bound:
        await _serve(
            WatchedCluster(connection_settings, own), listen, bound, lambda server, url: ready(url), access_token
        )


class ConsoleThread(HttpThread):
    """A console on its own event loop; its start raises BrokerUnreachableError, too."""

    def __init__(
        self,
        connection_settings: ConnectionSettings,
        listen: ListenAddress,
        own: OwnBroker | None = None,
        *,
        access_token: str | None = None,
    ) -> None:
        async def work(bound: Bound, ready: Ready) -> None:
            await _serve(WatchedCluster(connection_settings, own), listen, bound, ready, access_token)

        super().__init__(listen, work, "barnabas-console")


async def _serve(
    cluster: WatchedCluster, listen: ListenAddress, bound: Bound, ready: Ready, access_token: str | None
) -> None:
    is_secret = access_token is not None
    token = access_token or secrets.token_urlsafe(24)
    guard = partial(
        PageGuard, token=token, is_secret=is_secret, names=listen.told_names(), any_address=listen.any_address
    )
    server = http_server(console_app(cluster, guard, "" if is_secret else token), with_life=True)
    try:
        await cluster.start()
        # Browsers do not send the part after a #: the token is in no request line and in no log of a proxy.
        ready(server, listen.url(bound) + (f"#token={token}" if is_secret else ""))
        await server.serve(sockets=[bound])
    finally:
        await cluster.close()
