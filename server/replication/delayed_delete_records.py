"""A deletion of records that waits until no live replica has them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode, KafkaError
from .delayed_operation import DelayedOperation

if TYPE_CHECKING:
    from .partition import Partition


class DelayedDeleteRecords(DelayedOperation):
    """Kafka's DelayedDeleteRecords for one partition; `outcome` is the low watermark or the error for the client."""

    __slots__ = ("_partition", "_target", "outcome")

    def __init__(self, partition: Partition, target: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._partition = partition
        self._target = target
        self.outcome: asyncio.Future[int | KafkaError] = loop.create_future()

    def try_complete(self) -> bool:
        partition = self._partition
        if partition.is_offline:
            self.outcome.set_result(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
        elif not partition.is_leader:
            self.outcome.set_result(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        elif partition.low_watermark >= self._target:
            self.outcome.set_result(partition.low_watermark)
        return self.outcome.done() and self.force_complete()

    def on_complete(self) -> None:
        if not self.outcome.done():
            self.outcome.set_result(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
