"""A process of a cluster on this machine, and its identification.

A process has its `pid` file open and locked as long as it lives, without its own code: the lock is inherited from the
process that started it. So no process is treated as a part of the cluster because of a number in a file.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from shutil import disk_usage

HOST = "127.0.0.1"
BARNABAS = (sys.executable, "-m", "barnabas.tools.cli")
"""The command line of this program."""
END_SECONDS = 60.0
LOOK_SECONDS = 0.01
LOG_LINES = 5
_PRIVATE_FOLDER, _PRIVATE_FILE = 0o700, 0o600


class LocalClusterError(Exception):
    """The operation is impossible; the message contains the reason."""


class LocalProcess:
    """One process of the cluster, running or not: Barnabas, which prints a line when it is ready."""

    def __init__(self, number: int, name: str, folder: Path, port: int) -> None:
        self.number = number
        self.name = name
        self.folder = folder
        self.port = port
        self.address = f"{HOST}:{port}"
        self.log = folder / "output.log"
        self._pid_file = folder / "pid"
        self._process: subprocess.Popen[bytes] | None = None
        self._log_began = 0

    def pid(self) -> int | None:
        """Return the process id, None if it does not run. Raises LocalClusterError if it cannot be determined."""
        try:
            file = os.open(self._pid_file, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            named = os.read(file, 20).decode(errors="replace")
        else:
            return None
        finally:
            os.close(file)
        if not (named.isdecimal() and int(named)):
            raise LocalClusterError(f"{self._pid_file} is locked, but contains no process id")
        return int(named)

    def start(self, command: Sequence[str]) -> None:
        """Start the process, which outlives this one, without waiting for it. Raises OSError."""
        make_private(self.folder)
        file = os.open(self._pid_file, os.O_RDWR | os.O_CREAT, _PRIVATE_FILE)
        try:
            # No other command starts processes now; a command that only tests the lock releases it immediately.
            fcntl.flock(file, fcntl.LOCK_EX)
            os.ftruncate(file, 0)
            with open(self.log, "ab", opener=_private_opener) as log:
                self._log_began = log.tell()
                self._process = subprocess.Popen(  # noqa: S603 - runs this program, or Java
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=[file],
                    preexec_fn=partial(_sign, file),
                )
        finally:
            os.close(file)

    def says_ready(self) -> bool:
        """Return whether the started process serves. Raises LocalClusterError with the reason if it has ended."""
        assert self._process is not None, "the process was started by this command"
        ended = self._process.poll() is not None
        with self.log.open("rb") as log:
            log.seek(self._log_began)
            said = log.read().decode(errors="replace").splitlines()
        if ended:
            # With a full disk the process cannot write the reason.
            room = f"{self.log} is empty; its disk has {disk_usage(self.folder).free >> 20} MB left"
            raise LocalClusterError("\n".join([f"{self.name} did not start", *(said[-LOG_LINES:] or [room])]))
        return self._is_ready(said)

    def _is_ready(self, said: Sequence[str]) -> bool:
        """Return whether the process serves, by the lines of its log since the start."""
        return any(line.startswith("ready ") for line in said)

    def send(self, number: signal.Signals) -> int | None:
        """Send a signal to the process, and never to another process with its former id; return the id, None if there
        is none.

        Raises LocalClusterError if the file contains the id of another process.
        """
        pid = self.pid()
        if pid is None:
            return None
        if not hasattr(os, "pidfd_open") or not Path("/proc/self/fd").exists():
            os.kill(pid, number)  # the lock was held a moment before
            return pid
        try:
            process = os.pidfd_open(pid)
        except ProcessLookupError:
            process = None
        try:
            if process is None or not _has_open(pid, self._pid_file):
                if self.pid() is None:
                    return None
                raise LocalClusterError(f"{self._pid_file} contains {pid}, which is not a process of this cluster")
            signal.pidfd_send_signal(process, number)
        except ProcessLookupError:
            return None
        finally:
            if process is not None:
                os.close(process)
        return pid

    def await_end(self) -> None:
        """Wait until the process has ended. Raises LocalClusterError."""
        deadline = time.monotonic() + END_SECONDS
        while self.pid() is not None:
            if time.monotonic() > deadline:
                raise LocalClusterError(
                    f"{self.name} does not end; `barnabas cluster kill {self.number}` ends it immediately"
                )
            time.sleep(LOOK_SECONDS)


class ControllerProcess(LocalProcess):
    """A controller of Apache Kafka, which is ready when it listens."""

    def _is_ready(self, said: Sequence[str]) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((HOST, self.port)) == 0


def make_private(folder: Path) -> None:
    """Create a directory that only this user can read, or restrict an existing one. Raises OSError."""
    folder.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
    folder.chmod(_PRIVATE_FOLDER)


def _private_opener(path: str, flags: int) -> int:
    return os.open(path, flags, _PRIVATE_FILE)


def write_private(path: Path, text: str) -> None:
    """Write a file that only this user can read, because settings may contain passwords. Raises OSError."""
    with open(path, "w", opener=_private_opener) as file:
        os.fchmod(file.fileno(), _PRIVATE_FILE)  # a file of an earlier version
        file.write(text)


def _sign(file: int) -> None:
    """Prepare the new process before it executes another program."""
    os.write(file, b"%d" % os.getpid())


def _has_open(pid: int, path: Path) -> bool:
    """Return whether a process has a file open (Linux)."""
    with suppress(OSError):  # the process has ended, or belongs to another user
        return any(link.exists() and link.samefile(path) for link in Path(f"/proc/{pid}/fd").iterdir())
    return False
