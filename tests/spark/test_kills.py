"""A broker and a Spark job that are killed, over and over, lose and double no row of the Parquet."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import parquet
from tests.barnabas_server import BarnabasServer
from tests.foreign_tools import CHECKOUT
from tests.server_process import wait_until
from tests.spark.conftest import require_pyspark

pytestmark = [pytest.mark.verify, pytest.mark.timeout(600)]

ROWS, PATIENCE_S = 30_000, 120

JOB = """
import sys
from barnabas.spark.session import session
bootstrap, path = sys.argv[1:]
spark = session("local[2]", config={"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"})
spark.sparkContext.setLogLevel("ERROR")
frame = (
    spark.readStream.format("barnabas").option("kafka.bootstrap.servers", bootstrap).option("subscribe", "t")
    .option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "2000").load()
)
query = (
    frame.selectExpr("cast(value as string) value", "offset", "partition").writeStream.format("parquet")
    .option("path", path).option("checkpointLocation", path + "-checkpoint").start()
)
query.awaitTermination()
"""


class SparkJob:
    """The job as a process group of its own, JVM and workers in it."""

    def __init__(self, bootstrap: str, path: Path, log: Path) -> None:
        env = {**os.environ, "PYTHONPATH": f"{CHECKOUT / '.src'}{os.pathsep}{CHECKOUT}"}
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", sys.executable, "-c", JOB, bootstrap, str(path)],
                stdout=output,
                stderr=output,
                env=env,
                start_new_session=True,
            )

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[BarnabasServer]:
    with BarnabasServer(tmp_path / "broker") as running:
        yield running


def batches_done(path: Path) -> int:
    commits = Path(f"{path}-checkpoint") / "commits"
    return sum(p.name.isdecimal() for p in commits.iterdir()) if commits.is_dir() else 0


def test_kills_of_broker_and_job(server: BarnabasServer, tmp_path: Path) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    require_pyspark("4.2")
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic("t", 3, 1)]).values():
        future.result(30)
    failure: list[BaseException] = []

    def produce() -> None:
        try:
            feed(server.bootstrap)
        except BaseException as error:
            failure.append(error)

    producing = threading.Thread(target=produce)
    producing.start()
    out = tmp_path / "out"
    job = SparkJob(server.bootstrap, out, tmp_path / "job.log")
    try:
        for kill in ("job", "broker", "job"):
            wanted = batches_done(out) + 2
            wait_until(lambda n=wanted: batches_done(out) >= n, timeout_s=PATIENCE_S, what="two more batches")  # type: ignore[misc]
            if kill == "job":
                job.kill()
                job = SparkJob(server.bootstrap, out, tmp_path / "job.log")
            else:
                server.kill()
                server.start()
        producing.join()
        assert not failure, failure
        wait_until(lambda: len(written(out)) >= ROWS, timeout_s=PATIENCE_S, what="all rows", interval_s=1)
    finally:
        job.kill()
    assert sorted(written(out)) == list(range(ROWS))


def written(path: Path) -> list[int]:
    """The rows of the files that count: those in the file sink's own list."""
    files: set[str] = set()
    listed = path / "_spark_metadata"
    for log in listed.iterdir() if listed.is_dir() else ():
        if not log.name.startswith("."):
            files.update(json.loads(line)["path"] for line in log.read_text().splitlines()[1:])
    tables = [parquet.read_table(name.removeprefix("file://"), columns=["value"]) for name in files]
    return [int(value) for table in tables for value in table.column("value").to_pylist()]


def feed(bootstrap: str) -> None:
    """Idempotent, so that the broker's death doubles nothing on this side; slow enough to outlive some kills."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0})
    for first in range(0, ROWS, 500):
        for i in range(first, first + 500):
            producer.produce("t", key=b"%d" % (i % 1000), value=b"%d" % i)
        producer.poll(0)
        time.sleep(0.5)  # the pace of the load, not a hope
    assert producer.flush(90) == 0
