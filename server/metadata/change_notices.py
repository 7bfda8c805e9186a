"""Notices of changes in the metadata tree, as Kafka leaves them: who writes something adds a node that says what.

A notice carries no values: whoever reads it looks up what is there by then, so that only the newest ever counts.
"""

from __future__ import annotations

from collections.abc import Callable

from ...protocol.room_logger import room_logger
from ..runtime.turns import NOTICES
from .metadata_store import Create, Delete, MetadataStore, StoreError, Watch

logger = room_logger("metadata")

LIFE_MS = 15 * 60 * 1000
"""How long notices are kept, so that every broker has had its time to read them; as Kafka's."""
PURGE_INTERVAL_MS = 60 * 1000


class ChangeNotices:
    """The notices below one node. Every coroutine may raise what a MetadataStore raises. Loop-thread only."""

    def __init__(
        self, store: MetadataStore, prefix: str, *, now_ms: Callable[[], int], most: int | None = None
    ) -> None:
        """`prefix` is the path of a notice up to its number. Of more than `most` the oldest go, however young."""
        self._store = store
        self._prefix = prefix
        self._root, _, self._name = prefix.rpartition("/")
        self._now_ms = now_ms
        self._most = most
        self._next_purge_ms = 0

    def notice(self, data: bytes) -> Create:
        """What is written together with the change."""
        return Create(self._prefix, data, sequential=True)

    async def after(self, newest: str, watch: Watch | None) -> dict[str, bytes]:
        """The notices that came later than the one of that name, by their names, in order; `watch` hears of more."""
        names = [name for name in await self._store.children(self._root, watch) if name > newest and self._is_one(name)]
        found = await self._store.get_many([f"{self._root}/{name}" for name in names])
        return {name: node[0] for name, node in zip(names, found, strict=True) if node is not None}

    def _is_one(self, name: str) -> bool:
        return name.startswith(self._name) and name[len(self._name) :].isdecimal()

    async def purge(self) -> None:
        """Remove those that every broker has read. Called after each change; looks for them now and then.

        The change itself is done: that they could not be removed is no error.
        """
        now_ms = self._now_ms()
        if now_ms < self._next_purge_ms:
            return
        # At once: others change something while this one looks.
        self._next_purge_ms = now_ms + PURGE_INTERVAL_MS
        try:
            names = sorted(filter(self._is_one, await self._store.children(self._root)))
            too_many = 0 if self._most is None else len(names) - self._most
            paths = [f"{self._root}/{name}" for name in names[:NOTICES]]
            found = await self._store.get_many(paths)
            old = [
                Delete(path)
                for number, (path, node) in enumerate(zip(paths, found, strict=True))
                if node is not None and (number < too_many or node[1].created_ms < now_ms - LIFE_MS)
            ]
            if len(old) == NOTICES:
                self._next_purge_ms = now_ms
            await self._store.multi(old)
        except StoreError as error:
            logger.debug("old notices stay for now, another broker may purge them, too: %r", error)
