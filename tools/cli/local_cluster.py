"""A cluster of processes on this machine: the contents of its directory.

DIR/cluster.json                              ports and settings
DIR/lock                                      locked by a running command
DIR/coordinator or DIR/controller-101, …      of each process: `pid`, `output.log`, its data
DIR/broker-1, …
"""

from __future__ import annotations

import fcntl
import json
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from ...common.properties import format_properties
from .kafka_home import KafkaHome
from .kafka_quorum import CONTROLLERS, KafkaQuorum
from .local_process import (
    BARNABAS,
    HOST,
    LOOK_SECONDS,
    ControllerProcess,
    LocalClusterError,
    LocalProcess,
    make_private,
    write_private,
)

COORDINATOR = 0
"""The number of the coordinator process; brokers begin with 1."""
HALF_WRITTEN = "cluster.json.new"
"""Files that a failed start on a full disk may leave instead of `cluster.json`."""
CHOSEN_HERE = (
    "broker.id", "node.id", "listeners", "advertised.listeners", "log.dirs", "log.dir", "zookeeper.connect",
    "process.roles", "controller.listener.names", "controller.quorum.bootstrap.servers", "controller.quorum.voters",
)  # fmt: skip
"""Settings that make a broker a member of the cluster."""


class LocalCluster:
    """The cluster of a directory, created with `create` or `load`."""

    def __init__(
        self, folder: Path, ports: Sequence[int], config: Mapping[str, str], quorum: KafkaQuorum | None = None
    ) -> None:
        """`ports` are the ports of the brokers, after the port of the coordinator unless there is a quorum."""
        self.folder = folder
        self.config = dict(config)
        self.quorum = quorum
        self.controllers: Sequence[LocalProcess] = (
            [LocalProcess(COORDINATOR, "coordinator", folder / "coordinator", ports[0])]
            if quorum is None
            else quorum.processes
        )
        """The processes with the metadata: the coordinator, or the controllers of Apache Kafka."""
        self.brokers = [
            LocalProcess(number, f"broker {number}", folder / f"broker-{number}", port)
            for number, port in enumerate(ports[1:] if quorum is None else ports, 1)
        ]
        self.members: list[LocalProcess] = [*self.controllers, *self.brokers]

    @classmethod
    def load(cls, folder: Path) -> LocalCluster:
        """Load the cluster of a directory. Raises LocalClusterError if there is none."""
        try:
            known = json.loads((folder / "cluster.json").read_text())
            ports, config = list(map(int, known["ports"])), dict(known["config"])
            if len(ports) < 2 or not all(isinstance(value, str) for value in config.values()):
                raise ValueError("expected ports of a coordinator and a broker, and settings as strings")
            if "quorum" not in known:
                return cls(folder, ports, config)
            quorum = KafkaQuorum.from_json(folder, ports[:CONTROLLERS], known["quorum"])
            return cls(folder, ports[CONTROLLERS:], config, quorum)
        except FileNotFoundError:
            raise LocalClusterError(f"{folder} contains no cluster; `barnabas cluster start` creates one") from None
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise LocalClusterError(f"{folder}/cluster.json cannot be read: {error}") from error

    @classmethod
    def create(
        cls, folder: Path, brokers: int, port: int, config: Mapping[str, str], *, with_quorum: bool = False
    ) -> LocalCluster:
        """Create a cluster in an empty directory; `port` is the first broker's, 0 for any free ports.

        `with_quorum`: the controllers are Apache Kafka's. Raises LocalClusterError.
        """
        if any(path.name not in ("lock", HALF_WRITTEN) for path in folder.iterdir()):
            raise LocalClusterError(f"{folder} is not empty and contains no cluster")
        before = CONTROLLERS if with_quorum else 1
        first, last = port - before, port + brokers - 1
        if port and (first < 1 or last > 65535):
            raise LocalClusterError(f"ports {first} to {last} are invalid; choose others with --port")
        ports = list(range(first, last + 1)) if port else _free_ports(before + brokers)
        if not with_quorum:
            return cls(folder, ports, config)
        return cls(folder, ports[before:], config, KafkaQuorum.create(folder, ports[:before]))

    def save(self) -> None:
        """Write cluster.json atomically. Raises OSError."""
        known = {"ports": [member.port for member in self.members], "config": self.config}
        if self.quorum is not None:
            known["quorum"] = self.quorum.to_json()
        fresh = self.folder / HALF_WRITTEN
        write_private(fresh, json.dumps(known, indent=2) + "\n")
        fresh.replace(self.folder / "cluster.json")

    @property
    def running(self) -> list[LocalProcess]:
        return [member for member in self.members if member.pid() is not None]

    @property
    def bootstrap(self) -> str:
        """Return `bootstrap.servers` with all brokers."""
        return ",".join(member.address for member in self.brokers)

    @property
    def has_metadata(self) -> bool:
        """Whether the coordinator, or a majority of the controllers, runs. Without it no broker can start."""
        return 2 * sum(member.pid() is not None for member in self.controllers) > len(self.controllers)

    def member(self, number: int) -> LocalProcess:
        """Return the process. Raises LocalClusterError if it does not exist."""
        for member in self.members:
            if member.number == number:
                return member
        first, last = self.controllers[0], self.controllers[-1]
        others = "0 is the coordinator" if self.quorum is None else f"controllers are {first.number} to {last.number}"
        raise LocalClusterError(f"unknown number {number}: {others}, brokers are 1 to {len(self.brokers)}")

    def start(self, members: Iterable[LocalProcess], home: KafkaHome | None = None) -> None:
        """Start the stopped processes, without waiting for them. Raises LocalClusterError, OSError.

        `home` is required to start controllers of Apache Kafka.
        """
        for member in members:
            if isinstance(member, ControllerProcess):
                assert self.quorum is not None and home is not None, "a controller is a program of Apache Kafka"
                member.start(self.quorum.command(home, member))
            elif member.number == COORDINATOR:
                arguments = ["coordinator", "--data", str(member.folder / "data"), "--listen", member.address]
                if sys.platform == "linux":
                    # Otherwise other users of this machine could write into the tree.
                    arguments.append("--owner-only")
                member.start([*BARNABAS, *arguments])
            else:
                make_private(member.folder)
                path = member.folder / "server.properties"
                write_private(path, format_properties(self.settings(member)))
                member.start([*BARNABAS, "start", str(path)])

    def format(self, home: KafkaHome) -> None:
        """Prepare the directories of the controllers of Apache Kafka. Raises LocalClusterError, OSError."""
        assert self.quorum is not None, "the coordinator has no format"
        was_formatted = self.quorum.is_formatted
        self.quorum.format(home, self._common_settings())
        if not was_formatted:
            self.save()

    def _common_settings(self) -> dict[str, str]:
        replicas = min(3, len(self.brokers))
        in_sync = max(1, replicas - 1)
        return {
            "default.replication.factor": str(replicas),
            "min.insync.replicas": str(in_sync),
            "offsets.topic.replication.factor": str(replicas),
            "transaction.state.log.replication.factor": str(replicas),
            "transaction.state.log.min.isr": str(in_sync),
            "share.coordinator.state.topic.replication.factor": str(replicas),
            "share.coordinator.state.topic.min.isr": str(in_sync),
            # Preferred leaders should return while the user watches.
            "leader.imbalance.check.interval.seconds": "10",
            **self.config,
        }

    def settings(self, member: LocalProcess) -> dict[str, str]:
        """Return a broker's server.properties."""
        listener = f"PLAINTEXT://{member.address}"
        number = str(member.number)
        if self.quorum is None:
            # On one machine an unreachable broker has died.
            common = {"zookeeper.session.timeout.ms": "2000", **self._common_settings()}
            membership = {"broker.id": number, "zookeeper.connect": self.controllers[0].address}
        else:
            common = {"broker.heartbeat.interval.ms": "1000", **self._common_settings()}
            membership = {
                "process.roles": "broker",
                "node.id": number,
                **self.quorum.common_settings(self.config),
            }
        return {
            **common,
            **membership,
            "listeners": listener,
            "advertised.listeners": listener,
            "log.dirs": str(member.folder / "data"),
        }

    def stop(self, members: Iterable[LocalProcess]) -> list[tuple[LocalProcess, int]]:
        """End processes cleanly, and return which were ended; brokers are first. Raises LocalClusterError."""
        members = sorted(members, key=lambda member: member in self.controllers)
        # One after the other: each transfers its leaderships, which requires the controllers.
        one_by_one = self.has_metadata
        stopped = []
        for member in members:
            pid = member.send(signal.SIGTERM)
            if pid is not None:
                stopped.append((member, pid))
                if one_by_one and member in self.brokers:
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
            raise LocalClusterError(f"--config {key}: not supported: `barnabas cluster` sets this key")


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    """Wait for a condition of the cluster. Raises LocalClusterError."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise LocalClusterError(f"the cluster is not ready after {seconds:.0f} s; each process has an output.log")
        time.sleep(LOOK_SECONDS)


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind((HOST, 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()
