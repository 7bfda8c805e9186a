"""Connections that come faster than is allowed are served later, one after another."""

from __future__ import annotations

import asyncio

import pytest
from tests.server.data_plane import PAGE_CACHE, DataPlane, play

from barnabas.protocol.messages.metadata import MetadataRequest


@pytest.mark.parametrize(
    "key", ["max.connection.creation.rate", "listener.name.plaintext.max.connection.creation.rate"]
)
def test_a_flood_of_connections_is_served_at_the_rate_that_is_set(key: str) -> None:
    async def talk(plane: DataPlane) -> None:
        began = plane.loop.time()

        async def served() -> float:
            client = await plane.connect()
            assert (await client.send(MetadataRequest(topics=[]), 12)).brokers
            client.close()
            return plane.loop.time() - began

        waits = sorted(await asyncio.gather(*(served() for _ in range(60))))
        assert waits[8] < 2
        # Eleven seconds are measured together: so many more connections as a second allows take a second each.
        assert waits[-1] > 10
        assert await served() - waits[-1] < 61

    play(talk, settings=PAGE_CACHE | {key: "2"})


def test_without_a_rate_nobody_waits() -> None:
    async def talk(plane: DataPlane) -> None:
        began = plane.loop.time()
        for _ in range(60):
            client = await plane.connect()
            client.close()
        assert plane.loop.time() - began < 5

    play(talk, settings=PAGE_CACHE)
