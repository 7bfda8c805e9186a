"""What each request pays while somebody measures: a count, two looks at the clock, two comparisons."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ...protocol.native import native

if TYPE_CHECKING:
    from ..apis.kafka_apis import Handle
    from ..apis.request_context import RequestContext

_DUE, _FLOOR = range(2)

Beyond: TypeAlias = "Callable[[RequestContext, Any, Any, float, float], None]"
"""Looks at a request that is not answered yet, or was handled slowly: its answer so far, and from when to when."""


class Limits:
    """What the requests of one API are held to, where compiled code sees it."""

    __slots__ = ("_values", "memory")

    def __init__(self, floor: float) -> None:
        self.memory = bytearray(16)
        self._values = memoryview(self.memory).cast("d")
        self.due, self.floor = -inf, floor

    @property
    def due(self) -> float:
        """From when on a request is to be timed in full."""
        return self._values[_DUE]

    @due.setter
    def due(self, seconds: float) -> None:
        self._values[_DUE] = seconds

    @property
    def floor(self) -> float:
        """Beyond so many seconds a handler was slow."""
        return self._values[_FLOOR]

    @floor.setter
    def floor(self, seconds: float) -> None:
        self._values[_FLOOR] = seconds


class Calls(NamedTuple):
    """How a handler is called, and what is to be known of it."""

    handle: Handle
    clock: Callable[[], float]
    timed: Handle
    """Takes the place of `handle` when a request is due to be timed in full."""
    beyond: Beyond
    number: bytearray
    """A number of 64 bits: how many requests there were."""
    limits: bytearray
    """Those of `Limits`."""


def metered_here(calls: Calls) -> Handle:
    """What is to be called in the handler's place."""
    handle, clock, timed, beyond = calls[:4]
    count, limits = memoryview(calls.number).cast("q"), memoryview(calls.limits).cast("d")

    def metered(context: RequestContext, request: Any) -> Any:
        count[0] += 1
        began = clock()
        if began >= limits[_DUE]:
            return timed(context, request)
        answer = handle(context, request)
        ended = clock()
        if answer is not None or not context.is_answered or ended - began > limits[_FLOOR]:
            beyond(context, request, answer, began, ended)
        return answer

    return metered


metered: Callable[[Calls], Handle] = metered_here if native is None else native.metered
