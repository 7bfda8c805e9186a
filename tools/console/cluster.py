"""The console's clients: an admin client, a producer when it is first needed, and consumers for reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Generic, TypeVar

from ...clients.admin import Admin, ClusterDescription, LogDirDescription
from ...clients.cluster import TopicInfo
from ...clients.consumer import Consumer
from ...clients.decoding.decoder import Decoder
from ...clients.producer import Producer
from ..connection_settings import ConnectionSettings
from .own_broker import OwnBroker

T = TypeVar("T")
FRESH_SECONDS = 1.0
_SHARE = 8
"""An expensive response is kept for this multiple of the time that its computation took."""
_MAX_FRESH_SECONDS = 10.0
"""The longest time for which an expensive response is kept: a broker that did not respond may be available again."""
MAX_READINGS = 6
"""Maximum number of consumers; further reads wait. Each consumer holds some fetched megabytes."""
MAX_FOLLOWINGS = 4
"""Maximum number of consumers for live pages, which end with the page; further ones are rejected."""
_FETCH_BYTES = 4 << 20
_PARTITION_BYTES = 1 << 20
_MAX_PRODUCED_BYTES = 16 << 20


class CachedResult(Generic[T]):
    """A response that is shared by all requests within one second, or during its computation, and for up to ten
    seconds if the computation takes long. Used on one event loop.
    """

    def __init__(self, ask: Callable[[], Awaitable[T]]) -> None:
        self._ask = ask
        self._task: asyncio.Task[T] | None = None
        self._since = 0.0
        self._took = 0.0

    async def get(self) -> T:
        """Return the response. Raises the exceptions of the request."""
        loop = asyncio.get_running_loop()
        if self._task is None or (self._task.done() and not self._is_fresh(loop.time())):
            self._task = loop.create_task(self._timed())
        return await asyncio.shield(self._task)

    def forget(self) -> None:
        """Invalidate the response after a change."""
        self._task = None

    def _is_fresh(self, now: float) -> bool:
        assert self._task is not None
        is_young = now - self._since < max(FRESH_SECONDS, min(_MAX_FRESH_SECONDS, _SHARE * self._took))
        return is_young and not self._task.cancelled() and self._task.exception() is None

    async def _timed(self) -> T:
        began = asyncio.get_running_loop().time()
        answer = await self._ask()
        self._since = asyncio.get_running_loop().time()
        # Small clusters respond within milliseconds, and their pages should show a change in the next second.
        self._took = self._since - began if self._since - began > FRESH_SECONDS / _SHARE else 0.0
        return answer


class WatchedCluster:
    """The clients of the console, used between `start` and `close` on one event loop."""

    def __init__(self, connection_settings: ConnectionSettings, own: OwnBroker | None = None) -> None:
        self.own = own
        self.schema_sources = tuple(connection_settings.schemas)
        self.decoder = Decoder(self.schema_sources)
        self.readings = asyncio.Semaphore(MAX_READINGS)
        self.followings = asyncio.Semaphore(MAX_FOLLOWINGS)
        self._connection_settings = connection_settings
        self.admin = Admin(
            connection_settings.bootstrap, **{"client_id": "barnabas-console", **connection_settings.admin}
        )
        self._producer: asyncio.Task[Producer] | None = None
        self._closings: set[asyncio.Task[None]] = set()
        self.description = CachedResult[ClusterDescription](
            partial(self.admin.describe_cluster, include_fenced_brokers=True)
        )
        self.topics = CachedResult[list[TopicInfo]](self.admin.describe_topics)
        self.log_dirs = CachedResult[list[LogDirDescription]](self.admin.describe_log_dirs)

    async def start(self) -> None:
        """Connect to the cluster. Raises BrokerUnreachableError."""
        await self.admin.start()

    async def close(self) -> None:
        """Close all clients; running reads fail."""
        if self._producer is not None:
            made = await asyncio.gather(self._producer, return_exceptions=True)
            for producer in made:
                if isinstance(producer, Producer):
                    await producer.close(timeout_ms=0)
        await asyncio.gather(*self._closings, return_exceptions=True)
        await self.decoder.close()
        await self.admin.close()

    @asynccontextmanager
    async def consumer(self) -> AsyncIterator[Consumer]:
        """Open a new consumer with small buffers for one read. Raises BrokerUnreachableError."""
        settings: dict[str, Any] = {
            "client_id": "barnabas-console",
            "auto_offset_reset": "earliest",
            "allow_auto_create_topics": False,
            **self._connection_settings.consumer,
            "fetch_max_bytes": _FETCH_BYTES,
            "max_partition_fetch_bytes": _PARTITION_BYTES,
        }
        consumer = Consumer(self._connection_settings.bootstrap, **settings)
        try:
            yield await consumer.start()
        finally:
            # When a browser disconnects, anyio cancels every wait of its read again: the release runs in its own task.
            closing = asyncio.get_running_loop().create_task(consumer.close())
            self._closings.add(closing)
            closing.add_done_callback(self._closings.discard)
            await asyncio.shield(closing)

    async def producer(self) -> Producer:
        """Return the producer. Raises KafkaError."""
        if self._producer is None or (self._producer.done() and self._producer.exception() is not None):
            self._producer = asyncio.get_running_loop().create_task(self._make_producer())
        return await asyncio.shield(self._producer)

    async def _make_producer(self) -> Producer:
        settings: dict[str, Any] = {
            "client_id": "barnabas-console",
            "linger_ms": 0,
            "max_request_size": _MAX_PRODUCED_BYTES,
            "delivery_timeout_ms": 15_000,
            "request_timeout_ms": 10_000,
            **self._connection_settings.producer,
        }
        return await Producer(self._connection_settings.bootstrap, **settings).start()

    def forget(self) -> None:
        """Invalidate the cached responses after a change."""
        self.description.forget()
        self.topics.forget()
        self.log_dirs.forget()
