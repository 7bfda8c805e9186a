"""Reads a part of the metadata store again whenever another broker may have changed it.

A watch reports one change and ends with its session. Therefore each read sets the watches again, and each session
begins with a read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ...common.room_logger import room_logger
from .metadata_store import MetadataStore, SessionState, StoreError, Watch, WatchEvent

logger = room_logger("metadata")

RETRY_SECONDS = 1.0
"""Pause before the next read when the store could not be read."""


class StoreFollower:
    """A follower of one part of the store. It runs on the loop thread."""

    def __init__(
        self,
        store: MetadataStore,
        what: str,
        read: Callable[[bool], Awaitable[None]],
        *,
        pause_seconds: float = 0.0,
    ) -> None:
        """`read` reads `what` with the watches that `watch` returns; its argument is whether a session begins.

        A pause after each read combines many changes in one read.
        """
        self._store = store
        self._what = what
        self._read = read
        self._pause_seconds = pause_seconds
        self._session = self._watched_in = 0
        self._watched: set[str] = set()
        self._has_changes = asyncio.Event()
        self._following: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read, and follow changes from now on. Raises the errors of `read`."""
        self._store.on_state_change(self._session_changed)
        await self._read_again()
        self._following = asyncio.ensure_future(self._follow())

    async def close(self) -> None:
        """Stop following."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    def watch(self, path: str) -> Watch | None:
        """Return the watch for a read of the path; None while an earlier watch is set."""
        if path in self._watched:
            return None
        self._watched.add(path)
        return self._changed

    def _changed(self, event: WatchEvent) -> None:
        self._watched.discard(event.path)
        self._has_changes.set()

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED and self._store.session_id != self._session:
            self._has_changes.set()

    async def _read_again(self) -> None:
        session = self._store.session_id
        if session != self._watched_in:
            self._watched_in = session
            self._watched.clear()
        try:
            await self._read(session != self._session)
        except StoreError:
            # Some watches may not have been set.
            self._watched.clear()
            raise
        self._session = session

    async def _follow(self) -> None:
        while True:
            await self._has_changes.wait()
            self._has_changes.clear()
            if not await self._has_read():
                await asyncio.sleep(RETRY_SECONDS)
                self._has_changes.set()
            await asyncio.sleep(self._pause_seconds)

    async def _has_read(self) -> bool:
        try:
            await self._read_again()
        except (StoreError, ValueError) as error:
            logger.warning("cannot read %s; retrying: %r", self._what, error)
        except Exception:
            # After a bug in `read`, later changes must still be followed.
            logger.exception("cannot read %s; retrying", self._what)
        else:
            return True
        return False
