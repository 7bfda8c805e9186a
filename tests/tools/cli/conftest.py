"""A broker of each module's own, and the `barnabas` command against it, run in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.tools.cli.running import Run, run_command

from barnabas import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def run(broker: Broker, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in this process; gives its status, output and errors."""
    monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVER", broker.bootstrap)
    monkeypatch.setenv("COLUMNS", "120")

    def command(*arguments: str) -> tuple[int, str, str]:
        return run_command(capfd, list(arguments))

    return command
