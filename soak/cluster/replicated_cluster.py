"""Three brokers and the nodes of their control plane, each a process, connected through TCP proxies."""

from __future__ import annotations

import contextlib
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from soak.cluster.network import NetworkProcess, Way
from tests.server_process import BrokerProcess, free_port, wait_until, wait_until_all_registered

BROKERS = (1, 2, 3)
CLIENT = "client"
SESSION_MS = 4000


class ReplicatedCluster(ABC):
    """The brokers 1, 2 and 3 and the control nodes, each a process with a folder. The cluster is a context manager.

    The kinds of brokers are "barnabas" and "kafka"; a broker of the other kind can continue with the data of a broker.
    `network` cuts the links between the brokers, the control nodes and "client".
    """

    control_nodes: ClassVar[tuple[str, ...]]

    def __init__(self, folder: Path, kinds: Mapping[int, str]) -> None:
        self.kind = dict(kinds)
        self.network = NetworkProcess()
        self.brokers: dict[int, BrokerProcess] = {}
        self._folder = folder
        self._stack = ExitStack()
        self._paused: set[str] = set()
        self._addresses: dict[int, dict[str, str]] = {}
        self._ports: dict[int, int] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.network)
            self._start_control_plane(stack)
            stack.callback(self._kill_brokers)
            for broker_id in BROKERS:
                self._place(broker_id)
                self.brokers[broker_id] = self._broker(broker_id)
            self._start_together(map(str, BROKERS))
            self.wait_for_brokers()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @abstractmethod
    def _start_control_plane(self, stack: ExitStack) -> None:
        """Start the control nodes, and register their stop in the exit stack."""

    @abstractmethod
    def _broker(self, broker_id: int) -> BrokerProcess:
        """Create a broker of the kind in `kind`, without starting it."""

    def _place(self, broker_id: int) -> None:
        """Choose the ports of a broker and the proxies in front of the ports."""
        name, clients, internal = str(broker_id), free_port(), free_port()
        proxies = {
            "CLIENT": self.network.forward(name, clients, CLIENT),
            "INTERNAL": self.network.forward(name, internal),
        }
        self._ports[broker_id] = clients
        self._addresses[broker_id] = {
            "listeners": f"CLIENT://127.0.0.1:{clients},INTERNAL://127.0.0.1:{internal}",
            "advertised.listeners": ",".join(f"{one}://127.0.0.1:{port}" for one, port in proxies.items()),
            "log.dirs": str(self.log_dir(broker_id)),
        }

    def _start_together(self, nodes: Iterable[str]) -> None:
        processes = [self.process(node) for node in nodes]
        for process in processes:
            process.launch()
        running = {node: self.process(node) for node in self.nodes}
        self.network.set_processes({node: one.pid for node, one in running.items() if one.is_running})
        for process in processes:
            process.wait_until_ready()

    def _kill_brokers(self) -> None:
        for broker in self.brokers.values():
            broker.kill()

    # -- faults ---------------------------------------------------------------------------------------------------

    def kill(self, node: str) -> None:
        """Send SIGKILL to a node."""
        self._paused.discard(node)
        self.process(node).kill()

    def start(self, node: str) -> None:
        """Start a process that was killed or stopped, and wait until it responds."""
        self._start_together([node])

    def stop(self, node: str) -> None:
        """Send SIGTERM to a node and wait until it exits. A broker does a controlled shutdown."""
        status = self.process(node).stop()
        assert status in (0, 143), f"{node} exited {status}:\n{self.process(node).log_tail()}"

    def pause(self, node: str) -> None:
        """Send SIGSTOP to a node."""
        os.kill(self.process(node).pid, signal.SIGSTOP)
        self._paused.add(node)

    def resume(self, node: str) -> None:
        """Send SIGCONT to a node."""
        os.kill(self.process(node).pid, signal.SIGCONT)
        self._paused.discard(node)

    def swap(self, broker_id: int, kind: str) -> None:
        """Stop a broker cleanly, and start a broker of this kind with the same folder, id and ports."""
        self.stop(str(broker_id))
        self.kind[broker_id] = kind
        self.brokers[broker_id] = self._broker(broker_id)
        self.start(str(broker_id))

    def restart_control_nodes(self) -> None:
        """Stop and start each control node, and wait for a controller before the next control node."""
        for node in self.control_nodes:
            self.stop(node)
            self.start(node)
            self.controller()

    def heal(self) -> None:
        """Heal all links, resume the paused processes and start the processes that do not run."""
        self.network.heal()
        for node in list(self._paused):
            self.resume(node)
        for node in self.nodes:
            if not self.process(node).is_running:
                self.start(node)

    @staticmethod
    def ways(node: str, others: Iterable[str]) -> list[Way]:
        """Return the links between a node and others, in both directions."""
        return [way for other in others if other != node for way in ((node, other), (other, node))]

    # -- state ----------------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the names of the control nodes and the brokers."""
        return (*self.control_nodes, *map(str, self.brokers))

    def process(self, node: str) -> BrokerProcess:
        """Return the process of a control node or a broker."""
        return self._control_process(node) if node in self.control_nodes else self.brokers[int(node)]

    @abstractmethod
    def _control_process(self, node: str) -> BrokerProcess: ...

    @property
    def bootstrap(self) -> str:
        """Return the addresses of all brokers for clients."""
        return ",".join(self.address(one) for one in BROKERS)

    def address(self, broker_id: int) -> str:
        """Return the address of a broker for clients, which is the address of a proxy."""
        return self._addresses[broker_id]["advertised.listeners"].split(",")[0].removeprefix("CLIENT://")

    def log_dir(self, broker_id: int) -> Path:
        """Return the log directory of a broker of either kind."""
        return self._folder / f"data-{broker_id}"

    @abstractmethod
    def controller(self) -> str:
        """Return the node of the controller; wait until there is a controller."""

    def leader(self, topic: str, index: int) -> int:
        """Return the leader of a partition; wait until there is a leader."""
        found: list[int] = []

        def leads() -> bool:
            found.append(self._leader(topic, index))
            return found[-1] >= 0

        wait_until(leads, timeout_s=60, what=f"{topic}-{index} has a leader", interval_s=0.1)
        return found[-1]

    @abstractmethod
    def _leader(self, topic: str, index: int) -> int:
        """Return the leader of a partition, -1 if it has no leader."""

    def wait_for_brokers(self, wanted: tuple[int, ...] = BROKERS, timeout_s: float = 60) -> None:
        """Wait until the metadata of each of these brokers lists exactly these brokers."""
        wait_until_all_registered([self.brokers[one] for one in wanted], timeout_s)

    def wait_for_isr(self, topic: str, partitions: int, timeout_s: float = 60) -> None:
        """Wait until all replicas of a topic are in sync."""
        what = f"all replicas of {topic} are in sync"
        wait_until(lambda: self._is_in_sync(topic, partitions), timeout_s=timeout_s, what=what, interval_s=0.1)

    @abstractmethod
    def _is_in_sync(self, topic: str, partitions: int) -> bool:
        """Return whether all replicas of a topic are in sync."""

    def replica(self, broker_id: int, topic: str, index: int) -> bytes:
        """Return all bytes of a replica's log, from its first segment to its last."""
        folder = self.log_dir(broker_id) / f"{topic}-{index}"
        with contextlib.suppress(FileNotFoundError):
            return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
        return b""
