"""Confirmation that this broker still leads a coordinator's partition, before it answers a read from memory.

A record is appended for the read. Once it is committed, each replica from which a leader may be elected has fetched it
in this leader's epoch, so that no other broker led the partition when the read arrived. Raft's ReadIndex rests on the
same argument; Kafka's coordinators answer from memory without such a check.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from ...protocol.errors import ErrorCode
from .coordinator_log import CoordinatorLog, CoordinatorRecord


class LeadershipBarrier:
    """One marker record in flight for each partition, shared by all reads that arrived before its append.

    Owned by a coordinator and used on the loop's thread only.
    """

    def __init__(
        self,
        log: CoordinatorLog,
        loop: asyncio.AbstractEventLoop,
        marker: CoordinatorRecord,
        timeout_ms: Callable[[], int],
    ) -> None:
        """Use `marker` as the record: it changes no state when it is loaded, and compaction keeps one of it."""
        self._log = log
        self._loop = loop
        self._marker = marker
        self._timeout_ms = timeout_ms
        self._in_flight: dict[int, asyncio.Future[bool]] = {}
        """The reads whose marker is appended, by partition."""
        self._waiting: dict[int, asyncio.Future[bool]] = {}
        """The reads that arrived after that append."""

    async def confirm_leadership(self, index: int) -> bool:
        """Return whether this broker led a partition at some time after this call; False if that is not known in time.

        Free of cost where no other replica is electable; otherwise one append with acks=-1, or two if there
        is an append in flight.
        """
        partition = self._log.get_leader_partition(index)
        if partition is None:
            return False
        if partition.followers is None or not partition.followers.other_electable_replicas:
            return True
        if index not in self._in_flight:
            return await asyncio.shield(self._append(index, self._loop.create_future()))
        if index not in self._waiting:
            self._waiting[index] = self._loop.create_future()
        return await asyncio.shield(self._waiting[index])

    def _append(self, index: int, reads: asyncio.Future[bool]) -> asyncio.Future[bool]:
        self._in_flight[index] = reads
        self._log.append(index, [self._marker], partial(self._complete, index), timeout_ms=self._timeout_ms())
        return reads

    def _complete(self, index: int, outcome: ErrorCode) -> None:
        is_leader = outcome is ErrorCode.NONE
        self._in_flight.pop(index).set_result(is_leader)
        waiting = self._waiting.pop(index, None)
        if waiting is not None and is_leader:
            self._append(index, waiting)
        elif waiting is not None:
            waiting.set_result(False)
