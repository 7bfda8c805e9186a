"""The ports of a broker: its only access to clock, disk, randomness and threads.

The event loop is the port for timers, monotonic time and sockets (`loop.time`, `loop.call_later`,
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
"""Called with the seconds of a sync of files, or with its error."""


class Work(Protocol):
    """Lanes for blocking jobs (syncs, recovery, deletion). Jobs of one lane run one after another, in order.

    A Protocol because the simulation has its own implementation.
    """

    def submit(self, lane: str, job: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Run `job` off the loop; then call `done(result, error)` on the loop. Never raises an exception of `job`."""

    async def run(self, lane: str, job: Callable[[], T]) -> T:
        """Run `job` off the loop and return its result or raise its error."""

    def sync(self, lane: str, files: Sequence[File], done: Synced) -> None:
        """Sync the data of open files off the loop, possibly next to a job of the lane, and call `done` on the loop."""

    def close(self) -> None:
        """Refuse new jobs and wait for the running ones."""


class SendRequest(Protocol):
    """Sends a request to a broker (`BrokerConnections.send_request`). Raises KafkaError if there is no response."""

    async def __call__(self, broker_id: int, request: Any, *, lowest: int = 0, highest: int = UNBOUNDED) -> Any:
        """Return the response in the newest version from `lowest` to `highest` that both brokers support."""
        ...


class PassFailedError(Exception):
    """A pass of the cleaner ended with an error: the name of its type, its text, and its number if it has one."""

    def __init__(self, kind: str, reason: str, errno: int | None = None) -> None:
        super().__init__(f"{kind}: {reason}")
        self.errno = errno


class WorkerDiedError(Exception):
    """The process of a cleaner pass has ended. The log is unchanged; the next pass starts again."""


class CleaningWork(Protocol):
    """Runs passes of the cleaner off the loop. Their memory is released while none is running.

    A Protocol because passes run in a process, in threads, or in the simulation.
    """

    async def run(self, job: CleanJob, on_event: Callable[[Event], None]) -> None:
        """Do a pass. `on_event` is called on the loop with each event, and with the last one before this returns.

        When this ends, done, failed or cancelled, the pass writes nothing any more. Raises OSError, `PassFailedError`,
        `WorkerDiedError`.
        """

    def limit(self, bytes_per_second: float) -> None:
        """Bound how fast all passes together read and write, running ones included."""

    async def close(self) -> None:
        """Cancel running passes."""


no_faults: Callable[[str], bool] = frozenset[str]().__contains__
"""The result of every fault point in production."""


def no_time() -> float:
    """Return 0, as the stopwatch of a simulation, in which work takes no time."""
    return 0.0


def no_collection() -> object:
    """Collect no garbage: the broker shares the process with other code."""
    return None


def no_users(_peer: tuple[str, int], _own: tuple[str, int]) -> bool:
    """Return True: in a simulation all connections belong to one user."""
    return True


def no_limit() -> None:
    """Return None: a simulation has no limit of files and sockets."""


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
    """The host name of this machine: the advertised name of listeners that bind all interfaces without one."""
    open_files: Callable[[], int | None] = no_limit
    """The limit of open files and sockets of this process; None if it is not known."""
    memory_limit: int | None = None
    """Memory limit of the control group in bytes; None without a limit."""
    allocate: Callable[[int], Any] | None = None
    """Return memory of a number of bytes that the kernel supplies at the first write. Raises MemoryError."""
    release_memory: Callable[[], object] = no_collection
    """Returns freed memory to the operating system; takes milliseconds for each gigabyte, so that it is for a lane."""
    lock: Callable[[], AbstractContextManager[object]] = nullcontext
    """Creates a lock for a file that the loop and lanes, or several lanes, use."""
    is_own_user: Callable[[tuple[str, int], tuple[str, int]], bool] = no_users
    """Whether the other end of a TCP connection, by both addresses, belongs to this process's user, to root or to
    another machine."""
    stopwatch: Callable[[], float] = no_time
    """Seconds, for how long work took: unlike the loop's, this clock moves within a turn of the loop."""
    collect_new: Callable[[], object] = no_collection
    """Runs the garbage collector on the newest objects."""
    is_lasting: bool = True
    """Whether data must survive a power failure; in tests it need not."""
    reserve_bytes: int = 0
    """The bytes that are reserved on each disk for starts and deletions on a full disk; 0 for no reserve."""
    fault: Callable[[str], bool] = no_faults
    """Named fault points: true when a simulation wants the named thing to go wrong now. They are `flush-late`,
    `produce-answer-lost` and `fetch-session-lost`."""

    @property
    def log_files(self) -> int | None:
        """The limit of open log files: most descriptors are for connections and short uses."""
        limit = self.open_files()
        return None if limit is None else max(LEAST_LOG_FILES, limit // LOG_FILES_SHARE)
