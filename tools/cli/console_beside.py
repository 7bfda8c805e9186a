"""`barnabas start --console`: the console in the broker's process, on its own thread and event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .client_settings import begin
from .console_options import (
    access_token,
    connection_settings_of,
    parse_listen,
    require_extra,
)

if TYPE_CHECKING:
    from ..console.server import ConsoleThread
    from ..http_server import ListenAddress


class ConsoleBeside:
    """The broker's companion. Runs on its own thread's event loop."""

    def __init__(self, listen: ListenAddress, schemas: Sequence[str], token: str | None) -> None:
        self._listen = listen
        self._token = token
        self._schemas = schemas
        self._thread: ConsoleThread | None = None

    async def start(self, server: Any) -> str:
        """Connect to the broker as a client, on its first listener. Raises OSError, KafkaError, ValueError."""
        from ..console.server import ConsoleThread

        listener = server.listeners[0]
        reach = connection_settings_of(f"{listener.advertised_host}:{listener.advertised_port}", self._schemas)
        own = import_module("barnabas.server.console_backend").ConsoleBackend(server, asyncio.get_running_loop())
        self._thread = ConsoleThread(reach, self._listen, own, access_token=self._token)
        return f"console {await self._thread.start()}"

    async def stop(self) -> None:
        """Release all resources."""
        if self._thread is not None:
            await self._thread.stop()


def console_beside(
    address: str, settings: str | None, schemas: Sequence[str], token: str | None = None
) -> ConsoleBeside:
    """Read the client's settings, if any, and the sources of schemas. Raises ValueError immediately."""
    require_extra()
    begin(None if settings is None else Path(settings), None)
    listen = parse_listen("--console", address, allow_remote=True)
    if not listen.is_local:
        raise ValueError(
            f"--console {address} accepts connections from other machines; "
            "use `barnabas console --allow-remote` instead"
        )
    reach = connection_settings_of("localhost:9092", schemas)
    return ConsoleBeside(listen, schemas, access_token("--console-token", token, listen, reach))
