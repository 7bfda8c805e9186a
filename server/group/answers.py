"""Answers to members, sent at a pace that leaves the loop to others."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Generic, TypeVar

T = TypeVar("T")

ANSWERS_A_TURN, TURN_S = 3, 0.001
"""Answers of rebalances are sent at this pace. Whoever gets one asks for more at once, and for the next rebalance after
its heartbeat interval: a thousand members in step would keep the loop busy for a tenth of a second each time."""
MORE_ANSWERS, MANY_ANSWERS = 4, 1000
"""So many more are sent in a turn for each so many that wait: all groups at once shall not have to wait for seconds."""


class Answers:
    """Answers on their way: sent in the loop's next turn or, if they are many, in milliseconds after it.

    Loop-thread only.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()

    def later(self, reply: Callable[[T], None]) -> Later[T]:
        """What is given to it is told to `reply` when it is its turn."""
        return Later(self, reply)

    def extend(self, answers: Iterable[Callable[[], None]]) -> None:
        """Call each of these when it is its turn."""
        if not self._waiting:
            self._loop.call_soon(self._send)
        self._waiting.extend(answers)

    def _send(self) -> None:
        """Some at a time, so that others are served while a thousand members of a group are answered."""
        waiting = len(self._waiting)
        for _ in range(min(ANSWERS_A_TURN + MORE_ANSWERS * ((waiting - 1) // MANY_ANSWERS), waiting)):
            self._loop.call_soon(self._waiting.popleft())
        if self._waiting:
            self._loop.call_later(TURN_S, self._send)


class Later(Generic[T]):
    """How to answer a request: call it with the outcome, which is sent when it is its turn."""

    __slots__ = ("_answers", "now")

    def __init__(self, answers: Answers, reply: Callable[[T], None]) -> None:
        self._answers = answers
        self.now = reply
        """Sends an outcome at once: for what has been waiting for its turn itself."""

    def __call__(self, outcome: T) -> None:
        self._answers.extend((partial(self.now, outcome),))
