"""A table that Spark has begun is followed without Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from tests.server_process import wait_until
from tests.table.conftest import location, produce, rows_of
from tests.table.test_follow import follow, iceberg_table, offsets_of, values, written
from tests.table.test_kills import run_rounds

from barnabas import Broker
from barnabas.arrow import read_topic

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
    done = subprocess.run([*command, "-b", broker.bootstrap, *conf], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "`barnabas table follow` has continued this table" in done.stderr
    assert len(rows_of(to)) == 400


ICEBERG, DELTA = "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0", "io.delta:delta-spark_4.0_2.13:4.4.0"
SQLITE = "org.xerial:sqlite-jdbc:3.50.3.0"


def arguments_of(broker: Broker, topic: str, folder: Path, *kinds: str) -> list[str]:
    """The arguments of `tests.table.spark_tables`."""
    from tests.java import jars
    from tests.spark.test_lake_tables import NEEDED

    found = [str(path) for path in jars(ICEBERG, DELTA, SQLITE) if path.name.startswith((*NEEDED, "sqlite-jdbc"))]
    return [broker.bootstrap, topic, str(folder), ",".join(found), *kinds]


def in_spark(broker: Broker, topic: str, folder: Path, *kinds: str) -> list[dict[str, int]]:
    """Export in a new session of PySpark 4.0, and return what Spark reads."""
    from tests.spark.jvm import run_with_pyspark_4_0

    arguments = arguments_of(broker, topic, folder, *kinds)
    printed = run_with_pyspark_4_0("tests.table.spark_tables", arguments, timeout_s=500)
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


def kill_in_spark(broker: Broker, topic: str, folder: Path, is_due: Callable[[], bool]) -> None:
    """Export in Spark, and kill its processes with SIGKILL as soon as `is_due`."""
    from tests.spark.jvm import with_pyspark_4_0

    command, env = with_pyspark_4_0("tests.table.spark_tables", arguments_of(broker, topic, folder, "delta"))
    process = subprocess.Popen(
        command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        wait_until(lambda: is_due() or process.poll() is not None, timeout_s=300, what="the export is due to be killed")
        assert process.poll() is None, "the export has ended"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def batches_of(folder: Path, kind: str) -> int:
    """The number of batches that Spark has begun (offsets) or finished (commits)."""
    path = folder / "_checkpoint" / kind
    return sum(one.name.isdecimal() for one in path.iterdir()) if path.is_dir() else 0


@pytest.mark.timeout(900)
def test_spark_and_the_follower_continue_the_same_iceberg_table(broker: Broker, topic: str, tmp_path: Path) -> None:
    """The offsets are in the snapshots of both, without the records of an aborted transaction."""
    pytest.importorskip("pyspark", reason="pip install 'barnabas[spark]'")
    iceberg = location("iceberg", tmp_path)
    (tmp_path / "lake").mkdir()
    aborted = [{"value": b"aborted", "partition": 0}] * 5
    produce(broker, topic, values(300))
    abort(broker, topic, aborted)
    (found,) = in_spark(broker, topic, tmp_path, "iceberg")
    assert (found["iceberg"], found["rows"]) == (0, 300)
    assert len(iceberg_table(tmp_path).snapshots()) > 1, "a commit per batch"
    state = offsets_of(iceberg)
    assert state is not None and set(state.topic_ids) == {topic}
    produce(broker, topic, values(100, 300))
    for number in (100, 0):
        assert follow(broker, topic, iceberg) == number
    assert written(iceberg) == sorted(f"v{i}" for i in range(400))
    produce(broker, topic, values(50, 400))
    for _ in range(2):
        (found,) = in_spark(broker, topic, tmp_path, "iceberg")
        assert (found["iceberg"], found["rows"]) == (0, 450)
    produce(broker, topic, values(50, 450))
    assert follow(broker, topic, iceberg) == 50
    assert written(iceberg) == sorted(f"v{i}" for i in range(500))
    assert len({(row["partition"], row["offset"]) for row in rows_of(iceberg)}) == 500


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_a_delta_table_of_spark_is_continued_after_kills(broker: Broker, topic: str, tmp_path: Path) -> None:
    """Spark is killed during the export, and the follower at the first steps of its commits and at random times."""
    pytest.importorskip("pyspark", reason="pip install 'barnabas[spark]'")
    to, folder = location("delta", tmp_path), tmp_path / "table"
    produce(broker, topic, values(1000))
    assert in_spark(broker, topic, tmp_path, "delta") == [{"delta": 0, "rows": 1000, "offsets": 2 * sum(range(500))}]
    produce(broker, topic, values(1000, 1000))
    kill_in_spark(broker, topic, tmp_path, lambda: batches_of(folder, "offsets") == 2)
    if batches_of(folder, "commits") == 1:
        with pytest.raises(ValueError, match="batch 1 of Spark is not finished"):
            follow(broker, topic, to)
    assert in_spark(broker, topic, tmp_path, "delta") == [{"delta": 0, "rows": 2000, "offsets": 2 * sum(range(1000))}]
    state = offsets_of(to)
    assert state is not None and sorted(state.offsets.values()) == [1000, 1000] and set(state.topic_ids) == {topic}
    produce(broker, topic, values(100, 2000))
    run_rounds(broker, topic, to, 12)
    assert follow(broker, topic, to) == 0
    expected = read_topic(broker.bootstrap, topic).to_table()
    assert expected.num_rows == 2000 + 100 + 12 * 60
    rows = rows_of(to)
    keys = ("topic", "partition", "offset", "key", "value")
    assert sorted(map(itemgetter(*keys), rows)) == sorted(map(itemgetter(*keys), expected.to_pylist()))
    offsets = sum(expected["offset"].to_pylist())
    # Spark would write the records of the follower again, so its export refuses.
    found = in_spark(broker, topic, tmp_path, "delta", "read:delta")
    assert found == [{"delta": status, "rows": len(rows), "offsets": offsets} for status in (1, 0)]


def abort(broker: Broker, topic: str, rows: list[dict[str, Any]]) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"{topic}-t", "log_level": 0})
    producer.init_transactions()
    producer.begin_transaction()
    for row in rows:
        producer.produce(topic, **row)
    producer.flush()
    producer.abort_transaction()
