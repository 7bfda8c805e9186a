"""Automatic commits: every `auto_commit_interval_ms` while the application reads, before a rebalance, and at the
end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from math import inf
from typing import Protocol

from ...common.room_logger import room_logger
from ...protocol.errors import KafkaError
from ...protocol.topic_partition import TopicPartition
from ..assignment import Assignment
from ..cluster import ClusterView
from ..errors import RebalanceInProgressError
from .offset_requests import OffsetAndMetadata
from .settings import GroupSettings

logger = room_logger("clients.group")


class Commit(Protocol):
    """Commits offsets. Raises KafkaError."""

    async def __call__(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, timeout_ms: int) -> None: ...


class AutoCommit:
    """Automatic commits of positions: the application has called again, so it has processed all records before them."""

    def __init__(self, cluster: ClusterView, assignment: Assignment, commit: Commit, settings: GroupSettings) -> None:
        self._cluster = cluster
        self._assignment = assignment
        self._commit = commit
        self._is_on = settings.enable_auto_commit
        self._interval_ms = settings.auto_commit_interval_ms
        self._running: asyncio.Task[None] | None = None
        self.due_at = inf

    def restart(self) -> None:
        """Restart the interval after a new assignment."""
        if self._is_on:
            self.due_at = asyncio.get_running_loop().time() + self._interval_ms / 1000

    def maybe_start(self) -> None:
        """Start a background commit if it is due and the previous commit has ended."""
        if self.due_at <= asyncio.get_running_loop().time():
            self.restart()
            if self._running is None or self._running.done():
                self._running = asyncio.get_running_loop().create_task(self._attempt(self._interval_ms))

    async def finish(self, *, timeout_ms: int) -> None:
        """Commit the positions and wait, at most `timeout_ms`."""
        if self._running is not None:
            await asyncio.gather(self._running, return_exceptions=True)
            self._running = None
        if self._is_on:
            self.stop()
            await self._attempt(timeout_ms)

    def stop(self) -> None:
        """Stop until the next `restart`."""
        self.due_at = inf

    async def _attempt(self, timeout_ms: int) -> None:
        offsets = positions(self._assignment)
        try:
            # A commit for a deleted topic would be retried until the timeout.
            known = {tp: at for tp, at in offsets.items() if self._cluster.partition(tp) is not None}
            await self._commit(known, timeout_ms=timeout_ms)
        except RebalanceInProgressError as error:
            logger.debug("auto-commit: %s", error)
        except KafkaError as error:
            logger.warning("auto-commit: %s", error)


def positions(assignment: Assignment) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the positions of the application as offsets to commit."""
    return {
        tp: OffsetAndMetadata(state.position, leader_epoch=state.position_epoch)
        for tp, state in assignment.states.items()
        if state.position is not None
    }
