"""`barnabas start` as a child process for tests: its own folder and port, stopped or killed, started again.

The same shape as `tests.kafka.KafkaServer`, so that a test can run against either.
"""

import os
import shlex
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.kafka import ServerProcess, broker_answers, free_port


def start_command() -> list[str]:
    """The command that takes a server.properties; `$BARNABAS_START` replaces it (for a build elsewhere)."""
    replaced = os.environ.get("BARNABAS_START")
    if replaced:
        return shlex.split(replaced)
    return [str(Path(sys.executable).parent / "barnabas"), "start"]


class BarnabasServer:
    """One broker process with its own folder; `stop` and `kill` leave the folder, `start` opens it again.

    `settings` is a server.properties to start with as it is, `port` the one that it names.
    """

    def __init__(
        self,
        folder: Path,
        *,
        properties: Mapping[str, str] | None = None,
        settings: Path | None = None,
        port: int | None = None,
    ) -> None:
        self.folder = folder
        self.log_dir = folder / "data"
        self.port = port or free_port()
        self._settings = settings
        self._properties = dict(properties or {})
        self._process: ServerProcess | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    def __enter__(self) -> "BarnabasServer":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self, timeout_s: float = 60) -> None:
        """Start the broker and return once it answers clients."""
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = self._settings or self._write_settings()
        self._process = ServerProcess([*start_command(), str(settings)], self.folder / "server.log")
        self._process.wait_ready(
            lambda: broker_answers("127.0.0.1", self.port),
            timeout_s=timeout_s,
            what=f"barnabas answers on {self.bootstrap}",
        )

    def _write_settings(self) -> Path:
        listener = f"PLAINTEXT://127.0.0.1:{self.port}"
        own = {"broker.id": "1", "listeners": listener, "advertised.listeners": listener, "log.dirs": str(self.log_dir)}
        path = self.folder / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in {**own, **self._properties}.items()))
        return path

    def log_tail(self) -> str:
        """The last part of what the broker printed."""
        path = self.folder / "server.log"
        return path.read_bytes()[-6000:].decode(errors="replace") if path.exists() else ""

    def stop(self, timeout_s: float = 60) -> None:
        """Clean shutdown (SIGTERM)."""
        if self._process is not None:
            self._process.end(signal.SIGTERM, timeout_s)
            self._process = None

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.end(signal.SIGKILL)
            self._process = None
