"""The SQLite file under a metadata tree.

Layout (`PRAGMA user_version` 2): table `nodes` has one row per node (path, data, counters, owner, ACLs), `sessions` one
per session of another process, `counters` the last zxid and session id. ACLs are written as ZooKeeper encodes them, and
empty if everyone has all permissions. Before version 2 there were no sessions, no ACLs and no nulls.
Written by: one broker, which holds the database exclusively as long as it runs. A write is one SQLite transaction; with
`synchronous=FULL` on a write-ahead log it is on disk before it is visible or acknowledged; with NORMAL a power loss
may lose the newest ones. A crash can leave: all of a transaction or nothing of it. Recovery: SQLite's own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TypeVar

from ...protocol.zookeeper.jute import decode, encode
from ...protocol.zookeeper.records import Acl, AclList
from ...storage.reserve import Reserve
from .data_tree import DataTree, Node, RemoteSession, Transaction
from .tree_acls import OPEN_ACL

T = TypeVar("T")

LAYOUT = 2
ROWS_PER_STATEMENT = 80
"""Rows of one statement, within the limit of older releases of SQLite of 999 values. SQLite releases the interpreter's
lock for each statement, and while the event loop is busy the lane waits milliseconds until it has it again."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS nodes (
    path TEXT PRIMARY KEY,
    data BLOB,
    version INTEGER NOT NULL,
    created_children INTEGER NOT NULL,
    czxid INTEGER NOT NULL,
    mzxid INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    modified_ms INTEGER NOT NULL,
    owner INTEGER NOT NULL,
    children_zxid INTEGER NOT NULL,
    acl_version INTEGER NOT NULL,
    acl BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sessions (id INTEGER PRIMARY KEY, password BLOB NOT NULL, timeout_ms INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""

FROM_LAYOUT_1 = (
    "ALTER TABLE nodes RENAME TO nodes_1",
    *(statement for statement in SCHEMA.split(";") if "TABLE" in statement),
    "INSERT INTO nodes SELECT path, data, version, created_children, czxid, mzxid, created_ms, modified_ms, owner, "
    "max(czxid, mzxid), 0, x'' FROM nodes_1",
    "DROP TABLE nodes_1",
)


_PRIVATE = 0o600
"""The tree holds hashes of passwords, and passwords that are encrypted: only the broker's user may read the file."""


def _make_private(path: str) -> None:
    """Create the file for this user alone, before SQLite creates it by the umask; restrict an existing file.

    SQLite gives its write-ahead log the mode of the file; a log that a crash left keeps its mode.
    """
    with suppress(OSError):  # if it cannot be created, SQLite reports the reason
        Path(path).touch(mode=_PRIVATE)
    for file in (path, f"{path}-wal", f"{path}-journal"):
        with suppress(OSError):  # there is none, or it belongs to another user
            Path(file).chmod(_PRIVATE)


class Journal:
    """The file, opened. One thread at a time."""

    def __init__(self, path: str, *, durable: bool, lasting: bool = True, reserve: Reserve | None = None) -> None:
        """`reserve` is on the same disk, and is drawn on when that is full. Raises sqlite3.Error."""
        self._reserve = reserve
        _make_private(path)
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0)
        # Exclusive: a second broker on the same file is refused, and no shared-memory file is needed.
        self._connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        self._refuse_newer_layout()
        self._connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL' if lasting else 'OFF'}")
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._prepare()

    def load(self, now_ms: Callable[[], int]) -> DataTree:
        """Read the whole tree, with the sessions that other processes may resume."""
        counters = dict(self._connection.execute("SELECT name, value FROM counters"))
        sessions = {number: RemoteSession(*fields) for number, *fields in self._rows("sessions")}
        nodes = ((path, Node._make((*fields, _read_acl(acl)))) for path, *fields, acl in self._rows("nodes"))
        return DataTree(now_ms, nodes, counters.get("zxid", 0), counters.get("session", 0), sessions)

    def write(self, transactions: Sequence[Transaction]) -> None:
        """Store transactions as one, durably if so opened. On an error nothing of them is stored."""
        try:
            self._together(lambda: self._write(transactions))
        except sqlite3.Error as error:
            if (
                error.sqlite_errorcode != sqlite3.SQLITE_FULL
                or self._reserve is None
                or not self._reserve.release_part()
            ):
                raise
            self._together(lambda: self._write(transactions))

    def close(self) -> None:
        """Fold the write-ahead log into the database and let it go."""
        self._connection.close()

    def _rows(self, table: str) -> sqlite3.Cursor:
        return self._connection.execute(f"SELECT * FROM {table}")  # noqa: S608 - the name is a constant of this module

    def _refuse_newer_layout(self) -> None:
        """Raises sqlite3.DatabaseError. Nothing is read or written before: a newer layout may lack every table here."""
        layout = self._layout()
        if layout > LAYOUT:
            self._connection.close()
            raise sqlite3.DatabaseError(
                f"written by a newer version of Barnabas (layout {layout}, this version reads up to {LAYOUT}). "
                "Start that version or a newer one"
            )

    def _layout(self) -> int:
        layout: int = self._connection.execute("PRAGMA user_version").fetchone()[0]
        return layout

    def _prepare(self) -> None:
        is_new = not self._connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'nodes'").fetchone()
        if is_new:
            self._connection.executescript(SCHEMA)
            self._connection.execute(f"PRAGMA user_version={LAYOUT}")
        elif self._layout() < LAYOUT:
            self._together(self._migrate)

    def _migrate(self) -> None:
        for statement in FROM_LAYOUT_1:
            self._connection.execute(statement)
        self._connection.execute(f"PRAGMA user_version={LAYOUT}")

    def _together(self, work: Callable[[], None]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            work()
            self._connection.execute("COMMIT")
        except sqlite3.Error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def _write(self, transactions: Sequence[Transaction]) -> None:
        changes: dict[str, Node | None] = {}
        sessions: dict[int, RemoteSession | None] = {}
        for transaction in transactions:
            changes |= transaction.changes
            sessions |= transaction.sessions
        self._delete("nodes", "path", [path for path, node in changes.items() if node is None])
        rows = [(path, *node[:-1], _written_acl(node)) for path, node in changes.items() if node is not None]
        self._put("nodes", rows)
        self._delete("sessions", "id", [number for number, one in sessions.items() if one is None])
        self._put("sessions", [(number, *one) for number, one in sessions.items() if one is not None])
        newest = transactions[-1]
        self._put("counters", [("zxid", newest.zxid), ("session", newest.last_session)])

    def _put(self, table: str, rows: Sequence[tuple[object, ...]]) -> None:
        """Insert or replace rows of a table."""
        for some in _portions(rows):
            row = f"({', '.join('?' * len(some[0]))})"
            statement = f"INSERT OR REPLACE INTO {table} VALUES {', '.join([row] * len(some))}"  # noqa: S608 - as above
            self._connection.execute(statement, list(chain.from_iterable(some)))

    def _delete(self, table: str, key: str, values: Sequence[object]) -> None:
        """Delete the rows of a table with these keys."""
        for some in _portions(values):
            keys = ", ".join("?" * len(some))
            self._connection.execute(f"DELETE FROM {table} WHERE {key} IN ({keys})", some)  # noqa: S608 - as above


def _portions(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(rows), ROWS_PER_STATEMENT):
        yield rows[start : start + ROWS_PER_STATEMENT]


def write_copy(path: str, tree: Transaction) -> None:
    """Write a separate database with the nodes of one transaction, and replace an older copy. Raises sqlite3.Error.

    The database is not synced: a backup reads it after this returns, and it is not needed after a crash.
    """
    for suffix in ("", "-wal", "-journal"):
        Path(path + suffix).unlink(missing_ok=True)
    journal = Journal(path, durable=False, lasting=False)
    try:
        journal.write([tree])
    finally:
        journal.close()


def _read_acl(stored: bytes) -> tuple[Acl, ...]:
    return tuple(decode(AclList, stored).acl) if stored else OPEN_ACL


def _written_acl(node: Node) -> bytes:
    return b"" if node.acl is OPEN_ACL else encode(AclList(list(node.acl)))
