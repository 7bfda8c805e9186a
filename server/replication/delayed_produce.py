"""A produce request that waits until its records are committed, or flushed (Kafka's DelayedProduce)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, TypeAlias

from ...protocol.errors import ErrorCode, KafkaError
from .append_request import AppendCallback, AppendResult
from .delayed_operation import DelayedOperation

if TYPE_CHECKING:
    from .partition import Partition

AwaitedAppend: TypeAlias = "tuple[Partition, int, int]"
"""One partition's part of a request: the offset that the high watermark or the disk has to reach, and which result it
is that this decides."""


class DelayedProduce(DelayedOperation):
    """Completes when every awaited append is decided; at the deadline the undecided ones are REQUEST_TIMED_OUT.

    Acks of -1 wait for the high watermark, of 1 for a flush.
    """

    __slots__ = ("_acks", "_appends", "_callback", "_undecided", "results")

    def __init__(
        self,
        appends: dict[Hashable, list[AwaitedAppend]],
        acks: int,
        results: list[AppendResult],
        callback: AppendCallback,
    ) -> None:
        """`appends` has the awaited appends of each partition; decided appends are removed, and partitions are kept."""
        super().__init__()
        self._appends = appends
        self._undecided = sum(map(len, appends.values()))
        self._acks = acks
        self.results = results
        self._callback = callback

    def try_complete(self) -> bool:
        for key, appends in self._appends.items():
            self._decide(key, appends)
        return not self._undecided and self.force_complete()

    def try_complete_for(self, key: Hashable) -> bool:
        self._decide(key, self._appends[key])
        return not self._undecided and self.force_complete()

    def _decide(self, key: Hashable, appends: list[AwaitedAppend]) -> None:
        undecided = []
        for append in appends:
            partition, offset, position = append
            if self._acks == -1:
                is_done, error = partition.check_enough_replicas_reach_offset(offset)
            else:
                is_done, error = partition.check_flushed(offset)
            if not is_done:
                undecided.append(append)
                continue
            self._undecided -= 1
            if error is not ErrorCode.NONE:
                self.results[position] = KafkaError(error)
        self._appends[key] = undecided

    def on_expiration(self) -> None:
        for appends in self._appends.values():
            for _, _, position in appends:
                self.results[position] = KafkaError(ErrorCode.REQUEST_TIMED_OUT)

    def on_complete(self) -> None:
        self._callback(self.results)
