"""Work of groups that is done a piece in each turn of the loop, so that others are served in between."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class Turns:
    """A queue: the oldest piece is done in the loop's next turn. Loop-thread only.

    Thousands of members may ask for something at the same moment, and whoever gets an answer asks for more at once. A
    turn is then as long as one of these takes, and not all of them.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()

    def add(self, work: Callable[[], None]) -> None:
        """Do this when it is its turn."""
        if not self._waiting:
            self._loop.call_soon(self._do_one)
        self._waiting.append(work)

    def _do_one(self) -> None:
        work = self._waiting.popleft()
        if self._waiting:
            self._loop.call_soon(self._do_one)
        work()
