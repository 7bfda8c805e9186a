"""The seams between the broker and the world: everything that is not a function of its inputs comes through here.

The event loop is the seam for timers, monotonic time and sockets (`loop.time`, `loop.call_later`,
`loop.create_server`); the rest is this bundle. `server/runtime/host.py` builds the real one, `simulation/` a
deterministic one; a test bans every other way to the clock, to randomness, to threads and to the disk.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ...protocol.schema import UNBOUNDED
from ...storage.cleaning.clean_job import CleanJob, Event
from ...storage.filesystem import File, FileSystem

T = TypeVar("T")

LOG_FILES_SHARE = 8
LEAST_LOG_FILES = 16


Synced = Callable[[float | None, BaseException | None], None]
"""Told how many seconds it took to sync files, or why they are not."""


class Work(Protocol):
    """Lanes for what blocks (syncs, recovery, deletion). Jobs of one lane run one after another, in order."""

    def submit(self, lane: str, job: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Run `job` off the loop; then call `done(result, error)` on the loop. Never raises what `job` raises."""

    async def run(self, lane: str, job: Callable[[], T]) -> T:
        """Run `job` off the loop and return its result or raise its error."""

    def sync(self, lane: str, files: Sequence[File], done: Synced) -> None:
        """Sync the data of open files off the loop, perhaps beside a job of the lane; `done` is told on the loop."""

    def close(self) -> None:
        """Refuse new jobs and wait for the running ones."""


class Ask(Protocol):
    """A way to send a request to a broker (`BrokerConnections.ask`). Raises KafkaError if there is no answer."""

    async def __call__(self, broker_id: int, request: Any, *, lowest: int = 0, highest: int = UNBOUNDED) -> Any:
        """The response in the newest version that both sides speak, from `lowest` to `highest`."""
        ...


class PassFailedError(Exception):
    """A pass of the cleaner ended with an error: the name of its type, its text, and its number if it has one."""

    def __init__(self, kind: str, reason: str, errno: int | None = None) -> None:
        super().__init__(f"{kind}: {reason}")
        self.errno = errno


class WorkerDiedError(Exception):
    """Whoever did a pass of the cleaner is gone. The log is as it was; the next pass starts anew."""


class CleaningWork(Protocol):
    """Runs passes of the cleaner off the loop. Their memory is given back when none is running."""

    async def run(self, job: CleanJob, told: Callable[[Event], None]) -> None:
        """Do a pass. `told` is called on the loop with each event, and with the last one before this returns.

        When this ends, done, failed or cancelled, the pass writes nothing any more. Raises OSError, `PassFailedError`,
        `WorkerDiedError`.
        """

    def limit(self, bytes_per_second: float) -> None:
        """Bound how fast all passes together read and write, running ones included."""

    async def close(self) -> None:
        """End what is going on."""


no_faults: Callable[[str], bool] = frozenset[str]().__contains__
"""The production answer of every fault point."""


def no_time() -> float:
    """The answer of a world in which work takes no time."""
    return 0.0


def no_collection() -> object:
    """The answer of a process that the broker shares with others: it collects no garbage."""
    return None


def no_limit() -> None:
    """The answer of a world in which files and sockets never run out."""


@dataclass(frozen=True, slots=True)
class Ports:
    """One broker's access to the world. Many brokers live in one interpreter, each with its own."""

    filesystem: FileSystem
    """The disk."""
    now_ms: Callable[[], int]
    """Wall clock in milliseconds since 1970: record timestamps and retention, never timeouts."""
    random: random.Random
    """Jitter and generated names; not for secrets."""
    token_bytes: Callable[[int], bytes]
    """Unpredictable bytes: topic ids, directory ids, session ids."""
    work: Work
    """Lanes for blocking jobs."""
    cleaning: CleaningWork
    """Passes of the cleaner, which need a processor of their own."""
    machine_name: str
    """What this machine is called; told to clients where a listener binds all interfaces and advertises no name."""
    open_files: Callable[[], int | None] = no_limit
    """How many files and sockets this process may have open at present; None where there is no telling."""
    lock: Callable[[], AbstractContextManager[object]] = nullcontext
    """Makes a lock for what the loop and lanes, or several lanes, do with one file."""
    stopwatch: Callable[[], float] = no_time
    """Seconds, for how long work took: unlike the loop's, this clock moves within a turn of the loop."""
    collect_new: Callable[[], object] = no_collection
    """Runs the garbage collector on the newest objects."""
    is_lasting: bool = True
    """Whether what the broker keeps is to be there when the machine has lost its power; a test's is not."""
    reserve_bytes: int = 0
    """How much of each disk is kept for starting and deleting when nothing else is left; 0 for none."""
    fault: Callable[[str], bool] = no_faults
    """Named fault points: true when a simulation wants the named thing to go wrong now. They are `flush-late`,
    `produce-answer-lost` and `fetch-session-lost`."""

    @property
    def log_files(self) -> int | None:
        """How many files logs should have open at most: most is for connections, and for what is open shortly."""
        limit = self.open_files()
        return None if limit is None else max(LEAST_LOG_FILES, limit // LOG_FILES_SHARE)
