"""The environment of the Spark source: clock, pauses, and the settings of the process."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar
from zipimport import zipimporter

from ..arrow.host import monotonic, now_ms, pause

__all__ = [
    "environment",
    "interpreter",
    "map_in_threads",
    "monotonic",
    "now_ms",
    "output_of",
    "pause",
    "search_path",
    "set_environment",
    "spare_next_task",
]

_SPARK_ARCHIVES = ("pyspark", "py4j", "spark-")
_FILE_THREADS = 16
"""Threads that plan a read of files, because a request to an object store takes tens of milliseconds."""
T = TypeVar("T")
R = TypeVar("R")
_REUSED = "SPARK_REUSE_WORKER"
"""Set if Spark runs a worker that will have further tasks."""


def environment(name: str) -> str | None:
    """Return an environment variable; None if it is unset or empty."""
    return os.environ.get(name) or None


def set_environment(name: str, value: str) -> None:
    """Set an environment variable for this process and its children."""
    os.environ[name] = value


def interpreter() -> str:
    """Return the path of the running Python."""
    return sys.executable


def search_path() -> list[Path]:
    """Return the directories of the PATH."""
    return [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]


def output_of(command: Sequence[str]) -> str | None:
    """Return the output of a command on both streams; None if it cannot be run or fails."""
    try:
        done = subprocess.run(list(command), capture_output=True, text=True, timeout=60, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout + done.stderr


def map_in_threads(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Return the results of a function that waits for a file system, in the order of the items."""
    with ThreadPoolExecutor(_FILE_THREADS, thread_name_prefix="barnabas-files") as threads:
        return list(threads.map(function, items))


def spare_next_task() -> None:
    """Prevent work of PySpark between the tasks of a worker.

    Before each task and each plan of a query PySpark calls `importlib.invalidate_caches`, after which Python up to 3.12
    reads the whole directory of Spark's archives, once for every package imported from them; after it `gc.collect`,
    which visits all imported objects. This is most of the cost of a small task or a plan. The archives do not change
    while a worker runs, and Python still finds new modules; objects that exist after a task are permanent.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter) and Path(finder.archive).name.startswith(_SPARK_ARCHIVES):
            del sys.path_importer_cache[path]
    if environment(_REUSED) is not None and gc.get_freeze_count() == 0:
        gc.freeze()
