"""The topic of a coordinator's log: its creation, and the coordinator of each key.

A key (a group id, a transactional id) belongs to one partition by its Java hash, and its coordinator is the leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from struct import unpack
from typing import TYPE_CHECKING, Protocol

from ...common.room_logger import room_logger
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from ..metadata.metadata_cache import MetadataCache

logger = room_logger("coordinator")


class TopicCreator(Protocol):
    """`KafkaController`, which this package cannot import: the coordinators and the controller are independent."""

    async def auto_create(self, names: Iterable[str]) -> Mapping[str, KafkaError | None]:
        """Create topics with default settings; return the error of each, None for none. Raises KafkaError."""


CREATION_SECONDS = 5.0
"""The time for which a request for a coordinator waits for the creation of the topic."""
LONGEST_CACHED_KEY = 249
"""Characters of the longest key in the cache of partitions: clients may send keys of 32 KB."""


def partition_for(key: str, partition_count: int) -> int:
    """Return the partition of a key: Java's String.hashCode, without its sign (Kafka's Utils.abs)."""
    find = _partition_for if len(key) <= LONGEST_CACHED_KEY else _partition_for.__wrapped__
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
    """The internal topic of one coordinator.

    Owned by the coordinator and used on the loop's thread only.
    """

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
        """Cancel a creation in progress."""
        if self._creation is not None:
            self._creation.cancel()
            await asyncio.gather(self._creation, return_exceptions=True)

    @property
    def partition_count(self) -> int | None:
        """The number of partitions; None while the topic does not exist."""
        topic = self._metadata.topic(self.name)
        return None if topic is None else len(topic.partitions)

    def partition_of(self, key: str) -> int | None:
        """Return the partition of a key; None while the topic does not exist."""
        topic = self._metadata.topic(self.name)
        return None if topic is None else partition_for(key, len(topic.partitions))

    async def find_coordinator(self, key: str) -> int:
        """Return the id of the broker that coordinates a key; create the topic if it does not exist.

        Raises KafkaError COORDINATOR_NOT_AVAILABLE.
        """
        if self.partition_count is None:
            if self._creation is None or self._creation.done():
                self._creation = self._loop.create_task(self._create())
            # Kafka does not wait: its client gets COORDINATOR_NOT_AVAILABLE and repeats the request.
            await asyncio.wait({self._creation}, timeout=CREATION_SECONDS)
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
