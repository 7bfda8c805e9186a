"""The environment of blocking readers: clock and pauses."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable


def now_ms() -> int:
    """Return the wall clock in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def monotonic() -> float:
    """Return a monotonic clock in seconds, for deadlines."""
    return time.monotonic()


def pause(seconds: float, interruption: threading.Event | None = None) -> None:
    """Sleep; another thread ends the sleep by setting `interruption`."""
    if interruption is None:
        time.sleep(seconds)
    else:
        interruption.wait(seconds)


def new_interruption() -> threading.Event:
    """Return a flag for `pause`, which is not set."""
    return threading.Event()


def process_id() -> int:
    """Return the id of this process, which differs in a forked child."""
    return os.getpid()


def call_after_fork(function: Callable[[], object]) -> None:
    """Call a function in each child process that this process forks, if the operating system can fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


def default_threads() -> int:
    """Return the number of threads of a read: two per processor, from 4 to 6.

    Some threads wait for a response while others decode one. On two processors that other processes also used, 2
    threads had 0.6 to 0.85 times the speed of 4. A thread uses up to 25 MB; a process with 6 threads used 280 MB.
    """
    return min(max(2 * (os.cpu_count() or 2), 4), 6)
