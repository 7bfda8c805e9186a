"""Appends that take more than one turn of the loop: what they came to so far, and when they go on."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ...storage.validation import Validation

if TYPE_CHECKING:
    from ..runtime.ports import Work
    from ..runtime.turns import LongWork
    from .delayed_produce import AppendCallback, AppendResult

logger = logging.getLogger("barnabas.replication")

LANE, LANES = "validation", 2
"""Where records are validated that take long, as those that are to be compressed anew: codecs free the interpreter."""
NO_RECORDS = memoryview(bytearray())


class BegunAppend:
    """Joins the results of its parts, each of which may have to wait for a disk; the callback gets them in order."""

    __slots__ = ("_callback", "_is_whole", "_missing", "_parts", "_validation")

    def __init__(self, callback: AppendCallback) -> None:
        self._callback = callback
        self._parts: list[list[AppendResult]] = []
        self._missing = 0
        self._is_whole = False
        self._validation: Validation | None = None

    def validated(self, validation: Validation) -> None:
        """The entry that comes next has been validated."""
        self._validation = validation

    def take_validation(self) -> Validation | None:
        """The one of the entry that comes next, if there is one; it counts once."""
        validation, self._validation = self._validation, None
        return validation

    def part(self, *, is_last: bool) -> AppendCallback:
        """What the results of the next part are to be told to."""
        self._missing += 1
        self._is_whole = is_last
        self._parts.append([])
        return partial(self._done, len(self._parts) - 1)

    def _done(self, number: int, results: list[AppendResult]) -> None:
        self._parts[number] = results
        self._missing -= 1
        if self._is_whole and not self._missing:
            self._callback([result for part in self._parts for result in part])


def kept(records: memoryview) -> memoryview:
    """Records out of a connection's buffer, for later."""
    return memoryview(bytearray(records)) if len(records) else NO_RECORDS


class PostponedAppends:
    """Appends that go on later, in the order in which clients' records came for a partition. Loop-thread only."""

    def __init__(self, work: Work, long_work: LongWork) -> None:
        self._work = work
        self._long_work = long_work
        self.held: dict[tuple[str, int], deque[Callable[[], None]]] = {}
        """Partitions for which records are validated on a lane, and what else there is for them, in order."""

    def add(self, place: tuple[str, int], again: Callable[[], None]) -> None:
        """Go on when a partition is free, or in a later turn if it is."""
        if place in self.held:
            self.held[place].append(again)
        else:
            self._long_work.later(again)

    def validate(
        self, place: tuple[str, int], validation: Validation, begun: BegunAppend, again: Callable[[], None]
    ) -> None:
        """Go on when records for a partition have been validated, and then with what has waited for that."""
        self.held[place] = deque()

        def done(_: None, error: BaseException | None) -> None:
            if error is not None:
                logger.error("records for %s-%d could not be validated", *place, exc_info=error)
            begun.validated(validation)
            for one in (again, *self.held.pop(place)):
                one()

        self._work.submit(f"{LANE}-{place[1] % LANES}", validation.run, done)
