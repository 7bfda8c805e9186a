"""The partitions of a coordinator's log that this broker leads, and what their records stand for.

Each is loaded when this broker begins to lead it, in short turns of the loop, and given up when it leads no longer or
in another epoch. Kafka: CoordinatorRuntime's contexts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from ...protocol.errors import ErrorCode, KafkaError, ProtocolError
from ...protocol.room_logger import room_logger
from ...storage.errors import StorageError
from .latest_records import LatestRecords

if TYPE_CHECKING:
    from ..replication.partition import Partition
    from .coordinator_log import CoordinatorLog

logger = room_logger("coordinator")

LOOK_SECONDS = 0.02
"""Between two looks at whether all have what was loaded."""

State = TypeVar("State")


class Shard(Generic[State]):
    """One partition while this broker leads it."""

    __slots__ = ("error", "is_loaded", "leader_epoch", "partition", "state")

    def __init__(self, partition: Partition, state: State) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.state = state
        """What the records stand for; nothing yet while they are loaded."""
        self.is_loaded = False
        self.error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        """What is answered while it is not loaded."""

    @property
    def is_current(self) -> bool:
        """Whether this broker still leads the partition in the same epoch."""
        partition = self.partition
        return partition.is_leader and not partition.is_offline and partition.leader_epoch == self.leader_epoch


class Shards(Generic[State]):
    """All shards of one coordinator. Loop-thread only."""

    def __init__(
        self,
        log: CoordinatorLog,
        loop: asyncio.AbstractEventLoop,
        *,
        empty: Callable[[], State],
        build: Callable[[LatestRecords], Awaitable[State]],
        resume: Callable[[State], Awaitable[None]],
        unload: Callable[[State], None],
    ) -> None:
        """`empty` makes the state of a partition without records, `build` makes it of records, `resume` starts its
        timers, and `unload` gives it up. `build` and `resume` let others run in between.
        """
        self._log = log
        self._loop = loop
        self._empty = empty
        self._build = build
        self._resume = resume
        self._unload = unload
        self._shards: dict[int, Shard[State]] = {}
        self._loading: dict[int, asyncio.Task[None]] = {}
        self._load_lock = asyncio.Lock()
        """Partitions are loaded one after the other, so that a turn of the loop has the work of one."""
        self._is_started = self._is_closed = False
        log.on_role_change(self._role_changed)

    def __iter__(self) -> Iterator[Shard[State]]:
        return iter(list(self._shards.values()))

    def start(self, count: int) -> None:
        """Load those of `count` partitions that this broker leads, and from now on each whose leader it becomes."""
        self._is_started = True
        for index in range(count):
            self.current(index)

    def _role_changed(self, index: int) -> None:
        if self._is_started:
            self.current(index)

    @property
    def is_loading(self) -> bool:
        """Whether some partitions are not known yet."""
        return bool(self._loading)

    def known(self, index: int) -> Shard[State] | None:
        """The shard of a partition, whether or not it is still this broker's; does not begin to load."""
        return self._shards.get(index)

    def current(self, index: int) -> Shard[State] | None:
        """The shard of a partition if this broker leads it; begins to load a new one."""
        shard = self._shards.get(index)
        if shard is not None and shard.is_current:
            return shard
        if shard is not None:
            self._give_up(index)
        partition = self._log.led(index)
        if partition is None or self._is_closed:
            return None
        shard = self._shards[index] = Shard(partition, self._empty())
        if partition.log_start_offset == partition.log_end_offset:
            shard.is_loaded = True
            return shard
        former = self._loading.pop(index, None)
        if former is not None:
            former.cancel()
        task = self._loading[index] = self._loop.create_task(self._load(index, shard))
        task.add_done_callback(lambda done: self._loading_ended(index, done))
        return shard

    def loaded(self, index: int | None) -> Shard[State]:
        """The shard of a partition, None for one that does not exist.

        Raises KafkaError NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE.
        """
        shard = None if index is None else self.current(index)
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "This is not the correct coordinator.")
        if not shard.is_loaded:
            raise KafkaError(shard.error, "The coordinator is loading and hence can't process requests.")
        return shard

    def clear(self) -> None:
        """Give all shards up: their topic is gone, or the broker ends."""
        for index in list(self._shards):
            self._give_up(index)

    async def close(self) -> None:
        """Give all shards up, for good."""
        self._is_closed = True
        tasks = list(self._loading.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.clear()

    def _give_up(self, index: int) -> None:
        shard = self._shards.pop(index)
        shard.is_loaded = False
        self._unload(shard.state)
        shard.state = self._empty()

    def _loading_ended(self, index: int, task: asyncio.Task[None]) -> None:
        if self._loading.get(index) is task:
            del self._loading[index]

    async def _load(self, index: int, shard: Shard[State]) -> None:
        name, began = shard.partition.topic_partition, self._loop.time()
        try:
            async with self._load_lock:
                end = shard.partition.log_end_offset
                state = await self._build(await self._log.load(shard.partition))
        except (KafkaError, ProtocolError, StorageError, OSError) as error:
            logger.error("%s cannot be loaded: %s", name, error)
            shard.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
            return
        # What is not committed yet may be cut off by the next leader: nobody is told of it, and nothing done about it.
        while True:
            if self._shards.get(index) is not shard or not shard.is_current:
                return
            if shard.partition.is_on_all(end):
                break
            await asyncio.sleep(LOOK_SECONDS)
        is_ours = False
        try:
            await self._resume(state)
            is_ours = self._shards.get(index) is shard
        finally:
            if not is_ours:
                self._unload(state)
        shard.state, shard.is_loaded = state, is_ours
        logger.info("loaded %s in %.3f s", name, self._loop.time() - began)
