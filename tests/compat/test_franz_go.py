"""franz-go against the broker."""

from collections.abc import Callable

import pytest
from tests.compat.go_clients import go_client, pinned_version
from tests.compat.report import COLUMNS, ClientReport
from tests.golang import run_go


@pytest.mark.golang
@pytest.mark.timeout(300)
def test_franz_go(broker: str, compat: Callable[[str, str], ClientReport]) -> None:
    program = go_client("franzgo")
    with compat("franz-go", pinned_version("franzgo", "github.com/twmb/franz-go")) as client:
        result = run_go(program, [broker], timeout=200)
        client.take_lines(result.stdout + result.stderr, COLUMNS)
