"""A cluster of three brokers and a real ZooKeeper, connected through TCP proxies."""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from soak.cluster.replicated_cluster import BROKERS, SESSION_MS, ReplicatedCluster
from tests.barnabas_server import BarnabasServer
from tests.kafka import LAST_WITH_ZOOKEEPER, KafkaServer, ZooKeeperServer
from tests.server_process import BrokerProcess, wait_until

ZOOKEEPER = "zookeeper"
ROOT = "/kafka"

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


class ProcessCluster(ReplicatedCluster):
    """A ZooKeeper and the brokers 1, 2 and 3: Barnabas by default, or Apache Kafka 3.9.1."""

    control_nodes = (ZOOKEEPER,)

    def __init__(self, folder: Path, *, settings: Mapping[str, str] | None = None, kind: str = "barnabas") -> None:
        super().__init__(folder, dict.fromkeys(BROKERS, kind))
        self._settings = {**SETTINGS, **(settings or {})}
        self._zookeeper = ZooKeeperServer(folder / ZOOKEEPER)

    def _start_control_plane(self, stack: ExitStack) -> None:
        stack.callback(self._zookeeper.kill)
        self.start(ZOOKEEPER)
        self._tree = KazooClient(self._zookeeper.address, timeout=30, logger=SILENT)
        self._tree.start(30)
        stack.callback(self._tree.close)
        stack.callback(self._tree.stop)

    def _control_process(self, node: str) -> BrokerProcess:
        return self._zookeeper

    def _place(self, broker_id: int) -> None:
        super()._place(broker_id)
        name = str(broker_id)
        ensemble = self.network.forward(ZOOKEEPER, self._zookeeper.port, name)
        self._addresses[broker_id] |= {"zookeeper.connect": f"127.0.0.1:{ensemble}{ROOT}", "broker.id": name}

    def _broker(self, broker_id: int) -> BrokerProcess:
        properties = {**self._settings, **self._addresses[broker_id]}
        folder = self._folder / f"broker-{broker_id}-{self.kind[broker_id]}"
        port = self._ports[broker_id]
        if self.kind[broker_id] == "barnabas":
            return BarnabasServer(folder, properties=properties, port=port)
        ensemble = properties["zookeeper.connect"]
        shape: dict[str, Any] = {"version": LAST_WITH_ZOOKEEPER, "mode": "zookeeper", "zookeeper": ensemble}
        return KafkaServer(folder, properties=properties, port=port, heap="256m", **shape)

    def resign_controller(self) -> None:
        """Delete `/controller`, as operators do, so that the brokers elect a controller."""
        with contextlib.suppress(NoNodeError):
            self._tree.delete(f"{ROOT}/controller")

    # -- state ----------------------------------------------------------------------------------------------------

    def read(self, path: str) -> dict[str, Any]:
        """Return the data of a znode, {} if it does not exist."""
        try:
            found: dict[str, Any] = json.loads(self._tree.retry(self._tree.get, ROOT + path)[0])
        except NoNodeError:
            return {}
        return found

    def names(self, path: str) -> list[str]:
        """Return the children of a znode, [] if it does not exist."""
        try:
            found: list[str] = self._tree.retry(self._tree.get_children, ROOT + path)
        except NoNodeError:
            return []
        return sorted(found)

    def controller(self) -> str:
        """Return the node of the controller; wait until there is a controller."""
        wait_until(lambda: bool(self.read("/controller")), timeout_s=60, what="there is a controller")
        return str(self.read("/controller").get("brokerid", BROKERS[0]))

    def partition(self, topic: str, index: int) -> dict[str, Any]:
        """Return the leader, the ISR and the epochs of a partition from ZooKeeper."""
        return self.read(f"/brokers/topics/{topic}/partitions/{index}/state")

    def _leader(self, topic: str, index: int) -> int:
        return int(self.partition(topic, index).get("leader", -1))

    def wait_for_brokers(self, wanted: tuple[int, ...] = BROKERS, timeout_s: float = 60) -> None:
        """Wait until exactly these brokers are registered, and the metadata of each lists exactly these brokers."""
        names = [str(one) for one in wanted]
        wait_until(lambda: self.names("/brokers/ids") == names, timeout_s=timeout_s, what=f"brokers {names}")
        super().wait_for_brokers(wanted, timeout_s)

    def _is_in_sync(self, topic: str, partitions: int) -> bool:
        replicas = self.read(f"/brokers/topics/{topic}").get("partitions", {})
        states = [self.partition(topic, index) for index in range(partitions)]
        return all(
            sorted(state.get("isr", ())) == sorted(replicas.get(str(index), (None,)))
            for index, state in enumerate(states)
        )

    def on_session_end(self, broker_id: int) -> list[float]:
        """Return a list that receives the time (monotonic) at which the broker's registration is deleted."""
        gone: list[float] = []
        self._tree.exists(f"{ROOT}/brokers/ids/{broker_id}", watch=lambda _: gone.append(time.monotonic()))
        return gone
