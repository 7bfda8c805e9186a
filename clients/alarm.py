"""What a loop of steps sleeps on: it goes on when somebody says so, or at a time."""

from __future__ import annotations

import asyncio
from math import inf


class Alarm:
    """Use: `clear()`, look at everything there is to do, `wait(next_at)`; a `set()` in between is not lost."""

    def __init__(self) -> None:
        self._rings = asyncio.Event()

    def set(self) -> None:
        """There may be something to do."""
        self._rings.set()

    def clear(self) -> None:
        """Whatever there is to do will be looked at now."""
        self._rings.clear()

    async def wait(self, at: float) -> None:
        """Wait for `set`, or for this loop time; infinity is no time."""
        timer = asyncio.get_running_loop().call_at(at, self._rings.set) if at < inf else None
        try:
            await self._rings.wait()
        finally:
            if timer is not None:
                timer.cancel()
