"""The cluster as the console reaches it: an admin client, a producer once one is needed, consumers for each reading."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

from ..admin import Admin, ClusterDescription, LogDirDescription
from ..cluster import TopicInfo
from ..consumer import Consumer
from ..producer import Producer
from ..reach import Reach
from .decoding.decoder import Decoder
from .own_broker import OwnBroker

T = TypeVar("T")
FRESH_SECONDS = 1.0
MOST_READINGS = 6
"""Consumers at once; whoever comes then waits. Each holds some fetched megabytes."""
MOST_FOLLOWINGS = 4
"""Consumers that end only when their page does; whoever comes then is refused."""
_FETCH_BYTES = 4 << 20
_PARTITION_BYTES = 1 << 20
_MOST_PRODUCED_BYTES = 16 << 20


class Shared(Generic[T]):
    """An answer that is given to everybody who asks within a second, or while it is on its way. One loop."""

    def __init__(self, ask: Callable[[], Awaitable[T]]) -> None:
        self._ask = ask
        self._task: asyncio.Task[T] | None = None
        self._since = 0.0

    async def get(self) -> T:
        """Raises what asking raises."""
        loop = asyncio.get_running_loop()
        if self._task is None or (self._task.done() and not self._is_fresh(loop.time())):
            self._task = loop.create_task(self._timed())
        return await asyncio.shield(self._task)

    def forget(self) -> None:
        """Something was changed: whoever asks next is told so."""
        self._task = None

    def _is_fresh(self, now: float) -> bool:
        assert self._task is not None
        return now - self._since < FRESH_SECONDS and not self._task.cancelled() and self._task.exception() is None

    async def _timed(self) -> T:
        answer = await self._ask()
        self._since = asyncio.get_running_loop().time()
        return answer


class WatchedCluster:
    """Use between `start` and `close`, from one loop."""

    def __init__(self, reach: Reach, own: OwnBroker | None = None) -> None:
        self.own = own
        self.decoder = Decoder(reach.schemas)
        self.readings = asyncio.Semaphore(MOST_READINGS)
        self.followings = asyncio.Semaphore(MOST_FOLLOWINGS)
        self._reach = reach
        self.admin = Admin(reach.bootstrap, **{"client_id": "barnabas-console", **reach.admin})
        self._producer: asyncio.Task[Producer] | None = None
        self._closings: set[asyncio.Task[None]] = set()
        self.description = Shared[ClusterDescription](self.admin.describe_cluster)
        self.topics = Shared[list[TopicInfo]](self.admin.describe_topics)
        self.log_dirs = Shared[list[LogDirDescription]](self.admin.describe_log_dirs)

    async def start(self) -> None:
        """Reach the cluster. Raises BrokerUnreachableError."""
        await self.admin.start()

    async def close(self) -> None:
        """Whoever still reads fails."""
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
        """A new one, with little room: one reading's. Raises BrokerUnreachableError."""
        settings: dict[str, Any] = {
            "client_id": "barnabas-console",
            "auto_offset_reset": "earliest",
            "allow_auto_create_topics": False,
            **self._reach.consumer,
            "fetch_max_bytes": _FETCH_BYTES,
            "max_partition_fetch_bytes": _PARTITION_BYTES,
        }
        consumer = Consumer(self._reach.bootstrap, **settings)
        try:
            yield await consumer.start()
        finally:
            # When a browser goes, anyio cancels each wait of its reading anew: what gives back goes on by itself.
            closing = asyncio.get_running_loop().create_task(consumer.close())
            self._closings.add(closing)
            closing.add_done_callback(self._closings.discard)
            await asyncio.shield(closing)

    async def producer(self) -> Producer:
        """The one there is. Raises KafkaError."""
        if self._producer is None or (self._producer.done() and self._producer.exception() is not None):
            self._producer = asyncio.get_running_loop().create_task(self._make_producer())
        return await asyncio.shield(self._producer)

    async def _make_producer(self) -> Producer:
        settings: dict[str, Any] = {
            "client_id": "barnabas-console",
            "linger_ms": 0,
            "max_request_size": _MOST_PRODUCED_BYTES,
            "delivery_timeout_ms": 15_000,
            "request_timeout_ms": 10_000,
            **self._reach.producer,
        }
        return await Producer(self._reach.bootstrap, **settings).start()

    def forget(self) -> None:
        """Something was changed here: what is shown next is asked for anew."""
        self.topics.forget()
        self.log_dirs.forget()
