"""Polling for a condition with a deadline."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], what: str = "the condition holds", *, seconds: float = 60.0) -> None:
    """Wait until the condition holds; raise AssertionError after `seconds` of the loop's clock, real or simulated.

    `what` describes the condition in the message.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not condition():
        assert loop.time() < deadline, f"not within {seconds:g} s: {what}"
        await asyncio.sleep(0.005)
