"""Committing by itself: every `auto_commit_interval_ms` while the application reads, before a rebalance, at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from math import inf
from typing import Protocol

from ...protocol.errors import KafkaError
from ...protocol.room_logger import room_logger
from ...protocol.topic_partition import TopicPartition
from ..assignment import Assignment
from ..cluster import ClusterView
from ..errors import RebalanceInProgressError
from .offset_requests import OffsetAndMetadata
from .settings import GroupSettings

logger = room_logger("clients.group")


class Commit(Protocol):
    """Stores offsets. Raises KafkaError."""

    async def __call__(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, timeout_ms: int) -> None: ...


class AutoCommit:
    """What it commits are positions: all before them was returned to the application, which has come back since."""

    def __init__(self, cluster: ClusterView, assignment: Assignment, commit: Commit, settings: GroupSettings) -> None:
        self._cluster = cluster
        self._assignment = assignment
        self._commit = commit
        self._is_on = settings.enable_auto_commit
        self._interval_ms = settings.auto_commit_interval_ms
        self._running: asyncio.Task[None] | None = None
        self.due_at = inf

    def restart(self) -> None:
        """There is a new assignment; its first commit is an interval away."""
        if self._is_on:
            self.due_at = asyncio.get_running_loop().time() + self._interval_ms / 1000

    def maybe_start(self) -> None:
        """Commit beside the application if it is time and the commit before is done."""
        if self.due_at <= asyncio.get_running_loop().time():
            self.restart()
            if self._running is None or self._running.done():
                self._running = asyncio.get_running_loop().create_task(self._attempt(self._interval_ms))

    async def finish(self, *, timeout_ms: int) -> None:
        """Commit what was read so far; wait for it, not longer than `timeout_ms`."""
        if self._running is not None:
            await asyncio.gather(self._running, return_exceptions=True)
            self._running = None
        if self._is_on:
            self.stop()
            await self._attempt(timeout_ms)

    def stop(self) -> None:
        """Until the next `restart`."""
        self.due_at = inf

    async def _attempt(self, timeout_ms: int) -> None:
        offsets = positions(self._assignment)
        try:
            # Offsets of a topic that was deleted would be tried until the time is up.
            known = {tp: at for tp, at in offsets.items() if self._cluster.partition(tp) is not None}
            await self._commit(known, timeout_ms=timeout_ms)
        except RebalanceInProgressError as error:
            logger.debug("auto-commit: %s", error)
        except KafkaError as error:
            logger.warning("auto-commit: %s", error)


def positions(assignment: Assignment) -> dict[TopicPartition, OffsetAndMetadata]:
    """Where the application has come to, as offsets to be committed."""
    return {
        tp: OffsetAndMetadata(state.position, leader_epoch=state.position_epoch)
        for tp, state in assignment.states.items()
        if state.position is not None
    }
