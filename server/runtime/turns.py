"""Work that is done a piece in each turn of the loop, so that others are served in between."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

PIECES_A_COLLECTION = 16
"""What this work leaves behind stays: members, timers, requests that wait. The garbage collector looks at new objects
when two hundred more have come than gone. Where members come and as many go it does not look for long, and then at ten
thousand at once, for milliseconds. So it is called after so many pieces."""


class Turns:
    """A queue of which the oldest piece of work is done in the loop's next turn. Loop-thread only.

    Thousands of clients may ask for something at the same moment, and whoever gets an answer asks for more at once. A
    turn is then as long as one of these takes, and not all of them.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, collect_new: Callable[[], object]) -> None:
        self._loop = loop
        self._collect_new = collect_new
        self._waiting: deque[Callable[[], None]] = deque()
        self._uncollected = 0

    def add(self, work: Callable[[], None]) -> None:
        """Do this when it is its turn. What it raises is the loop's to report."""
        if not self._waiting:
            self._loop.call_soon(self._do_one)
        self._waiting.append(work)

    def _do_one(self) -> None:
        if self._uncollected == PIECES_A_COLLECTION:
            self._uncollected = 0
            self._loop.call_soon(self._do_one)
            self._collect_new()
            return
        self._uncollected += 1
        work = self._waiting.popleft()
        if self._waiting:
            self._loop.call_soon(self._do_one)
        work()
