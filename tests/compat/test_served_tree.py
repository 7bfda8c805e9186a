"""Others' programs on a tree that a broker serves: Apache Kafka 3.9.1, ZooKeeper's shell, kazoo's own tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import kazoo
import pytest
from tests.barnabas_server import BarnabasServer
from tests.java import run_java
from tests.kafka import LAST_WITH_ZOOKEEPER, KafkaServer, KafkaTools, kafka_jars
from tests.server_process import free_port, wait_until

ROOT = Path(__file__).parents[2]

NOT_OF_ONE_SERVER = {
    "test_add_remove_observer",
    "test_bad_input",
    "test_no_super_auth",
    "test_update_host_list",
    "test_read_only",
    "TestSSLClient::test_create",
}
"""Of kazoo's tests, those of reconfiguration, of ensembles, and of TLS."""


@pytest.mark.java
@pytest.mark.verify
@pytest.mark.timeout(300)
def test_kafka_runs_on_a_served_tree_that_is_killed_meanwhile(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    newest = KafkaTools()
    with BarnabasServer(tmp_path / "barnabas", properties={"coordinator.listeners": address}) as barnabas:
        kafka = KafkaServer(
            tmp_path / "kafka", version=LAST_WITH_ZOOKEEPER, mode="zookeeper", zookeeper=f"{address}/kafka", heap="512m"
        )
        with kafka:
            to_kafka = ("--bootstrap-server", kafka.bootstrap)
            newest.output("kafka-topics", *to_kafka, "--create", "--topic", "t", "--partitions", "3")
            newest.output("kafka-console-producer", *to_kafka, "--topic", "t", stdin="a\nb\nc\n")
            barnabas.kill()
            barnabas.start()
            newest.output("kafka-topics", *to_kafka, "--create", "--topic", "u", "--partitions", "2")
            kafka.stop()
            kafka.start()

            def are_listed() -> bool:
                """The controller tells a broker that has just started who is there first, and of topics then."""
                return set(newest.output("kafka-topics", *to_kafka, "--list").split()) >= {"t", "u"}

            wait_until(are_listed, timeout_s=60, what="both topics are there")
            read = newest.output(
                "kafka-console-consumer", *to_kafka, "--topic", "t", "--from-beginning", "--max-messages", "3"
            )
            assert sorted(read.split()) == ["a", "b", "c"]
            assert shell(f"{address}/kafka", "ls /brokers/ids") == "[1]"


@pytest.mark.java
def test_zookeepers_shell(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    with BarnabasServer(tmp_path, properties={"coordinator.listeners": address}):
        assert "controller_epoch" in shell(address, "ls /")
        assert '"brokerid":1' in shell(address, "get /controller")
        said = shell(address, "addauth digest u:p", "create /x hello auth::cdrwa", "getAcl /x", "get /x", "delete /x")
        assert "'digest,'u:" in said
        assert "hello" in said


def shell(address: str, *commands: str) -> str:
    """What ZooKeeper's shell prints to its standard output, but for its greetings."""
    main = "org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka"
    typed = "".join(f"{command}\n" for command in (*commands, "quit"))
    result = run_java(main, kafka_jars(LAST_WITH_ZOOKEEPER), ["-server", address], stdin=typed, timeout=60)
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if line.strip()]
    greetings = ("Connecting", "Welcome", "JLine", "WATCHER", "WatchedEvent")
    return "\n".join(line for line in lines if not line.startswith(greetings))


@pytest.mark.verify
@pytest.mark.timeout(600)  # a minute of it is waiting for sessions to end
def test_kazoos_own_tests(tmp_path: Path) -> None:
    tests = Path(kazoo.__file__).parent / "tests"
    names = [
        "client",
        "connection",
        "watchers",
        "lock",
        "queue",
        "election",
        "barrier",
        "counter",
        "party",
        "partitioner",
        "lease",
    ]
    files = [str(tests / f"test_{name}.py") for name in names]
    command = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=", "--import-mode=importlib", "--rootdir", "."]
    command += ["-p", "tests.compat.kazoo_on_tree", "-p", "no:cacheprovider", "-p", "no:asyncio", "--timeout", "120"]
    result = subprocess.run(
        [*command, *files],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / '.src'}"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    failed = set(re.findall(r"^(?:FAILED|ERROR) \S*?::(\S+)", result.stdout, re.MULTILINE))
    unexpected = {name for name in failed if not any(name.endswith(known) for known in NOT_OF_ONE_SERVER)}
    assert unexpected == set(), result.stdout[-10_000:]
    passed = re.search(r"(\d+) passed", result.stdout)
    assert passed is not None and int(passed[1]) >= 200, result.stdout[-2000:]
