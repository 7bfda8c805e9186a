"""The registry's server: in this thread, or in its own next to a broker for tests."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from ..connection_settings import ConnectionSettings
from ..http_server import (
    AllowedHosts,
    Bound,
    HttpThread,
    ListenAddress,
    Ready,
    http_server,
)
from .app import registry_app
from .registry import Registry


async def serve(connection_settings: ConnectionSettings, listen: ListenAddress, ready: Callable[[str], None]) -> None:
    """Serve until a signal or a cancellation. `ready` receives the URL. Raises OSError, KafkaError, ValueError."""
    with closing(listen.bind()) as bound:
        await _serve(connection_settings, listen, bound, lambda server, url: ready(url))


class RegistryThread(HttpThread):
    """A registry on its own event loop; its start raises KafkaError and ValueError, too."""

    def __init__(self, connection_settings: ConnectionSettings, listen: ListenAddress) -> None:
        async def work(bound: Bound, ready: Ready) -> None:
            await _serve(connection_settings, listen, bound, ready)

        super().__init__(listen, work, "barnabas-registry")


async def _serve(connection_settings: ConnectionSettings, listen: ListenAddress, bound: Bound, ready: Ready) -> None:
    registry = Registry(connection_settings)
    names = AllowedHosts.of(listen.told_names(), any_address=listen.any_address)
    server = http_server(registry_app(registry, names), with_life=False)
    try:
        await registry.start()
        ready(server, listen.url(bound))
        await server.serve(sockets=[bound])
    finally:
        await registry.close()
