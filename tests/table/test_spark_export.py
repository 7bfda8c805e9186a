"""A table that Spark has begun is followed without Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.table.conftest import produce, rows_of
from tests.table.test_follow import follow, values

from barnabas import Broker
from barnabas.table.table_columns import ColumnSettings

pytestmark = [pytest.mark.verify, pytest.mark.java, pytest.mark.timeout(300)]


def test_an_export_to_parquet_is_continued(broker: Broker, topic: str, tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="pip install 'barnabas[spark]'")
    produce(broker, topic, values(300))
    folder = tmp_path / "table"
    command = [sys.executable, "-m", "barnabas.tools.cli", "spark", "export", "--topic", topic, "--output", str(folder)]
    conf = ["--master", "local[1]", "--conf", "spark.ui.enabled=false"]
    subprocess.run([*command, "-b", broker.bootstrap, *conf], check=True, capture_output=True)
    (folder / f"topic={topic}" / "of-a-failed-task.parquet").write_bytes(b"incomplete")
    produce(broker, topic, values(100, 300))
    columns = ColumnSettings(topic=True, headers=True)
    to = f"parquet://{folder}"
    assert follow(broker, topic, to, columns=columns) == 100
    assert follow(broker, topic, to, columns=columns) == 0
    rows = rows_of(to)
    assert {(row["topic"], row["partition"], row["offset"]) for row in rows} == {
        (topic, partition, offset) for partition in range(2) for offset in range(200)
    }
    assert len(rows) == 400
    assert sorted(bytes(row["value"]) for row in rows) == sorted(b"v%d" % i for i in range(400))
    assert len({row["timestamp"].date() for row in rows}) <= 2 and all(row["timestamp"].year > 2000 for row in rows)
