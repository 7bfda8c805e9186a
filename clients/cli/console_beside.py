"""`barnabas start --console`: the console in the broker's process, on a thread and a loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .client_settings import begin
from .console_options import parse_listen, reach_of, require_extra

if TYPE_CHECKING:
    from ..console.server import ConsoleThread
    from ..http_server import Listen


class ConsoleBeside:
    """The broker's companion. Loop-thread only."""

    def __init__(self, listen: Listen, schemas: Sequence[str]) -> None:
        self._listen = listen
        self._schemas = schemas
        self._thread: ConsoleThread | None = None

    async def start(self, server: Any) -> str:
        """Reach the broker as any client does, by its first listener. Raises OSError, KafkaError, ValueError."""
        from ..console.server import ConsoleThread

        listener = server.listeners[0]
        reach = reach_of(f"{listener.advertised_host}:{listener.advertised_port}", self._schemas)
        own = import_module("barnabas.server.insight").Insight(server, asyncio.get_running_loop())
        self._thread = ConsoleThread(reach, self._listen, own)
        return f"console {await self._thread.start()}"

    async def stop(self) -> None:
        """Give everything back."""
        if self._thread is not None:
            await self._thread.stop()


def console_beside(address: str, settings: str | None, schemas: Sequence[str]) -> ConsoleBeside:
    """With a file of a client's settings, if it needs any, and where schemas are. Raises ValueError, at once."""
    require_extra()
    begin(None if settings is None else Path(settings), None)
    listen = parse_listen("--console", address, allow_remote=True)
    if not listen.is_local:
        raise ValueError(
            f"--console {address} is open to other machines; `barnabas console --allow-remote` serves them"
        )
    reach_of("localhost:9092", schemas)
    return ConsoleBeside(listen, schemas)
