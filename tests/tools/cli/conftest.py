"""A broker of each module's own, and the `barnabas` command against it, run in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from barnabas import Broker
from barnabas.tools.cli import main

Run = Callable[..., tuple[int, str, str]]


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
        capfd.readouterr()
        try:
            status = main(list(arguments))
        except SystemExit as end:
            status = int(end.code or 0)
        out, err = capfd.readouterr()
        return status, out, err

    return command
