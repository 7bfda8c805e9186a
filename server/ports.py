"""The seams between the broker and the world: everything that is not a function of its inputs comes through here.

The event loop is the seam for timers, monotonic time and sockets (`loop.time`, `loop.call_later`,
`loop.create_server`); the rest is this bundle. `server/host.py` builds the real one, `tests/sim` a deterministic one;
a test bans every other way to the clock, to randomness, to threads and to the disk.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from ..storage.filesystem import FileSystem

T = TypeVar("T")


class Work(Protocol):
    """Lanes for what blocks (fsync, recovery, deletion). Jobs of one lane run one after another, in order."""

    def submit(self, lane: str, job: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Run `job` off the loop; then call `done(result, error)` on the loop. Never raises what `job` raises."""

    async def run(self, lane: str, job: Callable[[], T]) -> T:
        """Run `job` off the loop and return its result or raise its error."""

    def close(self) -> None:
        """Refuse new jobs and wait for the running ones."""


def no_faults(name: str) -> bool:
    """The production answer of every fault point."""
    return False


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
    """Jitter and generated names that nobody must guess right to do harm."""
    token_bytes: Callable[[int], bytes]
    """Unpredictable bytes: topic ids, directory ids, session ids."""
    work: Work
    """Lanes for blocking jobs."""
    machine_name: str
    """What this machine is called; told to clients where a listener binds all interfaces and advertises no name."""
    open_files: Callable[[], int | None] = no_limit
    """How many files and sockets this process may have open at present; None where there is no telling."""
    fault: Callable[[str], bool] = no_faults
    """Named fault points: true when a simulation wants the named thing to go wrong now. They are `flush-late`,
    `produce-answer-lost` and `fetch-session-lost`."""
