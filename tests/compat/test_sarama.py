"""Sarama against the broker, speaking what it speaks by default and all that it knows."""

from collections.abc import Callable

import pytest
from tests.compat.go_clients import go_client, pinned_version
from tests.compat.report import COLUMNS, ClientReport
from tests.golang import run_go


@pytest.mark.golang
@pytest.mark.timeout(300)
@pytest.mark.parametrize("versions", ["default", pytest.param("max", marks=pytest.mark.verify)])
def test_sarama(broker: str, compat: Callable[[str, str], ClientReport], versions: str) -> None:
    program = go_client("sarama")
    major, minor, _ = run_go(program, ["version", versions]).stdout.split(".")
    name = f"as of Kafka {major}.{minor}" + " (default)" * (versions == "default")
    with compat("Sarama", f"{pinned_version('sarama', 'github.com/IBM/sarama')}, {name}") as client:
        result = run_go(program, [broker, versions], timeout=200)
        client.take_lines(result.stdout + result.stderr, COLUMNS)
