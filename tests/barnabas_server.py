"""`barnabas start` as a child process for tests; of the same shape as `tests.kafka.KafkaServer`."""

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.server_process import BrokerProcess

MODULE = ("-m", "barnabas.tools.cli", "start")


def start_command() -> list[str]:
    """The command that takes a server.properties; `$BARNABAS_START` replaces it (for a build elsewhere)."""
    replaced = os.environ.get("BARNABAS_START")
    if replaced:
        return shlex.split(replaced)
    return [sys.executable, *MODULE]


def cli_command(*words: str) -> list[str]:
    """The command line of another command than `start`, of the same program."""
    return [*start_command()[:-1], *words]


class BarnabasServer(BrokerProcess):
    """One Barnabas. `settings` is a server.properties to start with as it is, `port` the one that it names. `python` is
    an interpreter that has Barnabas installed, instead of the interpreter of the tests."""

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
        """`barnabas start` with the settings."""
        start = [str(self._python), *MODULE] if self._python else start_command()
        return [*start, str(self._settings or self._write_settings())]

    def _write_settings(self) -> Path:
        listener = f"PLAINTEXT://127.0.0.1:{self.port}"
        own = {"broker.id": "1", "listeners": listener, "advertised.listeners": listener, "log.dirs": str(self.log_dir)}
        path = self.folder / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in {**own, **self._properties}.items()))
        return path
