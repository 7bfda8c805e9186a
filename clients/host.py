"""The real world behind the clients' arguments: wall clock and chance. A simulation passes its own instead."""

from __future__ import annotations

import random
import time


def now_ms() -> int:
    """Wall clock in milliseconds since 1970: the CreateTime of records, never a timeout."""
    return time.time_ns() // 1_000_000


def new_random() -> random.Random:
    """A generator of one client's own, for jitter and for the choice among equals."""
    return random.Random()
