"""Temporary directories that are removed at the end of the process, even if it is killed.

A killed process cannot clean up. So a small shell waits at the end of a pipe: when this process ends, the pipe is
closed, and the shell removes the directories. There is one for all brokers of a process.
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
    """The shell, started with the first directory. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0
        self._pipe = -1

    def watch(self, folder: str) -> None:
        """Register a directory for removal at the end of this process. A forked child has its own shell."""
        if not Path(_SHELL).exists():
            return
        with self._lock:
            if self._owner != os.getpid():
                self._pipe, self._owner = self._start(), os.getpid()
            os.write(self._pipe, os.fsencode(folder) + b"\n")

    @staticmethod
    def _start() -> int:
        """Start the shell; return the end of the pipe that only the end of this process closes.

        In its own process group, so that a signal to this process's group does not end it.
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
    """A new directory of this process."""

    def __init__(self) -> None:
        self.path = tempfile.mkdtemp(prefix="barnabas-")
        _reaper.watch(self.path)

    def remove(self) -> None:
        """Remove it with its contents."""
        shutil.rmtree(self.path, ignore_errors=True)


def make(folder: str | Path) -> None:
    """Create a directory. Raises OSError, including FileExistsError."""
    Path(folder).mkdir(parents=True)


def copy(source: str | Path, target: str | Path) -> None:
    """Copy a data directory without its locks. Raises OSError; FileNotFoundError if there is none."""
    if not Path(source).is_dir():
        raise FileNotFoundError(f"{source} is not a directory")
    if not (Path(source, "meta.properties").exists() or any(Path(source).glob("*-[0-9]*"))):
        raise FileNotFoundError(f"{source} is not a data directory: it has neither meta.properties nor a partition")
    shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".lock"))
