"""A pytest plugin that gives kazoo's own tests a Barnabas in place of the ZooKeepers that they would start."""

from __future__ import annotations

import sys
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.barnabas_server import BarnabasServer
from tests.server_process import free_port


class ServedBroker:
    """One server as kazoo's harness knows it: stopped by a kill, and started again on what is on its disk."""

    def __init__(self, folder: Path) -> None:
        self.client_port = free_port()
        self.address = f"127.0.0.1:{self.client_port}"
        self.running = False
        self._broker = BarnabasServer(folder, properties={"coordinator.listeners": self.address})

    def run(self) -> None:
        self._broker.start()
        self.running = True

    def stop(self) -> None:
        self._broker.kill()
        self.running = False


class Cluster(list[ServedBroker]):
    """All servers: one."""

    def start(self) -> None:
        for server in self:
            server.run()

    def stop(self) -> None:
        for server in self:
            server.stop()

    terminate = stop

    @staticmethod
    def get_logs() -> list[str]:
        return []


# What starts a ZooKeeper makes certificates with a package of its own.
_common = types.ModuleType("kazoo.testing.common")
_common.__dict__["ZookeeperCluster"] = Cluster
sys.modules[_common.__name__] = _common


@pytest.fixture(scope="session", autouse=True)
def cluster() -> Iterator[None]:
    import kazoo.testing.harness

    with tempfile.TemporaryDirectory() as folder:
        servers = Cluster([ServedBroker(Path(folder))])
        kazoo.testing.harness.get_global_cluster = lambda: servers
        yield
        servers.stop()
