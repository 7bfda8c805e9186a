"""A produce request that waits until its records are committed, or flushed (Kafka's DelayedProduce)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from ...storage.log_values import LogAppendInfo
from .delayed_operation import DelayedOperation

if TYPE_CHECKING:
    from .partition import Partition

AppendResult = LogAppendInfo | KafkaError
AppendCallback = Callable[[list[AppendResult]], None]


class AwaitedAppend(NamedTuple):
    """One partition's part of the request: done when the high watermark, or the disk, reaches `required_offset`."""

    partition: Partition
    required_offset: int
    position: int
    """Of its result."""
    acks: int = -1
    """-1 waits for the high watermark, 1 for a flush."""


class DelayedProduce(DelayedOperation):
    """Completes when every awaited append is decided; at the deadline the undecided ones are REQUEST_TIMED_OUT."""

    __slots__ = ("_appends", "_callback", "results")

    def __init__(self, appends: list[AwaitedAppend], results: list[AppendResult], callback: AppendCallback) -> None:
        super().__init__()
        self._appends = appends
        self.results = results
        self._callback = callback

    def try_complete(self) -> bool:
        undecided = []
        for append in self._appends:
            partition, offset = append.partition, append.required_offset
            outcome = partition.has_reached(offset) if append.acks == -1 else partition.has_flushed(offset)
            if outcome is None:
                undecided.append(append)
            elif outcome is not ErrorCode.NONE:
                self.results[append.position] = KafkaError(outcome)
        self._appends = undecided
        return not undecided and self.force_complete()

    def on_expiration(self) -> None:
        for append in self._appends:
            self.results[append.position] = KafkaError(ErrorCode.REQUEST_TIMED_OUT)

    def on_complete(self) -> None:
        self._callback(self.results)
