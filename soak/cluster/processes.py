"""A cluster of three processes around a real ZooKeeper, every way between them through a door that can be shut."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from soak.cluster.network import Network, Way
from tests.barnabas_server import BarnabasServer
from tests.kafka import LAST_WITH_ZOOKEEPER, KafkaServer, ZooKeeperServer
from tests.server_process import BrokerProcess, free_port, wait_until, wait_until_all_know

BROKERS = (1, 2, 3)
ZOOKEEPER = "zookeeper"
CLIENT = "client"
ROOT = "/kafka"
SESSION_MS = 4000

SETTINGS = {
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "min.insync.replicas": "2",
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "replica.lag.time.max.ms": "3000",
    "replica.socket.timeout.ms": "4000",
    "controller.socket.timeout.ms": "4000",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "inter.broker.listener.name": "INTERNAL",
    "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT",
}

SILENT = logging.getLogger("soak.cluster")
SILENT.propagate = False
SILENT.addHandler(logging.NullHandler())


class ProcessCluster:
    """Three brokers, each a process with a folder. Kinds are "barnabas" (default) and "kafka" (Apache Kafka 3.9.1).

    `network` cuts the ways between "1", "2", "3", "zookeeper" and "client".
    """

    def __init__(self, folder: Path, *, settings: Mapping[str, str] | None = None, kind: str = "barnabas") -> None:
        self._folder = folder
        self._settings = {**SETTINGS, **(settings or {})}
        self._stack = ExitStack()
        self._paused: set[str] = set()
        self.zookeeper = ZooKeeperServer(folder / "zookeeper")
        self.network = Network(self._pids)
        self.brokers: dict[int, BrokerProcess] = {}
        self.kind = dict.fromkeys(BROKERS, kind)
        self._addresses: dict[int, dict[str, str]] = {}
        self._ports: dict[int, int] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._stack = stack
            stack.enter_context(self.zookeeper)
            stack.enter_context(self.network)
            stack.callback(self._kill_all)
            self._tree = KazooClient(self.zookeeper.address, timeout=30, logger=SILENT)
            self._tree.start(30)
            stack.callback(self._tree.close)
            stack.callback(self._tree.stop)
            for broker_id in BROKERS:
                self._place(broker_id)
                self.brokers[broker_id] = self._broker(broker_id)
                self.brokers[broker_id].launch()
            for broker in self.brokers.values():
                broker.wait_until_it_answers()
            self.wait_for_brokers(BROKERS)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _place(self, broker_id: int) -> None:
        """Ports of a broker, and the doors in front of them and between it and ZooKeeper."""
        name, clients, internal = str(broker_id), free_port(), free_port()
        doors = {
            "CLIENT": self.network.forward(name, clients, CLIENT),
            "INTERNAL": self.network.forward(name, internal),
        }
        ensemble = self.network.forward(ZOOKEEPER, self.zookeeper.port, name)
        self._ports[broker_id] = clients
        self._addresses[broker_id] = {
            "listeners": f"CLIENT://127.0.0.1:{clients},INTERNAL://127.0.0.1:{internal}",
            "advertised.listeners": ",".join(f"{one}://127.0.0.1:{port}" for one, port in doors.items()),
            "zookeeper.connect": f"127.0.0.1:{ensemble}{ROOT}",
            "log.dirs": str(self.log_dir(broker_id)),
            "broker.id": name,
        }

    def _broker(self, broker_id: int) -> BrokerProcess:
        properties = {**self._settings, **self._addresses[broker_id]}
        folder = self._folder / f"broker-{broker_id}-{self.kind[broker_id]}"
        port = self._ports[broker_id]
        if self.kind[broker_id] == "barnabas":
            return BarnabasServer(folder, properties=properties, port=port)
        ensemble = properties["zookeeper.connect"]
        shape: dict[str, Any] = {"version": LAST_WITH_ZOOKEEPER, "mode": "zookeeper", "zookeeper": ensemble}
        return KafkaServer(folder, properties=properties, port=port, heap="256m", **shape)

    def _pids(self) -> dict[str, int]:
        return {str(one): broker.pid for one, broker in self.brokers.items() if broker.is_running}

    def _kill_all(self) -> None:
        for broker in self.brokers.values():
            broker.kill()

    # -- what is done to it ---------------------------------------------------------------------------------------

    def kill(self, node: str) -> None:
        """kill -9 of a broker or of ZooKeeper."""
        self._paused.discard(node)
        (self.zookeeper if node == ZOOKEEPER else self.brokers[int(node)]).kill()

    def start(self, node: str) -> None:
        """Start again what was killed or stopped."""
        (self.zookeeper if node == ZOOKEEPER else self.brokers[int(node)]).start()

    def pause(self, node: str) -> None:
        """SIGSTOP."""
        os.kill(self._pid(node), signal.SIGSTOP)
        self._paused.add(node)

    def resume(self, node: str) -> None:
        """SIGCONT."""
        os.kill(self._pid(node), signal.SIGCONT)
        self._paused.discard(node)

    def swap(self, broker_id: int, kind: str) -> None:
        """Stop a broker cleanly and start one of the other kind on its folder, with its id and its ports."""
        assert self.brokers[broker_id].stop() in (0, 143), self.brokers[broker_id].log_tail()
        self.kind[broker_id] = kind
        self.brokers[broker_id] = self._broker(broker_id)
        self.brokers[broker_id].start()

    def resign_controller(self) -> None:
        """Remove `/controller`, as operators do, so that one is elected anew."""
        with contextlib.suppress(NoNodeError):
            self._tree.delete(f"{ROOT}/controller")

    def heal(self) -> None:
        """Everything is connected, runs and goes on."""
        self.network.heal()
        for node in list(self._paused):
            self.resume(node)
        for node in (ZOOKEEPER, *map(str, BROKERS)):
            one = self.zookeeper if node == ZOOKEEPER else self.brokers[int(node)]
            if not one.is_running:
                self.start(node)

    def _pid(self, node: str) -> int:
        return self.zookeeper.pid if node == ZOOKEEPER else self.brokers[int(node)].pid

    @staticmethod
    def ways(node: str, others: tuple[str, ...]) -> list[Way]:
        """Return the links between a node and others, in both directions."""
        return [way for other in others if other != node for way in ((node, other), (other, node))]

    # -- what is seen of it ---------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """The addresses clients go to."""
        doors = [self._addresses[one]["advertised.listeners"].split(",")[0] for one in BROKERS]
        return ",".join(door.removeprefix("CLIENT://") for door in doors)

    def address(self, broker_id: int) -> str:
        """Where clients find this broker."""
        return self.bootstrap.split(",")[broker_id - 1]

    def log_dir(self, broker_id: int) -> Path:
        """The broker's data, whatever kind it is."""
        return self._folder / f"data-{broker_id}"

    def read(self, path: str) -> dict[str, Any]:
        """A node of the tree, {} if it is not there."""
        try:
            found: dict[str, Any] = json.loads(self._tree.retry(self._tree.get, ROOT + path)[0])
        except NoNodeError:
            return {}
        return found

    def names(self, path: str) -> list[str]:
        """The children of a node of the tree, none if it is not there."""
        try:
            found: list[str] = self._tree.retry(self._tree.get_children, ROOT + path)
        except NoNodeError:
            return []
        return sorted(found)

    def controller(self) -> str:
        """Return the node of the controller; wait for one."""
        wait_until(lambda: bool(self.read("/controller")), timeout_s=60, what="there is a controller")
        return str(self.read("/controller").get("brokerid", BROKERS[0]))

    def partition(self, topic: str, index: int) -> dict[str, Any]:
        """Leader, ISR and epochs as the tree has them."""
        return self.read(f"/brokers/topics/{topic}/partitions/{index}/state")

    def wait_for_brokers(self, wanted: tuple[int, ...], timeout_s: float = 60) -> None:
        """Wait until these are registered, and no other, and all of them have been told so."""
        names = [str(one) for one in wanted]
        wait_until(lambda: self.names("/brokers/ids") == names, timeout_s=timeout_s, what=f"brokers {names}")
        wait_until_all_know([self.brokers[one] for one in wanted], timeout_s)

    def wait_for_isr(self, topic: str, partitions: int, timeout_s: float = 60) -> None:
        """Wait until all replicas of a topic are in sync."""

        def full() -> bool:
            replicas = self.read(f"/brokers/topics/{topic}").get("partitions", {})
            states = [self.partition(topic, index) for index in range(partitions)]
            return all(
                sorted(state.get("isr", ())) == sorted(replicas.get(str(index), (None,)))
                for index, state in enumerate(states)
            )

        wait_until(full, timeout_s=timeout_s, what=f"all replicas of {topic} are in sync", interval_s=0.05)

    def on_session_end(self, broker_id: int) -> list[float]:
        """A list that gets the moment (monotonic) in which the broker's registration goes."""
        gone: list[float] = []
        self._tree.exists(f"{ROOT}/brokers/ids/{broker_id}", watch=lambda _: gone.append(time.monotonic()))
        return gone

    def replica(self, broker_id: int, topic: str, index: int) -> bytes:
        """All bytes of a replica's log, from its first segment to its last."""
        folder = self.log_dir(broker_id) / f"{topic}-{index}"
        with contextlib.suppress(FileNotFoundError):
            return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
        return b""
