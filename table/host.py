"""The environment of a follower: clock, pauses, names, and the files of a table on this machine."""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

T = TypeVar("T")
_LOOK_S = 0.05
"""Seconds between two checks of `is_stopping`."""


class StoppedError(Exception):
    """The follower is stopping, and no longer waits for the result of a call."""


def monotonic() -> float:
    """Return a monotonic clock in seconds."""
    return time.monotonic()


def now_ms() -> int:
    """Return the wall clock in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def pause(seconds: float) -> None:
    """Sleep."""
    time.sleep(seconds)


def call_until(
    is_stopping: Callable[[], bool], function: Callable[[], T], *, patience_s: float = 0.0, interrupt: Callable[[], Any]
) -> T:
    """Call a function that waits for the network on another thread, and return its result or raise its exception.

    Raises StoppedError when `is_stopping` has been true for `patience_s` seconds: no wait for a name server, a
    connection or a response can delay the end of the process. `interrupt` is called before, and ends the function as
    far as possible.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(function())
        except BaseException as error:  # noqa: BLE001 - raised again on the thread of the caller
            errors.append(error)

    thread = threading.Thread(target=work, name="barnabas-table", daemon=True)
    thread.start()
    stopping_since: float | None = None
    while thread.is_alive():
        thread.join(_LOOK_S)
        if thread.is_alive() and is_stopping():
            stopping_since = stopping_since or monotonic()
            if monotonic() >= stopping_since + patience_s:
                interrupt()
                raise StoppedError
    if errors:
        raise errors[0]
    return results[0]


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
