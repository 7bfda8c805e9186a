"""A cluster whose processes are on this machine: what a folder knows of it, and how its processes are found again.

DIR/cluster.json                          ports and settings
DIR/lock                                  held by a command that is at work
DIR/coordinator, DIR/broker-1, …          of each process: `pid`, `output.log`, its data

A process has its `pid` open and locked as long as it lives, and does not know of it: the lock is inherited from who
started it. So nobody is taken for one of the cluster because a number stands in a file.
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

from ...protocol.properties import format_properties

HOST = "127.0.0.1"
COORDINATOR = 0
"""The number of the process that brokers agree through; theirs begin with 1."""
END_SECONDS = 60.0
LOOK_SECONDS = 0.01
LOG_LINES = 5
HALF_WRITTEN = "cluster.json.new"
"""What a start that found no room on the disk may leave of `cluster.json`."""
CHOSEN_HERE = ("broker.id", "listeners", "advertised.listeners", "log.dirs", "log.dir", "zookeeper.connect")
"""Settings that make a broker one of the cluster."""


class LocalClusterError(Exception):
    """What was asked for cannot be done; the message says why."""


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
        """The process's id, None if it does not run. Raises LocalClusterError if nobody can say which it is."""
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
            raise LocalClusterError(f"{self._pid_file} is in use, and names no process")
        return int(named)

    def start(self, arguments: Sequence[str]) -> None:
        """Start the process, which outlives this one; it does not run yet. Raises OSError."""
        self.folder.mkdir(exist_ok=True)
        file = os.open(self._pid_file, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            # Nobody else starts processes now; whoever only looks whether there is one is gone at once.
            fcntl.flock(file, fcntl.LOCK_EX)
            os.ftruncate(file, 0)
            with self.log.open("ab") as log:
                self._log_began = log.tell()
                self._process = subprocess.Popen(  # noqa: S603 - this very program
                    [sys.executable, "-m", "barnabas.clients.cli", *arguments],
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
        """Whether the process that was started serves by now. Raises LocalClusterError, saying why, if it has ended."""
        assert self._process is not None, "it was started here"
        ended = self._process.poll() is not None
        with self.log.open("rb") as log:
            log.seek(self._log_began)
            said = log.read().decode(errors="replace").splitlines()
        if ended:
            # On a full disk nobody can write down why.
            room = f"{self.log} is empty; its disk has {disk_usage(self.folder).free >> 20} MB left"
            raise LocalClusterError("\n".join([f"{self.name} did not start", *(said[-LOG_LINES:] or [room])]))
        return any(line.startswith("ready ") for line in said)

    def send(self, number: signal.Signals) -> int | None:
        """Send a signal to the process, and to no other that got its id since; returns the id, None if there is none.

        Raises LocalClusterError if the file names a process that is not the cluster's.
        """
        pid = self.pid()
        if pid is None:
            return None
        if not hasattr(os, "pidfd_open") or not Path("/proc/self/fd").exists():
            os.kill(pid, number)  # the lock was held a moment ago
            return pid
        try:
            process = os.pidfd_open(pid)
        except ProcessLookupError:
            process = None
        try:
            if process is None or not _has_open(pid, self._pid_file):
                if self.pid() is None:
                    return None
                raise LocalClusterError(f"{self._pid_file} names {pid}, which is no process of this cluster")
            signal.pidfd_send_signal(process, number)
        except ProcessLookupError:
            return None
        finally:
            if process is not None:
                os.close(process)
        return pid

    def await_end(self) -> None:
        """Wait until the process is gone. Raises LocalClusterError."""
        deadline = time.monotonic() + END_SECONDS
        while self.pid() is not None:
            if time.monotonic() > deadline:
                raise LocalClusterError(
                    f"{self.name} does not end; `barnabas cluster kill {self.number}` ends it at once"
                )
            time.sleep(LOOK_SECONDS)


class LocalCluster:
    """A cluster that a folder knows of; make one with `create` or `load`."""

    def __init__(self, folder: Path, ports: Sequence[int], config: Mapping[str, str]) -> None:
        self.folder = folder
        self.config = dict(config)
        self.members = [
            LocalProcess(number, folder / ("coordinator" if number == COORDINATOR else f"broker-{number}"), port)
            for number, port in enumerate(ports)
        ]

    @classmethod
    def load(cls, folder: Path) -> LocalCluster:
        """The cluster of a folder. Raises LocalClusterError if there is none."""
        try:
            known = json.loads((folder / "cluster.json").read_text())
            ports, config = list(map(int, known["ports"])), dict(known["config"])
            if len(ports) < 2 or not all(isinstance(value, str) for value in config.values()):
                raise ValueError("no ports of a coordinator and a broker, or settings that are no texts")
            return cls(folder, ports, config)
        except FileNotFoundError:
            raise LocalClusterError(f"there is no cluster in {folder}; `barnabas cluster start` makes one") from None
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise LocalClusterError(f"{folder}/cluster.json cannot be read: {error}") from error

    @classmethod
    def create(cls, folder: Path, brokers: int, port: int, config: Mapping[str, str]) -> LocalCluster:
        """A new cluster in an empty folder; `port` is the first broker's, 0 for any that are free.

        Raises LocalClusterError.
        """
        if any(path.name not in ("lock", HALF_WRITTEN) for path in folder.iterdir()):
            raise LocalClusterError(f"{folder} is in use: it has files in it, and no cluster")
        last = port + brokers - 1
        if port and (port < 2 or last > 65535):
            raise LocalClusterError(f"there are no ports {port - 1} to {last}; choose others with --port")
        return cls(folder, list(range(port - 1, last + 1)) if port else _free_ports(brokers + 1), config)

    def save(self) -> None:
        """Have the folder know of the cluster, whole or not at all. Raises OSError."""
        known = {"ports": [member.port for member in self.members], "config": self.config}
        fresh = self.folder / HALF_WRITTEN
        fresh.write_text(json.dumps(known, indent=2) + "\n")
        fresh.replace(self.folder / "cluster.json")

    @property
    def brokers(self) -> list[LocalProcess]:
        return self.members[1:]

    @property
    def running(self) -> list[LocalProcess]:
        return [member for member in self.members if member.pid() is not None]

    @property
    def bootstrap(self) -> str:
        """`bootstrap.servers` of all its brokers."""
        return ",".join(member.address for member in self.brokers)

    def member(self, number: int) -> LocalProcess:
        """Raises LocalClusterError if there is no such process."""
        if not 0 <= number < len(self.members):
            raise LocalClusterError(f"there is no {number}: 0 is the coordinator, brokers are 1 to {len(self.brokers)}")
        return self.members[number]

    def start(self, members: Iterable[LocalProcess]) -> None:
        """Start processes that do not run; nobody is ready yet. Raises OSError."""
        for member in members:
            if member.number == COORDINATOR:
                arguments = ["coordinator", "--data", str(member.folder / "data"), "--listen", member.address]
            else:
                member.folder.mkdir(exist_ok=True)
                path = member.folder / "server.properties"
                path.write_text(format_properties(self.settings(member)))
                arguments = ["start", str(path)]
            member.start(arguments)

    def settings(self, member: LocalProcess) -> dict[str, str]:
        """A broker's server.properties."""
        listener = f"PLAINTEXT://{member.address}"
        replicas = min(3, len(self.brokers))
        in_sync = max(1, replicas - 1)
        return {
            "default.replication.factor": str(replicas),
            "min.insync.replicas": str(in_sync),
            "offsets.topic.replication.factor": str(replicas),
            "transaction.state.log.replication.factor": str(replicas),
            "transaction.state.log.min.isr": str(in_sync),
            # On one machine a broker is not unreachable but gone, and leaders come home while somebody looks on.
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
        """End processes cleanly, and say which had to be; the coordinator goes last. Raises LocalClusterError."""
        members = sorted(members, key=lambda member: member.number == COORDINATOR)
        # One after the other: each hands over what it leads. Without a coordinator nobody can take it.
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
    """One command at a time changes a cluster. Raises LocalClusterError if another is at it."""
    with (folder / "lock").open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LocalClusterError(f"another `barnabas cluster` is at work on {folder}") from None
        yield


def check_ports(members: Iterable[LocalProcess]) -> None:
    """Raises LocalClusterError if somebody else listens where one of these is to."""
    for member in members:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, member.port))
            except OSError as error:
                reason = f"port {member.port} of {member.name} cannot be had: {error.strerror}"
                raise LocalClusterError(f"{reason}; a new cluster takes others with --port") from None


def all_ready(members: Iterable[LocalProcess]) -> bool:
    """Whether all processes that were started here serve. Raises LocalClusterError as soon as one has ended."""
    return not [member for member in members if not member.says_ready()]


def check_config(config: Mapping[str, str]) -> None:
    """Raises LocalClusterError for settings that are not a user's to choose here."""
    for key in config:
        if key in CHOSEN_HERE:
            raise LocalClusterError(f"--config {key}: that is what makes a broker one of this cluster")


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    """Wait for something of the cluster. Raises LocalClusterError."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise LocalClusterError(f"the cluster is not ready after {seconds:.0f} s; each process has an output.log")
        time.sleep(LOOK_SECONDS)


def _sign(file: int) -> None:
    """In the new process, before it becomes another program."""
    os.write(file, b"%d" % os.getpid())


def _has_open(pid: int, path: Path) -> bool:
    """Whether a process has a file open (Linux)."""
    with suppress(OSError):  # it ends meanwhile, or is another user's
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
