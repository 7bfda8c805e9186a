"""The wait of a loop of steps: for a call of `set` or for a time."""

from __future__ import annotations

import asyncio
from math import inf


class Wakeup:
    """An event with a deadline. Call `clear()`, do all work, call `wait(next_at)`: a `set()` in between is not lost."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wake the loop: there may be work."""
        self._event.set()

    def clear(self) -> None:
        """Forget earlier calls of `set`; the caller does all work after this call."""
        self._event.clear()

    async def wait(self, at: float) -> None:
        """Wait for `set` or until this time of the loop; infinity waits for `set` alone."""
        timer = asyncio.get_running_loop().call_at(at, self._event.set) if at < inf else None
        try:
            await self._event.wait()
        finally:
            if timer is not None:
                timer.cancel()
