"""Work of groups that is done a piece in each turn of the loop, so that others are served in between."""

from __future__ import annotations

import asyncio
from collections import deque


class Turns:
    """A queue: the oldest who waits goes on in the loop's next turn. Loop-thread only.

    Thousands of members may ask for something at the same moment, and whoever gets an answer asks for more at once. A
    turn is then as long as one of these takes, and not all of them.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def turn(self) -> None:
        """Wait for it."""
        mine = self._loop.create_future()
        if not self._waiting:
            self._loop.call_soon(self._wake_one)
        self._waiting.append(mine)
        await mine

    def _wake_one(self) -> None:
        mine = self._waiting.popleft()
        if self._waiting:
            self._loop.call_soon(self._wake_one)
        if not mine.done():
            mine.set_result(None)
