"""Watches on nodes: one-time watches and persistent ones (ZooKeeper 3.6).

Source: WatchManager and DataTree of Apache ZooKeeper 3.8. As there, a client that watches data and children of a node
receives one event for its deletion.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Protocol

from .metadata_store import EventType

if TYPE_CHECKING:
    from ...protocol.zookeeper.records import Acl
    from .metadata_store import WatchEvent

ENTRY_COST = 200
"""Bytes of memory that a watch takes, about, besides its path."""


class WatchKind:
    """The watched events, as bits of an int: clients that reconnect set tens of thousands of watches together.

    DATA and CHILDREN fire once, PERSISTENT is both without an end.

    RECURSIVE is persistent, too, for all nodes below, without events for their lists of children.
    """

    NONE = 0
    DATA = 1
    CHILDREN = 2
    PERSISTENT = 4
    RECURSIVE = 8
    ANY = 15


ONCE = WatchKind.DATA | WatchKind.CHILDREN

WANTED = {
    EventType.CREATED: WatchKind.DATA | WatchKind.PERSISTENT | WatchKind.RECURSIVE,
    EventType.CHANGED: WatchKind.DATA | WatchKind.PERSISTENT | WatchKind.RECURSIVE,
    EventType.DELETED: WatchKind.DATA | WatchKind.CHILDREN | WatchKind.PERSISTENT | WatchKind.RECURSIVE,
    EventType.CHILDREN: WatchKind.CHILDREN | WatchKind.PERSISTENT,
}
"""The kinds of watches that an event triggers."""


class Watcher(Hashable, Protocol):
    """Called with events. Equal watchers are called once."""

    def process(self, event: WatchEvent, acl: Sequence[Acl]) -> None:
        """Receive an event. A watcher without permission to read by `acl` must not pass it on.

        Must not wait, raise, or write to the tree.
        """


Key = tuple[int, Watcher]


class WatchManager:
    """The watches of one tree, each belonging to a session. Used on the loop's thread only."""

    def __init__(self) -> None:
        self._by_path: dict[str, dict[Key, int]] = {}
        self._by_session: dict[int, dict[tuple[str, Watcher], None]] = {}
        self._costs: Counter[int] = Counter()
        self._recursive = 0
        self.total_cost = 0
        """Bytes of memory for all of them, about."""
        self.max_cost = sys.maxsize
        """The limit for `total_cost`, beyond which a server refuses watches."""

    @property
    def count(self) -> int:
        """The number of pairs of a path and a watcher."""
        return sum(map(len, self._by_session.values()))

    def cost(self, session: int) -> int:
        """Bytes of memory that a session's watches take, about."""
        return self._costs[session]

    def add(self, path: str, session: int, watcher: Watcher, kind: int) -> None:
        """Add a watch to the watches of `watcher`."""
        watches = self._by_path.setdefault(path, {})
        before = watches.get((session, watcher), WatchKind.NONE)
        if not before:
            self._by_session.setdefault(session, {})[path, watcher] = None
            self._costs[session] += len(path) + ENTRY_COST
            self.total_cost += len(path) + ENTRY_COST
        if kind & ~before & WatchKind.RECURSIVE:
            self._recursive += 1
        watches[session, watcher] = before | kind

    def kind_of(self, path: str, session: int, watcher: Watcher) -> int:
        return self._by_path.get(path, {}).get((session, watcher), WatchKind.NONE)

    def remove(self, path: str, session: int, watcher: Watcher, kind: int) -> None:
        before = self.kind_of(path, session, watcher)
        if not before:
            return
        if before & kind & WatchKind.RECURSIVE:
            self._recursive -= 1
        left = before & ~kind
        if left:
            self._by_path[path][session, watcher] = left
            return
        watches = self._by_path[path]
        del watches[session, watcher]
        if not watches:
            del self._by_path[path]
        held = self._by_session[session]
        del held[path, watcher]
        self._costs[session] -= len(path) + ENTRY_COST
        self.total_cost -= len(path) + ENTRY_COST
        if not held:
            del self._by_session[session], self._costs[session]

    def drop(self, session: int) -> None:
        for path, watcher in list(self._by_session.get(session, ())):
            self.remove(path, session, watcher, WatchKind.ANY)

    def fire(self, event: WatchEvent, acl: Sequence[Acl]) -> None:
        """Call each watcher that an event concerns, once."""
        fired: dict[Key, None] = {}
        wanted = WANTED[event.type]
        for key, kind in list(self._by_path.get(event.path, {}).items()):
            if kind & wanted:
                fired[key] = None
                self.remove(event.path, *key, kind & wanted & ONCE)
        if self._recursive and event.type is not EventType.CHILDREN:
            for path in _above(event.path):
                for key, kind in self._by_path.get(path, {}).items():
                    if kind & WatchKind.RECURSIVE:
                        fired[key] = None
        for _, watcher in fired:
            watcher.process(event, acl)


def _above(path: str) -> list[str]:
    """Return the paths of all ancestors, the nearest first."""
    above = []
    while path != "/":
        path = path[: path.rindex("/")] or "/"
        above.append(path)
    return above
