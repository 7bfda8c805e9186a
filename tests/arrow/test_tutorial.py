"""docs/arrow.md runs as it is written, but for the address of the broker and the path of its data."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.arrow.conftest import KEEP_ALL, produce

from barnabas import Broker

PAGE = Path(__file__).parent.parent.parent / "docs" / "arrow.md"


def test_the_code_of_the_page_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("polars", reason="pip install 'barnabas[dev]'")
    pytest.importorskip("duckdb", reason="pip install 'barnabas[dev]'")
    blocks = re.findall(r"(?ms)^```python\n(.*?)^```", PAGE.read_text())
    assert len(blocks) >= 3
    first = [line for line in blocks[0].splitlines() if line]
    assert len(first) <= 5, "a topic in Polars in five lines"
    with Broker(data_dir=tmp_path, config=KEEP_ALL) as broker:
        broker.create_topic("flights", 1)
        produce(broker, "flights", [{"key": b"N%d" % (i % 3), "value": b"{}"} for i in range(1500)])
        names: dict[str, Any] = {}
        for block in blocks:
            code = block.replace("localhost:9092", broker.bootstrap).replace("/var/lib/kafka/data", str(tmp_path))
            exec(compile(code, str(PAGE), "exec"), names)
    assert len(names["frame"]) == 1000
    shown = capsys.readouterr().out
    assert "334" in shown and "shape: (3, 2)" in shown, "of the last thousand records, by key"
