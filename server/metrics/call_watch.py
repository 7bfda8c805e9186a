"""What each request pays while somebody measures: a count, two looks at the clock, two comparisons."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, TypeAlias

from ...protocol.native import native

if TYPE_CHECKING:
    Watch: TypeAlias = tuple[Callable[[], bool], Callable[[], bool]]
    """Two to be called: when a call begins, which says whether it is due to be timed in full; and when it has ended,
    which says whether it took longer than the floor.
    """

_DUE, _FLOOR, _BEGAN, _ENDED, _TICK = range(5)


class Watched:
    """What the calls of one API are held to, and when the last of them was, where compiled code sees it. In seconds."""

    __slots__ = ("_values", "memory")

    def __init__(self, floor: float) -> None:
        self.memory = bytearray(40)
        self._values = memoryview(self.memory).cast("d")
        self.due, self.floor = -inf, floor

    @property
    def due(self) -> float:
        """From when on a call is to be timed in full."""
        return self._values[_DUE]

    @due.setter
    def due(self, seconds: float) -> None:
        self._values[_DUE] = seconds

    @property
    def floor(self) -> float:
        """Beyond so many seconds a call was slow."""
        return self._values[_FLOOR]

    @floor.setter
    def floor(self, seconds: float) -> None:
        self._values[_FLOOR] = seconds

    @property
    def last(self) -> tuple[float, float] | None:
        """From when to when the last call went; None if it was too short for its clock."""
        ended = self._values[_ENDED]
        return (self._values[_BEGAN], ended) if ended else None

    @property
    def tick(self) -> float:
        """Of the clock by which the beginning of a call is known; 0 for an exact one."""
        return self._values[_TICK]


def watch_here(clock: Callable[[], float], count: bytearray, watched: Watched) -> Watch:
    """Calls are counted in the 64 bits of `count`."""
    number, values = memoryview(count).cast("q"), memoryview(watched.memory).cast("d")

    def begin() -> bool:
        number[0] += 1
        now = values[_BEGAN] = clock()
        return now >= values[_DUE]

    def is_slow() -> bool:
        now = values[_ENDED] = clock()
        return now - values[_BEGAN] > values[_FLOOR]

    return begin, is_slow


def watch(clock: Callable[[], float], count: bytearray, watched: Watched) -> Watch:
    """The same in compiled code, where there is some and it has that clock.

    It knows of a call that was slow, or of a tick of the kernel's clock, mostly each 4 ms, that came while it was at
    work; when it began is then known to within half of that.
    """
    if native is None or clock is not native.stopwatch:
        return watch_here(clock, count, watched)
    return native.watch(count, watched.memory)
