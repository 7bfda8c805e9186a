"""The real world behind the clients: wall clock, chance (a simulation passes its own instead), temporary files."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def now_ms() -> int:
    """Wall clock in milliseconds since 1970: the CreateTime of records, never a timeout."""
    return time.time_ns() // 1_000_000


def new_random() -> random.Random:
    """A generator of one client's own, for jitter and for the choice among equals."""
    return random.Random()


async def beside_loop(job: Callable[[], T]) -> T:
    """Run what blocks in a thread, and wait for it."""
    return await asyncio.to_thread(job)


def private_folder(prefix: str) -> Path:
    """A new folder that only this user can read."""
    # Brings the codecs of archives along, half a megabyte for the few who want such a folder.
    import tempfile

    return Path(tempfile.mkdtemp(prefix=prefix))
