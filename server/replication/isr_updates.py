"""Sends what leaders want for their in-sync replicas to whoever decides, until that is done (AlterPartitionManager)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.room_logger import room_logger
from .partition import UNCHANGED_FOR_CERTAIN

if TYPE_CHECKING:
    from .isr_changes import IsrChange, IsrChanges
    from .partition import Partition

logger = room_logger("replication")

RETRY_SECONDS = 0.05
DECIDED_OTHERWISE = (
    *UNCHANGED_FOR_CERTAIN,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.NEW_LEADER_ELECTED,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""Answers after which the same change need not be asked for again."""


class IsrUpdates:
    """One change of a partition at a time. Loop-thread only."""

    def __init__(self, changes: IsrChanges, loop: asyncio.AbstractEventLoop) -> None:
        self._changes = changes
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()

    def want(self, partition: Partition, change: IsrChange) -> None:
        """Have the change made, and tell the partition how that went."""
        task = self._loop.create_task(self._have_made(partition, change))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Ask no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _have_made(self, partition: Partition, change: IsrChange) -> None:
        while partition.awaits(change):
            try:
                now = await self._changes.propose(change)
            except KafkaError as error:
                if error.code in DECIDED_OTHERWISE:
                    logger.warning("%s stays in sync with others: %s", change.topic_partition, error)
                    partition.isr_change_failed(change, error.code)
                    return
                await asyncio.sleep(RETRY_SECONDS)
            else:
                logger.info("%s is in sync on %s", change.topic_partition, now.isr)
                partition.isr_changed(change, now)
                return
