"""The real world behind the clients: wall clock, chance (a simulation passes its own instead), temporary files."""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path


def now_ms() -> int:
    """Wall clock in milliseconds since 1970: the CreateTime of records, never a timeout."""
    return time.time_ns() // 1_000_000


def new_random() -> random.Random:
    """A generator of one client's own, for jitter and for the choice among equals."""
    return random.Random()


def private_folder(prefix: str) -> Path:
    """A new folder that only this user can read."""
    return Path(tempfile.mkdtemp(prefix=prefix))
