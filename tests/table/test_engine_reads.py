"""Spark, DuckDB with its own extensions, and Polars read tables while a follower writes them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.foreign_tools import CHECKOUT, cache_dir, cache_entry, digest, run_checked
from tests.server_process import wait_until
from tests.table.conftest import location, produce
from tests.table.test_follow import values

from barnabas import Broker
from barnabas.table import FollowSettings, TableFollower, open_table
from barnabas.table.parquet_files import TableSettings

pytestmark = [pytest.mark.verify, pytest.mark.nightly, pytest.mark.timeout(900)]

DUCKDB = (
    "duckdb==1.4.4",
    "duckdb-ext",
    "duckdb-ext-avro==1.4.4.*",
    "duckdb-ext-delta==1.4.4.*",
    "duckdb-ext-iceberg==1.4.4.*",
)
"""The latest version whose extensions are packages."""
STEP, MOST = 30, 6000


def duckdb_packages() -> Path:
    """A folder to put on the Python path, fetched once."""
    with cache_entry(cache_dir("python"), f"duckdb-{digest(*DUCKDB, sys.version)}") as (entry, scratch):
        if scratch is not None:
            install = ["install", "--quiet", "--disable-pip-version-check", "--target", str(scratch)]
            run_checked([sys.executable, "-m", "pip", *install, *DUCKDB])
    return entry


def reader(engine: str, to: str, log: Path) -> subprocess.Popen[str]:
    """Start the engine; its number of rows to wait for is MOST."""
    module, arguments = "tests.table.engine_reads", [engine, to, str(MOST)]
    if engine == "spark":
        from tests.java import jars
        from tests.spark.jvm import with_pyspark_4_0
        from tests.spark.test_lake_tables import NEEDED
        from tests.table.test_spark_export import DELTA, ICEBERG, SQLITE

        found = [str(path) for path in jars(ICEBERG, DELTA, SQLITE) if path.name.startswith((*NEEDED, "sqlite-jdbc"))]
        command, env = with_pyspark_4_0(module, [*arguments, ",".join(found)])
    else:
        paths = [str(duckdb_packages())] if engine == "duckdb" else []
        paths += [str(CHECKOUT / ".src"), str(CHECKOUT)]
        command, env = [sys.executable, "-m", module, *arguments], os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    with log.open("wb") as errors:
        return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=errors, text=True)


@pytest.mark.parametrize(
    ("kind", "engine"),
    [
        *((kind, "polars") for kind in ("parquet", "delta", "iceberg")),
        *((kind, "duckdb") for kind in ("delta", "iceberg")),
        *(pytest.param(kind, "spark", marks=pytest.mark.java) for kind in ("parquet", "delta", "iceberg")),
    ],
)
def test_an_engine_reads_whole_commits(broker: Broker, topic: str, tmp_path: Path, kind: str, engine: str) -> None:
    """Each state has the records of each partition up to an offset, while small files are merged."""
    to, log = location(kind, tmp_path), tmp_path / "log"
    settings = FollowSettings(broker.bootstrap, [topic], interval_s=0.1)
    is_over, has_begun, printed = threading.Event(), threading.Event(), list[str]()
    failures: list[BaseException] = []

    def run() -> None:
        # Merges would hide rows of Parquet from readers for a moment.
        with open_table(to, TableSettings(merge_at=0 if kind == "parquet" else 5)) as sink:
            follower = TableFollower(sink, settings, is_stopping=is_over.is_set)
            try:
                follower.run()
            except BaseException as error:
                failures.append(error)

    produce(broker, topic, values(STEP))
    with open_table(to) as sink:
        TableFollower(sink, settings, is_stopping=lambda: False).run(once=True)
    process = reader(engine, to, log)

    def watch() -> None:
        for line in process.stdout:
            has_begun.set()
            printed.append(line.strip())
        has_begun.set()

    threads = [threading.Thread(target=one) for one in (run, watch)]
    for one in threads:
        one.start()
    try:
        assert has_begun.wait(300)
        for first in range(STEP, MOST, STEP):
            produce(broker, topic, values(STEP, first))
        wait_until(lambda: process.poll() is not None, timeout_s=300, what="the engine has read all records")
    finally:
        is_over.set()
        process.kill()
        process.wait()
        for one in threads:
            one.join()
    assert failures == []
    assert process.returncode == 0, log.read_text()[-4000:]
    assert int(printed[-1]) >= 3, "different states"
