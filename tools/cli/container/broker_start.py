"""The start of a broker in a container: settings from variables and files, then the broker in this process."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ....common.properties import format_properties, parse_properties
from .. import start
from ..reasons import reason
from .environment import ContainerHost, ContainerSettings, container_settings, has_kafka_variables
from .services import ContainerServices
from .storage_tool import format_directories

ROOT_VARIABLE = "BARNABAS_CONTAINER_ROOT"
"""Folder that stands for / in the paths of the image; tests redirect them with it."""
OWN_PROPERTIES = "/etc/barnabas/server.properties"
SHARED_PROPERTIES = "/mnt/shared/config/server.properties"
CONFLUENT_PROPERTIES = "/etc/kafka/kafka.properties"
CLIENT_PROPERTIES = ("/opt/bitnami/kafka/config/producer.properties", "/opt/bitnami/kafka/config/consumer.properties")
LOG_VARIABLES = {"BARNABAS_LOG_LEVEL": "--log-level", "BARNABAS_LOG_FORMAT": "--log-format"}
PROBE_S = 1.0
COORDINATOR_START_S = 20.0
"""The time for which the broker waits for a coordinator that the container has started and that does not listen yet."""
COORDINATOR = "zookeeper-server-start"


def place(path: str) -> Path:
    """Return a path of the image."""
    return Path(os.environ.get(ROOT_VARIABLE, "/") + path)


def run(arguments: list[str]) -> int:
    """Start with the variables of this process, as `/etc/kafka/docker/run` of Kafka's images; return the status.

    The arguments are options of `barnabas start`, which override the variables.
    """
    return _reported("start", lambda: _start(_settings(os.environ), _options(arguments)))


def configure(arguments: list[str]) -> int:
    """Write the settings to a file, as `/etc/confluent/docker/configure` does, for `launch` and `kafka-storage`."""

    def write() -> int:
        settings = _settings(os.environ)
        _warn(settings)
        _write_private(place(CONFLUENT_PROPERTIES), format_properties(settings.properties))
        return 0

    return _reported("configure", write)


def launch(arguments: list[str]) -> int:
    """Start with the file that `configure` wrote, as `/etc/confluent/docker/launch` does; return the status."""

    def start_broker() -> int:
        settings = _settings(os.environ)
        settings.warnings.clear()
        settings.properties = parse_properties(place(CONFLUENT_PROPERTIES).read_text(encoding="iso-8859-1"))
        return _start(settings, _options([]))

    return _reported("start", start_broker)


def _reported(command: str, work: Any) -> int:
    try:
        status: int = work()
    except (OSError, ValueError) as error:
        print(f"barnabas {command}: {reason(error)}", file=sys.stderr)
        return 2
    except Exception as error:  # noqa: BLE001 - the process ends with the reason instead of a traceback
        print(f"barnabas {command}: {reason(error)}", file=sys.stderr)
        return 1
    return status


def _options(arguments: list[str]) -> SimpleNamespace:
    """Parse the options, with the variables of the log. Raises ValueError for options without a use in a container."""
    words = [f"{option}={os.environ[name]}" for name, option in LOG_VARIABLES.items() if os.environ.get(name)]
    options = start.options_of([*words, *arguments])
    if options.properties is not None:
        raise ValueError(f"{options.properties}: mount the file at {SHARED_PROPERTIES}")
    if any(getattr(options, name) for name in ("console", *start.CONSOLE_ONLY)):
        raise ValueError("--console: it would serve the container only. Set BARNABAS_CONSOLE=1")
    return options


def _settings(environment: Mapping[str, str]) -> ContainerSettings:
    shared = place(SHARED_PROPERTIES)
    if shared.exists():
        base = shared
    elif has_kafka_variables(environment):
        return container_settings(environment, "", machine())
    else:
        base = place(OWN_PROPERTIES)
    text = base.read_text(encoding="iso-8859-1")
    settings = container_settings(environment, text, machine(), base_name=str(base))
    settings.is_compatible = base == shared
    return settings


def machine() -> ContainerHost:
    """Return this container."""

    def read_text(path: str) -> str | None:
        try:
            return place(path).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def answers(host: str, port: int) -> bool:
        deadline = time.monotonic() + COORDINATOR_START_S
        while True:
            try:
                with socket.create_connection((host, port), timeout=PROBE_S):
                    return True
            except OSError:
                if time.monotonic() > deadline or not _is_coordinator_running():
                    return False
            time.sleep(0.05)

    return ContainerHost(read_text=read_text, is_mount=lambda path: place(path).is_mount(), answers=answers)


def _is_coordinator_running() -> bool:
    """Return whether `zookeeper-server-start` runs in this container, which may not listen yet."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # the process has ended, or belongs to another user
            arguments = os.fsdecode(path.read_bytes()).split("\0")
            if any(Path(argument).name.removesuffix(".sh") == COORDINATOR for argument in arguments):
                return True
    return False


def _warn(settings: ContainerSettings) -> None:
    for warning in settings.warnings:
        print(f"barnabas: WARNING {warning}", file=sys.stderr)


def _write_client_properties(settings: ContainerSettings) -> None:
    """Write the files that bitnami's image has for its console clients."""
    try:
        for path in CLIENT_PROPERTIES:
            _write_private(place(path), format_properties(settings.client))
    except OSError as error:
        settings.warnings.append(f"the settings of clients are not written: {reason(error)}")


def _write_private(path: Path, text: str) -> None:
    """Write a file that may contain passwords."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
        file.write(text)


def _start(settings: ContainerSettings, options: SimpleNamespace) -> int:
    topics = start.topics_of(options)
    start.apply_options(settings.properties, options)
    # Modules are looked up by name: a tool must not depend on the server, and `kafka-topics` must not load it.
    config_room: Any = import_module("barnabas.server.config.broker_config")
    config = config_room.BrokerConfig.from_properties(settings.properties, os.environ)
    if settings.logins and (config.zookeeper_connect or config.is_kraft):
        settings.logins.clear()
        settings.warnings.append("KAFKA_CLIENT_USERS: the cluster stores SCRAM users. Add them: barnabas user add NAME")
    if (settings.cluster_id is not None or settings.logins) and not config.zookeeper_connect:
        cluster_id = settings.cluster_id
        for log_dir, owner in format_directories(settings.properties, cluster_id, settings.logins).items():
            if cluster_id not in (None, owner):
                text = f"CLUSTER_ID={cluster_id}: {log_dir} belongs to cluster {owner}, which is kept"
                settings.warnings.append(text)
    if settings.client:
        _write_client_properties(settings)
    _warn(settings)
    services = ContainerServices(settings.console, settings.schema_registry, prints_kafka_lines=settings.is_compatible)
    run_broker: Any = import_module("barnabas.server.__main__").run
    status: int = run_broker(config, topics, start.log_output(options), services if services.has_work else None)
    return status
