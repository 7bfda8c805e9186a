"""Sharing the loop: work that is long is done a piece in each turn of it, so that others are served in between.

Every budget of such work stands here, each with its reason. Work whose pieces may be of any length goes by the time
they take (`LongWork`, and `Stint` for coroutines); coroutines that do many small things of one kind go by their number
(`Pace`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import TypeAlias, TypeVar

from .ports import no_collection

T = TypeVar("T")

LONG_WORK_SECONDS = 0.002
"""Of long requests, all together, in one turn: others hardly notice two milliseconds, and a request of a
hundred thousand items has its answer after a hundred turns."""
FLUSHED_SECONDS = 0.001
"""For partitions that are told that their appends are on disk: those who wait for that are answered in the same turn.
"""
PIECES_A_COLLECTION = 16
"""What this work leaves behind stays: members, timers, requests that wait. The garbage collector looks at new objects
when two hundred more have come than gone. Where members come and as many go it does not look for long, and then at ten
thousand at once, for milliseconds. So it is called after so many pieces."""

RECORDS = 20
"""Records of a coordinator's log taken in while it is loaded: a twentieth of a millisecond."""
OFFSETS = 10
"""Groups and committed offsets that are made of loaded records: what comes to stay costs the collector's time, too."""
GROUPS = 20
"""Groups that begin to be served after loading, or are looked through for offsets that have expired."""
MEMBERS = 100
"""Members of a group written down at the end of a rebalance: a quarter of a millisecond."""
CONNECTIONS = 100
"""Connections looked at for limits, once a second for each."""
RESOURCES = 20
"""Resources whose settings are changed, each after a look at all that it has."""
ITEMS = 200
"""Items of one request that a coroutine deals with, each in some microseconds."""
NAME_CHARACTERS = 500
"""Of a group's name or a transactional id, all of which is hashed: as much work as an item."""
FETCHED_PARTITIONS = 500
"""Partitions of one fetch that are read, or whose answers are made: a millisecond or two where there are more."""
SENT_BYTES = 4 << 20
"""Sent of one answer with stretches of files, however quickly its client reads."""
RETAINED_LOGS, RETAINED_SEGMENTS = 64, 64
"""Logs that retention looks at, of each at the segments that are oldest; and segments of all of them whose files it
renames: each has four."""
WISHES = 50
"""Wishes for topics that are judged, their settings included."""
PARTITIONS_TOLD = 500
"""Partitions that other brokers are told of in one request: they take some milliseconds to believe them."""
WRITTEN_PARTITIONS = 500
"""Partitions in one write of a store that others share, as ZooKeeper takes a megabyte at most, and in one order to
another broker."""
ORDERS = 32
"""Orders to lead a partition that are carried out: for a new one files are made."""
TOPIC_SETTINGS = 100
"""Topics whose settings are asked for together, as they have come with orders."""
STATES = 500
"""States of partitions read together: topic by topic each would wait for the store."""
MARKERS = 100
"""Ends of transactions written into partitions: each takes some tens of microseconds."""
MARKED_PARTITIONS, ASKED_TRANSACTIONS = 2000, 1000
"""Partitions, of all markers together, that another broker is asked to mark in one request, and transactions that it is
asked about: some milliseconds of work at either end."""
EXPIRED_IDS = 100
"""Transactional ids that are forgotten with one batch of tombstones."""
CHANGED_PATTERNS, CHANGED_RULES = 50, 2000
"""Patterns whose rules of access are changed together, and their rules of before and after, unless it is one: some
milliseconds of the loop, and one sync."""
COMMITTED_PARTITIONS, COMMITTED_GROUP = 5000, 20
"""Partitions whose committed offset is looked up or deleted; a group counts as so many of them."""
TOMBSTONES = 500
"""Of one group's offsets whose topics are gone, written together: a millisecond, and less than a batch may be."""
SAMPLES = 50
"""Samples of metrics that are read: quantiles of some histograms, or some logs."""
ACCEPTED = 20
"""Connections with TLS that are accepted."""
COMPARED_CONNECTIONS = 1000
"""Connections that are compared to close one in favour of another: a fifth of a millisecond."""
LOOKED_FOR_IDLE = 20
"""Groups or transactional ids of a client at its limit that are looked at for one that can go."""
ANSWERS, PAUSE_SECONDS = 3, 0.001
"""Answers of rebalances are sent at this pace. Whoever gets one asks for more at once, and for the next rebalance after
its heartbeat interval: a thousand members in step would keep the loop busy for a tenth of a second each time."""
MORE_ANSWERS, MANY_ANSWERS = 4, 1000
"""For each `MANY_ANSWERS` that wait, so many more are sent together, so that nobody waits for seconds."""
TOKENS = 100
"""Delegation tokens that are read together: one by one each would wait for the store."""
NOTICES = 1000
"""Notices of changes that are looked at, and removed, together."""
TREE_REQUESTS, TREE_ANSWER_BYTES = 50, 1 << 16
"""Requests of one connection to the tree that are handled, and how much answers may come to before the rest waits."""
TREE_WRITES = 128
"""Writes to the tree that are checked, and then share a sync."""
ENDED_NODES = 1000
"""Ephemeral nodes that end with their session in one transaction."""


class Turns:
    """A queue of which the oldest piece of work is done in the loop's next turn. Loop-thread only.

    Thousands of clients may ask for something at the same moment, and whoever gets an answer asks for more at once. A
    turn is then as long as one of these takes, and not all of them.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, collect_new: Callable[[], object]) -> None:
        self._loop = loop
        self._collect_new = collect_new
        self._waiting: deque[Callable[[], None]] = deque()
        self._uncollected = 0

    def add(self, work: Callable[[], None]) -> None:
        """Do this when it is its turn. The loop reports what it raises."""
        if not self._waiting:
            self._loop.call_soon(self._do_one)
        self._waiting.append(work)

    def _do_one(self) -> None:
        if self._uncollected == PIECES_A_COLLECTION:
            self._uncollected = 0
            self._loop.call_soon(self._do_one)
            self._collect_new()
            return
        self._uncollected += 1
        work = self._waiting.popleft()
        if self._waiting:
            self._loop.call_soon(self._do_one)
        work()


async def next_turn() -> None:
    """Let others be served now."""
    await asyncio.sleep(0)


def steps_of(name: str) -> int:
    """As how many items it counts that a name of this length is looked up; there are some of 32 KB."""
    return 1 + len(name) // NAME_CHARACTERS


class Pace:
    """Lets a coroutine do so many things of a kind in one turn: `await pace.step()` after each."""

    __slots__ = ("_done", "_most")

    def __init__(self, most: int = ITEMS) -> None:
        self._most = most
        self._done = 0

    async def step(self, things: int = 1) -> None:
        """One more is done; others are served now if that was the last of this turn."""
        self._done += things
        if self._done >= self._most:
            await self.rest()

    async def rest(self) -> None:
        """Let others be served now."""
        self._done = 0
        await next_turn()


class Stint:
    """Lets a coroutine work for `LONG_WORK_SECONDS` in one turn: `await stint.step()` after each piece."""

    __slots__ = ("_enough", "_stopwatch")

    def __init__(self, stopwatch: Callable[[], float]) -> None:
        """`stopwatch` as for `LongWork`."""
        self._stopwatch = stopwatch
        self._enough = stopwatch() + LONG_WORK_SECONDS

    async def step(self) -> None:
        """A piece is done; others are served now if that was enough for this turn."""
        if self._stopwatch() >= self._enough:
            await next_turn()
            self._enough = self._stopwatch() + LONG_WORK_SECONDS


Steps: TypeAlias = Generator[None, None, T]
"""Work with a result that may be interrupted wherever it yields: anything may have changed after that."""


def raise_error(_: object, error: Exception | None) -> None:
    """The `done` of long work without a result: the loop reports an error."""
    if error is not None:
        raise error


class LongWork:
    """Work of any length, `LONG_WORK_SECONDS` of it in a turn of the loop, whoever asked for it. Loop-thread only."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stopwatch: Callable[[], float]) -> None:
        """`stopwatch` is a clock in seconds that moves within a turn; one that stands still never ends a turn."""
        self._turns = Turns(loop, no_collection)
        self._stopwatch = stopwatch

    def run(self, steps: Steps[T], done: Callable[[T | None, Exception | None], None]) -> None:
        """Begin at once; `done` gets the result or the error, before this returns if that takes one turn only."""
        enough = self._stopwatch() + LONG_WORK_SECONDS
        result, failure = None, None
        try:
            while self._stopwatch() < enough:
                next(steps)
            self._turns.add(partial(self.run, steps, done))
            return
        except StopIteration as end:
            result = end.value
        except Exception as error:  # noqa: BLE001 - handed to `done`, whose owner decides
            failure = error
        done(result, failure)

    def later(self, work: Callable[[], None]) -> None:
        self._turns.add(work)
