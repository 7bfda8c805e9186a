"""Apache Kafka from its Maven jars: a broker of 4.1.1 or 3.9.1 on free ports, and Kafka's command-line tools.

with KafkaServer(tmp_path / "kafka", version="4.1.1") as kafka:
    kafka.bootstrap, kafka.log_dir, kafka.pid
    KafkaTools().run("kafka-topics", "--bootstrap-server", kafka.bootstrap, "--list")
"""

import base64
import os
import signal
import socket
import struct
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.java import JVM_FLAGS, jars, java_command, require_java, run_java
from tests.tools import cache_dir, cache_entry, digest

NEWEST = "4.1.1"
LAST_WITH_ZOOKEEPER = "3.9.1"

TOOL_CLASSES = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "kafka.tools.DumpLogSegments",
    "kafka-storage": "kafka.tools.StorageTool",
}

# What Kafka's own start script gives a server's JVM.
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
    """Broker, tools and a logger of one Kafka release."""
    coordinates = [f"org.apache.kafka:kafka_2.13:{version}", f"org.apache.kafka:kafka-tools:{version}"]
    if version.startswith("4."):
        coordinates.append("org.apache.logging.log4j:log4j-slf4j-impl:2.24.3")
    return jars(*coordinates)


def logging_flags(version: str, level: str) -> list[str]:
    """JVM flags that make a Kafka of `version` log to its standard output from `level` up."""
    newer = version.startswith("4.")
    text = (LOG4J2_CONFIG if newer else LOG4J_PROPERTIES).format(level=level)
    with cache_entry(cache_dir("kafka-logging"), digest(text)) as (entry, scratch):
        if scratch is not None:
            (scratch / ("log4j2.xml" if newer else "log4j.properties")).write_text(text)
    if newer:
        return [f"-Dlog4j2.configurationFile={entry / 'log4j2.xml'}"]
    return [f"-Dlog4j.configuration=file:{entry / 'log4j.properties'}"]


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until(condition: Callable[[], bool], *, timeout_s: float, what: str, interval_s: float = 0.01) -> None:
    """Return as soon as `condition()` holds; after `timeout_s` raise a TimeoutError that names `what`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} within {timeout_s} s")
        time.sleep(interval_s)


def broker_answers(host: str, port: int) -> bool:
    """Whether a Metadata v1 request for no topic names at least one broker: clients can be let in then."""
    body = struct.pack(">hhihi", 3, 1, 1, -1, 0)
    try:
        with socket.create_connection((host, port), timeout=2) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            answer = connection.makefile("rb")
            size = answer.read(4)
            if len(size) < 4:
                return False
            frame = answer.read(struct.unpack(">i", size)[0])
            return len(frame) >= 8 and bool(struct.unpack_from(">i", frame, 4)[0] > 0)
    except OSError:
        return False


class ServerProcess:
    """A child process whose output goes to a file, that ends with the test process, and whose death is reported."""

    def __init__(self, command: Sequence[str], log_path: Path, env: Mapping[str, str] | None = None) -> None:
        self.log_path = log_path
        self._log = log_path.open("ab")
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def check_alive(self) -> None:
        """Raise with the end of its log if the process has ended."""
        code = self._process.poll()
        if code is not None:
            raise RuntimeError(f"the server exited {code}:\n{self.log_tail()}")

    def log_tail(self, size: int = 4000) -> str:
        """The last part of what the process printed."""
        return self.log_path.read_bytes()[-size:].decode(errors="replace")

    def wait_ready(self, ready: Callable[[], bool], *, timeout_s: float, what: str) -> None:
        """Wait for `ready()` while the process lives."""

        def alive_and_ready() -> bool:
            self.check_alive()
            return ready()

        try:
            wait_until(alive_and_ready, timeout_s=timeout_s, what=what)
        except TimeoutError as error:
            raise TimeoutError(f"{error}:\n{self.log_tail()}") from None

    def end(self, signal_number: int = signal.SIGTERM, timeout_s: float = 60) -> int:
        """Send `signal_number` and wait; a process that does not end in time is killed and reported."""
        if self._process.poll() is None:
            self._process.send_signal(signal_number)
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            self._log.close()


class KafkaServer:
    """One Apache Kafka broker with its own folder; `stop` and `kill` leave the folder, `start` opens it again.

    `mode` is "kraft" (broker and controller in one process) or "zookeeper" (3.9.1 only; `zookeeper` is its address).
    `properties` are added to the generated server.properties.
    """

    def __init__(
        self,
        folder: Path,
        *,
        version: str = NEWEST,
        mode: str = "kraft",
        zookeeper: str | None = None,
        heap: str = "1g",
        properties: Mapping[str, str] | None = None,
        log_level: str = "warn",
    ) -> None:
        require_java()
        self.folder = folder
        self.version = version
        self.mode = mode
        self.log_dir = folder / "data"
        self.cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes)[:22].decode().replace("-", "A")
        self.port = free_port()
        self._zookeeper = zookeeper
        self._heap = heap
        self._properties = dict(properties or {})
        self._log_level = log_level
        self._classpath = kafka_jars(version)
        self._process: ServerProcess | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    def __enter__(self) -> "KafkaServer":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self, timeout_s: float = 90) -> None:
        """Format the folder on first use, start the broker, return once it answers clients."""
        properties_path = self.prepare()
        flags = [*SERVER_FLAGS, f"-Xms{self._heap}", f"-Xmx{self._heap}", *logging_flags(self.version, self._log_level)]
        command = java_command("kafka.Kafka", self._classpath, [str(properties_path)], flags)
        self._process = ServerProcess(command, self.folder / "server.log")
        self._process.wait_ready(
            lambda: broker_answers("127.0.0.1", self.port),
            timeout_s=timeout_s,
            what=f"Apache Kafka {self.version} answers on {self.bootstrap}",
        )

    def prepare(self) -> Path:
        """Write server.properties and format the folder, unless that was done before."""
        self.folder.mkdir(parents=True, exist_ok=True)
        properties_path = self.folder / "server.properties"
        if not properties_path.exists():
            lines = [f"{key}={value}\n" for key, value in self.server_properties().items()]
            properties_path.write_text("".join(lines))
            if self.mode == "kraft":
                self._format(properties_path)
        return properties_path

    def server_properties(self) -> dict[str, str]:
        """The configuration the broker is started with."""
        listener = f"PLAINTEXT://127.0.0.1:{self.port}"
        common = {
            "log.dirs": str(self.log_dir),
            "advertised.listeners": listener,
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
        if self.mode == "zookeeper":
            assert self._zookeeper is not None, "ZooKeeper mode needs an address"
            own = {"broker.id": "1", "zookeeper.connect": self._zookeeper, "listeners": listener}
        else:
            controller_port = free_port()
            own = {
                "node.id": "1",
                "process.roles": "broker,controller",
                "listeners": f"{listener},CONTROLLER://127.0.0.1:{controller_port}",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            }
        return {**common, **own, **self._properties}

    def _format(self, properties_path: Path) -> None:
        arguments = ["format", "-t", self.cluster_id, "-c", str(properties_path)]
        flags = [*JVM_FLAGS, *logging_flags(self.version, "error")]
        result = run_java("kafka.tools.StorageTool", self._classpath, arguments, flags=flags)
        if result.returncode != 0:
            raise RuntimeError(f"kafka-storage format failed:\n{result.stdout}{result.stderr}")

    def log_tail(self) -> str:
        """The last part of what the broker printed."""
        path = self.folder / "server.log"
        return path.read_bytes()[-20_000:].decode(errors="replace") if path.exists() else ""

    def stop(self, timeout_s: float = 60) -> None:
        """Clean shutdown (SIGTERM)."""
        if self._process is not None:
            self._process.end(signal.SIGTERM, timeout_s)
            self._process = None

    def kill(self) -> None:
        """kill -9: nothing is flushed, no clean-shutdown marker is left."""
        if self._process is not None:
            self._process.end(signal.SIGKILL)
            self._process = None


class ZooKeeperServer:
    """A ZooKeeper server from the jars of Kafka 3.9.1, for brokers in ZooKeeper mode."""

    def __init__(self, folder: Path) -> None:
        require_java()
        self.folder = folder
        self.port = free_port()
        self._process: ServerProcess | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> "ZooKeeperServer":
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = self.folder / "zookeeper.properties"
        settings.write_text(
            f"dataDir={self.folder / 'data'}\nclientPort={self.port}\nclientPortAddress=127.0.0.1\n"
            "admin.enableServer=false\ntickTime=500\nmaxClientCnxns=0\n"
        )
        classpath = kafka_jars(LAST_WITH_ZOOKEEPER)
        flags = [*JVM_FLAGS, *logging_flags(LAST_WITH_ZOOKEEPER, "warn")]
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        self._process = ServerProcess(java_command(main, classpath, [str(settings)], flags), self.folder / "server.log")
        self._process.wait_ready(self._answers, timeout_s=60, what=f"ZooKeeper answers on {self.address}")
        return self

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
                connection.sendall(b"srvr")
                return connection.makefile("rb").read().startswith(b"Zookeeper version")
        except OSError:
            return False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.end(signal.SIGKILL)


class KafkaTools:
    """Kafka's command-line tools of one release, by the names of their scripts (`kafka-topics`, ...)."""

    def __init__(self, version: str = NEWEST) -> None:
        self.version = version
        self._classpath = kafka_jars(version)
        self._flags = [*JVM_FLAGS, *logging_flags(version, "warn")]

    def run(
        self, tool: str, *args: str, stdin: str | bytes | None = None, timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run `tool` to its end; the exit code is the caller's to judge."""
        return run_java(TOOL_CLASSES[tool], self._classpath, args, stdin=stdin, timeout=timeout, flags=self._flags)

    def output(self, tool: str, *args: str, stdin: str | bytes | None = None, timeout: float = 120) -> str:
        """What `tool` printed; a failure raises with all it said."""
        result = self.run(tool, *args, stdin=stdin, timeout=timeout)
        if result.returncode != 0:
            command = " ".join([tool, *args])
            raise AssertionError(f"{command} exited {result.returncode}:\n{result.stdout}{result.stderr}")
        return result.stdout
