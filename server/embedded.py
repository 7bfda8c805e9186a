"""A broker inside another program, for tests and tools: `with Broker() as broker:` or `async with Broker() as broker:`.

The plain form runs the broker on a thread and loop of its own, so that blocking clients in the same process can talk
to it; the async form runs it on the caller's loop. Either way the data live in a temporary folder unless one is given,
and the port is any free one unless one is asked for.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Coroutine, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ..protocol.room_logger import room_logger
from .broker import BrokerServer
from .cleaning.cleaning_work import cleaning_work
from .config.broker_config import BrokerConfig
from .runtime.host import event_loop, host_ports

if TYPE_CHECKING:
    from .cleaning.cleaning_pass import PassReport

logger = room_logger("embedded")

T = TypeVar("T")

EMBEDDED_DEFAULTS = {
    "acks.all.durability": "page-cache",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.worker": "thread",
    "log.initial.task.delay.ms": "0",
    "log.segment.delete.delay.ms": "0",
}
"""Where a test's broker differs from a server: no waiting for disks and stragglers. `config` overrides each."""


class Broker:
    """A running broker; `bootstrap` is what clients want to know.

    topics: names, or names with partition counts, to create before the broker is ready.
    data_dir: where the logs live; a folder that is removed at the end by default.
    config: Kafka broker settings, `{"message.max.bytes": "2000000"}`.
    """

    def __init__(
        self,
        topics: Iterable[str] | Mapping[str, int] = (),
        *,
        data_dir: str | Path | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        config: Mapping[str, str] | None = None,
    ) -> None:
        self._topics = dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics, 1)
        self._data_dir = data_dir
        self._settings = {"listeners": f"PLAINTEXT://{host}:{port}", **EMBEDDED_DEFAULTS, **(config or {})}
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._server: BrokerServer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def server(self) -> BrokerServer:
        """The broker itself. Its parts belong to its loop's thread."""
        if self._server is None:
            raise RuntimeError("the broker is not running")
        return self._server

    @property
    def bootstrap(self) -> str:
        """`host:port` for `bootstrap.servers`."""
        listener = self.server.listeners[0]
        return f"{listener.advertised_host}:{listener.advertised_port}"

    @property
    def port(self) -> int:
        return self.server.listeners[0].port

    # -- on a thread of its own ------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._loop = event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="barnabas", daemon=True)
        self._thread.start()
        try:
            self._call(self._start())
        except BaseException:
            self._end_thread()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        try:
            self._call(self._stop())
        finally:
            self._end_thread()

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic; it can be written to when this returns. Raises KafkaError."""
        self._call(self.acreate_topic(name, partitions, config))

    def delete_topic(self, name: str) -> None:
        """Delete a topic; nothing of it is left to be seen when this returns. Raises KafkaError."""
        self._call(self.adelete_topic(name))

    def compact(self, topic: str, partition: int | None = None) -> list[PassReport]:
        """Compact a topic, or one partition, now; it is done when this returns.

        Every record that a later one of its key replaces is gone, those of the newest segment included; keys without
        value go with the first compaction that comes `delete.retention.ms` later, also if nothing was written since.
        Raises KafkaError.
        """
        return self._call(self.acompact(topic, partition))

    # -- on the caller's loop --------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        await self._start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stop()

    async def acreate_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """`create_topic` for `async with`."""
        await self.server.create_topic(name, partitions, config or {})

    async def adelete_topic(self, name: str) -> None:
        """`delete_topic` for `async with`."""
        await self.server.delete_topic(name)

    async def acompact(self, topic: str, partition: int | None = None) -> list[PassReport]:
        """`compact` for `async with`."""
        return await self.server.state.cleaner.compact(topic, partition)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run on the broker's thread and wait."""
        if self._thread is None or self._loop is None:
            work.close()
            raise RuntimeError("the broker does not run on a thread of its own; use the async methods")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _start(self) -> None:
        try:
            await self._start_server()
        except BaseException:
            await self._stop()
            raise

    async def _start_server(self) -> None:
        loop = asyncio.get_running_loop()
        if self._data_dir is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="barnabas-", ignore_cleanup_errors=True)
        directory = self._data_dir or (self._temporary.name if self._temporary else "")
        config = BrokerConfig.from_properties({"log.dirs": str(directory), **self._settings})
        server = self._server = BrokerServer(
            config, host_ports(loop, cleaning_work(config.log_cleaner_worker, loop)), loop
        )
        await server.start()
        for name, partitions in self._topics.items():
            await server.create_topic(name, partitions, {}, exist_ok=True)

    async def _stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop()
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def _end_thread(self) -> None:
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()
