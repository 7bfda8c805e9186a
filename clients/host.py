"""The environment of the clients: clock, random numbers (a simulation replaces them), temporary directories."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def now_ms() -> int:
    """Return the wall clock in milliseconds since 1970, for the CreateTime of records, never for timeouts."""
    return time.time_ns() // 1_000_000


def monotonic_seconds() -> float:
    """Return a monotonic clock, for ages in a client without an event loop."""
    return time.monotonic()


def new_random() -> random.Random:
    """Create a random generator for one client, for jitter and for choices."""
    return random.Random()


def new_salt(size: int) -> bytes:
    """Return random bytes of the operating system, for a stored password."""
    return secrets.token_bytes(size)


async def beside_loop(job: Callable[[], T]) -> T:
    """Run a blocking function in a thread, and wait for it."""
    return await asyncio.to_thread(job)


def private_folder(prefix: str) -> Path:
    """Create a directory that only this user can read."""
    # Imported here because it imports the codecs of archives, half a megabyte.
    import tempfile

    return Path(tempfile.mkdtemp(prefix=prefix))
