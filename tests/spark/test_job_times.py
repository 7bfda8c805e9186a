"""The jobs with record timestamps that Spark cannot hold or Python cannot show, repeated batches, and transactions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.spark.conftest import Cluster
from tests.spark.test_commands import run

from barnabas.clients import Producer
from barnabas.protocol.record_batch import RecordBatchBuilder
from barnabas.spark import jobs
from barnabas.spark.jobs.export import ExportSettings

pytestmark = pytest.mark.timeout(280)

NOW = 1_700_000_000_000
NANOSECONDS = NOW * 1_000_000
"""A time in nanoseconds, which a producer has sent as milliseconds."""
YEAR_11476 = 300_000_000_000_000
"""Spark has this time, and Python has not: its years end with 9999."""
NULL = {"valueErrors": "null"}
ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1)}
UNFIT = f"timestamp of t-0 at offset 1: {NANOSECONDS} ms"


def log(root: Path, *times: int) -> str:
    """A partition `t-0` with a record for each time; the second one has the key of the first."""
    builder = RecordBatchBuilder(base_offset=0)
    for offset, time in enumerate(times):
        builder.append(b"k%d" % (0 if offset == 1 else offset), b"v%d" % offset, (), time, offset)
    (root / "t-0").mkdir(parents=True)
    (root / "t-0" / f"{0:020}.log").write_bytes(builder.build())
    return str(root)


def milliseconds(records: Any) -> dict[int, int | None]:
    """The timestamps of rows by offset, as Spark has them."""
    rows = records.selectExpr("offset", "unix_millis(timestamp) AS ms").collect()
    return {row["offset"]: row["ms"] for row in rows}


JOBS: dict[str, Callable[[Any, str], Any]] = {
    "compact": jobs.compact,
    "compact to a table": lambda records, out: jobs.compact(records, out, file_format="parquet"),
    "table": lambda records, out: jobs.table(records).write.parquet(out),
    "audit": lambda records, out: jobs.audit(records).write.parquet(out),
}


@pytest.mark.parametrize("name", JOBS)
def test_jobs_name_the_record_whose_time_spark_cannot_hold(spark: Any, tmp_path: Path, name: str) -> None:
    path = log(tmp_path / "log", NOW, NANOSECONDS, NOW)
    with pytest.raises(Exception, match=UNFIT):
        JOBS[name](jobs.log_records(spark, path), str(tmp_path / "out"))


def test_jobs_read_such_a_time_as_null_by_option(spark: Any, tmp_path: Path) -> None:
    records = jobs.log_records(spark, log(tmp_path / "log", NOW, NANOSECONDS, NOW), options=NULL)
    rows = {bytes(row["key"]): bytes(row["value"]) for row in jobs.table(records).collect()}
    assert rows == {b"k0": b"v1", b"k2": b"v2"}, "the later offset is the latest of a key, whatever its time"
    (audited,) = jobs.audit(records).collect()
    assert (audited["records"], audited["repeats"], audited["gaps"]) == (3, 1, 0)
    assert audited["earliest"] == audited["latest"] != None  # noqa: E711
    jobs.compact(records, str(tmp_path / "out"))
    compacted = jobs.log_records(spark, str(tmp_path / "out"))
    # A record without a timestamp has Kafka's -1.
    assert milliseconds(compacted) == {1: -1, 2: NOW}


def test_jobs_keep_times_after_the_year_9999(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = log(tmp_path / "log", NOW, YEAR_11476, NOW)
    jobs.compact(jobs.log_records(spark, path), str(tmp_path / "compacted"))
    assert milliseconds(jobs.log_records(spark, str(tmp_path / "compacted"))) == {1: YEAR_11476, 2: NOW}
    assert milliseconds(jobs.table(jobs.log_records(spark, path))) == {1: YEAR_11476, 2: NOW}
    capsys.readouterr()
    run("audit", "--path", path, "--json")
    (audited,) = json.loads(capsys.readouterr().out)
    assert audited["latest"].startswith("+11476-"), audited
    run("audit", "--path", path, "--output", str(tmp_path / "audit"))
    latest = spark.read.parquet(str(tmp_path / "audit")).selectExpr("unix_millis(latest) AS ms").collect()
    assert [row["ms"] for row in latest] == [YEAR_11476]


def test_exports_and_replays_keep_times_after_the_year_9999(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    for topic in ("t", "back"):
        cluster.broker.create_topic(topic, 1, ANY_TIME)
    cluster.produce("t", [{"value": b"%d" % time, "timestamp": time} for time in (NOW, YEAR_11476)])
    out = str(tmp_path / "out")
    assert jobs.export(spark, cluster.bootstrap, "t", out).awaitTermination(100)
    jobs.replay(spark.read.parquet(out), cluster.bootstrap, "back")
    assert [record.timestamp for record in cluster.broker.records("back")] == [NOW, YEAR_11476]


def test_an_export_whose_first_batch_failed_begins_where_it_began(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    """The first batch fails with the record that Spark cannot hold, and is repeated with another option."""
    cluster.broker.create_topic("t", 1, ANY_TIME)
    cluster.broker.create_topic("back", 1)
    times = (NOW, NANOSECONDS, NOW)
    cluster.produce("t", [{"value": b"%d" % n, "timestamp": time} for n, time in enumerate(times)])
    out = str(tmp_path / "out")
    with pytest.raises(Exception, match=UNFIT):
        jobs.export(spark, cluster.bootstrap, "t", out).awaitTermination(100)
    cluster.produce("t", [{"value": b"3", "timestamp": NOW}])
    for _ in range(2):
        query = jobs.export(spark, cluster.bootstrap, "t", out, ExportSettings(options=NULL))
        assert query.awaitTermination(100)
    exported = spark.read.parquet(out)
    assert milliseconds(exported) == {0: NOW, 1: None, 2: NOW, 3: NOW}
    assert exported.count() == 4
    assert [row["offset"] for row in exported.where("date IS NULL").collect()] == [1]
    jobs.replay(exported, cluster.bootstrap, "back")
    replayed = cluster.broker.records("back")
    assert [record.value for record in replayed] == [b"0", b"1", b"2", b"3"]
    assert [record.timestamp == NOW for record in replayed] == [True, False, True, True]
    assert replayed[1].timestamp > NOW, "a record without a timestamp has the time of its append"


class AbortedError(Exception):
    """Ends a transaction."""


def test_an_export_has_the_records_of_committed_transactions_once(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    cluster.broker.create_topic("t", 2)
    out = str(tmp_path / "out")
    settings = ExportSettings(options={"kafka.isolation.level": "read_committed"})

    def export() -> list[int]:
        assert jobs.export(spark, cluster.bootstrap, "t", out, settings).awaitTermination(100)
        return sorted(int(row["value"]) for row in spark.read.parquet(out).select("value").collect())

    async def write() -> None:
        async with Producer(cluster.bootstrap, transactional_id="writer") as producer:
            for number in range(10):
                with suppress(AbortedError):
                    async with producer.transaction():
                        await producer.send("t", b"%d" % number, partition=number % 2)
                        await producer.flush()
                        if number == 7:
                            # The records of this transaction, and those behind it, come with a later export.
                            assert await asyncio.to_thread(export) == [0, 1, 2, 4, 5, 6]
                        if number in (3, 8):
                            raise AbortedError

    asyncio.run(write())
    for _ in range(2):
        assert export() == [0, 1, 2, 4, 5, 6, 7, 9]
