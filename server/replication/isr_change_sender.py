"""Sends the ISR changes of leaders to the controller until each is decided (Kafka's Partition.submitAlterPartition)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ...common.room_logger import room_logger
from ...protocol.errors import ErrorCode, KafkaError
from .partition import ISR_UNCHANGED_ERRORS

if TYPE_CHECKING:
    from ...protocol.topic_partition import TopicPartition
    from .leader_and_isr import AlterPartitionManager, IsrChange
    from .partition import Partition

logger = room_logger("replication")

RETRY_SECONDS = 0.05
FINAL_ERRORS = (
    *ISR_UNCHANGED_ERRORS,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.NEW_LEADER_ELECTED,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""Errors after which the same change is not sent again."""
UNEXPECTED = (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_ID)
"""Final errors that no race between brokers explains. The others are ordinary: INELIGIBLE_REPLICA, for example, after
a follower has fetched once more before it stopped. Kafka's AlterPartitionManager logs them as information, too."""
NAMED_PARTITIONS = 5
"""The most partitions that one log line names."""


class IsrChangeSender:
    """The pending ISR changes of this broker, one per partition. Runs on the event loop."""

    def __init__(self, changes: AlterPartitionManager, loop: asyncio.AbstractEventLoop) -> None:
        self._changes = changes
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()
        self._refused: dict[ErrorCode, list[TopicPartition]] = {}
        """The partitions whose changes were refused in this loop turn."""

    def submit(self, partition: Partition, change: IsrChange) -> None:
        """Send the change until it is decided, and report the result to the partition."""
        task = self._loop.create_task(self._send(partition, change))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Cancel all pending changes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _send(self, partition: Partition, change: IsrChange) -> None:
        while partition.is_pending(change):
            try:
                now = await self._changes.submit(change)
            except KafkaError as error:
                if error.code in FINAL_ERRORS:
                    self._log_refusal(change.topic_partition, error.code)
                    partition.fail_isr_change(change, error.code)
                    return
                await asyncio.sleep(RETRY_SECONDS)
            else:
                logger.info("the ISR of %s is %s", change.topic_partition, now.isr)
                partition.complete_isr_change(change, now)
                return

    def _log_refusal(self, topic_partition: TopicPartition, code: ErrorCode) -> None:
        """Collect the refusals of one loop turn, such as for all partitions of a stopping broker, for one log line."""
        if not self._refused:
            self._loop.call_soon(self._log_refusals)
        self._refused.setdefault(code, []).append(topic_partition)

    def _log_refusals(self) -> None:
        refused, self._refused = self._refused, {}
        for code, partitions in refused.items():
            level = logging.WARNING if code in UNEXPECTED else logging.INFO
            names = ", ".join(map(str, partitions[:NAMED_PARTITIONS]))
            more = ", …" if len(partitions) > NAMED_PARTITIONS else ""
            text = "the controller refused ISR changes of %d partitions with %s: %s%s"
            logger.log(level, text, len(partitions), code.name, names, more)
