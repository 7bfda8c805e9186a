"""What every metadata store must do, held against each implementation; then what only the embedded one promises."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.server.metadata.conftest import SERVERS, own_root
from tests.server.metadata.zookeeper import open_zookeeper
from tests.server.simulated_store import SimulatedStore

from barnabas.server.metadata.data_tree import DataTree
from barnabas.server.metadata.embedded_store import IN_MEMORY, EmbeddedStore
from barnabas.server.metadata.metadata_store import (
    BadVersionError,
    Check,
    Create,
    Delete,
    EventType,
    MetadataStore,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    SessionState,
    SetData,
    Stat,
    StoreUnavailableError,
    WatchEvent,
)
from barnabas.server.metadata.sync_request_processor import SyncRequestProcessor
from barnabas.server.metadata.tree_journal import Journal

T = TypeVar("T")
NOW_MS = 1_700_000_000_000


class LaterWork:
    """Runs jobs at a later turn of the loop, as a lane of threads does."""

    async def run(self, lane: str, job: Callable[[], T]) -> T:
        await asyncio.sleep(0)
        return job()

    def submit(self, lane: str, job: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        def work() -> None:
            try:
                result = job()
            except Exception as error:
                done(None, error)
            else:
                done(result, None)

        asyncio.get_running_loop().call_soon(work)

    def sync(self, lane: str, files: Sequence[Any], done: Callable[..., None]) -> None:
        raise AssertionError("a store syncs nothing")

    def close(self) -> None:
        raise NotImplementedError


class SmallJournal(Journal):
    """A journal on a disk that can be full."""

    def limit_size(self, pages: int) -> None:
        self._connection.execute(f"PRAGMA max_page_count={pages}")


def now_ms() -> int:
    return NOW_MS


@pytest.fixture(params=["memory", "sqlite", "sqlite on a lane", "simulated", *SERVERS])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MetadataStore]:
    opened: MetadataStore
    if request.param in ("served_tree", "apache_zookeeper"):
        opened = await open_zookeeper(own_root(request.getfixturevalue(request.param)))
    elif request.param == "simulated":
        opened = SimulatedStore(DataTree(now_ms))
    else:
        path = IN_MEMORY if request.param == "memory" else str(tmp_path / "metadata.sqlite")
        work = LaterWork() if request.param == "sqlite on a lane" else None
        opened = EmbeddedStore.open(path, now_ms=now_ms, work=work, durable=False)
    yield opened
    await opened.close()


@pytest.fixture(params=["memory", "simulated", *SERVERS])
async def two_stores(request: pytest.FixtureRequest) -> AsyncIterator[tuple[MetadataStore, MetadataStore]]:
    """Two sessions with one tree."""
    first: MetadataStore
    second: MetadataStore
    if request.param in ("served_tree", "apache_zookeeper"):
        root = own_root(request.getfixturevalue(request.param))
        first, second = await open_zookeeper(root), await open_zookeeper(root)
    else:
        tree = DataTree(now_ms)
        kind = SimulatedStore if request.param == "simulated" else EmbeddedStore
        first, second = kind(tree), kind(tree)
    yield first, second
    await first.close()
    await second.close()


async def test_created_node_is_read_back(store: MetadataStore) -> None:
    assert await store.create("/a", b"one") == "/a"
    data, stat = await store.get("/a")
    assert data == b"one"
    assert stat.version == 0
    assert stat.czxid == stat.mzxid > 0
    assert stat.ephemeral_owner == 0
    assert await store.exists("/a") == stat
    assert await store.exists("/b") is None


async def test_create_needs_a_parent_and_a_free_path(store: MetadataStore) -> None:
    with pytest.raises(NoNodeError):
        await store.create("/a/b")
    await store.create("/a")
    with pytest.raises(NodeExistsError):
        await store.create("/a")
    await store.create("/a/b")
    assert await store.children("/a") == ["b"]


async def test_illegal_paths_are_refused(store: MetadataStore) -> None:
    for path in ("", "a", "/a/", "//a", "/a/../b", "/."):
        with pytest.raises(ValueError, match="not a path"):
            await store.create(path)
            raise AssertionError(path)


async def test_set_counts_versions_and_demands_the_expected_one(store: MetadataStore) -> None:
    await store.create("/a", b"0")
    created = await store.exists("/a")
    first = await store.set("/a", b"1")
    second = await store.set("/a", b"2", version=1)
    assert created is not None
    assert (first.version, second.version) == (1, 2)
    assert created.czxid == second.czxid
    assert created.mzxid < first.mzxid < second.mzxid
    with pytest.raises(BadVersionError):
        await store.set("/a", b"3", version=1)
    assert (await store.get("/a"))[0] == b"2"
    with pytest.raises(NoNodeError):
        await store.set("/b", b"")


async def test_delete_refuses_other_versions_children_and_nothing(store: MetadataStore) -> None:
    await store.create("/a")
    await store.create("/a/b")
    with pytest.raises(NotEmptyError):
        await store.delete("/a")
    with pytest.raises(BadVersionError):
        await store.delete("/a/b", version=7)
    await store.delete("/a/b", version=0)
    await store.delete("/a")
    with pytest.raises(NoNodeError):
        await store.delete("/a")
    assert await store.children("/") == []


async def test_sequential_names_grow_and_are_never_used_again(store: MetadataStore) -> None:
    await store.create("/q")
    first = await store.create("/q/n_", sequential=True)
    second = await store.create("/q/n_", sequential=True)
    await store.delete(second)
    third = await store.create("/q/n_", sequential=True)
    assert [first, second, third] == ["/q/n_0000000000", "/q/n_0000000001", "/q/n_0000000002"]


async def test_children_are_counted_as_zookeeper_counts_them(store: MetadataStore) -> None:
    await store.create("/a")
    await store.create("/a/x")
    await store.create("/a/y")
    await store.delete("/a/x")
    stat = await store.exists("/a")
    assert stat is not None
    assert (stat.children_count, stat.children_version) == (1, 3)


async def test_multi_applies_all_in_order_and_sees_itself(store: MetadataStore) -> None:
    results = await store.multi(
        [Create("/a", b"0"), Create("/a/b"), SetData("/a", b"1", version=0), Check("/a", 1), Delete("/a/b")]
    )
    assert results[:2] == ["/a", "/a/b"]
    assert isinstance(results[2], Stat)
    assert results[2].version == 1
    assert results[3:] == [None, None]
    assert await store.children("/a") == []
    a, _ = await store.get("/a")
    assert a == b"1"


async def test_one_multi_is_one_place_in_the_order(store: MetadataStore) -> None:
    await store.multi([Create("/a"), Create("/b")])
    a, b = await store.exists("/a"), await store.exists("/b")
    assert a is not None
    assert b is not None
    assert a.czxid == b.czxid


async def test_refused_multi_changes_nothing_and_names_the_culprit(store: MetadataStore) -> None:
    await store.create("/a", b"0")
    with pytest.raises(BadVersionError) as refused:
        await store.multi([SetData("/a", b"1"), Create("/b"), Check("/a", 0), Create("/c")])
    assert (refused.value.index, refused.value.path) == (2, "/a")
    assert (await store.get("/a"))[0] == b"0"
    assert await store.exists("/b") is None


async def test_node_made_and_removed_in_one_multi_never_was(store: MetadataStore) -> None:
    await store.multi([Create("/a"), Create("/a/b"), Delete("/a/b"), Delete("/a")])
    assert await store.exists("/a") is None
    await store.create("/a", b"again")
    assert await store.children("/a") == []


async def test_data_watch_fires_once(store: MetadataStore) -> None:
    events: list[WatchEvent] = []
    await store.create("/a")
    await store.get("/a", events.append)
    await store.set("/a", b"1")
    await store.set("/a", b"2")
    assert events == [WatchEvent(EventType.CHANGED, "/a")]


async def test_exists_watch_sees_creation_and_deletion(store: MetadataStore) -> None:
    events: list[WatchEvent] = []
    await store.exists("/a", events.append)
    await store.create("/a")
    await store.exists("/a", events.append)
    await store.delete("/a")
    assert [event.type for event in events] == [EventType.CREATED, EventType.DELETED]


async def test_child_watch_sees_children_come_go_and_the_node_end(store: MetadataStore) -> None:
    events: list[WatchEvent] = []
    await store.create("/a")
    await store.children("/a", events.append)
    await store.set("/a", b"not about children")
    assert events == []
    await store.create("/a/b")
    await store.children("/a", events.append)
    await store.delete("/a/b")
    await store.children("/a", events.append)
    await store.delete("/a")
    assert [event.type for event in events] == [EventType.CHILDREN, EventType.CHILDREN, EventType.DELETED]
    assert {event.path for event in events} == {"/a"}


async def test_watch_of_a_missing_node_is_not_set_by_get(store: MetadataStore) -> None:
    events: list[WatchEvent] = []
    with pytest.raises(NoNodeError):
        await store.get("/a", events.append)
    await store.create("/a")
    assert events == []


async def test_watch_fires_after_the_change_is_visible(store: MetadataStore) -> None:
    seen: list[asyncio.Task[tuple[bytes, Stat]]] = []
    await store.create("/a", b"0")

    def read_again(_: WatchEvent) -> None:
        seen.append(asyncio.ensure_future(store.get("/a")))

    await store.get("/a", read_again)
    await store.set("/a", b"1")
    assert (await seen[0])[0] == b"1"


async def test_ephemeral_node_names_its_session_and_has_no_children(store: MetadataStore) -> None:
    await store.create("/e", ephemeral=True)
    stat = await store.exists("/e")
    assert stat is not None
    assert stat.ephemeral_owner == store.session_id != 0
    with pytest.raises(NoChildrenForEphemeralsError):
        await store.create("/e/child")


async def test_closed_session_refuses_everything(store: MetadataStore) -> None:
    states: list[SessionState] = []
    store.on_state_change(states.append)
    await store.create("/a")
    await store.close()
    assert store.state is SessionState.EXPIRED
    assert states == [SessionState.EXPIRED]
    operations: list[Awaitable[object]] = [
        store.get("/a"),
        store.set("/a", b""),
        store.children("/"),
        store.exists("/"),
    ]
    for operation in operations:
        with pytest.raises(SessionExpiredError):
            await operation
    await store.close()


async def test_concurrent_writers_each_get_their_turn(store: MetadataStore) -> None:
    await store.create("/n", b"0")

    async def increment() -> None:
        while True:
            data, stat = await store.get("/n")
            try:
                await store.set("/n", str(int(data) + 1).encode(), stat.version)
            except BadVersionError:
                continue
            return

    await asyncio.gather(*(increment() for _ in range(50)))
    assert (await store.get("/n"))[0] == b"50"


async def test_many_nodes_are_read_at_once(store: MetadataStore) -> None:
    await store.multi([Create(f"/n{number}", str(number).encode()) for number in range(300)])
    found = await store.get_many([f"/n{number}" for number in (7, 1000, 299)])
    assert [entry and entry[0] for entry in found] == [b"7", None, b"299"]
    assert found[0] is not None
    assert found[0][1] == await store.exists("/n7")


async def test_root_has_children_and_cannot_be_removed(store: MetadataStore) -> None:
    await store.create("/a")
    assert "a" in await store.children("/")
    with pytest.raises(NotEmptyError):
        await store.delete("/")


async def test_sessions_share_a_tree_and_end_apart(two_stores: tuple[MetadataStore, MetadataStore]) -> None:
    first, second = two_stores
    events: asyncio.Queue[WatchEvent] = asyncio.Queue()
    await first.create("/controller", b"1", ephemeral=True)
    with pytest.raises(NodeExistsError):
        await second.create("/controller", b"2", ephemeral=True)
    await second.exists("/controller", events.put_nowait)
    await first.close()
    assert await asyncio.wait_for(events.get(), 60) == WatchEvent(EventType.DELETED, "/controller")
    await second.create("/controller", b"2", ephemeral=True)


async def test_sessions_see_one_order(two_stores: tuple[MetadataStore, MetadataStore]) -> None:
    first, second = two_stores
    await first.create("/a", b"0")
    stats = [await (first, second)[turn % 2].set("/a", b"", version=turn) for turn in range(6)]
    assert [stat.mzxid for stat in stats] == sorted({stat.mzxid for stat in stats})
    with pytest.raises(BadVersionError):
        await first.set("/a", b"", version=5)


async def test_tree_survives_a_restart_and_ephemerals_do_not(tmp_path: Path) -> None:
    path = str(tmp_path / "metadata.sqlite")
    store = EmbeddedStore.open(path, now_ms=now_ms)
    await store.multi([Create("/a", b"1"), Create("/a/b", b"2"), Create("/e", ephemeral=True)])
    await store.set("/a", b"3")
    before, session = await store.exists("/a"), store.session_id
    await store.close()
    store = EmbeddedStore.open(path, now_ms=now_ms)
    assert await store.exists("/a") == before
    assert await store.children("/") == ["a"]
    assert store.session_id > session
    created = await store.create("/a/n_", sequential=True)
    assert created == "/a/n_0000000001"
    stat = await store.exists(created)
    assert stat is not None
    assert before is not None
    assert stat.czxid > before.mzxid
    await store.close()


async def test_killed_broker_leaves_everything_but_its_ephemerals(tmp_path: Path) -> None:
    path, copy = tmp_path / "metadata.sqlite", tmp_path / "copy.sqlite"
    store = EmbeddedStore.open(str(path), now_ms=now_ms)
    await store.multi([Create("/a", b"1"), Create("/e", ephemeral=True)])
    for suffix in ("", "-wal"):
        # What a kill leaves on disk: the files as they are, without a close.
        Path(f"{copy}{suffix}").write_bytes(Path(f"{path}{suffix}").read_bytes())
    await store.close()
    survivor = EmbeddedStore.open(str(copy), now_ms=now_ms)
    assert await survivor.children("/") == ["a"]
    assert (await survivor.get("/a"))[0] == b"1"
    await survivor.close()


async def test_second_broker_on_the_same_file_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "metadata.sqlite")
    store = EmbeddedStore.open(path, now_ms=now_ms)
    with pytest.raises(StoreUnavailableError, match="locked"):
        EmbeddedStore.open(path, now_ms=now_ms)
    await store.create("/still-works")
    await store.close()


async def test_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "metadata.sqlite"
    path.write_bytes(b"not a database, but long enough to be looked at" * 100)
    with pytest.raises(StoreUnavailableError):
        EmbeddedStore.open(str(path), now_ms=now_ms)


async def test_abandoned_write_is_finished_all_the_same(tmp_path: Path) -> None:
    path = str(tmp_path / "metadata.sqlite")
    store = EmbeddedStore.open(path, now_ms=now_ms, work=LaterWork(), durable=False)
    writer = asyncio.ensure_future(store.create("/a"))
    await asyncio.sleep(0)
    writer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writer
    await store.create("/b")
    assert await store.children("/") == ["a", "b"]
    await store.close()


async def test_full_disk_refuses_writes_until_there_is_space_again(tmp_path: Path) -> None:
    path = str(tmp_path / "metadata.sqlite")
    journal = SmallJournal(path, durable=True)
    tree = journal.load(now_ms)
    store = EmbeddedStore(tree, SyncRequestProcessor(tree, journal))
    await store.create("/a", b"kept")
    journal.limit_size(6)
    with pytest.raises(StoreUnavailableError, match="full"):
        await store.multi([SetData("/a", b"lost"), Create("/big", bytes(100_000))])
    assert (await store.get("/a"))[0] == b"kept"
    assert await store.exists("/big") is None
    journal.limit_size(1_000_000)
    await store.create("/big", bytes(100_000))
    await store.close()
    reopened = EmbeddedStore.open(path, now_ms=now_ms)
    assert await reopened.children("/") == ["a", "big"]
    assert (await reopened.get("/a"))[0] == b"kept"
    await reopened.close()
