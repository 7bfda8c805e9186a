"""The environment of blocking readers: clock and pauses."""

from __future__ import annotations

import os
import time


def now_ms() -> int:
    """Return the wall clock in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def monotonic() -> float:
    """Return a monotonic clock in seconds, for deadlines."""
    return time.monotonic()


def pause(seconds: float) -> None:
    """Sleep."""
    time.sleep(seconds)


def default_threads() -> int:
    """Return the number of threads of a read: one per processor, from 2 to 8."""
    return min(max(os.cpu_count() or 2, 2), 8)
