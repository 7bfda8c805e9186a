"""The real world behind the Spark source: the wall clock, waiting, and what the process was started with."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from zipimport import zipimporter

_SPARK_ARCHIVES = ("pyspark", "py4j", "spark-")
_REUSED = "SPARK_REUSE_WORKER"
"""Set where Spark runs a worker that will have another task."""


def now_ms() -> int:
    """Wall clock in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def monotonic() -> float:
    """Seconds that only grow, for deadlines."""
    return time.monotonic()


def pause(seconds: float) -> None:
    """Wait."""
    time.sleep(seconds)


def environment(name: str) -> str | None:
    """An environment variable; None if it is unset or empty."""
    return os.environ.get(name) or None


def set_environment(name: str, value: str) -> None:
    """Set an environment variable for this process and those it starts."""
    os.environ[name] = value


def interpreter() -> str:
    """The path of the running Python."""
    return sys.executable


def search_path() -> list[Path]:
    """The folders in which commands are looked for."""
    return [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]


def output_of(command: Sequence[str]) -> str | None:
    """What a command prints on either stream; None if it cannot be run or fails."""
    try:
        done = subprocess.run(list(command), capture_output=True, text=True, timeout=60, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout + done.stderr


def spare_next_task() -> None:
    """See to it that a worker does not begin and end its next task with work that is not the task's.

    Before each task and each plan of a query Spark has `importlib.invalidate_caches`, upon which Python up to 3.12
    reads the whole directory of Spark's archives, once for every package that was imported out of them; after it
    `gc.collect`, which goes through all that was ever imported. That is most of what a small task or a plan costs.
    The archives do not change while a worker lives, and Python looks for them anew when it has something to import;
    what is alive after a task stays alive.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter) and Path(finder.archive).name.startswith(_SPARK_ARCHIVES):
            del sys.path_importer_cache[path]
    if environment(_REUSED) is not None and gc.get_freeze_count() == 0:
        gc.freeze()
