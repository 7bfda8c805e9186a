"""Appends that take more than one turn of the loop: what they came to so far, and when they go on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.room_logger import room_logger
from ...storage.record_validator import validate_and_assign

if TYPE_CHECKING:
    from ...storage.validation import Validate, Validation
    from ..runtime.ports import Work
    from ..runtime.turns import LongWork
    from .delayed_produce import AppendCallback, AppendResult

AppendEntry: TypeAlias = tuple[str, int, memoryview]
"""Topic, partition, and records of any format; the buffer is patched in place."""

AppendTerms: TypeAlias = "tuple[int, float, AppendCallback, int, bool, bool]"
"""Acks, milliseconds to wait, the callback, the version of Produce, and whether internal topics and records of
transactions are allowed."""

logger = room_logger("replication")

LANE, LANES = "validation", 2
"""Where records are validated that take long, as those that are to be compressed anew: codecs free the interpreter."""
NO_RECORDS = memoryview(bytearray())


class BegunAppend:
    """Entries that are not appended yet, and the results of the others, which may have to wait for a disk."""

    __slots__ = ("_left", "_missing", "_parts", "validation")

    def __init__(self) -> None:
        self._left: list[AppendEntry] = []
        """The next one last."""
        self._parts: list[list[AppendResult]] = []
        self._missing = 0
        self.validation: Validation | None = None
        """Of the next entry, if it takes long."""

    def keep(self, entry: AppendEntry, entries: Iterator[AppendEntry]) -> None:
        """Go on with this one, and then with the others."""
        if self._parts:
            self._left.append(entry)  # the others are here already
        else:
            self._left = [kept(one) for one in (entry, *entries)][::-1]

    @property
    def is_left(self) -> bool:
        return bool(self._left)

    @property
    def next(self) -> AppendEntry:
        return self._left[-1]

    def rest(self) -> Iterator[AppendEntry]:
        """Entry by entry, each given up when it is taken."""
        while self._left:
            yield self._left.pop()

    def take_validation(self) -> Validate:
        """How the next entry is validated, or was already."""
        validation, self.validation = self.validation, None
        return validation or validate_and_assign

    def part(self, callback: AppendCallback) -> AppendCallback:
        """What the results of the entries since the last part are told to; all of them go to the callback in order."""
        self._missing += 1
        self._parts.append([])
        return partial(self._done, len(self._parts) - 1, callback)

    def _done(self, number: int, callback: AppendCallback, results: list[AppendResult]) -> None:
        self._parts[number] = results
        self._missing -= 1
        if not self._missing and not self._left:
            callback([result for part in self._parts for result in part])


def kept(entry: AppendEntry) -> AppendEntry:
    """An entry without a connection's buffer, for later."""
    topic, index, records = entry
    return topic, index, memoryview(bytearray(records)) if len(records) else NO_RECORDS


class PostponedAppends:
    """Appends that go on later, in the order in which clients' records came for a partition. Loop-thread only."""

    def __init__(self, work: Work, long_work: LongWork) -> None:
        self._work = work
        self._long_work = long_work
        self.held: dict[tuple[str, int], deque[Callable[[], None]]] = {}
        """Partitions for which records are validated on a lane, and what else there is for them, in order."""

    def go_on(self, begun: BegunAppend, append: Callable[..., None], terms: AppendTerms) -> AppendCallback:
        """Go on when the next records are validated, their partition is free, or else in a turn, if there are any.

        Returns what the results so far are told to. `append` is ReplicaManager.append_records.
        """
        acks, timeout_ms, callback, version, internal_topics_allowed, in_transaction = terms
        go_on = partial(
            append,
            (),
            acks,
            timeout_ms,
            callback,
            produce_version=version,
            internal_topics_allowed=internal_topics_allowed,
            in_transaction=in_transaction,
            begun=begun,
        )
        part, validation = begun.part(callback), begun.validation
        place = begun.next[:2] if begun.is_left else None
        if place is None:
            return part
        if validation is not None:
            self.held[place] = deque()
            self._work.submit(f"{LANE}-{place[1] % LANES}", validation.run, partial(self._validated, place, go_on))
        elif place in self.held:
            self.held[place].append(go_on)
        else:
            self._long_work.later(go_on)
        return part

    def _validated(
        self, place: tuple[str, int], go_on: Callable[[], None], _: None, error: BaseException | None
    ) -> None:
        if error is not None:
            logger.error("records for %s-%d could not be validated", *place, exc_info=error)
        for one in (go_on, *self.held.pop(place)):
            one()


def like(known: object, error: KafkaError) -> KafkaError:
    """The error as a result, or the known one if it says the same: many partitions in a row may not be here."""
    if type(known) is type(error) is KafkaError and (known.code, known.message) == (error.code, error.message):
        return known
    return error.as_result()


def invalid_acks(acks: int) -> KafkaError:
    """The refusal of what no producer may wait for."""
    return KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}; -1, 0 and 1 are allowed")
