"""Kafka Connect 4.3.1 from its jars: a worker of a distributed cluster, asked over its REST interface."""

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.java import JVM_FLAGS, jars, java_command, require_java
from tests.kafka import logging_flags
from tests.server_process import BrokerProcess

CONNECT = "4.3.1"
"""The last release whose file connector and MirrorMaker are published."""
PARTS = ("connect-runtime", "connect-file", "connect-mirror")
LOGGER = "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3"
FLAGS = tuple(flag for flag in JVM_FLAGS if not flag.startswith("-XX:TieredStopAtLevel"))
"""What runs for a minute is worth being compiled."""


def connect_command(main: str, settings: Path) -> list[str]:
    """The command of one of Connect's programs with its settings file."""
    require_java()
    classpath = jars(*(f"org.apache.kafka:{part}:{CONNECT}" for part in PARTS), LOGGER)
    return java_command(main, classpath, [str(settings)], [*FLAGS, *logging_flags(CONNECT, "warn")])


def write_settings(path: Path, settings: dict[str, Any]) -> Path:
    """A properties file."""
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


class ConnectWorker(BrokerProcess):
    """A worker with exactly-once source support. Its cluster is `name`, and so begin the names of its three topics."""

    def __init__(self, folder: Path, bootstrap: str, name: str) -> None:
        super().__init__(folder)
        self._name = name
        self._kafka = bootstrap

    def command(self) -> list[str]:
        """ConnectDistributed; who was killed is missed after six seconds and not waited for."""
        topics = {f"{kind}.storage.topic": f"{self._name}-{kind}" for kind in ("config", "offset", "status")}
        settings: dict[str, Any] = {
            "bootstrap.servers": self._kafka,
            "group.id": self._name,
            "listeners": f"http://127.0.0.1:{self.port}",
            "exactly.once.source.support": "enabled",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "plugin.discovery": "service_load",
            "plugin.path": self.folder,
            "offset.storage.partitions": 5,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 1000,
            "scheduled.rebalance.max.delay.ms": 0,
            **{f"{kind}.storage.replication.factor": 1 for kind in ("config", "offset", "status")},
            **topics,
        }
        path = write_settings(self.folder / "worker.properties", settings)
        return connect_command("org.apache.kafka.connect.cli.ConnectDistributed", path)

    def is_ready(self) -> bool:
        """Whether its REST interface can be asked."""
        try:
            return bool(self.ask("GET", ""))
        except OSError:
            return False

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """A REST request; what it answers, None for nothing. Raises HTTPError."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/{path}", data, method=method)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=90) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def states(self, connector: str) -> list[str]:
        """Of a connector and its tasks: RUNNING, FAILED, …; none as long as nothing is known."""
        try:
            status = self.ask("GET", f"connectors/{connector}/status")
        except urllib.error.HTTPError:
            return []
        return [status["connector"]["state"], *(task["state"] for task in status["tasks"])]
