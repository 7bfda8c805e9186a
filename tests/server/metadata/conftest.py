"""A ZooKeeper for all tests that hold something against a real one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kafka import ZooKeeperServer

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    folder: Path = tmp_path_factory.mktemp("zookeeper")
    with ZooKeeperServer(folder) as server:
        yield server


@pytest.fixture
def zookeeper_root(zookeeper_server: ZooKeeperServer) -> str:
    """Where a test has a tree of its own."""
    return f"{zookeeper_server.address}/tests/{next(_numbers)}"
