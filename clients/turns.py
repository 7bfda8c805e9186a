"""Sharing the loop: a client whose work is long lets others be served in between."""

from __future__ import annotations

import asyncio


async def next_turn() -> None:
    """Let others be served now."""
    await asyncio.sleep(0)
