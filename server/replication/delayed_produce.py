"""A produce request with acks=-1 that waits until its records are committed (Kafka's DelayedProduce)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode
from .delayed_operation import DelayedOperation

if TYPE_CHECKING:
    from .partition import Partition


@dataclass(slots=True)
class AwaitedAppend:
    """One partition's part of the request: done when the high watermark reaches `required_offset`."""

    partition: Partition
    required_offset: int
    settle: Callable[[ErrorCode], None]
    """Takes the outcome into the response."""
    is_settled: bool = False


class DelayedProduce(DelayedOperation):
    """Completes when every awaited append is decided; at the deadline the undecided ones are REQUEST_TIMED_OUT."""

    __slots__ = ("_appends", "_respond")

    def __init__(self, appends: list[AwaitedAppend], respond: Callable[[], None]) -> None:
        super().__init__()
        self._appends = appends
        self._respond = respond

    def try_complete(self) -> bool:
        undecided = False
        for append in self._appends:
            if append.is_settled:
                continue
            outcome = append.partition.has_reached(append.required_offset)
            if outcome is None:
                undecided = True
            else:
                append.is_settled = True
                append.settle(outcome)
        return not undecided and self.force_complete()

    def on_expiration(self) -> None:
        for append in self._appends:
            if not append.is_settled:
                append.is_settled = True
                append.settle(ErrorCode.REQUEST_TIMED_OUT)

    def on_complete(self) -> None:
        self._respond()
