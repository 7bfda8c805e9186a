"""A KRaft cluster of processes: three controllers of Apache Kafka and three brokers, connected through TCP proxies."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka.admin import AdminClient, PartitionMetadata
from soak.cluster.load import IMPATIENT
from soak.cluster.network import NetworkProcess, Way
from tests.barnabas_server import BarnabasServer
from tests.kafka import NEWEST, KafkaBroker, KafkaControllers
from tests.server_process import BrokerProcess, free_port, wait_until, wait_until_all_know

BROKERS = (1, 2, 3)
CONTROLLERS = ("3000", "3001", "3002")
CLIENT = "client"
SESSION_MS = 4000
MIXED: Mapping[int, str] = {1: "kafka", 2: "barnabas", 3: "barnabas"}

BROKER_SETTINGS = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": str(SESSION_MS),
    "default.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "3",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "3000",
    "replica.socket.timeout.ms": "4000",
    "request.timeout.ms": "4000",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    # Records of a share member that lost its session are delivered again soon, however often.
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "5000",
    "group.share.delivery.count.limit": "10",
    "inter.broker.listener.name": "INTERNAL",
    "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
}
METADATA_LOG_SETTINGS = {
    # Many snapshots, and a log so short that a broker that was away has to fetch one.
    "metadata.log.max.record.bytes.between.snapshots": "4000",
    "metadata.max.idle.interval.ms": "100",
    "metadata.max.retention.bytes": "30000",
    "internal.metadata.log.segment.bytes": "10000",
    "internal.metadata.max.batch.size.in.bytes": "8192",
    "internal.metadata.max.fetch.size.in.bytes": "8192",
    "internal.metadata.delete.delay.millis": "1000",
}
CONTROLLER_SETTINGS = {
    "broker.session.timeout.ms": str(SESSION_MS),
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "2000",
    "controller.quorum.request.timeout.ms": "1000",
    "unclean.leader.election.enable": "false",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
}


class KRaftProcessCluster:
    """Three controllers and the brokers 1, 2 and 3, each a process with a folder.

    The kinds of brokers are "barnabas" and "kafka"; a broker of the other kind can continue with the data of a broker.
    `network` cuts the links between "1", "2", "3", "3000", "3001", "3002" and "client".
    """

    def __init__(
        self,
        folder: Path,
        *,
        kinds: Mapping[int, str] = MIXED,
        version: str = NEWEST,
        settings: Mapping[str, str] | None = None,
        metadata_log: Mapping[str, str] = METADATA_LOG_SETTINGS,
    ) -> None:
        """`settings` are of the brokers, `metadata_log` of the metadata log of brokers and controllers."""
        self._folder = folder
        self._metadata_log = metadata_log
        self._settings = {**BROKER_SETTINGS, **metadata_log, **(settings or {})}
        self._version = version
        self._stack = ExitStack()
        self._paused: set[str] = set()
        self._addresses: dict[int, dict[str, str]] = {}
        self._ports: dict[int, int] = {}
        self.kind = dict(kinds)
        self.network = NetworkProcess()
        self.brokers: dict[int, BrokerProcess] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.network)
            self.controllers = KafkaControllers(
                self._folder / "controllers",
                count=len(CONTROLLERS),
                version=self._version,
                properties={**CONTROLLER_SETTINGS, **self._metadata_log},
                forward=lambda node_id, port: self.network.forward(str(node_id), port),
            )
            stack.callback(self._kill_all)
            for broker_id in BROKERS:
                self._place(broker_id)
                self.brokers[broker_id] = self._broker(broker_id)
            for nodes in (CONTROLLERS, tuple(map(str, BROKERS))):
                self._start_together(nodes)
            self.wait_for_brokers()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _place(self, broker_id: int) -> None:
        """Choose the ports of a broker, and the proxies in front of them."""
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

    def _broker(self, broker_id: int) -> BrokerProcess:
        properties = {**self._settings, **self._addresses[broker_id]}
        folder = self._folder / f"broker-{broker_id}-{self.kind[broker_id]}"
        port = self._ports[broker_id]
        if self.kind[broker_id] == "kafka":
            broker = KafkaBroker(folder, self.controllers, broker_id, port=port, properties=properties)
            broker.log_dir = self.log_dir(broker_id)
            return broker
        own = {
            "broker.id": str(broker_id),
            "process.roles": "broker",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": self.controllers.voters,
        }
        return BarnabasServer(folder, port=port, properties={**properties, **own})

    def _pids(self) -> dict[str, int]:
        processes = dict(zip(CONTROLLERS, self.controllers.servers, strict=True)) | {
            str(one): broker for one, broker in self.brokers.items()
        }
        return {name: one.pid for name, one in processes.items() if one.is_running}

    def _start_together(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            self.process(node).launch()
        self.network.set_processes(self._pids())
        for node in nodes:
            self.process(node).wait_until_it_answers()

    def _kill_all(self) -> None:
        for node in (*map(str, self.brokers), *CONTROLLERS):
            self.process(node).kill()

    def process(self, node: str) -> BrokerProcess:
        """Return the process of a broker or controller."""
        return self.controllers.servers[CONTROLLERS.index(node)] if node in CONTROLLERS else self.brokers[int(node)]

    # -- faults ---------------------------------------------------------------------------------------------------

    def kill(self, node: str) -> None:
        """kill -9."""
        self._paused.discard(node)
        self.process(node).kill()

    def start(self, node: str) -> None:
        """Start a process that was killed or stopped, and wait until it answers."""
        self._start_together([node])

    def stop(self, node: str) -> None:
        """SIGTERM; a broker ends with a controlled shutdown."""
        status = self.process(node).stop()
        assert status in (0, 143), f"{node} exited {status}:\n{self.process(node).log_tail()}"

    def pause(self, node: str) -> None:
        """SIGSTOP."""
        os.kill(self.process(node).pid, signal.SIGSTOP)
        self._paused.add(node)

    def resume(self, node: str) -> None:
        """SIGCONT."""
        os.kill(self.process(node).pid, signal.SIGCONT)
        self._paused.discard(node)

    def restart_controllers(self) -> None:
        """Stop and start each controller, the next one when the previous one follows or leads again."""
        for node in CONTROLLERS:
            self.stop(node)
            self.start(node)
            self.wait_for_controller()

    def swap(self, broker_id: int, kind: str) -> None:
        """Stop a broker cleanly and start one of the other kind on its folder, with its id and its ports."""
        self.stop(str(broker_id))
        self.kind[broker_id] = kind
        self.brokers[broker_id] = self._broker(broker_id)
        self.start(str(broker_id))

    def heal(self) -> None:
        """Connect all nodes, resume the paused processes and start the others."""
        self.network.heal()
        for node in list(self._paused):
            self.resume(node)
        for node in (*CONTROLLERS, *map(str, BROKERS)):
            if not self.process(node).is_running:
                self.start(node)

    @staticmethod
    def ways(node: str, others: Iterable[str]) -> list[Way]:
        """Return the links between a node and others, in both directions."""
        return [way for other in others if other != node for way in ((node, other), (other, node))]

    # -- state ----------------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers for clients."""
        return ",".join(self.address(one) for one in BROKERS)

    def address(self, broker_id: int) -> str:
        """The address of a broker for clients, which leads through a proxy."""
        return self._addresses[broker_id]["advertised.listeners"].split(",")[0].removeprefix("CLIENT://")

    def log_dir(self, broker_id: int) -> Path:
        """The log directory of a broker of either kind."""
        return self._folder / f"data-{broker_id}"

    def controller(self) -> str:
        """Return the node id of the active controller; wait for one."""
        self.wait_for_controller()
        return str(self.controllers.leader())

    def wait_for_controller(self, timeout_s: float = 60) -> None:
        """Wait until the quorum has a leader that runs."""

        def leads() -> bool:
            leader = self.controllers.leader()
            return leader is not None and self.process(str(leader)).is_running

        wait_until(leads, timeout_s=timeout_s, what="the quorum has a leader", interval_s=0.05)

    def partitions(self, topic: str) -> dict[int, PartitionMetadata]:
        """Return leaders and in-sync replicas by the metadata of one of the brokers."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **IMPATIENT})
        found: dict[int, PartitionMetadata] = admin.list_topics(topic, timeout=30).topics[topic].partitions
        return found

    def leader(self, topic: str, index: int) -> int:
        """Return the leader of a partition; wait for one."""
        found: list[int] = []

        def leads() -> bool:
            partition = self.partitions(topic).get(index)
            found.append(-1 if partition is None else partition.leader)
            return found[-1] >= 0

        wait_until(leads, timeout_s=60, what=f"{topic}-{index} has a leader", interval_s=0.1)
        return found[-1]

    def wait_for_brokers(self, timeout_s: float = 60) -> None:
        """Wait until each broker knows all brokers, none of them fenced."""
        wait_until_all_know([self.brokers[one] for one in BROKERS], timeout_s)

    def wait_for_isr(self, topic: str, partitions: int, timeout_s: float = 60) -> None:
        """Wait until all replicas of a topic are in sync."""

        def full() -> bool:
            found = self.partitions(topic)
            return len(found) == partitions and all(
                sorted(one.isrs) == sorted(one.replicas) and one.leader >= 0 for one in found.values()
            )

        wait_until(full, timeout_s=timeout_s, what=f"all replicas of {topic} are in sync", interval_s=0.1)

    def replica(self, broker_id: int, topic: str, index: int) -> bytes:
        """All bytes of a replica's log, from its first segment to its last."""
        folder = self.log_dir(broker_id) / f"{topic}-{index}"
        with contextlib.suppress(FileNotFoundError):
            return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
        return b""
