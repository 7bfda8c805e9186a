"""Temporary folders that do not outlive the process, however it ends.

A process that is killed cleans up nothing. So a small shell waits at the end of a pipe: when this process is gone, the
pipe is closed, and what was named in it is removed. There is one for all brokers of a process.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from pathlib import Path

_SHELL = "/bin/sh"
_WAIT_AND_REMOVE = """trap '' HUP INT TERM
cd /
while IFS= read -r folder; do set -- "$@" "$folder"; done
for folder; do rm -rf -- "$folder"; done"""


class _Reaper:
    """The shell, started with the first folder. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0
        self._pipe = -1

    def watch(self, folder: str) -> None:
        """Have it removed when this process is gone, if it is there then. A forked child has a shell of its own."""
        if not Path(_SHELL).exists():
            return
        with self._lock:
            if self._owner != os.getpid():
                self._pipe, self._owner = self._start(), os.getpid()
            os.write(self._pipe, os.fsencode(folder) + b"\n")

    @staticmethod
    def _start() -> int:
        """Begin to wait; returns the end of the pipe that nobody closes but this process's end.

        In a group of its own, so that what ends this process's group leaves it alive.
        """
        hears, tells = os.pipe()
        silence = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
        actions = [(os.POSIX_SPAWN_DUP2, hears, 0), *silence]
        command = [_SHELL, "-c", _WAIT_AND_REMOVE, "barnabas-reaper"]
        os.posix_spawn(_SHELL, command, os.environ, file_actions=actions, setpgroup=0)
        os.close(hears)
        return tells


_reaper = _Reaper()


class TemporaryFolder:
    """A new folder of this process alone."""

    def __init__(self) -> None:
        self.path = tempfile.mkdtemp(prefix="barnabas-")
        _reaper.watch(self.path)

    def remove(self) -> None:
        """It and all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)


def make(folder: str | Path) -> None:
    """A new folder. Raises OSError, FileExistsError among them."""
    Path(folder).mkdir(parents=True)


def copy(source: str | Path, target: str | Path) -> None:
    """A data directory with all that is in it, locks aside. Raises OSError; FileNotFoundError if there is none."""
    if not Path(source).is_dir():
        raise FileNotFoundError(f"{source} is no folder")
    if not (Path(source, "meta.properties").exists() or any(Path(source).glob("*-[0-9]*"))):
        raise FileNotFoundError(f"{source} is no data directory: it has neither meta.properties nor a partition")
    shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".lock"))
