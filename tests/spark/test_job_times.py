"""The jobs with record timestamps that Spark cannot hold or Python cannot show."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.spark.test_commands import run

from barnabas.protocol.record_batch import RecordBatchBuilder
from barnabas.spark import jobs

pytestmark = pytest.mark.timeout(280)

NOW = 1_700_000_000_000
NANOSECONDS = NOW * 1_000_000
"""A time in nanoseconds, which a producer has sent as milliseconds."""
YEAR_11476 = 300_000_000_000_000
"""Spark has this time, and Python has not: its years end with 9999."""
NULL = {"valueErrors": "null"}
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
