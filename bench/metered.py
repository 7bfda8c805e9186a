"""A broker that switches its request metrics off or on again at each SIGUSR1: `python -m bench.metered FILE`.

Two processes of the same program differ by a few percent in the cost of a request, because their memory layouts differ.
The metrics cost less than that, so their cost is measured within one process.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from tests.barnabas_server import BarnabasServer

from barnabas.server.__main__ import run
from barnabas.server.broker import BrokerServer
from barnabas.server.config.broker_config import BrokerConfig


class MeteredServer(BarnabasServer):
    """The broker as a child process."""

    def command(self) -> list[str]:
        return [sys.executable, "-m", "bench.metered", str(self._write_settings())]


class _MetricsSwitch:
    """The handler of SIGUSR1, which runs with the broker from its start on."""

    async def start(self, server: BrokerServer) -> str:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self._switch, server)
        self._is_measuring = True
        return "SIGUSR1 switches the request metrics off or on again"

    def _switch(self, server: BrokerServer) -> None:
        assert server.metrics is not None
        self._is_measuring = not self._is_measuring
        if self._is_measuring:
            server.apis.measure(server.metrics.requests)
        else:
            server.apis.stop_measuring(server.metrics.requests)

    async def stop(self) -> None:
        """Do nothing: the signal handler is removed with the loop."""


if __name__ == "__main__":
    sys.exit(run(BrokerConfig.from_file(Path(sys.argv[1])), companion=_MetricsSwitch()))
