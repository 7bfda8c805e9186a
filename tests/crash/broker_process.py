"""A broker as a process of its own that a test may kill."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

READY_SECONDS = 60.0


def free_port() -> int:
    """A loopback port that was free a moment ago; a broker that is restarted must keep its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class BrokerProcess:
    """`python -m barnabas.server` on one folder and one port, through as many lives as the test wants."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.port = free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.log = folder.with_suffix(".log")
        self._properties = folder.with_suffix(".properties")
        lines = {"listeners": f"PLAINTEXT://127.0.0.1:{self.port}", "log.dirs": str(folder), **(settings or {})}
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> float:
        """Start and wait until it says that it is ready; returns the seconds that took."""
        began = time.monotonic()
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / ".src")}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "barnabas.server", str(self._properties)],
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
            )
        assert self._process.stdout is not None
        output = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"ready " not in output:
                left = began + READY_SECONDS - time.monotonic()
                assert left > 0, f"not ready in {READY_SECONDS} s: {self.log.read_text()[-2000:]}"
                if selector.select(left):
                    piece = os.read(self._process.stdout.fileno(), 4096)
                    assert piece, f"it ended: {self.log.read_text()[-3000:]}"
                    output += piece
        return time.monotonic() - began

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM, and wait for the clean end; returns the exit status."""
        return self._end(signal.SIGTERM)

    def wait(self, seconds: float) -> int:
        """Wait until it ends by itself; returns the exit status. Raises TimeoutExpired."""
        assert self._process is not None
        return self._process.wait(seconds)

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        status = process.wait(60)
        if process.stdout is not None:
            process.stdout.close()
        return status
