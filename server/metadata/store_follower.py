"""What others change in the metadata store, read again whenever there may be news of it.

A watch tells of one change, and ends with its session. So watches are set by the readings themselves, and each session
begins with a reading that nobody has told to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ...protocol.room_logger import room_logger
from .metadata_store import MetadataStore, SessionState, StoreError, Watch, WatchEvent

logger = room_logger("metadata")

RETRY_SECONDS = 1.0
"""After which it is looked again when the store could not be read."""


class StoreFollower:
    """Loop-thread only."""

    def __init__(
        self,
        store: MetadataStore,
        what: str,
        read: Callable[[bool], Awaitable[None]],
        *,
        pause_seconds: float = 0.0,
    ) -> None:
        """`read` reads `what` with the watches that `watch` gives, and is told whether a session begins with that.

        Where there is a pause after each reading, not each of many changes at once is looked for.
        """
        self._store = store
        self._what = what
        self._read = read
        self._pause_seconds = pause_seconds
        self._session = self._watched_in = 0
        self._watched: set[str] = set()
        self._news = asyncio.Event()
        self._following: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read, and hear of news from now on. Raises what `read` raises."""
        self._store.on_state_change(self._session_changed)
        await self._read_again()
        self._following = asyncio.ensure_future(self._follow())

    async def close(self) -> None:
        """Hear of nothing more."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    def watch(self, path: str) -> Watch | None:
        """What is to be given to a reading of that path; None while an earlier one still watches it."""
        if path in self._watched:
            return None
        self._watched.add(path)
        return self._told

    def _told(self, event: WatchEvent) -> None:
        self._watched.discard(event.path)
        self._news.set()

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED and self._store.session_id != self._session:
            self._news.set()

    async def _read_again(self) -> None:
        session = self._store.session_id
        if session != self._watched_in:
            self._watched_in = session
            self._watched.clear()
        try:
            await self._read(session != self._session)
        except StoreError:
            # Nobody knows which watches have been set.
            self._watched.clear()
            raise
        self._session = session

    async def _follow(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            if not await self._has_read():
                await asyncio.sleep(RETRY_SECONDS)
                self._news.set()
            await asyncio.sleep(self._pause_seconds)

    async def _has_read(self) -> bool:
        try:
            await self._read_again()
        except (StoreError, ValueError) as error:
            logger.warning("%s cannot be read, another attempt follows: %r", self._what, error)
        except Exception:
            # Whatever it is, what comes later has to be heard of.
            logger.exception("%s cannot be read, another attempt follows", self._what)
        else:
            return True
        return False
