"""A transactional id as its coordinator holds it, and who waits for it."""

from __future__ import annotations

from collections.abc import Callable

from .metadata import TransactionMetadata
from .states import ENDING


class HeldTransaction:
    """`metadata` is what is durable. Loop-thread only."""

    __slots__ = ("_waiting", "is_changing", "is_unloaded", "metadata", "open_since", "transactional_id")

    def __init__(self, transactional_id: str, metadata: TransactionMetadata, time: float) -> None:
        """`time` is the loop's."""
        self.transactional_id = transactional_id
        self.metadata = metadata
        self.open_since = time
        """By the loop's time: since when a transaction that is open has been so here."""
        self.is_unloaded = False
        """This broker does not coordinate it any more."""
        self.is_changing = False
        """A record about it is on its way into the log."""
        self._waiting: dict[Callable[[], None], None] = {}

    @property
    def is_busy(self) -> bool:
        """Whether nothing can be decided now: something has been that is not durable, or not done everywhere."""
        return self.is_changing or self.metadata.state in ENDING

    def is_timed_out(self, now_ms: int, time: float) -> bool:
        """Whether a transaction is open for too long: by the clock on the wall, or by one that nobody sets back."""
        known = self.metadata
        deadline = known.is_timed_out_at
        return deadline is not None and (deadline < now_ms or self.open_since + known.timeout_ms / 1000 < time)

    def when_free(self, work: Callable[[], None]) -> None:
        """Do this once something can be decided again."""
        self._waiting[work] = None

    def no_longer(self, work: Callable[[], None]) -> bool:
        """Do not do this any more; whether it was still to be done."""
        was_waiting = work in self._waiting
        self._waiting.pop(work, None)
        return was_waiting

    def told(self) -> None:
        """It may be free now: those who wait try again."""
        if self._waiting and (self.is_unloaded or not self.is_busy):
            waiting, self._waiting = self._waiting, {}
            for work in waiting:
                work()
