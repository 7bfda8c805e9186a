"""Pauses between the writes of a slow disk, in which requests that write nothing are served."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

COUNTED_WRITE_SECONDS = 0.001
"""The shortest append that counts: it takes microseconds if the page cache accepts it immediately."""
WRITE_SECONDS_PER_TURN = 0.05
"""The time for counted appends in one turn of the loop; the last append may exceed it."""
PAUSE = 0.1
"""The length of a pause, as a part of the time of the appends before it. The loop needs more than one turn in which
nothing is written: it accepts one connection per turn, and a client's next request arrives some turns later."""
MAX_PAUSE_SECONDS = 0.1
"""The longest pause, after a write that took very long: the disk may be fast again."""


class SlowWrites:
    """The time that the appends of this turn of the loop have taken. Owned by the broker; used on the loop's thread.

    Appends are written by the loop's thread, and the kernel blocks a writer while a disk cannot keep up. If all
    requests of a turn were handled then, each of their writes would delay every other client. So after
    `WRITE_SECONDS_PER_TURN`, requests that write wait until the end of a pause (`Connection`, `JointProduce`).
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._seconds = 0.0
        self.waiting: deque[Callable[[], None]] = deque()
        """The requests that wait, the oldest first."""
        self._pause: asyncio.TimerHandle | None = None
        self.are_paused = False
        """Whether requests that write have to wait."""
        self.on_continue: Callable[[], None] = lambda: None
        """Called after a pause, when the callbacks of `wait` have been called."""

    def add(self, seconds: float) -> None:
        """Add the time of an append, of at least `COUNTED_WRITE_SECONDS`."""
        if not self._seconds:
            self._loop.call_soon(self._end_turn)
        self._seconds += seconds
        if self._seconds >= WRITE_SECONDS_PER_TURN:
            self.are_paused = True

    def wait(self, write: Callable[[], None]) -> None:
        """Call `write`, which raises nothing, when it may append: after all that have waited longer."""
        assert self.are_paused, "it may append immediately"
        self.waiting.append(write)

    def _end_turn(self) -> None:
        seconds, self._seconds = self._seconds, 0.0
        if self.are_paused and self._pause is None:
            # Not in `add`: uvloop measures a delay from the beginning of the turn, which may have been long ago.
            self._pause = self._loop.call_later(min(seconds * PAUSE, MAX_PAUSE_SECONDS), self._continue)

    def _continue(self) -> None:
        self.are_paused = False
        self._pause = None
        while self.waiting and not self.are_paused:
            self.waiting.popleft()()
        self.on_continue()
