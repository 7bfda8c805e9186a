"""Rows per second through Spark's own Kafka connector, `barnabas` and `barnabas-log`, in one Spark session.

    python -m bench.spark_sources [--rounds 3] [--warm 3] [--rows 100:4000000 1000:1000000]

Run the bench under PySpark 4.0, the version of the connector's jars. With `--with-4.0` it downloads this version and
runs under it. Each value size has a topic with one partition. The broker is a separate process, and Spark runs as
`local[2]`. The output is a Markdown table: the median of the rounds after the warm-up, and the smallest and the largest
ratio to the connector in one round. The JVM compiles code for several rounds, on the cores that the queries use.

Two more columns are for comparison: the upper bound of a Python source, which returns a prepared Arrow batch again and
again (`prepared_source.py`), and the connector with `minPartitions`, which splits the partition into the number of
tasks of a segment reader.
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
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tests.barnabas_server import BarnabasServer
from tests.spark.jvm import connector_jars, run_with_pyspark_4_0

KINDS = {
    "kafka": "Spark's connector",
    "kafka cut": "… cut into 4",
    "barnabas": "`barnabas`",
    "barnabas-log": "`barnabas-log`",
    "prepared": "upper bound of a Python source",
}
SINKS = ("noop", "parquet")
TASKS = 4
SCHEMA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"


class Rounds(NamedTuple):
    """The number of warm-up rounds and of timed rounds."""

    warm: int
    timed: int


Rates = dict[str, dict[str, list[float]]]
"""Rows per second by sink and kind, one number for each round."""


def fill(bootstrap: str, topic: str, rows: int, size: int) -> None:
    """Write a topic with librdkafka."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        future.result(30)
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 500_000}
    producer = Producer(settings)
    value = bytes(range(256)) * (size // 256 + 1)
    for i in range(rows):
        while True:
            try:
                producer.produce(topic, key=b"%010d" % i, value=value[:size])
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(120) == 0


def frame_of(spark: Any, kind: str, bootstrap: str, logs: str, topic: str, rows: int) -> Any:
    """Return a DataFrame of the topic's rows, read by this kind of source."""
    if kind in ("barnabas-log", "prepared"):
        return spark.read.format(kind).options(topics=topic, rows=rows).schema(SCHEMA).load(logs)
    name, _, cut = kind.partition(" ")
    reader = spark.read.format(name).option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    return (reader.option("minPartitions", TASKS) if cut else reader).load()


def timed(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(kinds: list[str], frame: Callable[[str], Any], folder: Path, rounds: Rounds, rows: int) -> Rates:
    """Copy rows from every kind of source to every sink, first to warm up and then to measure the time."""
    found: Rates = {sink: {kind: [] for kind in kinds} for sink in SINKS}
    target = folder / "out"
    for kind in kinds:
        assert abs(frame(kind).count() - rows) < TASKS, f"{kind} has a different number of rows"
    for number in range(rounds.warm + rounds.timed):
        for sink in SINKS:
            for kind in kinds:
                writer = frame(kind).write.format(sink).mode("overwrite")
                took = timed(partial(writer.save, *([str(target)] if sink == "parquet" else [])))
                shutil.rmtree(target, ignore_errors=True)
                if number >= rounds.warm:
                    found[sink][kind].append(rows / took)
    return found


def cell(rates: list[float], base: list[float]) -> str:
    """Return the median in million rows per second, and its ratio to the connector."""
    ratios = [rate / base_rate for rate, base_rate in zip(rates, base, strict=True)]
    times = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"
    return f"{statistics.median(rates) / 1e6:.2f} M | {times}"


def table(found: dict[int, Rates], kinds: list[str]) -> str:
    """Return the table of rows per second, by value size and sink. × is the ratio to the first kind."""
    titles = " | × | ".join(KINDS[kind] for kind in kinds[1:])
    lines = [f"| values, sink | {KINDS[kinds[0]]} | {titles} | × |", "|---|--:|" + "--:|--:|" * (len(kinds) - 1)]
    for size, by_sink in found.items():
        for sink, by_kind in by_sink.items():
            base = by_kind[kinds[0]]
            cells = [f"{size} B, {sink}", f"{statistics.median(base) / 1e6:.2f} M"]
            lines.append("| " + " | ".join([*cells, *(cell(by_kind[kind], base) for kind in kinds[1:])]) + " |")
    return "\n".join(lines)


def run(sizes: dict[int, int], rounds: Rounds, kinds: list[str]) -> None:
    """Fill a topic for each value size, measure, and print. `sizes` maps the size to the number of rows."""
    from bench.prepared_source import PreparedSource

    from barnabas.spark.session import session

    folder = Path(tempfile.mkdtemp(prefix="barnabas-spark-bench-"))
    found: dict[int, Rates] = {}
    try:
        with BarnabasServer(folder / "server") as server:
            jars = ",".join(map(str, connector_jars()))
            config = {"spark.jars": jars, "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}
            spark = session("local[2]", config={**config, "spark.driver.memory": "2g"})
            spark.sparkContext.setLogLevel("ERROR")
            spark.dataSource.register(PreparedSource)
            for size, rows in sizes.items():
                topic = f"of-{size}"
                fill(server.bootstrap, topic, rows, size)
                frame = partial(
                    frame_of, spark, bootstrap=server.bootstrap, logs=str(server.log_dir), topic=topic, rows=rows
                )
                found[size] = measure(kinds, frame, folder, rounds, rows)
            spark.stop()
        print(table(found, kinds))
        print(json.dumps(found), file=sys.stderr)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", default=["100:4000000", "1000:1000000"], metavar="SIZE:ROWS")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm", type=int, default=3, help="number of warm-up rounds")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS, help="× is the ratio to the first")
    parser.add_argument("--with-4.0", dest="with_4_0", action="store_true")
    chosen = parser.parse_args()
    if chosen.with_4_0:
        rounds = ["--rounds", str(chosen.rounds), "--warm", str(chosen.warm)]
        arguments = ["--rows", *chosen.rows, *rounds, "--kinds", *chosen.kinds]
        print(run_with_pyspark_4_0("bench.spark_sources", arguments, timeout_s=3600), end="")
        return
    sizes = {int(size): int(rows) for size, rows in (text.split(":") for text in chosen.rows)}
    run(sizes, Rounds(chosen.warm, chosen.rounds), chosen.kinds)


if __name__ == "__main__":
    main()
