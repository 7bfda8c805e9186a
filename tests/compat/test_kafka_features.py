"""`kafka-features` of Kafka 4.4.0 against the broker: which levels there are, and other ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.barnabas_server import BarnabasServer
from tests.java import require_java
from tests.kafka import KafkaTools

pytestmark = [pytest.mark.java, pytest.mark.verify, pytest.mark.timeout(240)]

FEATURE = "transaction.version"


@pytest.fixture
def bootstrap(tmp_path: Path) -> Iterator[str]:
    require_java()
    with BarnabasServer(tmp_path / "broker") as broker:
        yield broker.bootstrap


def test_levels_are_described_and_changed(bootstrap: str) -> None:
    tools = KafkaTools()

    def features(*words: str) -> tuple[int, str]:
        done = tools.run("kafka-features", "--bootstrap-server", bootstrap, *words)
        return done.returncode, done.stdout + done.stderr

    def level() -> int:
        code, text = features("describe")
        assert code == 0, text
        found = re.search(
            r"Feature: transaction.version\s+SupportedMinVersion: 0\s+SupportedMaxVersion: 2\s+"
            r"FinalizedVersionLevel: (\d)",
            text,
        )
        assert found, text
        return int(found[1])

    assert level() == 2
    for words, code, after in (
        (("downgrade", "--feature", f"{FEATURE}=1", "--dry-run"), 0, 2),
        (("upgrade", "--feature", f"{FEATURE}=1"), 1, 2),
        (("downgrade", "--feature", f"{FEATURE}=1"), 0, 1),
        (("upgrade", "--feature", f"{FEATURE}=3"), 1, 1),
        (("disable", "--feature", FEATURE), 0, 0),
        (("upgrade", "--feature", f"{FEATURE}=2"), 0, 2),
    ):
        answer, text = features(*words)
        assert answer == code, (words, text)
        print(" ".join(words), "|", text.strip())
        assert level() == after
