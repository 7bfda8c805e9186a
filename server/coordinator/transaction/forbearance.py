"""Waiting for a transaction that is about to end, as the next one of its producer begins: a matter of milliseconds.

To be sent away and ask again takes a producer longer (`retry.backoff.ms`, `add.partitions.to.txn.retry.backoff.ms`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

WAIT_SECONDS = 0.1
"""How long a producer is waited for (`add.partitions.to.txn.retry.backoff.max.ms`)."""


class Waiters(Protocol):
    """Where one can wait: `TransactionCoordinator`, or all of them."""

    def when_free(self, transactional_id: str, work: Callable[[], None]) -> None: ...
    def no_longer(self, transactional_id: str, work: Callable[[], None]) -> bool: ...


class Forbearance:
    """Of one request. Loop-thread only."""

    def __init__(
        self,
        waiters: Waiters,
        loop: asyncio.AbstractEventLoop,
        transactional_id: str,
        *,
        attempt: Callable[[], None],
        give_up: Callable[[], None],
    ) -> None:
        """`attempt` is made again each time it may succeed, and `give_up` called if it may not in time."""
        self._waiters = waiters
        self._loop = loop
        self._transactional_id = transactional_id
        self._attempt = attempt
        self._give_up = give_up
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False

    def wait(self) -> bool:
        """An attempt came too early: there will be another one, unless this says that it has been long enough."""
        if self._is_over:
            return False
        if self._timer is None:
            self._timer = self._loop.call_later(WAIT_SECONDS, self._too_late)
        self._waiters.when_free(self._transactional_id, self._attempt)
        return True

    def end(self) -> None:
        """An attempt had another outcome."""
        if self._timer is not None:
            self._timer.cancel()
        self._let_go()

    def _too_late(self) -> None:
        self._is_over = True
        if self._waiters.no_longer(self._transactional_id, self._attempt):
            self._give_up()
            self._let_go()

    def _let_go(self) -> None:
        """Whoever made the attempts has this, and would otherwise stay for as long as this has them."""
        self._attempt = self._give_up = _nothing


def _nothing() -> None:
    pass
