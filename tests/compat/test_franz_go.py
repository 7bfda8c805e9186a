"""franz-go against the broker."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.compat.report import COLUMNS, ClientReport
from tests.golang import built, run_go

MODULE = Path(__file__).parent / "franzgo"


@pytest.mark.golang
@pytest.mark.timeout(300)
def test_franz_go(broker: str, compat: Callable[[str, str], ClientReport]) -> None:
    program = built(MODULE)
    version = re.search(r"franz-go v(\S+)", (MODULE / "go.mod").read_text())
    assert version
    with compat("franz-go", version[1]) as client:
        result = run_go(program, [broker], timeout=200)
        client.take_lines(result.stdout + result.stderr, COLUMNS)
