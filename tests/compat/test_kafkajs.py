"""kafkajs against the broker."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.compat.report import COLUMNS, ClientReport
from tests.node import installed, run_node

PACKAGE = Path(__file__).parent / "kafkajs"
# Its lz4 and zstd codecs are native add-ons that want building.
FEATURES = [name for name in COLUMNS if name not in ("lz4", "zstd")]


@pytest.mark.node
@pytest.mark.timeout(180)
def test_kafkajs(broker: str, compat: Callable[[str, str], ClientReport]) -> None:
    folder = installed(PACKAGE)
    version = json.loads((folder / "node_modules/kafkajs/package.json").read_text())["version"]
    with compat("kafkajs", version) as client:
        result = run_node(folder, "scenario.js", [broker], timeout=150)
        client.take_lines(result.stdout + result.stderr, FEATURES)
