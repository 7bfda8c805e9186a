"""What others change in the store is read, whatever goes wrong in between."""

from __future__ import annotations

import asyncio

import pytest
from tests.server.simulated_store import SimulatedStore

from barnabas.server.metadata import store_follower
from barnabas.server.metadata.data_tree import DataTree
from barnabas.server.metadata.embedded_store import EmbeddedStore
from barnabas.server.metadata.metadata_store import NoNodeError
from barnabas.server.metadata.store_follower import StoreFollower


@pytest.mark.parametrize("failure", [NoNodeError("/t"), ValueError("no number"), KeyError("name"), RecursionError()])
async def test_news_is_heard_of_after_a_failure(failure: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_follower, "RETRY_SECONDS", 0.001)
    store = EmbeddedStore(DataTree(lambda: 0))
    await store.create("/t")
    seen: list[list[str]] = []
    failures: list[Exception] = []

    async def read(is_new_session: bool) -> None:
        assert is_new_session is not bool(seen)
        names = await store.children("/t", follower.watch("/t"))
        if failures:
            raise failures.pop()
        seen.append(names)

    follower = StoreFollower(store, "names", read)
    await follower.start()
    failures.append(failure)
    for name in ("a", "b"):
        await store.create(f"/t/{name}")
        async with asyncio.timeout(60):
            while name not in seen[-1]:
                await asyncio.sleep(0.001)
    assert seen[0] == [] and not failures
    await follower.close()


async def test_what_cannot_be_read_for_long_is_watched_once_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_follower, "RETRY_SECONDS", 0.001)
    store = SimulatedStore(DataTree(lambda: 0))
    await store.create("/t")
    watches = attempts = 0
    is_readable = True

    async def read(is_new_session: bool) -> None:
        nonlocal watches, attempts
        watch = follower.watch("/t")
        await store.children("/t", watch)
        watches += watch is not None
        attempts += 1
        if not is_readable:
            raise ValueError("no number")

    follower = StoreFollower(store, "names", read)
    await follower.start()
    is_readable = False
    store.expire()
    store.renew()
    async with asyncio.timeout(60):
        while attempts < 10:
            await asyncio.sleep(0.001)
    assert watches == 2
    await follower.close()
