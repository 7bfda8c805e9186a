"""Whether a coordinator is still the one, asked of those who would elect another: who was deposed tells of the past.

A record is appended when somebody asks. Once it is committed every replica from which a leader may be elected has
fetched it from this one, in its epoch: nobody led instead when it was asked. Raft's reads (ReadIndex) go by the same
thought; Kafka's coordinators answer from memory, whoever leads by now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from ...protocol.errors import ErrorCode
from .coordinator_log import CoordinatorLog, Entry


class Confirmations:
    """One record on its way in each partition, for all who asked before it was appended. Loop-thread only."""

    def __init__(
        self, log: CoordinatorLog, loop: asyncio.AbstractEventLoop, mark: Entry, timeout_ms: Callable[[], int]
    ) -> None:
        """`mark` is the record: one that means nothing to whoever loads the log, and of which compaction keeps one."""
        self._log = log
        self._loop = loop
        self._mark = mark
        self._timeout_ms = timeout_ms
        self._asked: dict[int, asyncio.Future[bool]] = {}
        """Their record is appended."""
        self._next: dict[int, asyncio.Future[bool]] = {}
        """They have come since."""

    async def is_led(self, index: int) -> bool:
        """Whether this broker led a partition at some time after this was asked; False if nobody knows in time.

        Costs nothing where nobody else is in sync, else one append with acks=-1, two where one is on its way.
        """
        partition = self._log.led(index)
        if partition is None:
            return False
        if partition.followers is None or not partition.followers.heirs:
            return True
        if index not in self._asked:
            return await asyncio.shield(self._ask(index, self._loop.create_future()))
        if index not in self._next:
            self._next[index] = self._loop.create_future()
        return await asyncio.shield(self._next[index])

    def _ask(self, index: int, answer: asyncio.Future[bool]) -> asyncio.Future[bool]:
        self._asked[index] = answer
        self._log.append(index, [self._mark], partial(self._answered, index), timeout_ms=self._timeout_ms())
        return answer

    def _answered(self, index: int, outcome: ErrorCode) -> None:
        is_led = outcome is ErrorCode.NONE
        self._asked.pop(index).set_result(is_led)
        waiting = self._next.pop(index, None)
        if waiting is not None and is_led:
            self._ask(index, waiting)
        elif waiting is not None:
            waiting.set_result(False)
