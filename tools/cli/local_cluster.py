"""A cluster of processes on this machine: the contents of its directory, and the identification of its processes.

DIR/cluster.json                          ports and settings
DIR/lock                                  locked by a running command
DIR/coordinator, DIR/broker-1, …          of each process: `pid`, `output.log`, its data

A process has its `pid` file open and locked as long as it lives, without its own code: the lock is inherited from the
process that started it. So no process is treated as a part of the cluster because of a number in a file.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from shutil import disk_usage

from ...common.properties import format_properties

HOST = "127.0.0.1"
COORDINATOR = 0
"""The number of the coordinator process; brokers begin with 1."""
END_SECONDS = 60.0
LOOK_SECONDS = 0.01
LOG_LINES = 5
HALF_WRITTEN = "cluster.json.new"
"""Files that a failed start on a full disk may leave instead of `cluster.json`."""
_PRIVATE_FOLDER, _PRIVATE_FILE = 0o700, 0o600
CHOSEN_HERE = ("broker.id", "listeners", "advertised.listeners", "log.dirs", "log.dir", "zookeeper.connect")
"""Settings that make a broker a member of the cluster."""


class LocalClusterError(Exception):
    """The operation is impossible; the message contains the reason."""


class LocalProcess:
    """One process of the cluster, running or not."""

    def __init__(self, number: int, folder: Path, port: int) -> None:
        self.number = number
        self.folder = folder
        self.port = port
        self.address = f"{HOST}:{port}"
        self.name = "coordinator" if number == COORDINATOR else f"broker {number}"
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

    def start(self, arguments: Sequence[str]) -> None:
        """Start the process, which outlives this one, without waiting for it. Raises OSError."""
        make_private(self.folder)
        file = os.open(self._pid_file, os.O_RDWR | os.O_CREAT, _PRIVATE_FILE)
        try:
            # No other command starts processes now; a command that only tests the lock releases it immediately.
            fcntl.flock(file, fcntl.LOCK_EX)
            os.ftruncate(file, 0)
            with open(self.log, "ab", opener=_private_opener) as log:
                self._log_began = log.tell()
                self._process = subprocess.Popen(  # noqa: S603 - runs this program
                    [sys.executable, "-m", "barnabas.tools.cli", *arguments],
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


class LocalCluster:
    """The cluster of a directory, created with `create` or `load`."""

    def __init__(self, folder: Path, ports: Sequence[int], config: Mapping[str, str]) -> None:
        self.folder = folder
        self.config = dict(config)
        self.members = [
            LocalProcess(number, folder / ("coordinator" if number == COORDINATOR else f"broker-{number}"), port)
            for number, port in enumerate(ports)
        ]

    @classmethod
    def load(cls, folder: Path) -> LocalCluster:
        """Load the cluster of a directory. Raises LocalClusterError if there is none."""
        try:
            known = json.loads((folder / "cluster.json").read_text())
            ports, config = list(map(int, known["ports"])), dict(known["config"])
            if len(ports) < 2 or not all(isinstance(value, str) for value in config.values()):
                raise ValueError("expected ports of a coordinator and a broker, and settings as strings")
            return cls(folder, ports, config)
        except FileNotFoundError:
            raise LocalClusterError(f"{folder} contains no cluster; `barnabas cluster start` creates one") from None
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise LocalClusterError(f"{folder}/cluster.json cannot be read: {error}") from error

    @classmethod
    def create(cls, folder: Path, brokers: int, port: int, config: Mapping[str, str]) -> LocalCluster:
        """Create a cluster in an empty directory; `port` is the first broker's, 0 for any free ports.

        Raises LocalClusterError.
        """
        if any(path.name not in ("lock", HALF_WRITTEN) for path in folder.iterdir()):
            raise LocalClusterError(f"{folder} is not empty and contains no cluster")
        last = port + brokers - 1
        if port and (port < 2 or last > 65535):
            raise LocalClusterError(f"ports {port - 1} to {last} are invalid; choose others with --port")
        return cls(folder, list(range(port - 1, last + 1)) if port else _free_ports(brokers + 1), config)

    def save(self) -> None:
        """Write cluster.json atomically. Raises OSError."""
        known = {"ports": [member.port for member in self.members], "config": self.config}
        fresh = self.folder / HALF_WRITTEN
        _write_private(fresh, json.dumps(known, indent=2) + "\n")
        fresh.replace(self.folder / "cluster.json")

    @property
    def brokers(self) -> list[LocalProcess]:
        return self.members[1:]

    @property
    def running(self) -> list[LocalProcess]:
        return [member for member in self.members if member.pid() is not None]

    @property
    def bootstrap(self) -> str:
        """Return `bootstrap.servers` with all brokers."""
        return ",".join(member.address for member in self.brokers)

    def member(self, number: int) -> LocalProcess:
        """Return the process. Raises LocalClusterError if it does not exist."""
        if not 0 <= number < len(self.members):
            raise LocalClusterError(
                f"unknown number {number}: 0 is the coordinator, brokers are 1 to {len(self.brokers)}"
            )
        return self.members[number]

    def start(self, members: Iterable[LocalProcess]) -> None:
        """Start the stopped processes, without waiting for them. Raises OSError."""
        for member in members:
            if member.number == COORDINATOR:
                arguments = ["coordinator", "--data", str(member.folder / "data"), "--listen", member.address]
                if sys.platform == "linux":
                    # Otherwise other users of this machine could write into the tree.
                    arguments.append("--owner-only")
            else:
                make_private(member.folder)
                path = member.folder / "server.properties"
                _write_private(path, format_properties(self.settings(member)))
                arguments = ["start", str(path)]
            member.start(arguments)

    def settings(self, member: LocalProcess) -> dict[str, str]:
        """Return a broker's server.properties."""
        listener = f"PLAINTEXT://{member.address}"
        replicas = min(3, len(self.brokers))
        in_sync = max(1, replicas - 1)
        return {
            "default.replication.factor": str(replicas),
            "min.insync.replicas": str(in_sync),
            "offsets.topic.replication.factor": str(replicas),
            "transaction.state.log.replication.factor": str(replicas),
            "transaction.state.log.min.isr": str(in_sync),
            # On one machine an unreachable broker has died, and preferred leaders should return while the user watches.
            "zookeeper.session.timeout.ms": "2000",
            "leader.imbalance.check.interval.seconds": "10",
            **self.config,
            "broker.id": str(member.number),
            "listeners": listener,
            "advertised.listeners": listener,
            "log.dirs": str(member.folder / "data"),
            "zookeeper.connect": self.members[COORDINATOR].address,
        }

    def stop(self, members: Iterable[LocalProcess]) -> list[tuple[LocalProcess, int]]:
        """End processes cleanly, and return which were killed; the coordinator is last. Raises LocalClusterError."""
        members = sorted(members, key=lambda member: member.number == COORDINATOR)
        # One after the other: each transfers its leaderships, which requires the coordinator.
        one_by_one = self.members[COORDINATOR].pid() is not None
        stopped = []
        for member in members:
            pid = member.send(signal.SIGTERM)
            if pid is not None:
                stopped.append((member, pid))
                if one_by_one:
                    member.await_end()
        for member, _ in stopped:
            member.await_end()
        return stopped


@contextmanager
def at_work(folder: Path) -> Iterator[None]:
    """Lock the cluster for one command at a time. Raises LocalClusterError if another command runs."""
    with (folder / "lock").open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LocalClusterError(f"another `barnabas cluster` command is running on {folder}") from None
        yield


def check_ports(members: Iterable[LocalProcess]) -> None:
    """Raise LocalClusterError if another process listens on one of the ports."""
    for member in members:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, member.port))
            except OSError as error:
                reason = f"port {member.port} of {member.name} is not available: {error.strerror}"
                raise LocalClusterError(f"{reason}; choose other ports for a new cluster with --port") from None


def all_ready(members: Iterable[LocalProcess]) -> bool:
    """Return whether all started processes serve. Raises LocalClusterError as soon as a process has ended."""
    return not [member for member in members if not member.says_ready()]


def check_config(config: Mapping[str, str]) -> None:
    """Raise LocalClusterError for settings that the cluster sets itself."""
    for key in config:
        if key in CHOSEN_HERE:
            raise LocalClusterError(f"--config {key}: set by the cluster itself")


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    """Wait for a condition of the cluster. Raises LocalClusterError."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise LocalClusterError(f"the cluster is not ready after {seconds:.0f} s; each process has an output.log")
        time.sleep(LOOK_SECONDS)


def make_private(folder: Path) -> None:
    """Create a directory that only this user can read, or restrict an existing one. Raises OSError."""
    folder.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
    folder.chmod(_PRIVATE_FOLDER)


def _private_opener(path: str, flags: int) -> int:
    return os.open(path, flags, _PRIVATE_FILE)


def _write_private(path: Path, text: str) -> None:
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


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind((HOST, 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()
