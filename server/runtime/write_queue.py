"""Appends to a slow disk: few per turn of the loop and in their order. Other requests are served between them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Generator
from contextlib import closing
from typing import Protocol

MIN_COUNTED_SECONDS = 0.001
"""The shortest append that counts. An append takes microseconds if the page cache accepts it immediately."""
SECONDS_PER_TURN = 0.05
"""The time for counted appends in one turn of the loop; the last append may exceed it."""
BLOCKED_SECONDS = 0.01
"""The shortest append after which there is a pause. The kernel has blocked it: the processor needs less time for it."""
PAUSE = 0.1
"""The length of a pause, as a part of the time of the appends before it. Other requests may need more than one turn:
the loop accepts one connection per turn, and a client's next request arrives some turns after a response."""
MAX_PAUSE_SECONDS = 0.02


class Writer(Protocol):
    """An object that waits in the `WriteQueue`."""

    def continue_writing(self) -> None:
        """Append the records that have waited, or nothing if the writer has ended."""

    def abort(self) -> None:
        """End after an exception of `continue_writing`."""


JoinWriters = Callable[[Collection[Writer], set[Writer]], Generator[Writer, None, None]]
"""Appends requests of several waiting writers together, and adds these writers to the set. Yields the first writer of
each group before the group is appended: all writers before it are then handled, or the iterator is closed."""


def join_nothing(_writers: Collection[Writer], _done: set[Writer]) -> Generator[Writer, None, None]:
    """Have all writers handled one by one, as a `JoinWriters`."""
    yield from ()


class WriteQueue:
    """The requests that wait to append while the disk is slow, in their order. Owned by the broker; used on the loop's
    thread.

    The loop's thread writes the appends, and the kernel blocks a writer while the disk cannot keep up. If all requests
    of a turn were handled, each write would delay every other client. When the appends of a turn have taken
    `SECONDS_PER_TURN`, requests that append therefore wait at the end of this queue. They continue after a pause, in
    which the loop serves all other requests. No later request is appended before them, except together with the first
    one.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.must_wait = False
        """Whether a request that appends has to wait."""
        self.join: JoinWriters = join_nothing
        self._loop = loop
        self._waiting: deque[Writer] = deque()
        self._seconds = 0.0
        """The time of the counted appends of this turn."""
        self._longest = 0.0
        """The time of the longest of them."""
        self._is_turn_used_up = False
        """Whether nothing is appended until `_end_pause`."""
        self._is_turn_of_task = False
        """Whether a background task has waited for this turn."""
        self._pause: asyncio.Handle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add_time(self, seconds: float) -> None:
        """Count an append that took at least `MIN_COUNTED_SECONDS`."""
        if not self._seconds:
            self._loop.call_soon(self._end_turn)
        self._seconds += seconds
        self._longest = max(self._longest, seconds)
        if self._seconds >= SECONDS_PER_TURN:
            self._is_turn_used_up = self.must_wait = True
            self._is_turn_of_task = False

    def wait(self, writer: Writer) -> None:
        """Call `continue_writing` of this writer after all writers that have waited longer."""
        assert self.must_wait, "it may append immediately"
        self._waiting.append(writer)

    async def wait_for_turn(self) -> None:
        """Return when the caller, which appends in a background task, may append.

        A task that has waited may then append until the end of the turn, or until the time of the turn is used up.
        """
        if self.must_wait and not self._is_turn_of_task:
            turn: asyncio.Future[None] = self._loop.create_future()
            self.wait(_TaskTurn(turn, self._leave_turn_to_task))
            await turn

    # -- private ---------------------------------------------------------------------------------------------------

    def _end_turn(self) -> None:
        seconds, self._seconds = self._seconds, 0.0
        longest, self._longest = self._longest, 0.0
        self._is_turn_of_task = False
        if self._is_turn_used_up:
            if self._pause is not None:
                self._pause.cancel()  # a background task has appended during the pause
            if longest < BLOCKED_SECONDS:
                self._pause = self._loop.call_soon(self._end_pause)  # the loop serves all sockets before that
            else:
                # Not earlier: uvloop measures a delay from the beginning of the turn, which may have been long ago.
                self._pause = self._loop.call_later(min(seconds * PAUSE, MAX_PAUSE_SECONDS), self._end_pause)

    def _end_pause(self) -> None:
        self._pause = None
        self._is_turn_used_up = False
        self._continue()

    def _leave_turn_to_task(self) -> None:
        """Append nothing else before the task that has been resumed, which runs in the next turn of the loop."""
        self._is_turn_used_up = self._is_turn_of_task = True
        if not self._seconds:
            self._loop.call_soon(self._end_turn)
            self._seconds = MIN_COUNTED_SECONDS

    def _continue(self) -> None:
        """Handle the writers that wait now, until the time of this turn is used up."""
        if self._is_turn_used_up:
            return  # `_end_pause` follows
        left, self._waiting = self._waiting, deque()
        done: set[Writer] = set()
        try:
            self._continue_together(left, done)
            self._continue_before(None, left, done)
        finally:
            self._waiting.extendleft(reversed([writer for writer in left if writer not in done]))
            if not self._is_turn_used_up:
                if self._waiting:
                    # After the next turn, in which the loop serves all sockets.
                    self._loop.call_soon(self._loop.call_soon, self._continue)
                else:
                    self.must_wait = False

    def _continue_together(self, left: deque[Writer], done: set[Writer]) -> None:
        """Handle the groups of writers that `join` finds, and the writers before each."""
        try:
            with closing(self.join(tuple(left), done)) as firsts:
                for first in firsts:
                    self._continue_before(first, left, done)
                    if self._is_turn_used_up:
                        break
        except Exception as error:  # noqa: BLE001 - the writers are handled one by one
            self._report(error)

    def _continue_before(self, first: Writer | None, left: deque[Writer], done: set[Writer]) -> None:
        """Handle the writers before `first` one by one, until the time of this turn is used up.

        With None all writers are handled.
        """
        while left and left[0] is not first and not self._is_turn_used_up:
            writer = left.popleft()
            if writer in done:
                continue
            done.add(writer)
            try:
                writer.continue_writing()
            except Exception as error:  # noqa: BLE001 - the requests of the other writers are handled
                self._report(error)
                writer.abort()

    def _report(self, error: Exception) -> None:
        message = "an append that has waited for the disk failed"
        self._loop.call_exception_handler({"message": message, "exception": error})


class WaitingAppend:
    """A `Writer` that calls a function."""

    def __init__(self, append: Callable[[], None]) -> None:
        self.continue_writing = append

    def abort(self) -> None:
        """Do nothing: the loop has reported the exception."""


class _TaskTurn:
    """A `Writer` for a task that waits for its turn."""

    def __init__(self, turn: asyncio.Future[None], on_resumed: Callable[[], None]) -> None:
        self._turn = turn
        self._on_resumed = on_resumed

    def continue_writing(self) -> None:
        if not self._turn.done():  # the task may have been cancelled
            self._turn.set_result(None)
            self._on_resumed()

    def abort(self) -> None:
        raise AssertionError("`continue_writing` raises nothing")
