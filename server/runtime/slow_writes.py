"""Pauses between the writes of a slow disk, in which requests that write nothing are served."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .loop_sharing import SlicedWork

COUNTED_WRITE_SECONDS = 0.001
"""The shortest append that counts: it takes microseconds if the page cache accepts it immediately."""
WRITE_SECONDS_PER_TURN = 0.05
"""The time for counted appends in one turn of the loop; the last one may exceed it."""


class SlowWrites:
    """The time that the appends of this turn of the loop have taken. Owned by the broker; used on the loop's thread.

    Appends are written by the loop's thread, and the kernel blocks a writer when a disk cannot keep up. If all requests
    of a turn were handled then, each of their writes would delay every other client. So after `WRITE_SECONDS_PER_TURN`
    requests that write wait (`Connection`, `JointProduce`), until the queue of `SlicedWork` has their turn: it runs one
    write per turn, and all other requests are handled between two writes.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, sliced_work: SlicedWork) -> None:
        self._loop = loop
        self._sliced_work = sliced_work
        self._seconds = 0.0
        self.are_paused = False
        """Whether requests that write have to wait."""
        self.on_continue: Callable[[], None] = lambda: None
        """Called when the requests that wait may be handled until `are_paused` is true again."""

    def add(self, seconds: float) -> None:
        """Add the time of an append, of at least `COUNTED_WRITE_SECONDS`."""
        if not self._seconds:
            self._loop.call_soon(self._begin_turn)
        self._seconds += seconds
        if self._seconds >= WRITE_SECONDS_PER_TURN and not self.are_paused:
            self.are_paused = True
            self._sliced_work.run_later(self._continue)

    def _begin_turn(self) -> None:
        self._seconds = 0.0

    def _continue(self) -> None:
        self.are_paused = False
        self.on_continue()
