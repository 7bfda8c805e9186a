"""The parameters of an append, from its handler to the log, and appends that take several loop turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from ...common.room_logger import room_logger
from ...protocol.errors import KafkaError
from ...storage.log_validator import AppendRules, validate_messages_and_assign_offsets
from ...storage.log_values import LogAppendInfo
from ..runtime.write_queue import WaitingAppend

if TYPE_CHECKING:
    from ...storage.log_validator import LaneValidation, Validate
    from ..runtime.loop_sharing import SlicedWork
    from ..runtime.ports import Work
    from ..runtime.write_queue import WriteQueue

AppendEntry: TypeAlias = tuple[str, int, memoryview]
"""Topic, partition, and records of any format; the buffer is patched in place."""
AppendResult: TypeAlias = LogAppendInfo | KafkaError
AppendCallback: TypeAlias = Callable[[list[AppendResult]], None]
"""Receives the result of each entry, in their order."""

logger = room_logger("replication")

LANE, LANES = "validation", 2
"""The lane that validates records if this takes long, for example because of recompression: codecs release the
interpreter lock."""
NO_RECORDS = memoryview(bytearray())


@dataclass(slots=True)
class AppendRequest:
    """The parameters of one append, the same for each of its partitions.

    Not frozen: the constructor of a frozen dataclass costs one more microsecond per produce request. Keyword arguments
    of a class cost another, as Python 3.11 makes a dictionary of them: rare parameters are set afterwards.
    """

    acks: int
    timeout_ms: float
    """The time after which undecided results are REQUEST_TIMED_OUT."""
    callback: AppendCallback
    """Called with a result for each entry, in their order."""
    rules: AppendRules
    """The part that the log's validation depends on."""
    internal_topics_allowed: bool = False
    has_transactional_id: bool = False
    """Whether the client named a transactional id, without which records of a transaction are refused."""
    may_linger: bool = False
    """Whether the flush may wait for more appends, as in `GroupCommit.request`."""
    validate: Validate = validate_messages_and_assign_offsets
    """Validates the records of each partition."""


class SuspendedAppend:
    """The entries of an append that are not appended yet, and the results of the others, which may wait for a disk."""

    __slots__ = ("_left", "_missing", "_parts", "release_memory", "validation")

    def __init__(self) -> None:
        self._left: list[AppendEntry] = []
        """The remaining entries in reverse order."""
        self._parts: list[list[AppendResult]] = []
        self._missing = 0
        self.validation: LaneValidation | None = None
        """The validation of the next entry on a lane, if it takes long."""
        self.release_memory: Callable[[], None] = _release_nothing
        """Called when all entries are appended: their copies do not count any more."""

    def keep(self, entry: AppendEntry, entries: Iterator[AppendEntry]) -> None:
        """Continue with `entry`, and then with `entries`."""
        if self._parts:
            self._left.append(entry)  # the others have been copied before
        else:
            self._left = [copied(one) for one in (entry, *entries)][::-1]

    @property
    def has_entries(self) -> bool:
        return bool(self._left)

    @property
    def next_entry(self) -> AppendEntry:
        return self._left[-1]

    def remaining_entries(self) -> Iterator[AppendEntry]:
        """Yield entry by entry, and drop each when it is taken."""
        while self._left:
            yield self._left.pop()

    def take_validation(self) -> Validate:
        """Return the function that validates the next entry, or has validated it on a lane."""
        validation, self.validation = self.validation, None
        return validation or validate_messages_and_assign_offsets

    def add_part(self, callback: AppendCallback) -> AppendCallback:
        """Return a callback for the results since the last part; `callback` gets the results of all parts, in order."""
        self._missing += 1
        self._parts.append([])
        return partial(self._complete_part, len(self._parts) - 1, callback)

    def _complete_part(self, number: int, callback: AppendCallback, results: list[AppendResult]) -> None:
        self._parts[number] = results
        self._missing -= 1
        if not self._missing and not self._left:
            callback([result for part in self._parts for result in part])


def _release_nothing() -> None:
    """Do nothing: the copies are not counted."""


def copied(entry: AppendEntry) -> AppendEntry:
    """Return an entry that does not refer to a connection's buffer."""
    topic, index, records = entry
    return topic, index, memoryview(bytearray(records)) if len(records) else NO_RECORDS


class SuspendedAppends:
    """Appends that continue later, in the order in which clients' records arrived for a partition. Owned by the
    ReplicaManager; runs on the event loop."""

    def __init__(self, work: Work, sliced_work: SlicedWork, write_queue: WriteQueue) -> None:
        self._work = work
        self._write_queue = write_queue
        self._sliced_work = sliced_work
        self.waiting: dict[tuple[str, int], deque[Callable[[], None]]] = {}
        """The partitions for which records are validated on a lane, each with the later appends to it, in order."""
        self._is_closed = False

    def close(self) -> None:
        """Drop all appends: the logs are about to be closed. The requests get no response, and clients repeat them."""
        self._is_closed = True
        self.waiting.clear()

    def resume_later(self, suspended: SuspendedAppend, resume: Callable[[], None]) -> None:
        """Call `resume` when the next records are validated, their partition is free, or else in a later loop turn.

        While the disk is slow, all requests that wait already are appended before it.
        """
        partition, validation = suspended.next_entry[:2], suspended.validation
        if validation is not None:
            self.waiting[partition] = deque()
            done = partial(self._on_validated, partition, resume)
            self._work.submit(f"{LANE}-{partition[1] % LANES}", validation.run, done)
        elif partition in self.waiting:
            self.waiting[partition].append(resume)
        elif self._write_queue.must_wait:
            self._wait(resume)
        else:
            self._sliced_work.run_later(partial(self.run_in_turn, resume))

    def _wait(self, resume: Callable[[], None]) -> None:
        self._write_queue.wait(WaitingAppend(partial(self._resume, resume)))

    def run_in_turn(self, resume: Callable[[], None]) -> None:
        """Call a function that appends: immediately, or in its turn while the disk is slow, unless the logs close."""
        if self._write_queue.must_wait:
            self._wait(resume)
        else:
            self._resume(resume)

    def _resume(self, resume: Callable[[], None]) -> None:
        if not self._is_closed:
            resume()

    def _on_validated(
        self, partition: tuple[str, int], resume: Callable[[], None], _: None, error: BaseException | None
    ) -> None:
        if error is not None:
            logger.error("records for %s-%d could not be validated", *partition, exc_info=error)
        if not self._is_closed:
            for one in (resume, *self.waiting.pop(partition)):
                self.run_in_turn(one)
