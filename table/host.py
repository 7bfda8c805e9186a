"""The environment of a follower: clock, pauses, names, and the files of a table on this machine."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4


def monotonic() -> float:
    """Return a monotonic clock in seconds."""
    return time.monotonic()


def now_ms() -> int:
    """Return the wall clock in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def pause(seconds: float) -> None:
    """Sleep."""
    time.sleep(seconds)


def new_name() -> str:
    """Return a name that no other file has."""
    return uuid4().hex


def sync_file(path: Path) -> None:
    """Write a file, or the entries of a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file as a whole: after a crash it has the old content or the new one."""
    new = path.with_name(path.name + ".new")
    with new.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    sync_file(path.parent)


def remove_folder(path: Path) -> None:
    """Delete a folder with its files, if it exists."""
    shutil.rmtree(path, ignore_errors=True)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock on a file, which ends with the process. Raises BlockingIOError if another process has it."""
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
