"""Writes of several sessions: one order, stored together, all or none where the disk fails."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from barnabas.server.metadata.data_tree import OPERATIONS_PER_STEP, DataTree, RemoteSession, Transaction
from barnabas.server.metadata.embedded_store import EmbeddedStore
from barnabas.server.metadata.metadata_store import (
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    StoreUnavailableError,
)
from barnabas.server.metadata.sync_request_processor import SyncRequestProcessor
from barnabas.server.metadata.tree_journal import Journal


class RecordingJournal(Journal):
    """What is stored together, and an error where a test wants one."""

    def __init__(self, path: str) -> None:
        super().__init__(path, durable=False)
        self.rounds: list[int] = []
        self.fails = False

    def write(self, transactions: Sequence[Transaction]) -> None:
        if self.fails:
            raise sqlite3.OperationalError("disk I/O error")
        self.rounds.append(len(transactions))
        super().write(transactions)


class HeldWork:
    """A lane on which jobs wait until they are let go."""

    def __init__(self) -> None:
        self.held: list[Callable[[], None]] = []

    def submit(self, lane: str, job: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        def work() -> None:
            try:
                job()
            except sqlite3.Error as error:
                done(None, error)
            else:
                done(None, None)

        self.held.append(work)

    def sync(self, lane: str, files: Sequence[Any], done: Callable[..., None]) -> None:
        raise AssertionError("a store syncs nothing")

    def let_go(self) -> None:
        self.held.pop(0)()

    async def run(self, lane: str, job: Callable[[], Any]) -> Any:
        return job()

    def close(self) -> None:
        self.held.clear()


class Written:
    """A line with two sessions, whose disk takes as long as a test wants."""

    def __init__(self, path: Path) -> None:
        self.journal = RecordingJournal(str(path))
        self.work = HeldWork()
        self.tree = self.journal.load(lambda: 5)
        self.request_processor = SyncRequestProcessor(self.tree, self.journal, self.work)
        self.first, self.second = self.tree.open_session(), self.tree.open_session()
        self.outcomes: list[str] = []

    def write(self, *operations: Create | Delete, session: int = 0) -> None:
        self.request_processor.submit(lambda: self.tree.plan(operations, session or self.first), self.told)

    def told(self, outcome: Transaction | BaseException) -> None:
        self.outcomes.append(str(outcome.zxid) if isinstance(outcome, Transaction) else type(outcome).__name__)


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path / "metadata.sqlite")


def test_what_comes_while_the_disk_is_busy_is_stored_together_and_in_order(written: Written) -> None:
    written.write(Create("/a"))
    for path in ("/a/b", "/a/b", "/a/c"):
        written.write(Create(path), session=written.second)
    written.write(Delete("/a/b"))
    assert written.tree.look("/a") is None
    written.work.let_go()
    assert (written.outcomes, written.tree.look("/a/b")) == (["1"], None)
    written.work.let_go()
    assert written.outcomes == ["1", "2", "NodeExistsError", "3", "4"]
    assert written.journal.rounds == [1, 3]
    assert written.tree.names("/a") == {"c"}


def test_round_that_cannot_be_stored_never_was_and_the_next_one_counts_from_there(written: Written) -> None:
    written.write(Create("/a"))
    written.journal.fails = True
    written.write(Create("/b"))
    written.write(Create("/a/child"))
    written.work.let_go()
    assert written.outcomes == ["StoreUnavailableError"]
    written.journal.fails = False
    written.write(Create("/b/child"))
    written.work.let_go()
    written.work.let_go()
    assert written.outcomes[1:] == ["1", "NoNodeError", "2"]
    assert written.tree.look("/a") is None


def test_session_whose_end_is_on_its_way_writes_nothing_more(written: Written) -> None:
    tree = written.tree
    written.request_processor.submit(lambda: tree.plan_session(RemoteSession(b"password", 1000)), written.told)
    written.work.let_go()
    session = max(tree.remote_sessions)
    written.write(Create("/blocked"))
    written.write(Create("/e", ephemeral=True), session=session)
    written.request_processor.submit(lambda: tree.plan_end_of(session), written.told)
    written.write(Create("/late", ephemeral=True), session=session)
    while written.work.held:
        written.work.let_go()
    assert written.outcomes[-1] == SessionExpiredError.__name__
    assert (tree.look("/e"), tree.look("/late"), tree.remote_sessions) == (None, None, {})


async def test_session_that_has_begun_to_end_is_over_after_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "metadata.sqlite"
    store = EmbeddedStore.open(str(path), now_ms=lambda: 5, keep_sessions=True)
    tree = store.request_processor.tree
    transaction = await store.request_processor.run(lambda: tree.plan_session(RemoteSession(b"password", 1000)))
    session = next(iter(transaction.sessions))
    many = [Create(f"/e{number}", ephemeral=True) for number in range(1500)]
    await store.request_processor.run(lambda: tree.plan(many, session))
    await store.request_processor.run(lambda: tree.plan_end_of(session))
    assert (len(tree.ephemerals_of(session)), tree.remote_session(session)) == (500, None)
    for suffix in ("", "-wal"):
        Path(f"{path}.copy{suffix}").write_bytes(Path(f"{path}{suffix}").read_bytes())
    await store.close()
    after = EmbeddedStore.open(f"{path}.copy", now_ms=lambda: 5, keep_sessions=True)
    assert (await after.children("/"), after.request_processor.tree.remote_sessions) == ([], {})
    await after.close()


def test_node_that_another_session_makes_anew_is_that_sessions(written: Written) -> None:
    written.write(Create("/controller", ephemeral=True))
    written.work.let_go()
    written.write(Delete("/controller"), Create("/controller", b"2", ephemeral=True), session=written.second)
    written.work.let_go()
    assert written.tree.ephemerals_of(written.first) == set()
    assert written.tree.ephemerals_of(written.second) == {"/controller"}


async def test_close_waits_for_what_was_asked_for(written: Written) -> None:
    written.write(Create("/a"))
    written.write(Create("/b"))
    closing = asyncio.create_task(written.request_processor.close())
    await asyncio.sleep(0)
    while written.work.held:
        assert not closing.done()
        written.work.let_go()
    await closing
    assert written.outcomes == ["1", "2"]


async def test_store_of_an_older_release_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "metadata.sqlite"
    old = sqlite3.connect(path)
    old.executescript(
        "CREATE TABLE nodes (path TEXT PRIMARY KEY, data BLOB NOT NULL, version INTEGER NOT NULL, created_children "
        "INTEGER NOT NULL, czxid INTEGER NOT NULL, mzxid INTEGER NOT NULL, created_ms INTEGER NOT NULL, modified_ms "
        "INTEGER NOT NULL, owner INTEGER NOT NULL) WITHOUT ROWID;"
        "CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;"
        "INSERT INTO nodes VALUES ('/', x'', 0, 2, 0, 0, 0, 0, 0), ('/a', x'31', 3, 0, 1, 4, 5, 6, 0), "
        "('/e', x'', 0, 0, 2, 2, 5, 5, 7);"
        "INSERT INTO counters VALUES ('zxid', 9), ('session', 7);"
    )
    old.close()
    for _ in range(2):
        store = EmbeddedStore.open(str(path), now_ms=lambda: 5)
        data, stat = await store.get("/a")
        assert (data, stat.version, stat.czxid, stat.mzxid) == (b"1", 3, 1, 4)
        assert await store.children("/") == ["a"]
        assert store.session_id > 7
        assert await store.exists("/e") is None
        await store.close()


async def test_store_of_a_newer_release_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "metadata.sqlite"
    store = EmbeddedStore.open(str(path), now_ms=lambda: 5)
    await store.create("/a")
    await store.close()
    newer = sqlite3.connect(path)
    newer.execute("ALTER TABLE nodes RENAME TO entries")  # a newer layout may have none of the tables of this one
    newer.execute("PRAGMA user_version=3")
    newer.close()
    before = path.read_bytes()
    with pytest.raises(
        StoreUnavailableError, match=r"newer version of Barnabas \(layout 3, this version reads up to 2\)"
    ):
        EmbeddedStore.open(str(path), now_ms=lambda: 5)
    assert path.read_bytes() == before


async def test_refused_write_leaves_no_plan_behind() -> None:
    tree = DataTree(lambda: 5)
    store = EmbeddedStore(tree)
    with pytest.raises(NoNodeError):
        await store.multi([Create("/a"), Create("/none/b")])
    assert await store.create("/a") == "/a"
    with pytest.raises(NodeExistsError):
        await store.create("/a")


async def test_a_large_write_is_planned_in_several_turns_and_later_writes_follow_it(written: Written) -> None:
    count = 10 * OPERATIONS_PER_STEP
    operations = [Create("/a"), *(Create(f"/a/{number}") for number in range(count))]
    written.request_processor.submit(lambda: written.tree.plan_in_steps(operations, written.first), written.told)
    written.write(Delete("/a/0"))
    turns = 0
    while not written.work.held:
        turns += 1
        await asyncio.sleep(0)
    assert turns >= count // OPERATIONS_PER_STEP
    assert written.tree.look("/a") is None
    written.work.let_go()
    while len(written.outcomes) < 2:
        await asyncio.sleep(0)
    assert written.outcomes == ["1", "2"]
    assert written.journal.rounds == [2]
    assert written.tree.names("/a") == {str(number) for number in range(1, count)}


async def test_small_writes_become_visible_in_several_turns(written: Written) -> None:
    count = 4 * OPERATIONS_PER_STEP
    for number in range(count):
        written.write(Create(f"/{number}"))
    turns = list[int]()
    while len(written.outcomes) < count:
        if written.work.held:
            written.work.let_go()
        turns.append(len(written.outcomes) - sum(turns))
        await asyncio.sleep(0)
    assert max(turns) <= OPERATIONS_PER_STEP
    assert written.outcomes == [str(number) for number in range(1, count + 1)]
