"""How long the console keeps a response of the cluster."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.tools.console.cluster import CachedResult


async def test_an_expensive_response_is_kept_for_ten_seconds_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    offset, time, reads = 0.0, loop.time, 0

    async def read_for_a_minute() -> int:
        nonlocal offset, reads
        offset += 60
        reads += 1
        return reads

    monkeypatch.setattr(loop, "time", lambda: time() + offset)
    cached = CachedResult(read_for_a_minute)
    assert await cached.get() == 1
    offset += 9
    assert await cached.get() == 1
    offset += 2
    assert await cached.get() == 2
