"""A broker that measures its requests, and at each SIGUSR1 no longer or again: `python -m bench.metered FILE`.

Two processes of the same program differ by some hundredths in what a request costs, as their memory lies differently;
what measuring costs is less than that, and so is looked for within one.
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


class _Switch:
    """Beside the broker, from its start on."""

    async def start(self, server: BrokerServer) -> str:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self._turn, server)
        self._measures = True
        return "SIGUSR1 has it measure no longer, or again"

    def _turn(self, server: BrokerServer) -> None:
        assert server.metrics is not None
        self._measures = not self._measures
        if self._measures:
            server.apis.measure(server.metrics.requests)
        else:
            server.apis.stop_measuring(server.metrics.requests)

    async def stop(self) -> None:
        """The signal's handler goes with the loop."""


if __name__ == "__main__":
    sys.exit(run(BrokerConfig.from_file(Path(sys.argv[1])), companion=_Switch()))
