"""The environment of blocking readers: clock and pauses."""

from __future__ import annotations

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
