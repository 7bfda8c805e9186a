"""An embedded tree that is served over ZooKeeper's protocol, on a loop and thread of its own."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from barnabas.server.metadata.embedded_store import IN_MEMORY, EmbeddedStore
from barnabas.server.metadata.served.tree_server import TreeServer
from barnabas.server.runtime.host import ThreadWork, is_own_user, now_ms

T = TypeVar("T")


class ServedTree:
    """`with ServedTree() as served:` clients of ZooKeeper connect to `served.address`.

    `path` is the journal, which is written on a thread of its own; without one nothing is kept.
    """

    def __init__(self, path: Path | None = None, *, keep_sessions: bool = True) -> None:
        self._path = str(path) if path else IN_MEMORY
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="served tree", daemon=True)
        self._keep_sessions = keep_sessions
        self.store: EmbeddedStore
        self.server: TreeServer

    @property
    def address(self) -> str:
        return self.server.bound

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def call(self, function: Callable[[], T]) -> T:
        """What a function returns on the server's loop."""

        async def called() -> T:
            return function()

        return self._run(called())

    def _run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    def __enter__(self) -> ServedTree:
        self._thread.start()
        self._run(self._start())
        return self

    async def _start(self) -> None:
        work = None if self._path == IN_MEMORY else ThreadWork(self._loop)
        keep = self._keep_sessions
        self.store = EmbeddedStore.open(self._path, now_ms=now_ms, work=work, durable=False, keep_sessions=keep)
        address = ("127.0.0.1", 0)
        self.server = TreeServer(
            self.store.request_processor, [address], self._loop, token_bytes=secrets.token_bytes, is_trusted=is_own_user
        )
        await self.server.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        await self.server.close()
        await self.store.close()
