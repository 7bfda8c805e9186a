"""Answers to members, sent at a pace that leaves the loop to others."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from ...runtime.turns import ANSWERS, MANY_ANSWERS, MORE_ANSWERS, PAUSE_SECONDS

if TYPE_CHECKING:
    from ...runtime.turns import Turns

T = TypeVar("T")


class Answers:
    """Answers on their way: sent when it is their turn or, if they are many, in milliseconds after that.

    Loop-thread only.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, turns: Turns) -> None:
        self._loop = loop
        self._turns = turns
        self._waiting: deque[Callable[[], None]] = deque()

    def later(self, reply: Callable[[T], None]) -> Later[T]:
        """A function that calls `reply` with what it is given, when it is its turn."""
        return Later(self, reply)

    def extend(self, answers: Iterable[Callable[[], None]]) -> None:
        """Call each of these when it is its turn."""
        was_idle = not self._waiting
        self._waiting.extend(answers)
        if was_idle and self._waiting:
            self._begin()

    def _begin(self) -> None:
        """Send some, and then pause."""
        waiting = len(self._waiting)
        count = min(ANSWERS + MORE_ANSWERS * ((waiting - 1) // MANY_ANSWERS), waiting)
        for left in range(count - 1, -1, -1):
            self._turns.add(partial(self._send, left))

    def _send(self, left: int) -> None:
        if left == 0 and len(self._waiting) > 1:
            self._loop.call_later(PAUSE_SECONDS, self._begin)
        self._waiting.popleft()()


class Later(Generic[T]):
    """How to answer a request: call it with the outcome, which is sent when it is its turn."""

    __slots__ = ("_answers", "now")

    def __init__(self, answers: Answers, reply: Callable[[T], None]) -> None:
        self._answers = answers
        self.now = reply
        """Sends an outcome at once: for what has been waiting for its turn itself."""

    def __call__(self, outcome: T) -> None:
        self._answers.extend((partial(self.now, outcome),))
