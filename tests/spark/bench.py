"""Rows a second through Spark's own Kafka connector, this source and the segment reader, side by side in one session.

    python -m tests.spark.bench [--rows 2000000] [--rounds 3] [--size 100]

Run it under PySpark 4.0, which the connector's jars are for; `--with-4.0` fetches that and starts itself
again. One topic with one
partition, a broker in a process of its own, `local[2]`. Prints a table in Markdown: the median of the rounds after one
that warms up, and the ratio to the connector round by round.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.barnabas_server import BarnabasServer
from tests.spark.jvm import connector_jars, run_with_pyspark_4_0

KINDS = ("kafka", "barnabas", "barnabas-log")
SINKS = ("noop", "parquet")


def fill(bootstrap: str, rows: int, size: int) -> None:
    """Write the topic with librdkafka."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic("t", 1, 1)]).values():
        future.result(30)
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 500_000}
    producer = Producer(settings)
    value = bytes(range(256)) * (size // 256 + 1)
    for i in range(rows):
        while True:
            try:
                producer.produce("t", key=b"%010d" % i, value=value[:size])
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(120) == 0


def frame_of(spark: Any, kind: str, bootstrap: str, logs: str) -> Any:
    if kind == "barnabas-log":
        names = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
        return spark.read.format(kind).option("topics", "t").schema(f"{names}, timestampType int").load(logs)
    return spark.read.format(kind).option("kafka.bootstrap.servers", bootstrap).option("subscribe", "t").load()


def timed(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(spark: Any, bootstrap: str, folder: Path, rounds: int, rows: int) -> dict[str, dict[str, list[float]]]:
    """Rows a second by sink and source, one for each round."""
    found: dict[str, dict[str, list[float]]] = {sink: {kind: [] for kind in KINDS} for sink in SINKS}
    for number in range(rounds + 1):
        for sink in SINKS:
            for kind in KINDS:
                target = folder / "out"

                def run(kind: str = kind, sink: str = sink, target: Path = target) -> None:
                    writer = frame_of(spark, kind, bootstrap, str(folder / "data")).write.format(sink)
                    writer.mode("overwrite").save(*([str(target)] if sink == "parquet" else []))

                took = timed(run)
                shutil.rmtree(target, ignore_errors=True)
                if number:
                    found[sink][kind].append(rows / took)
    return found


def table(found: dict[str, dict[str, list[float]]], size: int) -> str:
    lines = [
        f"| {size} B values, `local[2]`, one partition | Spark's connector | `barnabas` | × | `barnabas-log` | × |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for sink, by_kind in found.items():
        base = by_kind["kafka"]
        cells = [f"{statistics.median(base) / 1e6:.2f} M rows/s"]
        for kind in KINDS[1:]:
            ratios = [ours / theirs for ours, theirs in zip(by_kind[kind], base, strict=True)]
            cells.append(f"{statistics.median(by_kind[kind]) / 1e6:.2f} M rows/s")
            cells.append(f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})")
        lines.append(f"| into {sink} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def run(rows: int, size: int, rounds: int) -> None:
    from barnabas.clients.spark.session import session

    folder = Path(tempfile.mkdtemp(prefix="barnabas-spark-bench-"))
    server = BarnabasServer(folder / "server")
    try:
        with server:
            fill(server.bootstrap, rows, size)
            (folder / "data").symlink_to(server.log_dir)
            jars = ",".join(map(str, connector_jars()))
            config = {"spark.jars": jars, "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}
            config["spark.driver.memory"] = "2g"
            spark = session("local[2]", config=config)
            spark.sparkContext.setLogLevel("ERROR")
            found = measure(spark, server.bootstrap, folder, rounds, rows)
            spark.stop()
        print(table(found, size))
        print(json.dumps(found), file=sys.stderr)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--with-4.0", dest="with_4_0", action="store_true")
    chosen = parser.parse_args()
    if chosen.with_4_0:
        arguments = ["--rows", str(chosen.rows), "--size", str(chosen.size), "--rounds", str(chosen.rounds)]
        print(run_with_pyspark_4_0("tests.spark.bench", arguments, timeout_s=3600), end="")
        return
    run(chosen.rows, chosen.size, chosen.rounds)


if __name__ == "__main__":
    main()
