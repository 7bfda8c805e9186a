"""The measurement of each request while metrics are enabled: a count, two clock reads, two comparisons."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, TypeAlias

from ...protocol.native import native

if TYPE_CHECKING:
    Watch: TypeAlias = tuple[Callable[[], bool], Callable[[], bool]]
    """Two functions: the first is called when a call begins and returns whether the call must be timed in full, the
    second is called when it has ended and returns whether it took longer than the floor.
    """

_DUE, _FLOOR, _BEGAN, _ENDED, _TICK = range(5)


class CallTimes:
    """The limits for calls of one API, and the times of the last call, in seconds, in memory that C code reads."""

    __slots__ = ("_values", "memory")

    def __init__(self, floor: float) -> None:
        self.memory = bytearray(40)
        self._values = memoryview(self.memory).cast("d")
        self.due, self.floor = -inf, floor

    @property
    def due(self) -> float:
        """The time from which a call must be timed in full."""
        return self._values[_DUE]

    @due.setter
    def due(self, seconds: float) -> None:
        self._values[_DUE] = seconds

    @property
    def floor(self) -> float:
        """A call that takes longer is slow."""
        return self._values[_FLOOR]

    @floor.setter
    def floor(self, seconds: float) -> None:
        self._values[_FLOOR] = seconds

    @property
    def last(self) -> tuple[float, float] | None:
        """The begin and end of the last call; None if it was too short for its clock."""
        ended = self._values[_ENDED]
        return (self._values[_BEGAN], ended) if ended else None

    @property
    def tick(self) -> float:
        """The resolution of the clock that times the begin of a call; 0 for an exact clock."""
        return self._values[_TICK]


def watch_py(clock: Callable[[], float], count: bytearray, times: CallTimes) -> Watch:
    """Count calls in the 64 bits of `count`. Twin of the compiled `watch`."""
    number, values = memoryview(count).cast("q"), memoryview(times.memory).cast("d")

    def begin() -> bool:
        number[0] += 1
        now = values[_BEGAN] = clock()
        return now >= values[_DUE]

    def is_slow() -> bool:
        now = values[_ENDED] = clock()
        return now - values[_BEGAN] > values[_FLOOR]

    return begin, is_slow


def watch(clock: Callable[[], float], count: bytearray, times: CallTimes) -> Watch:
    """Return the functions that measure calls, compiled if the clock is the compiled one.

    The compiled functions read a clock that the kernel updates, mostly every 4 ms: they time the calls during which it
    was updated, and their begin has an error of up to half of that interval.
    """
    if native is None or clock is not native.stopwatch:
        return watch_py(clock, count, times)
    return native.watch(count, times.memory)
