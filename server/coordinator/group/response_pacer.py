"""Responses to members of a group, sent at a pace that leaves the loop to other work."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from ...runtime.loop_sharing import TurnQueue

RESPONSES_PER_PAUSE = 3
"""Responses of rebalances between two pauses. A client that gets one sends its next request immediately, and takes part
in the next rebalance after its heartbeat interval: a thousand members in step would keep the loop busy for a tenth
of a second.
"""
WAITING_RESPONSES_PER_INCREASE = 1000
MORE_RESPONSES_PER_PAUSE = 4
"""The additional responses between two pauses for each `WAITING_RESPONSES_PER_INCREASE` that wait, so that no client
waits for seconds.
"""
PAUSE_SECONDS = 0.001

T = TypeVar("T")


class ResponsePacer:
    """A queue of responses: a few are sent in the next turns of the loop, the others after pauses of milliseconds.

    Owned by the group coordinator and used on the loop's thread only.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, turn_queue: TurnQueue) -> None:
        self._loop = loop
        self._turn_queue = turn_queue
        self._waiting: deque[Callable[[], None]] = deque()

    def extend(self, responses: Iterable[Callable[[], None]]) -> None:
        """Call each of these functions in its turn."""
        was_idle = not self._waiting
        self._waiting.extend(responses)
        if was_idle and self._waiting:
            self._begin()

    def _begin(self) -> None:
        """Send some responses, and then pause."""
        waiting = len(self._waiting)
        increases = (waiting - 1) // WAITING_RESPONSES_PER_INCREASE
        count = min(RESPONSES_PER_PAUSE + MORE_RESPONSES_PER_PAUSE * increases, waiting)
        for left in range(count - 1, -1, -1):
            self._turn_queue.add(partial(self._send, left))

    def _send(self, left: int) -> None:
        if left == 0 and len(self._waiting) > 1:
            self._loop.call_later(PAUSE_SECONDS, self._begin)
        self._waiting.popleft()()


class PacedReply(Generic[T]):
    """The reply function of one request: a call does not send the response, it queues the outcome in the pacer.

    `immediately` sends a response.
    """

    __slots__ = ("_pacer", "_reply")

    def __init__(self, pacer: ResponsePacer, reply: Callable[[T], None]) -> None:
        self._pacer = pacer
        self._reply = reply

    def __call__(self, outcome: T) -> None:
        self._pacer.extend((partial(self._reply, outcome),))

    def immediately(self, outcome: T) -> None:
        """Send an outcome without the queue: for a response that has waited in the queue already."""
        self._reply(outcome)
