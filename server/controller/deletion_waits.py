"""Who asks for a deletion waits until it is done: Kafka's DelayedDeleteTopics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from ...protocol.room_logger import room_logger
from ..metadata.metadata_store import StoreError
from ..metadata.topic_store import TopicStore
from .context import ControllerContext
from .topic_deletion import TopicDeletion

logger = room_logger("controller")

LOOK_SECONDS = 0.25
"""Between two looks into the store for what another controller has deleted."""


class DeletionWaits:
    """Loop-thread only."""

    def __init__(self, context: ControllerContext, store: TopicStore, deletion: TopicDeletion) -> None:
        self._context = context
        self._store = store
        self._deletion = deletion
        self._progress = asyncio.Event()

    def look_again(self) -> None:
        """Something has become of deletions, or of the term."""
        self._progress.set()
        self._progress = asyncio.Event()

    async def until_deleted(self, names: Iterable[str], timeout_ms: float, in_office: Callable[[], bool]) -> set[str]:
        """Those of topics whose deletion has begun that brokers which are there have not deleted after that time.

        What one of them has answered that it cannot delete is not waited for, but it keeps no others back. `in_office`
        is whether the term lasts in which the deletion began; after that the marks in the store tell how far whoever is
        controller has come.
        """
        left = self._unfinished(names)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while in_office() and any(not self._deletion.is_stuck(name) for name in left):
                    await self._progress.wait()
                    left = self._unfinished(left) if in_office() else left
                while left and not in_office():
                    left = await self._still_marked(left)
                    await asyncio.sleep(LOOK_SECONDS if left else 0)
        except TimeoutError:
            logger.info("topics are not deleted in time: %s", ", ".join(sorted(left)))
        return left

    def _unfinished(self, names: Iterable[str]) -> set[str]:
        doomed, deletion = self._context.doomed, self._deletion
        return {name for name in names if name in doomed and not deletion.waits_for_absent(name)}

    async def _still_marked(self, names: set[str]) -> set[str]:
        try:
            return names & set(await self._store.topics_to_delete())
        except StoreError as error:
            logger.info("whether topics are deleted cannot be read: %r", error)
            return names
