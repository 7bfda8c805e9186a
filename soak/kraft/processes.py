"""A KRaft cluster of processes: three controllers of Apache Kafka and three brokers, connected through TCP proxies."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka.admin import AdminClient, PartitionMetadata
from soak.cluster.load import IMPATIENT
from soak.cluster.replicated_cluster import SESSION_MS, ReplicatedCluster
from tests.barnabas_server import BarnabasServer
from tests.kafka import NEWEST, KafkaBroker, KafkaControllers
from tests.server_process import BrokerProcess, wait_until

CONTROLLERS = ("3000", "3001", "3002")
MIXED: Mapping[int, str] = {1: "kafka", 2: "barnabas", 3: "barnabas"}

BROKER_SETTINGS = {
    "broker.heartbeat.interval.ms": "500",
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
    # Records of a share group member that lost its session are delivered again soon, up to 10 times.
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "5000",
    "group.share.delivery.count.limit": "10",
    "inter.broker.listener.name": "INTERNAL",
    "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
}
METADATA_LOG_SETTINGS = {
    # Take many snapshots, and keep so little of the log that a broker that was down has to fetch a snapshot.
    "metadata.log.max.record.bytes.between.snapshots": "4000",
    "metadata.max.idle.interval.ms": "100",
    "metadata.max.retention.bytes": "30000",
    "internal.metadata.log.segment.bytes": "10000",
    "internal.metadata.max.batch.size.in.bytes": "8192",
    "internal.metadata.max.fetch.size.in.bytes": "8192",
    "internal.metadata.delete.delay.millis": "1000",
}
CONTROLLER_SETTINGS = {
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "2000",
    "controller.quorum.request.timeout.ms": "1000",
    "unclean.leader.election.enable": "false",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
}


class KRaftProcessCluster(ReplicatedCluster):
    """The controllers 3000, 3001 and 3002 of Apache Kafka and the brokers 1, 2 and 3."""

    control_nodes = CONTROLLERS

    def __init__(
        self,
        folder: Path,
        *,
        kinds: Mapping[int, str] = MIXED,
        version: str = NEWEST,
        settings: Mapping[str, str] | None = None,
        metadata_log: Mapping[str, str] = METADATA_LOG_SETTINGS,
        session_ms: int = SESSION_MS,
    ) -> None:
        """Create a cluster without starting it.

        `settings` apply to the brokers, `metadata_log` to the metadata log of brokers and controllers.
        """
        super().__init__(folder, kinds)
        self._common_settings = {"broker.session.timeout.ms": str(session_ms), **metadata_log}
        self._settings = {**BROKER_SETTINGS, **self._common_settings, **(settings or {})}
        self._version = version

    def _start_control_plane(self, stack: ExitStack) -> None:
        self._controllers = KafkaControllers(
            self._folder / "controllers",
            count=len(CONTROLLERS),
            version=self._version,
            properties={**CONTROLLER_SETTINGS, **self._common_settings},
            forward=lambda node_id, port: self.network.forward(str(node_id), port),
        )
        for server in self._controllers.servers:
            stack.callback(server.kill)
        self._start_together(CONTROLLERS)

    def _control_process(self, node: str) -> BrokerProcess:
        return self._controllers.servers[CONTROLLERS.index(node)]

    def _broker(self, broker_id: int) -> BrokerProcess:
        properties = {**self._settings, **self._addresses[broker_id]}
        folder = self._folder / f"broker-{broker_id}-{self.kind[broker_id]}"
        port = self._ports[broker_id]
        if self.kind[broker_id] == "kafka":
            broker = KafkaBroker(folder, self._controllers, broker_id, port=port, properties=properties)
            broker.log_dir = self.log_dir(broker_id)
            return broker
        own = {
            "broker.id": str(broker_id),
            "process.roles": "broker",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": self._controllers.voters,
        }
        return BarnabasServer(folder, port=port, properties={**properties, **own})

    def controller(self) -> str:
        """Return the node id of the active controller; wait until the quorum has a leader that runs."""

        def leads() -> bool:
            leader = self._controllers.leader()
            return leader is not None and self.process(str(leader)).is_running

        wait_until(leads, timeout_s=60, what="the quorum has a leader", interval_s=0.05)
        return str(self._controllers.leader())

    def partitions(self, topic: str) -> dict[int, PartitionMetadata]:
        """Return the leaders and in-sync replicas of a topic from the metadata of a broker."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **IMPATIENT})
        found: dict[int, PartitionMetadata] = admin.list_topics(topic, timeout=30).topics[topic].partitions
        return found

    def _leader(self, topic: str, index: int) -> int:
        partition = self.partitions(topic).get(index)
        return -1 if partition is None else partition.leader

    def _is_in_sync(self, topic: str, partitions: int) -> bool:
        found = self.partitions(topic)
        return len(found) == partitions and all(
            sorted(one.isrs) == sorted(one.replicas) and one.leader >= 0 for one in found.values()
        )
