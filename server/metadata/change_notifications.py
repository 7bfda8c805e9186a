"""Kafka's ZkNodeChangeNotificationListener: notifications of changes in the metadata tree.

A broker that changes a node adds a notification that names it. A notification contains no values: its readers read the
present ones, so that only the newest apply.
"""

from __future__ import annotations

from collections.abc import Callable

from ...common.room_logger import room_logger
from .metadata_store import Create, Delete, MetadataStore, StoreError, Watch

logger = room_logger("metadata")

NOTIFICATIONS_PER_READ = 1000
"""Change notifications that are read, and deleted, together."""

LIFE_MS = 15 * 60 * 1000
"""The time for which notifications are kept, as in Kafka, so that every broker can read them."""
PURGE_INTERVAL_MS = 60 * 1000


class ChangeNotifications:
    """The notifications below one node. Coroutines raise the errors of MetadataStore. It runs on the loop thread."""

    def __init__(
        self, store: MetadataStore, prefix: str, *, now_ms: Callable[[], int], most: int | None = None
    ) -> None:
        """`prefix` is the path of a notification up to its number. The oldest beyond `most` are deleted at any age."""
        self._store = store
        self._prefix = prefix
        self._root, _, self._name = prefix.rpartition("/")
        self._now_ms = now_ms
        self._most = most
        self._next_purge_ms = 0

    def notification(self, data: bytes) -> Create:
        """Return the operation to write together with the change."""
        return Create(self._prefix, data, sequential=True)

    async def after(self, newest: str, watch: Watch | None) -> dict[str, bytes]:
        """Return the notifications after the one of that name, by name, in order; `watch` is called for later ones."""
        names = [name for name in await self._store.children(self._root, watch) if name > newest and self._is_one(name)]
        found = await self._store.get_many([f"{self._root}/{name}" for name in names])
        return {name: node[0] for name, node in zip(names, found, strict=True) if node is not None}

    def _is_one(self, name: str) -> bool:
        return name.startswith(self._name) and name[len(self._name) :].isdecimal()

    async def purge(self) -> None:
        """Delete expired notifications. Called after each change; reads them once per `PURGE_INTERVAL_MS`.

        The change itself is complete: a failed deletion is not an error.
        """
        now_ms = self._now_ms()
        if now_ms < self._next_purge_ms:
            return
        # Before the first await: other changes may call this during the read.
        self._next_purge_ms = now_ms + PURGE_INTERVAL_MS
        try:
            names = sorted(filter(self._is_one, await self._store.children(self._root)))
            too_many = 0 if self._most is None else len(names) - self._most
            paths = [f"{self._root}/{name}" for name in names[:NOTIFICATIONS_PER_READ]]
            found = await self._store.get_many(paths)
            old = [
                Delete(path)
                for number, (path, node) in enumerate(zip(paths, found, strict=True))
                if node is not None and (number < too_many or node[1].created_ms < now_ms - LIFE_MS)
            ]
            if len(old) == NOTIFICATIONS_PER_READ:
                self._next_purge_ms = now_ms
            await self._store.multi(old)
        except StoreError as error:
            logger.debug("cannot delete old notifications now: %r", error)
