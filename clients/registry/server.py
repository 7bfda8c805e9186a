"""The registry as a server: in this thread, or in one of its own beside a broker for tests."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from ..http_server import Bound, HttpThread, Listen, OwnNames, Ready, http_server
from ..reach import Reach
from .app import registry_app
from .registry import Registry


async def serve(reach: Reach, listen: Listen, ready: Callable[[str], None]) -> None:
    """Serve until a signal, or cancelled. `ready` is told the URL. Raises OSError, KafkaError, ValueError."""
    with closing(listen.bind()) as bound:
        await _serve(reach, listen, bound, lambda server, url: ready(url))


class RegistryThread(HttpThread):
    """A registry on a loop of its own; raises KafkaError and ValueError, too, when it starts."""

    def __init__(self, reach: Reach, listen: Listen) -> None:
        async def work(bound: Bound, ready: Ready) -> None:
            await _serve(reach, listen, bound, ready)

        super().__init__(listen, work, "barnabas-registry")


async def _serve(reach: Reach, listen: Listen, bound: Bound, ready: Ready) -> None:
    registry = Registry(reach)
    names = OwnNames.of(listen.told_names(), any_address=listen.any_address)
    server = http_server(registry_app(registry, names), with_life=False)
    try:
        await registry.start()
        ready(server, listen.url(bound))
        await server.serve(sockets=[bound])
    finally:
        await registry.close()
