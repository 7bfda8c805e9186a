"""A ZooKeeper for all tests that need one: Apache's, and a broker's own tree that is served as one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kafka import ZooKeeperServer
from tests.server.metadata.served_tree import ServedTree

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def apache_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    folder: Path = tmp_path_factory.mktemp("zookeeper")
    with ZooKeeperServer(folder) as server:
        yield server


@pytest.fixture(scope="session")
def served_tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedTree]:
    folder: Path = tmp_path_factory.mktemp("tree")
    with ServedTree(folder / "metadata.sqlite") as server:
        yield server


SERVERS = ["served_tree", pytest.param("apache_zookeeper", marks=pytest.mark.java)]


@pytest.fixture(params=SERVERS)
def zookeeper_server(request: pytest.FixtureRequest) -> ZooKeeperServer | ServedTree:
    server: ZooKeeperServer | ServedTree = request.getfixturevalue(request.param)
    return server


@pytest.fixture
def zookeeper_root(zookeeper_server: ZooKeeperServer | ServedTree) -> str:
    return own_root(zookeeper_server)


def own_root(server: ZooKeeperServer | ServedTree) -> str:
    """Where a test has a tree of its own."""
    return f"{server.address}/tests/{next(_numbers)}"
