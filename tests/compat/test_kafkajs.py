"""kafkajs against the broker."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.compat.report import COLUMNS, ClientReport
from tests.node import install_packages, run_node

PACKAGE = Path(__file__).parent / "kafkajs"
# Its lz4 and zstd codecs are native add-ons that want building.
FEATURES = [name for name in COLUMNS if name not in ("lz4", "zstd")]


@pytest.mark.node
@pytest.mark.timeout(180)
def test_kafkajs(broker: str, compat: Callable[[str, str], ClientReport]) -> None:
    folder = install_packages(PACKAGE)
    version = json.loads((folder / "node_modules/kafkajs/package.json").read_text())["version"]
    with compat("kafkajs", version) as client:
        result = run_node(folder, "scenario.js", [broker], timeout=150)
        client.take_lines(result.stdout + result.stderr, FEATURES)


@pytest.mark.node
@pytest.mark.verify
@pytest.mark.timeout(60)
def test_kafkajs_subscribes_to_a_topic_that_does_not_exist(broker: str) -> None:
    """It fails after UNKNOWN_TOPIC_OR_PARTITION, the error of Kafka 4.4 for a topic that is being created."""
    result = run_node(install_packages(PACKAGE), "missing_topic.js", [broker], timeout=50)
    assert (result.returncode, result.stdout) == (0, "subscribed\n"), result.stderr
