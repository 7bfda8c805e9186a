"""Whatever is written, a reopened journal holds the tree that readers had seen."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas.server.metadata.embedded_store import EmbeddedStore
from barnabas.server.metadata.metadata_store import Check, Create, Delete, Operation, SetData, Stat, StoreError

PATHS = st.sampled_from(["/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/1", "/a/x/2"])
VERSIONS = st.sampled_from([-1, -1, 0, 1])
SELDOM = st.sampled_from([False, False, False, True])
OPERATIONS = st.one_of(
    st.builds(Create, PATHS, st.binary(max_size=3), SELDOM, SELDOM),
    st.builds(SetData, PATHS, st.binary(max_size=3), VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(Check, PATHS, VERSIONS),
)
Tree = dict[str, tuple[bytes, Stat]]


async def dump(store: EmbeddedStore, path: str = "/") -> Tree:
    tree = {} if path == "/" else {path: await store.get(path)}
    for name in await store.children(path):
        tree |= await dump(store, f"{path.rstrip('/')}/{name}")
    return tree


def lasting(tree: Tree) -> dict[str, tuple[bytes, int, int, int]]:
    """What outlives a session. A parent whose ephemeral child ends has one more change among its children."""
    return {
        path: (data, stat.version, stat.czxid, stat.mzxid)
        for path, (data, stat) in tree.items()
        if not stat.ephemeral_owner
    }


async def play(path: str, writes: list[list[Operation]]) -> None:
    store = EmbeddedStore.open(path, now_ms=lambda: 5, durable=False)
    for write in writes:
        before = await dump(store)
        try:
            await store.multi(write)
        except StoreError as error:
            assert 0 <= error.index < len(write)
            assert await dump(store) == before
    seen = await dump(store)
    await store.close()
    reopened = EmbeddedStore.open(path, now_ms=lambda: 5, durable=False)
    kept = await dump(reopened)
    assert lasting(kept) == lasting(seen)
    assert all(not stat.ephemeral_owner for _, stat in kept.values())
    newest = max((stat.mzxid for _, stat in seen.values()), default=0)
    fresh = await reopened.create("/fresh_", sequential=True)
    assert fresh not in seen
    assert (await reopened.get(fresh))[1].czxid > newest
    await reopened.close()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(OPERATIONS, min_size=1, max_size=4), max_size=12))
@example([[Create("/a"), Create("/a/x")], [Delete("/a/x")], [Delete("/a")]])
@example([[Create("/a", b"1"), Create("/b", ephemeral=True)], [SetData("/a", b"2", 0)]])
def test_reopened_journal_holds_what_was_seen(writes: list[list[Operation]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(play(str(Path(directory) / "metadata.sqlite"), writes))


def test_the_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    """Also one that an earlier version made by the umask, with the log that a crash left."""
    path = tmp_path / "metadata.sqlite"
    for file in (path, tmp_path / "metadata.sqlite-wal"):
        file.touch()
        file.chmod(0o644)

    async def work() -> None:
        store = EmbeddedStore.open(str(path), now_ms=lambda: 0)
        await store.create("/config", b"secret")
        assert {file.name: oct(file.stat().st_mode & 0o777) for file in tmp_path.iterdir()} == {
            "metadata.sqlite": "0o600",
            "metadata.sqlite-wal": "0o600",
        }
        await store.close()

    asyncio.run(work())
