"""The servers of a comparison: Barnabas, Apache Kafka and the ceiling, each a process with a separate folder."""

import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from bench.listeners import SecuredListeners
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from tests.barnabas_server import BarnabasServer
from tests.kafka import LAST_WITH_ZOOKEEPER, SERVER_FLAGS, KafkaBroker, KafkaControllers, KafkaServer, ZooKeeperServer
from tests.server_process import ServerProcess, free_port, is_broker_ready, wait_until, wait_until_all_registered

# A round fits into one segment, because both brokers sync a segment that they roll, and that would measure the disk.
# Its space is freed one second later, so that the files of a round do not slow down the next round.
COMMON_PROPERTIES = {
    "log.segment.bytes": str(2**31 - 1),
    "log.segment.delete.delay.ms": "1000",
    "auto.create.topics.enable": "false",
}
# Kafka deletes nothing in its first half minute without this setting.
KAFKA_PROPERTIES = {"log.initial.task.delay.ms": "1000"}
TIMEOUT_S = 600.0
"""The timeout of a start or a clean stop: with ten thousand partitions either can take minutes."""
MAX_PARTITIONS_PER_REQUEST = 5000
"""Partitions per request: a KRaft controller rejects a request that needs more than 10 000 metadata records."""


class Target(Protocol):
    """A server under test."""

    name: str

    @property
    def bootstrap(self) -> str: ...
    @property
    def pids(self) -> tuple[int, ...]: ...
    def prepare(self) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...
    def create_topic(self, topic: str, partitions: int = 1) -> None: ...
    def create_topics(self, topics: Sequence[str], partitions: int = 1) -> None: ...
    def delete_topic(self, topic: str) -> None: ...
    def delete_topics(self, topics: Sequence[str]) -> None: ...
    def remove(self) -> None: ...


class BrokerTarget:
    """One or several brokers of one kind. Topics are created by an admin client, with a replica on every broker."""

    def __init__(self, name: str, *servers: BarnabasServer | KafkaServer) -> None:
        self.name = name
        self.servers = servers
        self.listeners: SecuredListeners | None = None
        """The TLS and SASL listeners of a single broker."""
        self._admin: AdminClient | None = None

    @property
    def bootstrap(self) -> str:
        return ",".join(server.bootstrap for server in self.servers)

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(server.pid for server in self.servers)

    def prepare(self) -> None:
        """Prepare the first start: Apache Kafka requires a formatted log directory."""
        for server in self.servers:
            if isinstance(server, KafkaServer):
                server.prepare()

    def start(self) -> None:
        for server in self.servers:
            server.start(timeout_s=TIMEOUT_S)

    def stop(self) -> None:
        for server in self.servers:
            server.stop(timeout_s=TIMEOUT_S)

    def kill(self) -> None:
        for server in self.servers:
            server.kill()

    def admin(self) -> AdminClient:
        """Return an admin client of the brokers."""
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return self._admin

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        """Create `topic` and return once its partitions have leaders."""
        self._create([topic], min(partitions, MAX_PARTITIONS_PER_REQUEST))
        for end in range(
            2 * MAX_PARTITIONS_PER_REQUEST, partitions + MAX_PARTITIONS_PER_REQUEST, MAX_PARTITIONS_PER_REQUEST
        ):
            wider = NewPartitions(topic, min(end, partitions))
            for future in self.admin().create_partitions([wider], operation_timeout=120, request_timeout=120).values():
                future.result()
        self._await_leaders([topic], partitions)

    def create_topics(self, topics: Sequence[str], partitions: int = 1) -> None:
        """Create topics of this number of partitions each and return once all have leaders."""
        per_request = MAX_PARTITIONS_PER_REQUEST // partitions
        for start in range(0, len(topics), per_request):
            self._create(topics[start : start + per_request], partitions)

    def _create(self, topics: Sequence[str], partitions: int) -> None:
        if not topics:
            return
        admin = self.admin()
        new = [NewTopic(topic, partitions, len(self.servers)) for topic in topics]
        for future in admin.create_topics(new, operation_timeout=120, request_timeout=120).values():
            future.result()
        self._await_leaders(topics, partitions)

    def _await_leaders(self, topics: Sequence[str], partitions: int) -> None:
        admin = self.admin()

        def has_leaders() -> bool:
            found = admin.list_topics(topics[0] if len(topics) == 1 else None, timeout=60).topics
            made = [found[topic].partitions for topic in topics if topic in found]
            led = sum(entry.leader >= 0 for entries in made for entry in entries.values())
            return led == partitions * len(topics)

        wait_until(has_leaders, timeout_s=120, what=f"leaders of {topics[0]} and others")

    def delete_topic(self, topic: str) -> None:
        self.delete_topics([topic])

    def delete_topics(self, topics: Sequence[str]) -> None:
        admin = self.admin()
        for future in admin.delete_topics(list(topics), operation_timeout=120, request_timeout=120).values():
            future.result()

    def remove(self) -> None:
        """End the servers and delete their folders."""
        self.kill()
        for server in self.servers:
            shutil.rmtree(server.folder, ignore_errors=True)


class ClusterTarget(BrokerTarget):
    """Brokers 1, 2, … of a kind with a separate ZooKeeper. They have started when each broker lists all brokers."""

    def __init__(self, name: str, folder: Path, size: int, properties: Mapping[str, str]) -> None:
        self.zookeeper = ZooKeeperServer(folder / f"{name}-zookeeper")
        self._stack = ExitStack()
        servers: list[BarnabasServer | KafkaServer] = []
        for number in range(1, size + 1):
            own = {**properties, "broker.id": str(number), "zookeeper.connect": self.zookeeper.address}
            where = folder / f"{name}-{number}"
            if name == "barnabas":
                servers.append(BarnabasServer(where, properties=own))
            else:
                servers.append(
                    KafkaServer(
                        where,
                        version=LAST_WITH_ZOOKEEPER,
                        mode="zookeeper",
                        zookeeper=self.zookeeper.address,
                        properties=own,
                        jvm_flags=SERVER_FLAGS,
                    )
                )
        super().__init__(name, *servers)

    def start(self) -> None:
        self._stack.enter_context(self.zookeeper)
        super().start()
        for server in self.servers:
            admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})

            def lists_all_brokers(admin: AdminClient = admin) -> bool:
                return len(admin.list_topics(timeout=60).brokers) == len(self.servers)

            wait_until(lists_all_brokers, timeout_s=120, what=f"{server.bootstrap} lists all brokers")

    def remove(self) -> None:
        super().remove()
        self._stack.close()
        shutil.rmtree(self.zookeeper.folder, ignore_errors=True)


class KRaftTarget(BrokerTarget):
    """Brokers 1, 2, … of a kind with three controllers of Apache Kafka, started when each broker lists all brokers."""

    def __init__(self, name: str, folder: Path, size: int, properties: Mapping[str, str]) -> None:
        self.controllers = KafkaControllers(folder / f"{name}-controllers", count=3, properties=properties)
        self._folder = folder / f"{name}-controllers"
        self._stack = ExitStack()
        servers: list[BarnabasServer | KafkaServer] = []
        for number in range(1, size + 1):
            where = folder / f"{name}-{number}"
            if name == "kafka":
                servers.append(
                    KafkaBroker(
                        where, self.controllers, number, heap="1g", properties=properties, jvm_flags=SERVER_FLAGS
                    )
                )
                continue
            own = {
                "broker.id": str(number),
                "process.roles": "broker",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": self.controllers.voters,
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            }
            servers.append(BarnabasServer(where, properties={**properties, **own}))
        super().__init__(name, *servers)

    def start(self) -> None:
        self._stack.enter_context(self.controllers)
        for server in self.servers:
            server.launch()
        for server in self.servers:
            server.wait_until_ready(TIMEOUT_S)
        wait_until_all_registered(self.servers, 120)

    def remove(self) -> None:
        super().remove()
        self._stack.close()
        shutil.rmtree(self._folder, ignore_errors=True)


class CeilingTarget:
    """The bare socket-to-file server, or the `sink`, whose files are always empty. Topics exist when first named."""

    def __init__(self, name: str, folder: Path, partitions: int) -> None:
        self.name = name
        self.folder = folder
        self._partitions = partitions
        self._port = free_port()
        self._process: ServerProcess | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def pids(self) -> tuple[int, ...]:
        assert self._process is not None, "the ceiling is not running"
        return (self._process.pid,)

    def prepare(self) -> None:
        """Do nothing."""

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        arguments = [str(self._port), str(self.folder / "data"), str(self._partitions), self.name]
        command = [sys.executable, "-m", "bench.ceiling", *arguments]
        self._process = ServerProcess(command, self.folder / "server.log")
        self._process.wait_ready(
            lambda: is_broker_ready("127.0.0.1", self._port), timeout_s=20, what=f"the ceiling answers on {self._port}"
        )

    def stop(self) -> None:
        self.kill()

    def kill(self) -> None:
        if self._process is not None:
            self._process.end(signal.SIGKILL)
            self._process = None

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        """Do nothing: a topic is created when a request first names it."""

    def create_topics(self, topics: Sequence[str], partitions: int = 1) -> None:
        """Do nothing, as in `create_topic`."""

    def delete_topic(self, topic: str) -> None:
        """Free the space of a topic. The server keeps its files open, but receives no further request for the topic."""
        for path in (self.folder / "data").glob(f"{topic}-*.log"):
            os.truncate(path, 0)

    def delete_topics(self, topics: Sequence[str]) -> None:
        for topic in topics:
            self.delete_topic(topic)

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def make_target(
    name: str,
    folder: Path,
    *,
    partitions: int = 1,
    brokers: int = 1,
    properties: Mapping[str, str] | None = None,
    kafka_properties: Mapping[str, str] | None = None,
    kraft: bool = False,
    secured: bool = False,
    python: Path | None = None,
) -> Target:
    """Return a target: `barnabas`, `kafka` (1 GB of heap), `ceiling` or `sink`. `properties` are for both brokers.

    With `python` the target is Barnabas on this interpreter, with any name.

    With several `brokers` the target is a cluster of this size, with ZooKeeper or, with `kraft`, with Kafka's
    controllers. With `secured` it is one broker that also has TLS and SASL listeners.
    """
    merged = {**COMMON_PROPERTIES, **(properties or {})}
    if name == "kafka":
        merged = {**KAFKA_PROPERTIES, **merged, **(kafka_properties or {})}
    if python:
        return BrokerTarget(name, BarnabasServer(folder / name, properties=merged, python=python))
    if secured:
        return _with_secured_listeners(name, folder / name, merged)
    if kraft:
        return KRaftTarget(name, folder, brokers, merged)
    if brokers > 1:
        return ClusterTarget(name, folder, brokers, merged)
    if name == "barnabas":
        return BrokerTarget(name, BarnabasServer(folder / name, properties=merged))
    if name == "kafka":
        return BrokerTarget(name, KafkaServer(folder / name, heap="1g", properties=merged, jvm_flags=SERVER_FLAGS))
    if name in ("ceiling", "sink"):
        return CeilingTarget(name, folder / name, partitions)
    raise ValueError(f"unknown target: {name}; expected barnabas, kafka, ceiling or sink")


def _with_secured_listeners(name: str, folder: Path, properties: Mapping[str, str]) -> Target:
    listeners = SecuredListeners.new(folder)
    settings = {**properties, **listeners.broker_settings(kraft=name == "kafka")}
    target = BrokerTarget(
        name,
        BarnabasServer(folder, port=listeners.plain, properties=settings)
        if name == "barnabas"
        else KafkaServer(folder, heap="1g", port=listeners.plain, properties=settings, jvm_flags=SERVER_FLAGS),
    )
    target.listeners = listeners
    return target
