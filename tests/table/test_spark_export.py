"""A table that Spark has begun is followed without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.table.conftest import location, produce, rows_of
from tests.table.test_follow import follow, iceberg_table, offsets_of, values, written

from barnabas import Broker

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
    to = f"parquet://{folder}"
    assert follow(broker, topic, to) == 100
    assert follow(broker, topic, to) == 0
    rows = rows_of(to)
    assert {(row["topic"], row["partition"], row["offset"]) for row in rows} == {
        (topic, partition, offset) for partition in range(2) for offset in range(200)
    }
    assert len(rows) == 400
    assert sorted(bytes(row["value"]) for row in rows) == sorted(b"v%d" % i for i in range(400))
    assert len({row["timestamp"].date() for row in rows}) <= 2 and all(row["timestamp"].year > 2000 for row in rows)


ICEBERG, DELTA = "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0", "io.delta:delta-spark_4.0_2.13:4.4.0"
SQLITE = "org.xerial:sqlite-jdbc:3.50.3.0"


def in_spark(broker: Broker, topic: str, folder: Path, *kinds: str) -> list[dict[str, int]]:
    """Export in a new session of PySpark 4.0."""
    from tests.java import jars
    from tests.spark.jvm import run_with_pyspark_4_0
    from tests.spark.test_lake_tables import NEEDED

    found = [str(path) for path in jars(ICEBERG, DELTA, SQLITE) if path.name.startswith((*NEEDED, "sqlite-jdbc"))]
    arguments = [broker.bootstrap, topic, str(folder), ",".join(found), *kinds]
    printed = run_with_pyspark_4_0("tests.table.spark_tables", arguments, timeout_s=500)
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


@pytest.mark.timeout(900)
def test_spark_and_the_follower_continue_the_same_iceberg_table(broker: Broker, topic: str, tmp_path: Path) -> None:
    """The offsets are in the snapshots of both, without the records of an aborted transaction."""
    pytest.importorskip("pyspark", reason="pip install 'barnabas[spark]'")
    iceberg = location("iceberg", tmp_path)
    (tmp_path / "lake").mkdir()
    aborted = [{"value": b"aborted", "partition": 0}] * 5
    produce(broker, topic, values(300))
    abort(broker, topic, aborted)
    assert in_spark(broker, topic, tmp_path, "iceberg") == [{"iceberg": 0, "rows": 300}]
    assert len(iceberg_table(tmp_path).snapshots()) > 1, "a commit per batch"
    state = offsets_of(iceberg)
    assert state is not None and set(state.topic_ids) == {topic}
    produce(broker, topic, values(100, 300))
    for number in (100, 0):
        assert follow(broker, topic, iceberg) == number
    assert written(iceberg) == sorted(f"v{i}" for i in range(400))
    produce(broker, topic, values(50, 400))
    assert in_spark(broker, topic, tmp_path, "iceberg") == [{"iceberg": 0, "rows": 450}]
    assert in_spark(broker, topic, tmp_path, "iceberg") == [{"iceberg": 0, "rows": 450}]
    produce(broker, topic, values(50, 450))
    assert follow(broker, topic, iceberg) == 50
    assert written(iceberg) == sorted(f"v{i}" for i in range(500))
    found = {(row["partition"], row["offset"]) for row in rows_of(iceberg)}
    assert len(found) == 500


def abort(broker: Broker, topic: str, rows: list[dict[str, Any]]) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"{topic}-t", "log_level": 0})
    producer.init_transactions()
    producer.begin_transaction()
    for row in rows:
        producer.produce(topic, **row)
    producer.flush()
    producer.abort_transaction()
