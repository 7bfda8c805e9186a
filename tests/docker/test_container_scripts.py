"""The scripts of the image in a temporary root, with the variables and start scripts of the test libraries.

The scripts are those of the image, with paths below the temporary root; the start scripts are those that the libraries
copy into a container, with the same redirection. `make containers` runs the image with the libraries themselves.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.server_process import ServerProcess, free_port, wait_until
from typer import BadParameter

from barnabas.tools.cli.container.scram_argument import parse_scram
from barnabas.tools.cli.container.storage_tool import format_directories
from barnabas.tools.cli.container.user_configs import changes_of

DOCKER = Path(__file__).parents[2] / "docker"
DEADLINE_S = 90
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
REDIRECTED = re.compile(
    r"(?<![\w/.])/(etc/kafka|etc/confluent|etc/barnabas|opt/kafka|tmp/zookeeper|var/lib/zookeeper)\b"
)
RECOVERY = r"Transitioning from RECOVERY to RUNNING"
KAFKA_SERVER = r"\[KafkaServer id=\d+\] started"


class Root(NamedTuple):
    """The root of an image, as far as its scripts need it."""

    path: Path

    @classmethod
    def install(cls, path: Path) -> Root:
        subprocess.run([DOCKER / "compatible/install", path], check=True, timeout=DEADLINE_S)
        root = cls(path)
        for script in (path / "usr/local/bin/container-entrypoint", path / "etc/kafka/docker/run"):
            script.write_text(root.redirect(script.read_text()))
        for script in (path / "etc/confluent/docker").iterdir():
            script.write_text(root.redirect(script.read_text()))
        (path / "etc/barnabas").mkdir(parents=True)
        own = (DOCKER / "server.properties").read_text()
        (path / "etc/barnabas/server.properties").write_text(own.replace("/var/lib/barnabas", str(path / "own")))
        return root

    def redirect(self, text: str) -> str:
        return REDIRECTED.sub(lambda found: f"{self.path}/{found[1]}", text)

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("KAFKA_", "BARNABAS_"))}
        path = f"{Path(sys.executable).parent}:{self.path}/opt/kafka/bin:{os.environ['PATH']}"
        own = {"PATH": path, "BARNABAS_CONTAINER_ROOT": str(self.path), "BARNABAS_CONFIG_HEALTH_PORT": "0"}
        return {**clean, **own, "BARNABAS_CONFIG_LOG_DIRS": str(self.path / "data"), **variables}

    def tool(self, *words: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a tool of Kafka as `docker exec` does."""
        return subprocess.run(
            [self.path / "opt/kafka/bin" / words[0], *words[1:]],
            input=text,
            env=self.environment({}),
            cwd=self.path,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root.install(tmp_path / "root")


@contextmanager
def container(root: Root, variables: Mapping[str, str], *command: str) -> Iterator[ServerProcess]:
    """Run the entry point with a command, as the engine does."""
    environment = root.environment(variables)
    words = [f"{name}={value}" for name, value in environment.items()]
    entrypoint = str(root.path / "usr/local/bin/container-entrypoint")
    # In a session of its own: scripts of test libraries do not pass a signal on to the broker that they start.
    command_line = ["setsid", "env", "-i", "-C", str(root.path), *words, entrypoint, *command]
    process = ServerProcess(command_line, root.path / "log")
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.end()


def wait_for_line(process: ServerProcess, pattern: str) -> None:
    def is_printed() -> bool:
        return re.search(pattern, process.log_path.read_text()) is not None

    process.wait_ready(is_printed, timeout_s=DEADLINE_S, what=f"line {pattern!r}")


class Library(NamedTuple):
    """What a test library does with an image."""

    name: str
    variables: dict[str, str]
    listeners: str
    command: str
    """What it runs in the container; SCRIPT is the path of its start script."""
    script: str
    waits_for: str
    cluster_id: str | None = None


COMMON = {
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": str(2**63 - 1),
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
}
KRAFT = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9094",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
}
ZOOKEEPER = {
    "KAFKA_BROKER_ID": "1",
    "KAFKA_ZOOKEEPER_CONNECT": "localhost:2181",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
}
WAIT = "while [ ! -f SCRIPT ]; do sleep 0.1; done; "
FORMAT = """
sed -i '/KAFKA_ZOOKEEPER_CONNECT/d' /etc/confluent/docker/configure
echo 'kafka-storage format --ignore-formatted -t "{id}" -c /etc/kafka/kafka.properties' \\
  >> /etc/confluent/docker/configure
"""
OUTER = "PLAINTEXT://localhost:PUBLIC,BROKER://localhost:INNER"
STEPS = "/etc/confluent/docker/configure\n/etc/confluent/docker/launch\n"
LIBRARIES = [
    Library(
        "java KafkaContainer",
        {**COMMON, **KRAFT, "CLUSTER_ID": CLUSTER_ID},
        "PLAINTEXT://0.0.0.0:PUBLIC,BROKER://0.0.0.0:INNER,CONTROLLER://0.0.0.0:CONTROL",
        f"{WAIT}SCRIPT",
        f"#!/bin/bash\nexport KAFKA_ADVERTISED_LISTENERS={OUTER}\n/etc/kafka/docker/run\n",
        RECOVERY,
        CLUSTER_ID,
    ),
    Library(
        "java ConfluentKafkaContainer",
        {**COMMON, **KRAFT, "CLUSTER_ID": CLUSTER_ID},
        "PLAINTEXT://0.0.0.0:PUBLIC,BROKER://0.0.0.0:INNER,CONTROLLER://0.0.0.0:CONTROL",
        f"{WAIT}SCRIPT",
        f"#!/bin/bash\nexport KAFKA_ADVERTISED_LISTENERS={OUTER}\n/etc/confluent/docker/run\n",
        RECOVERY,
        CLUSTER_ID,
    ),
    Library(
        "python with_kraft",
        {**COMMON, **KRAFT, "CLUSTER_ID": CLUSTER_ID, "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "10000000"},
        "PLAINTEXT://0.0.0.0:PUBLIC,BROKER://0.0.0.0:INNER,CONTROLLER://0.0.0.0:CONTROL",
        f"{WAIT}sh SCRIPT",
        f"#!/bin/sh\n{FORMAT.format(id=CLUSTER_ID)}"
        "export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:PUBLIC,BROKER://$(hostname -i | cut -d' ' -f1):INNER\n"
        f". /etc/confluent/docker/bash-config\n{STEPS}",
        r"Kafka Server started",
        CLUSTER_ID,
    ),
    Library(
        "go",
        {**COMMON, **KRAFT, "KAFKA_BROKER_ID": "1", "KAFKA_REST_BOOTSTRAP_SERVERS": OUTER},
        "PLAINTEXT://0.0.0.0:PUBLIC,BROKER://0.0.0.0:INNER,CONTROLLER://0.0.0.0:CONTROL",
        f"{WAIT}bash SCRIPT",
        "#!/bin/bash\nsource /etc/confluent/docker/bash-config\n"
        f"export KAFKA_ADVERTISED_LISTENERS={OUTER}\n"
        f"{FORMAT.format(id='$(kafka-storage random-uuid)')}"
        f"echo '' > /etc/confluent/docker/ensure\n{STEPS}",
        RECOVERY,
    ),
    Library(
        "node, KRaft",
        {**COMMON, **KRAFT, "CLUSTER_ID": CLUSTER_ID},
        "PLAINTEXT://0.0.0.0:PUBLIC,BROKER://0.0.0.0:INNER,CONTROLLER://0.0.0.0:CONTROL",
        f"echo 'Waiting for script...'; {WAIT}SCRIPT",
        f"#!/bin/bash\nexport KAFKA_ADVERTISED_LISTENERS={OUTER}\n/etc/confluent/docker/run\n",
        KAFKA_SERVER,
        CLUSTER_ID,
    ),
    Library(
        "node, ZooKeeper in the container",
        {**COMMON, **ZOOKEEPER},
        "PLAINTEXT://0.0.0.0:PUBLIC,BROKER://0.0.0.0:INNER",
        f"{WAIT}SCRIPT",
        "#!/bin/bash\n"
        "echo 'clientPort=ZOOKEEPER' > zookeeper.properties\n"
        "echo 'dataDir=/var/lib/zookeeper/data' >> zookeeper.properties\n"
        "zookeeper-server-start zookeeper.properties &\n"
        "echo '' > /etc/confluent/docker/ensure\n"
        f"export KAFKA_ADVERTISED_LISTENERS={OUTER}\n/etc/confluent/docker/run\n",
        KAFKA_SERVER,
    ),
    Library(
        "python, ZooKeeper that is not there",
        {**COMMON, **ZOOKEEPER},
        "PLAINTEXT://0.0.0.0:PUBLIC,BROKER://0.0.0.0:INNER",
        f"{WAIT}sh SCRIPT",
        f"export KAFKA_ADVERTISED_LISTENERS={OUTER}\n. /etc/confluent/docker/bash-config\n{STEPS}",
        KAFKA_SERVER,
    ),
]


def given_ports() -> dict[str, str]:
    return {name: str(free_port()) for name in ("PUBLIC", "INNER", "CONTROL", "ZOOKEEPER")}


def with_ports(text: str, ports: Mapping[str, str]) -> str:
    return re.sub("PUBLIC|INNER|CONTROL(?!LER)|(?<==)ZOOKEEPER", lambda found: ports[found[0]], text)


@pytest.mark.parametrize("library", LIBRARIES, ids=[one.name for one in LIBRARIES])
def test_a_test_library_starts_the_image(root: Root, library: Library) -> None:
    ports, script = given_ports(), root.path / "testcontainers_start.sh"
    variables = {name: with_ports(value, ports) for name, value in library.variables.items()}
    variables["KAFKA_LISTENERS"] = with_ports(library.listeners, ports)
    if "KAFKA_ZOOKEEPER_CONNECT" in variables:
        variables["KAFKA_ZOOKEEPER_CONNECT"] = f"localhost:{ports['ZOOKEEPER']}"
    command = library.command.replace("SCRIPT", str(script))
    with container(root, variables, "sh", "-c", command) as process:
        # The library copies the script into the container that runs already, once the engine has mapped the port.
        unfinished = script.with_suffix(".new")
        unfinished.write_text(root.redirect(with_ports(library.script, ports)))
        unfinished.chmod(0o777)
        unfinished.rename(script)
        wait_for_line(process, library.waits_for)
        assert len(re.findall(library.waits_for, process.log_path.read_text())) == 1, "test libraries count the lines"
        admin = AdminClient({"bootstrap.servers": f"localhost:{ports['PUBLIC']}"})
        metadata = admin.list_topics(timeout=DEADLINE_S)
        assert [broker.port for broker in metadata.brokers.values()] == [int(ports["PUBLIC"])]
        if library.cluster_id is not None:
            assert metadata.cluster_id == library.cluster_id
        producer = Producer({"bootstrap.servers": f"localhost:{ports['PUBLIC']}"})
        producer.produce("records", b"value")
        assert producer.flush(DEADLINE_S) == 0


def test_kafka_tools_answer_as_kafka_does(root: Root) -> None:
    port = free_port()
    address = f"localhost:{port}"
    variables = {
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://{address}",
        "CLUSTER_ID": CLUSTER_ID,
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    }
    where = ("--bootstrap-server", address)
    with container(root, variables) as process:
        wait_for_line(process, f"ready broker.id=1 cluster.id={CLUSTER_ID}")
        created = root.tool("kafka-topics.sh", *where, "--create", "--topic", "t", "--partitions", "1")
        assert (created.returncode, created.stdout) == (0, "Created topic t.\n"), created.stderr
        again = root.tool("kafka-topics", *where, "--create", "--topic", "t", "--if-not-exists")
        assert (again.returncode, again.stdout) == (0, "")
        assert root.tool("kafka-topics", *where, "--create", "--topic", "t").returncode == 1
        assert root.tool("kafka-topics", *where, "--list").stdout == "t\n"
        described = root.tool("kafka-topics", *where, "--describe", "--topic", "t")
        assert re.match(r"Topic: t PartitionCount: 1 ReplicationFactor: 1 ", described.stdout), described.stderr
        produced = root.tool(
            "kafka-console-producer.sh", *where, "--topic", "t", "--property", "parse.key=true",
            "--property", "key.separator=:", text="k:one\nk:two\n",
        )  # fmt: skip
        assert produced.returncode == 0, produced.stderr
        consume = ("kafka-console-consumer", *where, "--topic", "t", "--from-beginning")
        read = root.tool(*consume, "--max-messages", "2", "--property", "print.key=true")
        assert (read.returncode, read.stdout) == (0, "k\tone\nk\ttwo\n"), read.stderr
        read = root.tool(*consume, "--timeout-ms", "5000", "--group", "g")
        assert (read.returncode, read.stdout) == (0, "one\ntwo\n"), read.stderr
        assert root.tool("kafka-get-offsets", *where, "--topic", "t").stdout == "t:0:2\n"
        assert root.tool("kafka-consumer-groups", *where, "--list").stdout == "g\n"
        lag = root.tool("kafka-consumer-groups.sh", *where, "--describe", "--group", "g")
        assert lag.stdout.splitlines()[1] == "g t 0 2 2 0 - - -", lag.stderr
        versions = root.tool("kafka-broker-api-versions", *where).stdout
        assert f"{address} (id: 1 " in versions
        assert re.search(r"\n\tProduce\(0\): 0 to \d+ \[usable: \d+\],\n", versions)
        names = ("--entity-type", "topics", "--entity-name", "t")
        altered = root.tool("kafka-configs", *where, *names, "--alter", "--add-config", "retention.ms=1000")
        assert altered.returncode == 0, altered.stderr
        assert "  retention.ms=1000 " in root.tool("kafka-configs", *where, *names, "--describe").stdout
        probe = subprocess.run([root.path / "usr/local/bin/nc", "-z", "localhost", str(port)], timeout=DEADLINE_S)
        assert probe.returncode == 0
    refused = root.tool("kafka-topics.sh", *where, "--list")
    assert refused.returncode == 1 and address in refused.stderr
    probe = subprocess.run([root.path / "usr/local/bin/nc", "-z", "localhost", str(port)], timeout=DEADLINE_S)
    assert probe.returncode != 0


@pytest.mark.parametrize(
    "words",
    [
        ("kafka-topics", "--zookeeper", "zookeeper:2181", "--list"),
        ("kafka-topics", "--bootstrap-server", "localhost:1", "--list", "--unavailable-partitions"),
        ("kafka-configs", "--zookeeper", "localhost:1", "--describe", "--entity-type", "topics", "--topic", "t"),
        ("kafka-configs", "--describe", "--entity-type", "users"),
        ("kafka-console-consumer", "--bootstrap-server", "localhost:1", "--topic", "t", "--property", "print.kye=true"),
    ],
)
def test_a_tool_names_an_option_that_it_does_not_have(root: Root, words: tuple[str, ...]) -> None:
    ended = root.tool(*words)
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"{words[0]}: "), ended.stderr


def test_a_cluster_id_is_kept_once_it_is_stored(root: Root) -> None:
    properties = root.path / "kafka.properties"
    properties.write_text(f"log.dirs={root.path}/one,{root.path}/two\nnode.id=4\n")
    uuid = root.tool("kafka-storage", "random-uuid").stdout.strip()
    assert re.fullmatch(r"[\w-]{22}", uuid)
    command = ("kafka-storage", "format", "-c", str(properties), "-t")
    assert root.tool(*command, uuid).returncode == 0
    stored = (root.path / "one/meta.properties").read_text()
    assert f"cluster.id={uuid}" in stored and "node.id=4" in stored
    assert root.tool(*command, CLUSTER_ID).returncode == 1
    assert root.tool(*command, CLUSTER_ID, "--ignore-formatted").returncode == 0
    assert (root.path / "one/meta.properties").read_text() == stored


def is_refused(settings: Mapping[str, str]) -> bool:
    """Wait until the broker rejects the login; fails at the deadline."""
    errors: list[int] = []
    given: dict[str, Any] = {**settings, "error_cb": lambda error: errors.append(error.code())}
    admin = AdminClient(given)
    wait_until(
        lambda: admin.poll(0.1) is not None and KafkaError._AUTHENTICATION in errors,
        timeout_s=DEADLINE_S,
        what="the login is rejected",
    )
    return True


def log_in(port: str | int, mechanism: str, user: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": f"localhost:{port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def test_users_of_a_format_can_log_in_at_the_first_start(root: Root) -> None:
    """As testcontainers of Node sets a user: in a line that it appends to the script `configure`."""
    ports = given_ports()
    variables = {
        **COMMON,
        **KRAFT,
        "CLUSTER_ID": CLUSTER_ID,
        "KAFKA_LISTENERS": f"BROKER://127.0.0.1:{ports['INNER']},SECURE://127.0.0.1:{ports['PUBLIC']}",
        "KAFKA_ADVERTISED_LISTENERS": f"BROKER://localhost:{ports['INNER']},SECURE://localhost:{ports['PUBLIC']}",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,SECURE:SASL_PLAINTEXT",
        "KAFKA_SASL_ENABLED_MECHANISMS": "SCRAM-SHA-256,SCRAM-SHA-512",
    }
    with (root.path / "etc/confluent/docker/configure").open("a") as script:
        command = f'kafka-storage format --ignore-formatted -t "{CLUSTER_ID}" -c {root.path}/etc/kafka/kafka.properties'
        users = "SCRAM-SHA-512=[name=ann,password=one]", 'SCRAM-SHA-256=[name="ann",iterations=8192,password="two=2"]'
        script.write(f"{command} --add-scram '{users[0]}' -S '{users[1]}'\n")
    for start in range(2):
        with container(root, variables, str(root.path / "etc/confluent/docker/run")) as process:
            wait_for_line(process, KAFKA_SERVER)
            for mechanism, password in (("SCRAM-SHA-512", "one"), ("SCRAM-SHA-256", "two=2")):
                user = log_in(ports["PUBLIC"], mechanism, "ann", password)
                assert AdminClient(user).list_topics(timeout=DEADLINE_S).cluster_id == CLUSTER_ID
            assert is_refused(log_in(ports["PUBLIC"], "SCRAM-SHA-512", "ann", "two=2"))
            is_named = (
                "The users of --add-scram are not stored in formatted directories." in process.log_path.read_text()
            )
            assert is_named is (start == 1)


def test_kafka_configs_changes_users(root: Root) -> None:
    """As init containers add a user to a running broker."""
    ports = given_ports()
    variables = {
        "KAFKA_LISTENERS": f"BROKER://127.0.0.1:{ports['INNER']},SECURE://127.0.0.1:{ports['PUBLIC']}",
        "KAFKA_ADVERTISED_LISTENERS": f"BROKER://localhost:{ports['INNER']},SECURE://localhost:{ports['PUBLIC']}",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,SECURE:SASL_PLAINTEXT",
        "KAFKA_SASL_ENABLED_MECHANISMS": "SCRAM-SHA-256,SCRAM-SHA-512",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
    }
    where = ("--bootstrap-server", f"localhost:{ports['INNER']}", "--entity-type", "users")
    with container(root, variables) as process:
        wait_for_line(process, KAFKA_SERVER)
        passwords = "SCRAM-SHA-256=[iterations=8192,password=o,ne=1],SCRAM-SHA-512=[password=two]"
        for added in (passwords, "consumer_byte_rate=2048"):
            altered = root.tool("kafka-configs.sh", *where, "--entity-name", "ann", "--alter", "--add-config", added)
            assert (altered.returncode, altered.stdout) == (0, "Completed updating config for user ann.\n"), (
                altered.stderr
            )
        for mechanism, password in (("SCRAM-SHA-256", "o,ne=1"), ("SCRAM-SHA-512", "two")):
            AdminClient(log_in(ports["PUBLIC"], mechanism, "ann", password)).list_topics(timeout=DEADLINE_S)
        described = (
            "Quota configs for user-principal 'ann' are consumer_byte_rate=2048.0\n"
            "SCRAM credential configs for user-principal 'ann' are "
            "SCRAM-SHA-256=iterations=8192, SCRAM-SHA-512=iterations=4096\n"
        )
        assert root.tool("kafka-configs", *where, "--describe").stdout == described
        assert root.tool("kafka-configs", *where, "--describe", "--entity-name", "bob").stdout == ""
        removed = "SCRAM-SHA-256,consumer_byte_rate"
        altered = root.tool("kafka-configs", *where[:2], "--user", "ann", "--alter", "--delete-config", removed)
        assert altered.returncode == 0, altered.stderr
        left = "SCRAM credential configs for user-principal 'ann' are SCRAM-SHA-512=iterations=4096\n"
        assert root.tool("kafka-configs", *where, "--describe", "--entity-name", "ann").stdout == left
        assert is_refused(log_in(ports["PUBLIC"], "SCRAM-SHA-256", "ann", "o,ne=1"))


def zookeeper_in_the_container(root: Root, ports: Mapping[str, str], before_run: str) -> tuple[dict[str, str], str]:
    """Return the variables and the script of a container with a coordinator, which starts next to the broker."""
    variables = {
        "KAFKA_BROKER_ID": "1",
        "KAFKA_ZOOKEEPER_CONNECT": f"localhost:{ports['ZOOKEEPER']}",
        "KAFKA_LISTENERS": f"BROKER://127.0.0.1:{ports['INNER']},SECURE://127.0.0.1:{ports['PUBLIC']}",
        "KAFKA_ADVERTISED_LISTENERS": f"BROKER://localhost:{ports['INNER']},SECURE://localhost:{ports['PUBLIC']}",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,SECURE:SASL_PLAINTEXT",
        "KAFKA_SASL_ENABLED_MECHANISMS": "SCRAM-SHA-512",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
    }
    script = (
        f"printf 'clientPort={ports['ZOOKEEPER']}\\ndataDir={root.path}/zookeeper\\n' > zookeeper.properties; "
        f"zookeeper-server-start zookeeper.properties & {before_run}"
        f"{root.path}/etc/confluent/docker/run"
    )
    return variables, script


def test_the_broker_waits_for_a_coordinator_that_the_container_starts(root: Root) -> None:
    """As testcontainers of Node with a SASL listener: the user is stored in ZooKeeper after the start."""
    ports = given_ports()
    variables, script = zookeeper_in_the_container(root, ports, "")
    with container(root, variables, "sh", "-c", script) as process:
        wait_for_line(process, KAFKA_SERVER)
        altered = root.tool(
            *("kafka-configs", "--zookeeper", f"localhost:{ports['ZOOKEEPER']}", "--alter", "--entity-type", "users"),
            *("--entity-name", "ann", "--add-config", "SCRAM-SHA-512=[password=after]"),
        )
        assert altered.returncode == 0, altered.stderr
        ann = log_in(ports["PUBLIC"], "SCRAM-SHA-512", "ann", "after")
        AdminClient(ann).list_topics(timeout=DEADLINE_S)


def test_kafka_configs_stores_users_in_zookeeper(root: Root) -> None:
    """Before the broker starts, and next to it, as testcontainers of Node does with ZooKeeper in the container."""
    ports = given_ports()
    connect = f"localhost:{ports['ZOOKEEPER']}"
    variables, script = zookeeper_in_the_container(root, ports, "while [ ! -f go ]; do sleep 0.1; done; ")
    alter = ("kafka-configs", "--zookeeper", connect, "--alter", "--entity-type", "users", "--entity-name")
    with container(root, variables, "sh", "-c", script) as process:
        altered = root.tool(*alter, "ann", "--add-config", "SCRAM-SHA-512=[password=before]")
        assert altered.stdout == "Completed updating config for user ann.\n", altered.stderr
        (root.path / "go").touch()
        wait_for_line(process, KAFKA_SERVER)
        ann = log_in(ports["PUBLIC"], "SCRAM-SHA-512", "ann", "before")
        AdminClient(ann).list_topics(timeout=DEADLINE_S)
        altered = root.tool(*alter, "bob", "--add-config", "SCRAM-SHA-512=[password=after]")
        assert altered.returncode == 0, altered.stderr
        bob = log_in(ports["PUBLIC"], "SCRAM-SHA-512", "bob", "after")
        AdminClient(bob).list_topics(timeout=DEADLINE_S)
        refused = root.tool(*alter, "bob", "--add-config", "consumer_byte_rate=1")
        assert (refused.returncode, "only SCRAM credentials" in refused.stderr) == (1, True), refused.stderr


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("SCRAM-SHA-512", "secret", r"expected \[password=PASSWORD\]"),
        ("SCRAM-SHA-512", "iterations=many,password=secret", r"expected \[password=PASSWORD\]"),
        ("SCRAM-SHA-256", "iterations=4095,password=secret", "iterations from 4096 to 16384"),
        ("SCRAM-SHA-1", "password=secret", "expected a number, or one of SCRAM"),
    ],
)
def test_a_wrong_password_option_is_named_without_the_password(key: str, value: str, reason: str) -> None:
    with pytest.raises(BadParameter, match=reason) as raised:
        changes_of("ann", {key: value}, [])
    assert "secret" not in str(raised.value)


def test_users_of_bitnami_can_log_in(root: Root) -> None:
    port, inner = free_port(), free_port()
    variables = {
        "KAFKA_CFG_NODE_ID": "1",
        "KAFKA_CFG_PROCESS_ROLES": "controller,broker",
        "KAFKA_CFG_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_CFG_LISTENERS": f"CLIENT://:{port},INTERNAL://:{inner},CONTROLLER://:9093",
        "KAFKA_CFG_ADVERTISED_LISTENERS": f"CLIENT://localhost:{port},INTERNAL://localhost:{inner}",
        "KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,CLIENT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT",
        "KAFKA_CFG_INTER_BROKER_LISTENER_NAME": "INTERNAL",
        "KAFKA_CLIENT_USERS": "ann,bob",
        "KAFKA_CLIENT_PASSWORDS": "one,two",
    }
    for _ in range(2):
        with container(root, variables) as process:
            wait_for_line(process, KAFKA_SERVER)
            assert "barnabas: WARNING" not in process.log_path.read_text()
            for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
                for user, password in (("ann", "one"), ("bob", "two")):
                    AdminClient(log_in(port, mechanism, user, password)).list_topics(timeout=DEADLINE_S)
                assert is_refused(log_in(port, mechanism, "ann", "two"))
            config = root.path / "opt/bitnami/kafka/config"
            assert (config / "producer.properties").stat().st_mode & 0o777 == 0o600
            where = ("--bootstrap-server", f"localhost:{port}", "--topic", "t")
            settings = ("--producer.config", str(config / "producer.properties"))
            produced = root.tool("kafka-console-producer.sh", *where, *settings, text="value\n")
            assert produced.returncode == 0, produced.stderr


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        ("SCRAM-SHA-512", "expected MECHANISM="),
        ("SCRAM-SHA-1=[name=a,password=secret]", "SCRAM-SHA-1: unknown mechanism"),
        ("SCRAM-SHA-256=name=a,password=secret", r"expected \[ and \]"),
        ("SCRAM-SHA-256=[name=a,password=se,cret]", "one of the keys"),
        ("SCRAM-SHA-256=[password=secret]", "expected a name"),
        ("SCRAM-SHA-256=[name=a]", "expected a password"),
        ("SCRAM-SHA-256=[name=a,password=]", "expected a password"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=c2VjcmV0]", "requires its salt"),
        ("SCRAM-SHA-256=[name=a,salt=!,password=secret]", "salt: expected"),
        ("SCRAM-SHA-256=[name=a,iterations=4095,password=secret]", "iterations from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,iterations=16385,password=secret]", "iterations from 4096 to 16384"),
        (f"SCRAM-SHA-256=[name=a,iterations={'9' * 5000},password=secret]", "iterations from 4096 to 16384"),
    ],
)
def test_a_wrong_user_is_named_without_the_password(argument: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as raised:
        parse_scram(argument)
    assert "cret" not in str(raised.value)


def with_salted_key(salted: bytes) -> str:
    return f"saltedpassword={base64.b64encode(salted).decode()}"


def test_a_salted_password_gives_the_credential_of_the_password() -> None:
    salt, password = b"salt of a user", "secret"
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, 5000)
    parts = [f"salt={base64.b64encode(salt).decode()}", "name=a", "iterations=5000"]
    with_salted = parse_scram(f" SCRAM-SHA-256=[{','.join([*parts, with_salted_key(salted)])}]")
    with_password = parse_scram(f"SCRAM-SHA-256=[{','.join([*parts, f'password={password}'])}] ")
    assert with_salted.credential(os.urandom) == with_password.credential(os.urandom)
    with_both = parse_scram(f"SCRAM-SHA-256=[{','.join([*parts, with_salted_key(salted), 'password='])}]")
    assert with_both == with_salted, "an empty password is none"


def test_a_format_refuses_users_that_the_directory_would_not_keep(root: Root) -> None:
    properties = root.path / "kafka.properties"
    command = (
        "kafka-storage",
        "format",
        "-c",
        str(properties),
        "-t",
        CLUSTER_ID,
        "-S",
        "SCRAM-SHA-512=[name=a,password=b]",
    )
    for setting in (
        "zookeeper.connect=localhost:2181",
        "process.roles=broker\ncontroller.quorum.voters=9@localhost:9\ncontroller.listener.names=C",
    ):
        properties.write_text(f"log.dirs={root.path}/one\nnode.id=4\n{setting}\n")
        refused = root.tool(*command)
        assert (refused.returncode, setting.partition("=")[0] in refused.stderr) == (1, True), refused.stderr
        assert not (root.path / "one/meta.properties").exists()
    properties.write_text(f"log.dirs={root.path}/one\nnode.id=4\n")
    formatted = root.tool(*command)
    assert formatted.returncode == 0, formatted.stderr
    # An interrupted format has left the store without meta.properties.
    (root.path / "one/meta.properties").unlink()
    other = root.tool(*command[:-3], "ab" * 11, *command[-2:])
    assert other.returncode == 1 and f"belongs to cluster {CLUSTER_ID}" in other.stderr
    assert root.tool(*command).returncode == 0


def test_a_format_without_a_cluster_id_continues_an_interrupted_one(tmp_path: Path) -> None:
    login = parse_scram("SCRAM-SHA-512=[name=a,password=b]")
    properties = {"log.dirs": f"{tmp_path}/one,{tmp_path}/two", "node.id": "4"}
    assert format_directories(properties, None, [login]) == {}
    (cluster_id,) = set(format_directories(properties, None).values())
    (tmp_path / "two/meta.properties").unlink()
    assert format_directories(properties, None, [login]) == {f"{tmp_path}/one": cluster_id}
    for name in ("one", "two"):
        (tmp_path / name / "meta.properties").unlink()
    assert format_directories(properties, None, [login]) == {}, "the metadata store is left"
    assert set(format_directories(properties, None).values()) == {cluster_id}


def test_a_tmpfs_for_the_data_is_writable(root: Root) -> None:
    """A tmpfs belongs to root and has the mode of the folder of the image."""
    for folder in ("var/lib/barnabas", "var/lib/kafka/data", "bitnami/kafka", "bitnami/kafka/data"):
        assert (root.path / folder).stat().st_mode & 0o777 == 0o777


def test_the_entry_point_passes_commands_on(root: Root) -> None:
    entrypoint = root.path / "usr/local/bin/container-entrypoint"
    for words, expected in ((["sh", "-c", "echo here"], "here"), (["--version"], "barnabas "), (["-h"], "Usage")):
        ended = subprocess.run(
            [entrypoint, *words], env=root.environment({}), capture_output=True, text=True, timeout=DEADLINE_S
        )
        assert ended.returncode == 0 and expected in ended.stdout, ended.stderr


def test_a_mounted_properties_file_is_the_base(root: Root) -> None:
    port = free_port()
    shared = root.path / "mnt/shared/config/server.properties"
    shared.write_text(f"listeners=PLAINTEXT://127.0.0.1:{port}\nnode.id=5\nnum.partitions=2\n")
    with container(root, {"KAFKA_NUM_PARTITIONS": "3"}) as process:
        wait_for_line(process, r"ready broker\.id=5")
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}"})
        producer.produce("records", b"value")
        assert producer.flush(DEADLINE_S) == 0
        topics = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"}).list_topics(timeout=DEADLINE_S).topics
        assert len(topics["records"].partitions) == 3


def test_own_variables_alone_start_the_broker_of_the_image(root: Root) -> None:
    port = free_port()
    listeners = {
        "BARNABAS_CONFIG_LISTENERS": f"HOST://127.0.0.1:{port}",
        "BARNABAS_CONFIG_ADVERTISED_LISTENERS": f"HOST://localhost:{port}",
    }
    with container(root, listeners) as process:
        wait_for_line(process, r"\nready broker\.id=")
        log = process.log_path.read_text()
        assert f"listening HOST://localhost:{port}" in log
        assert "KafkaServer" not in log, "lines of Kafka's log are for those who have Kafka's variables"


def test_a_start_loads_no_module_of_the_command_line() -> None:
    code = "import sys, barnabas.tools.cli.container.broker_start; print({'typer', 'rich'} & set(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S)
    assert ended.stdout == "set()\n", ended.stderr


def test_options_override_variables(root: Root) -> None:
    port = free_port()
    variables = {
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://localhost:{port}",
        "KAFKA_NUM_PARTITIONS": "2",
        "KAFKA_NODE_ID": "6",
        "BARNABAS_LOG_FORMAT": "json",
    }
    with container(root, variables, "--topic=orders:3", "--override", "num.partitions=4") as process:
        wait_for_line(process, r"ready broker\.id=6")
        assert '{"time":' in process.log_path.read_text().replace(" ", "")
        admin = AdminClient({"bootstrap.servers": f"localhost:{port}"})
        admin.create_topics([NewTopic("others", -1)])["others"].result(DEADLINE_S)
        partitions = {
            name: len(topic.partitions) for name, topic in admin.list_topics(timeout=DEADLINE_S).topics.items()
        }
        assert partitions == {"orders": 3, "others": 4}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--console",), "Set BARNABAS_CONSOLE=1"),
        (("--log-level", "INFO", "/my.properties"), "mount the file at /mnt/shared/config/server.properties"),
        (("--topic", "orders:many"), "expected NAME or NAME:PARTITIONS"),
    ],
)
def test_an_option_without_a_use_in_a_container_is_named(root: Root, words: tuple[str, ...], reason: str) -> None:
    entrypoint = root.path / "usr/local/bin/container-entrypoint"
    ended = subprocess.run(
        [entrypoint, *words], env=root.environment({}), capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert (ended.returncode, reason in ended.stderr) == (2, True), ended.stderr


def test_a_variable_that_is_no_setting_is_named(root: Root) -> None:
    port = free_port()
    variables = {"KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://localhost:{port}", "KAFKA_NUM_PARTITION": "3"}
    with container(root, variables) as process:
        wait_for_line(process, r"WARNING Variables without a known setting, .*KAFKA_NUM_PARTITION \(num\.partition\)")
        wait_until(lambda: "ready" in process.log_tail(), timeout_s=DEADLINE_S, what="ready")


def test_console_and_registry_serve_next_to_the_broker(root: Root) -> None:
    kafka, console, registry = free_port(), free_port(), free_port()
    variables = {
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://localhost:{kafka}",
        "BARNABAS_CONSOLE": f"127.0.0.1:{console}",
        "BARNABAS_SCHEMA_REGISTRY_LISTEN": f"127.0.0.1:{registry}",
    }
    with container(root, variables) as process:
        wait_for_line(process, rf"(?m)^schema registry http://\S*:{registry}")
        wait_for_line(process, rf"(?m)^console http://\S*:{console}")
