"""The broker that foreign clients are tried against, and the table of what works.

`BARNABAS_COMPAT_TARGET=host:port` tries another server, for instance Apache Kafka, which proves the tests.
`BARNABAS_WRITE_REPORT=1` rewrites the table in docs/compatibility.md, between its marker lines.
"""

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.barnabas_server import BarnabasServer
from tests.compat.report import PAGES, PROPERTY, ClientReport, replace_table, table

EAGER = {"group.initial.rebalance.delay.ms": "0"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running broker, which does not wait for more members of a group."""
    target = os.environ.get("BARNABAS_COMPAT_TARGET")
    if target:
        yield target
        return
    with BarnabasServer(tmp_path_factory.mktemp("broker"), properties=EAGER) as server:
        yield server.bootstrap


@pytest.fixture(scope="module")
def group_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that allows short sessions and does not wait for more members."""
    target = os.environ.get("BARNABAS_COMPAT_TARGET")
    if target:
        yield target
        return
    settings = EAGER | {"group.min.session.timeout.ms": "1000"}
    with BarnabasServer(tmp_path_factory.mktemp("broker"), properties=settings) as server:
        yield server.bootstrap


@pytest.fixture
def compat(request: pytest.FixtureRequest) -> Callable[[str, str], ClientReport]:
    """Makes the report of a client: `with compat("kcat", "1.7.1") as client: ...`."""
    return lambda client, version: ClientReport(request, client, version)


class TableWriter:
    """Gathers the reports of all test processes and writes the table when the run is over."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, str], dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if report.when == "call" and name == PROPERTY:
                entry = json.loads(str(value))
                self.entries[entry["client"], entry["version"]] = entry

    def pytest_sessionfinish(self) -> None:
        for page in PAGES if self.entries else ():
            page.write_text(replace_table(page.read_text(), table(self.entries.values())))


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("BARNABAS_WRITE_REPORT") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(TableWriter(), "compatibility-table")
