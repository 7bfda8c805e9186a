"""The controllers of a local cluster that are Apache Kafka's: their settings, their formatting, their command lines."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ...common.properties import format_properties
from ...common.uuid_text import new_uuid, uuid_text
from .kafka_home import NEWEST, SERVER, STORAGE_TOOL, KafkaHome
from .local_process import LOG_LINES, ControllerProcess, LocalClusterError, make_private, write_private

CONTROLLERS = 3
FIRST_CONTROLLER = 101
"""The ids of brokers are at most 100."""
FORMAT_SECONDS = 120
_LOG4J2 = """\
<Configuration status="error">
  <Appenders><Console name="out"><PatternLayout pattern="[%d] %p %m (%c)%n"/></Console></Appenders>
  <Loggers><Root level="warn"><AppenderRef ref="out"/></Root></Loggers>
</Configuration>
"""


class KafkaQuorum:
    """Three controllers (KIP-853, a dynamic quorum). `LocalCluster` owns it."""

    def __init__(
        self, folder: Path, ports: Sequence[int], cluster_id: str, directory_ids: Sequence[str], *, is_formatted: bool
    ) -> None:
        """`folder` is that of the cluster. `is_formatted` is set as soon as all directories are formatted."""
        self.cluster_id = cluster_id
        self.directory_ids = list(directory_ids)
        self.is_formatted = is_formatted
        self.kafka_home: Path | None = None
        """The release of the last start of controllers."""
        self.processes = [
            ControllerProcess(number, f"controller {number}", folder / f"controller-{number}", port)
            for number, port in enumerate(ports, FIRST_CONTROLLER)
        ]

    @classmethod
    def create(cls, folder: Path, ports: Sequence[int]) -> KafkaQuorum:
        """Return the controllers of a new cluster."""
        directory_ids = [uuid_text(new_uuid(os.urandom)) for _ in ports]
        return cls(folder, ports, uuid_text(new_uuid(os.urandom)), directory_ids, is_formatted=False)

    @classmethod
    def from_json(cls, folder: Path, ports: Sequence[int], known: Mapping[str, Any]) -> KafkaQuorum:
        """Return the controllers of a stored cluster. Raises ValueError, LookupError, TypeError."""
        cluster_id, directory_ids = known["cluster_id"], known["directory_ids"]
        if not all(isinstance(value, str) for value in (cluster_id, *directory_ids)) or len(ports) != CONTROLLERS:
            raise ValueError("expected the ids of a cluster and of the directories of three controllers")
        quorum = cls(folder, ports, cluster_id, directory_ids, is_formatted=bool(known["is_formatted"]))
        quorum.kafka_home = Path(known["kafka_home"]) if known["kafka_home"] else None
        return quorum

    def to_json(self) -> dict[str, Any]:
        """Return the values for `from_json`, without the ports."""
        return {
            "cluster_id": self.cluster_id,
            "directory_ids": self.directory_ids,
            "is_formatted": self.is_formatted,
            "kafka_home": None if self.kafka_home is None else str(self.kafka_home),
        }

    @property
    def bootstrap(self) -> str:
        """Return `controller.quorum.bootstrap.servers`."""
        return ",".join(process.address for process in self.processes)

    def common_settings(self, config: Mapping[str, str]) -> dict[str, str]:
        """Return the settings of controllers and brokers about the quorum. `config` has the settings of the user."""
        protocols = config.get("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT")
        return {
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": self.bootstrap,
            "listener.security.protocol.map": f"{protocols},CONTROLLER:PLAINTEXT",
        }

    def format(self, home: KafkaHome, config: Mapping[str, str]) -> None:
        """Write the settings of the controllers and format their directories. Raises LocalClusterError, OSError.

        `config` has the settings of the cluster, most of which Kafka's controllers apply as well.
        """
        for process in self.processes:
            make_private(process.folder)
            write_private(process.folder / "log4j2.xml", _LOG4J2)
        self._write_settings(self.processes, config)
        if self.is_formatted:
            return
        voters = ",".join(
            f"{process.number}@{process.address}:{directory_id}"
            for process, directory_id in zip(self.processes, self.directory_ids, strict=True)
        )
        arguments = ["--cluster-id", self.cluster_id, "--initial-controllers", voters, "--ignore-formatted"]
        if home.version > NEWEST:
            # The defaults of a later release may be features that Barnabas does not have.
            arguments += ["--release-version", "{}.{}".format(*NEWEST)]
        with ExitStack() as stack:
            tools = []
            for process in self.processes:
                properties = str(process.folder / "server.properties")
                tool = subprocess.Popen(  # noqa: S603 - the user's Java
                    home.command(STORAGE_TOOL, "format", "--config", properties, *arguments),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                )
                stack.callback(_end, tool)
                tools.append((process, tool))
            for process, tool in tools:
                try:
                    printed, _ = tool.communicate(timeout=FORMAT_SECONDS)
                except subprocess.TimeoutExpired:
                    raise LocalClusterError(f"{process.name} could not be formatted in {FORMAT_SECONDS} s") from None
                if tool.returncode:
                    lines = printed.splitlines()[-LOG_LINES:]
                    raise LocalClusterError("\n".join([f"{process.name} could not be formatted", *lines]))
        self.is_formatted = True

    def _write_settings(self, processes: Sequence[ControllerProcess], config: Mapping[str, str]) -> None:
        for process in processes:
            listener = f"CONTROLLER://{process.address}"
            own = {
                "process.roles": "controller",
                "node.id": str(process.number),
                "listeners": listener,
                "advertised.listeners": listener,
                "log.dirs": str(process.folder / "data"),
                # On one machine an unreachable broker has died.
                "broker.session.timeout.ms": config.get("broker.session.timeout.ms", "4000"),
            }
            settings = {**config, **self.common_settings(config), **own}
            write_private(process.folder / "server.properties", format_properties(settings))

    def command(self, home: KafkaHome, process: ControllerProcess) -> list[str]:
        """Return the command line of a controller."""
        log4j2 = f"-Dlog4j2.configurationFile={process.folder / 'log4j2.xml'}"
        return home.command(SERVER, str(process.folder / "server.properties"), flags=(log4j2,))


def _end(tool: subprocess.Popen[str]) -> None:
    if tool.poll() is None:
        tool.kill()
        tool.wait()
    if tool.stdout is not None:
        tool.stdout.close()
