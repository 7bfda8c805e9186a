"""`barnabas start` as a child process for tests, with the interface of `tests.kafka.KafkaServer`."""

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.server_process import BrokerProcess

MODULE = ("-m", "barnabas.tools.cli", "start")


def start_command() -> list[str]:
    """Return the command to which a server.properties is appended. `$BARNABAS_START` overrides it, for other builds."""
    replaced = os.environ.get("BARNABAS_START")
    if replaced:
        return shlex.split(replaced)
    return [sys.executable, *MODULE]


def cli_command(*words: str) -> list[str]:
    """Return the command line of another `barnabas` command than `start`."""
    return [*start_command()[:-1], *words]


class BarnabasServer(BrokerProcess):
    """A Barnabas broker.

    With `settings`, it starts with this server.properties unchanged, and `port` is the port of its listener. Otherwise
    a file with `properties` is generated. `python` is an interpreter with Barnabas installed. The default is the
    interpreter of the tests.
    """

    def __init__(
        self,
        folder: Path,
        *,
        properties: Mapping[str, str] | None = None,
        settings: Path | None = None,
        port: int | None = None,
        python: Path | None = None,
    ) -> None:
        super().__init__(folder, port=port, properties=properties)
        self._settings = settings
        self._python = python

    def command(self) -> list[str]:
        """Return the `barnabas start` command."""
        start = [str(self._python), *MODULE] if self._python else start_command()
        return [*start, str(self._settings or self._write_settings())]

    def _write_settings(self) -> Path:
        listener = f"PLAINTEXT://127.0.0.1:{self.port}"
        defaults = {
            "broker.id": "1",
            "listeners": listener,
            "advertised.listeners": listener,
            "log.dirs": str(self.log_dir),
        }
        path = self.folder / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in {**defaults, **self._properties}.items()))
        return path
