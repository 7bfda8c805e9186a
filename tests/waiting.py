"""Waiting for what comes by itself."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], what: str = "what was waited for", *, seconds: float = 60.0) -> None:
    """Let the loop run, a simulated one too, until the condition holds; AssertionError after so long by its clock."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not condition():
        assert loop.time() < deadline, f"never: {what}"
        await asyncio.sleep(0.005)
