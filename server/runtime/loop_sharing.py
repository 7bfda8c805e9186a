"""Long work on the event loop, done in slices so that other requests are served between them.

Three forms, by the shape of the work:

* `SlicedWork` runs a generator for `SLICE_SECONDS` per turn of the loop. For requests that answer by a callback.
* `CountBudget` and `TimeBudget` make a coroutine yield to the loop: `await budget.step()` after each item. A count is
  cheaper than a clock where all items cost about the same.
* `TurnQueue` does one queued callback per turn. For small requests that thousands of clients send at the same moment.

The number of items per turn is a constant next to the work, with its unit in its name (`GROUPS_PER_TURN`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import TypeAlias, TypeVar

from .ports import no_collection

T = TypeVar("T")

SLICE_SECONDS = 0.002
"""Per turn of the loop, for all sliced work of a broker together: other requests hardly notice two milliseconds, and a
request of a hundred thousand items is answered after a hundred turns."""
SHORT_SLICE_SECONDS = 0.0003
"""A slice of long work that is not urgent: ten thousand partitions are created without a request that takes twice its
time."""
ITEMS_PER_TURN = 200
"""Items of one request whose handling takes some microseconds each."""
NAME_CHARACTERS_PER_STEP = 500
"""Characters of a group id or transactional id whose hash costs as much as another item."""
PIECES_PER_COLLECTION = 16
"""Queued callbacks between two calls of the garbage collector. They create members, timers and waiting requests, which
are kept. The collector examines new objects when two hundred more were created than freed. Where as many members leave
as join it does not run for long, and then examines ten thousand objects in one run of milliseconds."""

Steps: TypeAlias = Generator[None, None, T]
"""Work with a result that is interrupted at each `yield`: any state may have changed after that."""


async def next_turn() -> None:
    """Yield to the loop until its next turn."""
    await asyncio.sleep(0)


def lookup_steps(name: str) -> int:
    """Return the number of items that the lookup of this name counts as: names of 32 KB are legal, and hashed."""
    return 1 + len(name) // NAME_CHARACTERS_PER_STEP


def raise_error(_: object, error: BaseException | None) -> None:
    """Raise the error, as the `done` of sliced work without a result: the loop reports it."""
    if error is not None:
        raise error


def _wake(turn: asyncio.Future[None]) -> None:
    # The coroutine may have been cancelled.
    if not turn.done():
        turn.set_result(None)


class CountBudget:
    """A number of items that a coroutine handles per turn of the loop."""

    __slots__ = ("_done", "_items")

    def __init__(self, items: int = ITEMS_PER_TURN) -> None:
        self._items = items
        self._done = 0

    async def step(self, items: int = 1) -> None:
        """Count items that are done; yield to the loop if they use up the budget of this turn."""
        self._done += items
        if self._done >= self._items:
            await self.rest()

    async def rest(self) -> None:
        """Yield to the loop and begin a new budget."""
        self._done = 0
        await next_turn()


class TimeBudget:
    """`SLICE_SECONDS` per turn of the loop for a coroutine whose items differ in cost."""

    __slots__ = ("_end", "_items", "_least", "_left", "_stopwatch")

    def __init__(
        self, stopwatch: Callable[[], float], *, least: float = SLICE_SECONDS, items: int = ITEMS_PER_TURN
    ) -> None:
        """`stopwatch` is that of `SlicedWork`. At most `items` are handled per turn.

        With a smaller `least`, a slice is as long as the turn of the loop before it without this coroutine, and from
        `least` to `SLICE_SECONDS`: other requests take at most twice their time, and a busy loop does not stretch the
        work much more.
        """
        self._stopwatch = stopwatch
        self._least = least
        self._items = self._left = items
        self._end = stopwatch() + least

    async def step(self) -> None:
        """Yield to the loop if the time or the items of this turn are used up."""
        self._left -= 1
        now = self._stopwatch()
        if now >= self._end or self._left <= 0:
            await next_turn()
            began = self._stopwatch()
            self._end = began + min(max(began - now, self._least), SLICE_SECONDS)
            self._left = self._items

    async def complete(self, steps: Steps[T]) -> T:
        """Run all steps, each as an item, and return their result."""
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                result: T = stop.value
                return result
            await self.step()


class TurnQueue:
    """A queue of callbacks, one of which is called per turn of the loop. Use it on the loop's thread only.

    Thousands of clients may send a request at the same moment, and each sends the next when it gets its response. A
    turn then lasts as long as one of these requests, not as long as all of them.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, collect_new: Callable[[], object]) -> None:
        """`collect_new` runs the garbage collector over new objects, after each `PIECES_PER_COLLECTION` callbacks."""
        self._loop = loop
        self._collect_new = collect_new
        self._waiting: deque[Callable[[], None]] = deque()
        self._uncollected = 0

    def add(self, work: Callable[[], None]) -> None:
        """Call `work` after all earlier callbacks. The loop reports an exception of `work`."""
        if not self._waiting:
            self._loop.call_soon(self._run_next)
        self._waiting.append(work)

    def _run_next(self) -> None:
        if self._uncollected == PIECES_PER_COLLECTION:
            self._uncollected = 0
            self._loop.call_soon(self._run_next)
            self._collect_new()
            return
        self._uncollected += 1
        work = self._waiting.popleft()
        # Before the call, which may raise.
        if self._waiting:
            self._loop.call_soon(self._run_next)
        work()


class SlicedWork:
    """The long work of all requests of a broker: `SLICE_SECONDS` of it per turn. Use it on the loop's thread only."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stopwatch: Callable[[], float]) -> None:
        """`stopwatch` is a clock in seconds. It moves within a turn: otherwise a turn would never end."""
        self._turn_queue = TurnQueue(loop, no_collection)
        self._stopwatch = stopwatch

    def run(self, steps: Steps[T], done: Callable[[T | None, Exception | None], None]) -> None:
        """Begin immediately; `done` gets the result or the error, before this returns if one turn is enough."""
        end = self._stopwatch() + SLICE_SECONDS
        result, failure = None, None
        try:
            while self._stopwatch() < end:
                next(steps)
            self._turn_queue.add(partial(self.run, steps, done))
            return
        except StopIteration as stop:
            result = stop.value
        except Exception as error:  # noqa: BLE001 - handed to `done`, whose owner decides
            failure = error
        try:
            done(result, failure)
        finally:
            del failure  # its traceback refers to this frame: a reference cycle for each piece of work that fails

    async def complete(self, steps: Steps[T]) -> T:
        """Run the steps from a coroutine and return their result, without a wait if one turn is enough."""
        stopwatch = self._stopwatch
        while True:
            end = stopwatch() + SLICE_SECONDS
            try:
                while stopwatch() < end:
                    next(steps)
            except StopIteration as stop:
                result: T = stop.value
                return result
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._turn_queue.add(partial(_wake, turn))
            await turn

    def run_later(self, work: Callable[[], None]) -> None:
        """Call `work` in a later turn, one callback per turn."""
        self._turn_queue.add(work)
