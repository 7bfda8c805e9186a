"""Apache Kafka for tests, from its Maven jars: brokers and controllers on free ports, and the command-line tools.

with KafkaServer(tmp_path / "kafka", version="4.4.0") as kafka:
    kafka.bootstrap, kafka.log_dir, kafka.pid
    KafkaTools().run("kafka-topics", "--bootstrap-server", kafka.bootstrap, "--list")
"""

import base64
import contextlib
import json
import socket
import ssl
import struct
import subprocess
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.foreign_tools import cache_dir, cache_entry, digest
from tests.java import JVM_FLAGS, QUICK_FLAGS, jars, java_command, require_java, run_java
from tests.server_process import BrokerProcess, free_port

NEWEST = "4.4.0"
LAST_WITH_ZOOKEEPER = "3.9.1"
CLEANER_REFERENCE = "4.1.1"
"""The release whose log cleaner is compared with Barnabas.

It keeps the last batch of a pass as an empty batch. Kafka 4.4 does this only if the batch ends at the high watermark.
"""

TOOL_CLASSES = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "org.apache.kafka.tools.ConfigCommand",
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-replica-verification": "org.apache.kafka.tools.ReplicaVerificationTool",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-share-consumer": "org.apache.kafka.tools.VerifiableShareConsumer",
}
CLASSES_BEFORE_4 = {"kafka-acls": "kafka.admin.AclCommand", "kafka-console-producer": "kafka.tools.ConsoleProducer"}
CLASSES_BEFORE_4_4 = {"kafka-configs": "kafka.admin.ConfigCommand", "kafka-dump-log": "kafka.tools.DumpLogSegments"}


def tool_class(tool: str, version: str) -> str:
    """Return the class that a Kafka script runs."""
    release = tuple(map(int, version.split(".")[:2]))
    for first, classes in (((4, 0), CLASSES_BEFORE_4), ((4, 4), CLASSES_BEFORE_4_4)):
        if release < first and tool in classes:
            return classes[tool]
    return TOOL_CLASSES[tool]


# The JVM flags of Kafka's start script for servers.
SERVER_FLAGS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)

LOG4J2_CONFIG = """\
<Configuration status="error">
  <Appenders><Console name="out"><PatternLayout pattern="[%d] %p %m (%c)%n"/></Console></Appenders>
  <Loggers><Root level="{level}"><AppenderRef ref="out"/></Root></Loggers>
</Configuration>
"""

LOG4J_PROPERTIES = """\
log4j.rootLogger={level}, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


def kafka_jars(version: str) -> list[Path]:
    """Return the jars of the broker, the tools and a logger of one Kafka release."""
    coordinates = [f"org.apache.kafka:kafka_2.13:{version}", f"org.apache.kafka:kafka-tools:{version}"]
    if version.startswith("4."):
        coordinates.append("org.apache.logging.log4j:log4j-slf4j-impl:2.24.3")
    return jars(*coordinates)


def logging_flags(version: str, level: str) -> list[str]:
    """Return JVM flags for a Kafka of `version` that logs to its standard output at `level` and above."""
    has_log4j2 = version.startswith("4.")
    text = (LOG4J2_CONFIG if has_log4j2 else LOG4J_PROPERTIES).format(level=level)
    with cache_entry(cache_dir("kafka-logging"), digest(text)) as (entry, scratch):
        if scratch is not None:
            (scratch / ("log4j2.xml" if has_log4j2 else "log4j.properties")).write_text(text)
    if has_log4j2:
        return [f"-Dlog4j2.configurationFile={entry / 'log4j2.xml'}"]
    return [f"-Dlog4j.configuration=file:{entry / 'log4j.properties'}"]


class KafkaServer(BrokerProcess):
    """One Apache Kafka broker.

    `mode` is "kraft" (broker and controller in one process) or "zookeeper" (3.9.1 only; `zookeeper` is its address).
    `properties` are added to the generated server.properties. The default `jvm_flags` are for a short-lived process;
    use SERVER_FLAGS to measure its speed.
    """

    def __init__(
        self,
        folder: Path,
        *,
        version: str = NEWEST,
        mode: str = "kraft",
        zookeeper: str | None = None,
        heap: str = "1g",
        port: int | None = None,
        properties: Mapping[str, str] | None = None,
        log_level: str = "warn",
        jvm_flags: Sequence[str] = QUICK_FLAGS,
    ) -> None:
        require_java()
        super().__init__(folder, port=port, properties=properties)
        self.version = version
        self._jvm_flags = jvm_flags
        self.mode = mode
        self.cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes)[:22].decode().replace("-", "A")
        self.format_arguments: Sequence[str] = ()
        """Additional arguments of `kafka-storage format`."""
        self._zookeeper = zookeeper
        self._heap = heap
        self._log_level = log_level
        self._classpath = kafka_jars(version)

    def command(self) -> list[str]:
        """Return the command that runs `kafka.Kafka`. The first call formats the folder."""
        flags = [
            *self._jvm_flags,
            f"-Xms{self._heap}",
            f"-Xmx{self._heap}",
            *logging_flags(self.version, self._log_level),
        ]
        return java_command("kafka.Kafka", self._classpath, [str(self.prepare())], flags)

    def prepare(self) -> Path:
        """Write server.properties and format the folder, if server.properties does not exist. Return its path."""
        self.folder.mkdir(parents=True, exist_ok=True)
        properties_path = self.folder / "server.properties"
        if not properties_path.exists():
            lines = [f"{key}={value}\n" for key, value in self.server_properties().items()]
            properties_path.write_text("".join(lines))
            if self.mode == "kraft":
                self._format(properties_path)
        return properties_path

    def server_properties(self) -> dict[str, str]:
        """Return the settings of the broker."""
        listener = f"PLAINTEXT://127.0.0.1:{self.port}"
        common = {
            "log.dirs": str(self.log_dir),
            "advertised.listeners": listener,
            "offsets.topic.replication.factor": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
        if self.mode == "zookeeper":
            assert self._zookeeper is not None, "ZooKeeper mode needs an address"
            required = {"broker.id": "1", "zookeeper.connect": self._zookeeper, "listeners": listener}
        else:
            controller_port = free_port()
            required = {
                "node.id": "1",
                "process.roles": "broker,controller",
                "listeners": f"{listener},CONTROLLER://127.0.0.1:{controller_port}",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            }
        return {**common, **required, **self._properties}

    def _format(self, properties_path: Path) -> None:
        # A log directory that another kind of broker has written is formatted already.
        arguments = ["format", "--ignore-formatted", "-t", self.cluster_id, "-c", str(properties_path)]
        arguments += self.format_arguments
        flags = [*JVM_FLAGS, *logging_flags(self.version, "error")]
        result = run_java("kafka.tools.StorageTool", self._classpath, arguments, flags=flags)
        if result.returncode != 0:
            raise RuntimeError(f"kafka-storage format failed:\n{result.stdout}{result.stderr}")


class ZooKeeperServer(BrokerProcess):
    """A ZooKeeper server from the jars of Kafka 3.9.1, for brokers in ZooKeeper mode."""

    def __init__(self, folder: Path, properties: Mapping[str, str] | None = None) -> None:
        require_java()
        super().__init__(folder, properties=properties)

    @property
    def address(self) -> str:
        return self.bootstrap

    def command(self) -> list[str]:
        """Return the command that runs ZooKeeper with ticks of half a second and without syncs."""
        settings = self.folder / "zookeeper.properties"
        settings.write_text(
            f"dataDir={self.log_dir}\nclientPort={self.port}\nclientPortAddress=127.0.0.1\n"
            "admin.enableServer=false\ntickTime=500\nmaxClientCnxns=0\n"
            + "".join(f"{key}={value}\n" for key, value in self._properties.items())
        )
        flags = [*JVM_FLAGS, "-Dzookeeper.forceSync=no", *logging_flags(LAST_WITH_ZOOKEEPER, "warn")]
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        return java_command(main, kafka_jars(LAST_WITH_ZOOKEEPER), [str(settings)], flags)

    def is_ready(self) -> bool:
        """Return whether the server responds to the `srvr` command."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
                connection.sendall(b"srvr")
                return connection.makefile("rb").read().startswith(b"Zookeeper version")
        except OSError:
            return False


class KafkaTools:
    """The command-line tools of one Kafka release, by the names of their scripts (`kafka-topics`, …)."""

    def __init__(self, version: str = NEWEST) -> None:
        self.version = version
        self._classpath = kafka_jars(version)
        self.flags = [*JVM_FLAGS, *logging_flags(version, "warn")]

    def run(
        self, tool: str, *args: str, stdin: str | bytes | None = None, timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run `tool` until it exits. The caller checks the exit code."""
        name = tool_class(tool, self.version)
        return run_java(name, self._classpath, args, stdin=stdin, timeout=timeout, flags=self.flags)

    def output(self, tool: str, *args: str, stdin: str | bytes | None = None, timeout: float = 120) -> str:
        """Run `tool` and return its output. Raises AssertionError with the whole output if it fails."""
        result = self.run(tool, *args, stdin=stdin, timeout=timeout)
        if result.returncode != 0:
            command = " ".join([tool, *args])
            raise AssertionError(f"{command} exited {result.returncode}:\n{result.stdout}{result.stderr}")
        return result.stdout


class KafkaControllerServer(KafkaServer):
    """One controller of Apache Kafka without a broker (`process.roles=controller`), created by `KafkaControllers`."""

    client_tls: ssl.SSLContext | None = None
    """The TLS context that connects to the controller, if its listener has TLS."""

    def server_properties(self) -> dict[str, str]:
        """Return the settings of the controller."""
        return {"process.roles": "controller", "log.dirs": str(self.log_dir), **self._properties}

    def is_ready(self) -> bool:
        """Return whether the controller responds to an ApiVersions request."""
        body = struct.pack(">hhih", 18, 0, 1, -1)
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as plain:
                tls = self.client_tls
                connection = plain if tls is None else tls.wrap_socket(plain, server_hostname="127.0.0.1")
                with connection:
                    connection.sendall(struct.pack(">i", len(body)) + body)
                    return len(connection.makefile("rb").read(4)) == 4
        except OSError:
            return False


class KafkaControllers:
    """The controllers of a cluster, with the node ids 3000, 3001, … The context manager starts and kills them.

    `forward` maps the node id and the port of a controller to its advertised port, for tests with a proxy.
    """

    def __init__(
        self,
        folder: Path,
        *,
        count: int = 1,
        version: str = NEWEST,
        properties: Mapping[str, str] | None = None,
        forward: Callable[[int, int], int] = lambda _, port: port,
    ) -> None:
        ports = [free_port() for _ in range(count)]
        advertised = [forward(3000 + number, port) for number, port in enumerate(ports)]
        self.version = version
        self.voters = ",".join(f"{3000 + number}@127.0.0.1:{port}" for number, port in enumerate(advertised))
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in advertised)
        self.servers = [
            KafkaControllerServer(
                folder / str(3000 + number),
                version=version,
                heap="256m",
                port=port,
                properties={
                    "node.id": str(3000 + number),
                    "listeners": f"CONTROLLER://127.0.0.1:{port}",
                    "advertised.listeners": f"CONTROLLER://127.0.0.1:{advertised[number]}",
                    "controller.listener.names": "CONTROLLER",
                    "controller.quorum.voters": self.voters,
                    **(properties or {}),
                },
            )
            for number, port in enumerate(ports)
        ]
        self.cluster_id = self.servers[0].cluster_id
        for server in self.servers:
            server.cluster_id = self.cluster_id

    def __enter__(self) -> Self:
        for server in self.servers:
            server.launch()
        for server in self.servers:
            server.wait_until_ready()
        return self

    def __exit__(self, *_: object) -> None:
        for server in self.servers:
            server.kill()

    def leader(self) -> int | None:
        """Return the node id of the leader of the quorum that the controllers have stored; None during an election."""
        states: list[dict[str, int]] = []
        for server in self.servers:
            with contextlib.suppress(OSError, json.JSONDecodeError):
                states.append(json.loads((server.log_dir / "__cluster_metadata-0" / "quorum-state").read_text()))
        epoch = max((state["leaderEpoch"] for state in states), default=0)
        return next((one["leaderId"] for one in states if one["leaderEpoch"] == epoch and one["leaderId"] >= 0), None)


class KafkaBroker(KafkaServer):
    """One Apache Kafka broker of the KRaft cluster of `KafkaControllers` (`process.roles=broker`)."""

    def __init__(
        self,
        folder: Path,
        controllers: KafkaControllers,
        node_id: int,
        *,
        port: int | None = None,
        heap: str = "384m",
        properties: Mapping[str, str] | None = None,
        jvm_flags: Sequence[str] = QUICK_FLAGS,
    ) -> None:
        super().__init__(
            folder, version=controllers.version, port=port, heap=heap, properties=properties, jvm_flags=jvm_flags
        )
        self.cluster_id = controllers.cluster_id
        self._voters = controllers.voters
        self._node_id = node_id

    def server_properties(self) -> dict[str, str]:
        """Return the settings of the broker."""
        listener = f"PLAINTEXT://127.0.0.1:{self.port}"
        required = {
            "node.id": str(self._node_id),
            "process.roles": "broker",
            "log.dirs": str(self.log_dir),
            "listeners": listener,
            "advertised.listeners": listener,
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": self._voters,
        }
        return {**required, **self._properties}
