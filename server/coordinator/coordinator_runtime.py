"""The state of a coordinator for each partition of its log that this broker leads (Kafka: CoordinatorRuntime).

A partition is loaded, in slices of the event loop, when this broker becomes its leader. Its state is unloaded when the
broker resigns, and loaded again in a new leader epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from ...common.room_logger import room_logger
from ...protocol.errors import ErrorCode, KafkaError, ProtocolError
from ...storage.errors import StorageError
from .coordinator_log import CoordinatorLog
from .coordinator_topic import CoordinatorTopic

if TYPE_CHECKING:
    from ..metadata.metadata_cache import MetadataCache
    from ..replication.partition import Partition
    from ..replication.replica_manager import ReplicaManager
    from .coordinator_topic import TopicCreator

logger = room_logger("coordinator")

REPLICATION_POLL_SECONDS = 0.02
"""The time between two checks whether all in-sync replicas have the records that were loaded."""

State = TypeVar("State")


class CoordinatorShard(Generic[State]):
    """The state of one partition in one leader epoch (Kafka: CoordinatorRuntime's CoordinatorContext)."""

    __slots__ = ("error", "is_loaded", "leader_epoch", "partition", "state")

    def __init__(self, partition: Partition, state: State) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.state = state
        """Empty until the records are loaded."""
        self.is_loaded = False
        self.error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        """The error code for requests while the shard is not loaded."""

    @property
    def is_current(self) -> bool:
        """Whether this broker still leads the partition in the same epoch."""
        partition = self.partition
        return partition.is_leader and not partition.is_offline and partition.leader_epoch == self.leader_epoch


class CoordinatorRuntime(Generic[State]):
    """All shards of one coordinator, with the topic that they are loaded from and written to.

    Owned by the coordinator and used on the loop's thread only.
    """

    def __init__(
        self,
        topic: str,
        *,
        replica_manager: ReplicaManager,
        metadata: MetadataCache,
        controller: TopicCreator,
        now_ms: Callable[[], int],
        loop: asyncio.AbstractEventLoop,
        new_state: Callable[[], State],
        load: Callable[[Partition], Awaitable[State]],
        on_loaded: Callable[[State], Awaitable[None]],
        on_unloaded: Callable[[State], None],
    ) -> None:
        """Take the functions of the coordinator, of which `load` and `on_loaded` run in slices of the event loop.

        `new_state` returns the state of a partition without records, `load` that of a partition with its records.
        `on_loaded` starts the timers of a state, `on_unloaded` stops them.
        """
        self.topic = CoordinatorTopic(topic, metadata=metadata, controller=controller, loop=loop, on_created=self.start)
        self.coordinator_log = CoordinatorLog(topic, replica_manager, now_ms, loop)
        self._loop = loop
        self._new_state = new_state
        self._load_state = load
        self._on_loaded = on_loaded
        self._on_unloaded = on_unloaded
        self._shards: dict[int, CoordinatorShard[State]] = {}
        self._loading: dict[int, asyncio.Task[None]] = {}
        self._load_lock = asyncio.Lock()
        """Held while one partition is loaded, so that a turn of the loop has the work of one partition."""
        self._is_started = self._is_closed = False
        self.coordinator_log.on_role_change(self._on_role_change)
        metadata.on_topics_removed.append(self._on_topics_removed)

    def __iter__(self) -> Iterator[CoordinatorShard[State]]:
        return iter(list(self._shards.values()))

    def start(self) -> None:
        """Load the partitions that this broker leads, and from now on each partition whose leader it becomes."""
        self._is_started = True
        for index in range(self.topic.partition_count or 0):
            self.get_or_load_shard(index)

    def _on_role_change(self, index: int) -> None:
        if self._is_started:
            self.get_or_load_shard(index)

    def reload(self) -> None:
        """Unload all shards, and load them again."""
        self._unload_all()
        self.start()

    def _on_topics_removed(self, names: list[str]) -> None:
        if self.topic.name in names:
            self._unload_all()

    @property
    def is_loading(self) -> bool:
        """Whether some partitions are being loaded."""
        return bool(self._loading)

    def find_shard(self, index: int) -> CoordinatorShard[State] | None:
        """Return the shard of a partition if there is one, current or not; do not start to load it."""
        return self._shards.get(index)

    def get_or_load_shard(self, index: int) -> CoordinatorShard[State] | None:
        """Return the shard of a partition, None unless this broker leads it; start to load a new shard."""
        shard = self._shards.get(index)
        if shard is not None and shard.is_current:
            return shard
        if shard is not None:
            self._unload(index)
        partition = self.coordinator_log.get_leader_partition(index)
        if partition is None or self._is_closed:
            return None
        shard = self._shards[index] = CoordinatorShard(partition, self._new_state())
        if partition.log_start_offset == partition.log_end_offset:
            shard.is_loaded = True
            return shard
        former = self._loading.pop(index, None)
        if former is not None:
            former.cancel()
        task = self._loading[index] = self._loop.create_task(self._load(index, shard))
        task.add_done_callback(lambda done: self._loading_ended(index, done))
        return shard

    def get_loaded_shard(self, index: int | None) -> CoordinatorShard[State]:
        """Return the shard of a partition; `index` is None if the partition does not exist.

        Raises KafkaError NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE.
        """
        shard = None if index is None else self.get_or_load_shard(index)
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "This is not the correct coordinator.")
        if not shard.is_loaded:
            raise KafkaError(shard.error, "The coordinator is loading and hence can't process requests.")
        return shard

    async def close(self) -> None:
        """Unload all shards and load no others."""
        await self.topic.close()
        self._is_closed = True
        tasks = list(self._loading.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._unload_all()

    def _unload_all(self) -> None:
        for index in list(self._shards):
            self._unload(index)

    def _unload(self, index: int) -> None:
        shard = self._shards.pop(index)
        shard.is_loaded = False
        self._on_unloaded(shard.state)
        shard.state = self._new_state()

    def _loading_ended(self, index: int, task: asyncio.Task[None]) -> None:
        if self._loading.get(index) is task:
            del self._loading[index]

    async def _load(self, index: int, shard: CoordinatorShard[State]) -> None:
        name, start_time = shard.partition.topic_partition, self._loop.time()
        try:
            async with self._load_lock:
                end = shard.partition.log_end_offset
                state = await self._load_state(shard.partition)
        except (KafkaError, ProtocolError, StorageError, OSError) as error:
            logger.error("%s cannot be loaded: %s", name, error)
            shard.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
            return
        except Exception:
            # Otherwise clients would receive COORDINATOR_LOAD_IN_PROGRESS without end.
            logger.exception("%s cannot be loaded", name)
            shard.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
            return
        # The next leader may truncate records that are not committed: until then no response may depend on them.
        while True:
            if self._shards.get(index) is not shard or not shard.is_current:
                return
            if shard.partition.is_replicated_to_electable(end):
                break
            await asyncio.sleep(REPLICATION_POLL_SECONDS)
        is_current = False
        try:
            await self._on_loaded(state)
            is_current = self._shards.get(index) is shard
        finally:
            # The shard was unloaded, or the task cancelled, while timers were started.
            if not is_current:
                self._on_unloaded(state)
        shard.state, shard.is_loaded = state, is_current
        logger.info("loaded %s in %.3f s", name, self._loop.time() - start_time)
