"""The topic that is the log of a coordinator: made when somebody first needs it, and which broker coordinates a key.

A key belongs to the leader of one partition of the topic, found by Java's hash of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from struct import unpack
from typing import TYPE_CHECKING, Protocol

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.room_logger import room_logger
from ...protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from ..metadata.metadata_cache import MetadataCache

logger = room_logger("coordinator")


class TopicCreator(Protocol):
    """Whoever makes topics (`Controller`)."""

    async def auto_create(self, names: Iterable[str]) -> Mapping[str, KafkaError | None]:
        """Make topics that somebody needs; None where that went well. Raises KafkaError if there is no telling."""


LONGEST_REMEMBERED = 249
"""Characters of a key whose partition is remembered: a client may make up names of 32 KB."""


def partition_for(key: str, partition_count: int) -> int:
    """The partition that a key's records are in: Java's String.hashCode, without its sign (Kafka's Utils.abs)."""
    find = _partition_for if len(key) <= LONGEST_REMEMBERED else _partition_for.__wrapped__
    return find(key, partition_count)


@lru_cache(maxsize=20_000)
def _partition_for(key: str, partition_count: int) -> int:
    units = key.encode("utf-16-be", "surrogatepass")
    code = 0
    for unit in unpack(f">{len(units) // 2}H", units):
        code = 31 * code + unit & 0xFFFFFFFF
    if code >= 1 << 31:
        code = (1 << 32) - code
    return 0 if code == 1 << 31 else code % partition_count


class CoordinatorTopic:
    """One of Kafka's own topics, as its coordinator sees it. Loop-thread only."""

    def __init__(
        self,
        name: str,
        *,
        metadata: MetadataCache,
        controller: TopicCreator,
        loop: asyncio.AbstractEventLoop,
        on_created: Callable[[], None],
    ) -> None:
        self.name = name
        self._metadata = metadata
        self._controller = controller
        self._loop = loop
        self._on_created = on_created
        self._creation: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Nobody needs the topic any more."""
        if self._creation is not None:
            self._creation.cancel()
            await asyncio.gather(self._creation, return_exceptions=True)

    @property
    def partition_count(self) -> int | None:
        """How many partitions it has; None while there is no such topic."""
        topic = self._metadata.topic(self.name)
        return None if topic is None else len(topic.partitions)

    def partition_of(self, key: str) -> int | None:
        """The partition that a key belongs to; None while there is no such topic."""
        topic = self._metadata.topic(self.name)
        return None if topic is None else partition_for(key, len(topic.partitions))

    async def find_coordinator(self, key: str) -> int:
        """The id of the broker that coordinates a key; the topic is made if need be.

        Raises KafkaError COORDINATOR_NOT_AVAILABLE.
        """
        if self.partition_count is None:
            if self._creation is None or self._creation.done():
                self._creation = self._loop.create_task(self._create())
            await asyncio.shield(self._creation)
        index = self.partition_of(key)
        image = None if index is None else self._metadata.partition(TopicPartition(self.name, index))
        if image is None or image.leader not in self._metadata.brokers:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")
        return image.leader

    async def _create(self) -> None:
        try:
            error = (await self._controller.auto_create([self.name]))[self.name]
        except KafkaError as caught:
            error = caught
        if error is not None and error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            logger.warning("%s could not be created: %s", self.name, error.message)
            return
        self._on_created()
