"""Topic reads into an Arrow table: `barnabas.arrow` from a broker and from files, confluent-kafka and kafka-python.

    python -m bench.arrow_reads [--rounds 5] [--rows 100:2000000 1000:500000] [--partitions 4]

Each value size has a topic. The broker is a separate process. In every round each reader builds the same table: key,
value, topic, partition, offset and timestamp of all records. confluent-kafka reads messages with `consume`, up to
100 000 per call, and kafka-python with `poll`. Both append to a list per column, which Arrow then converts.
kafka-python reads only one tenth of the records. The output is a Markdown table: the median of the rounds after the
first, and the smallest and the largest ratio in one round.
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

import pyarrow as pa
from tests.barnabas_server import BarnabasServer

from barnabas.arrow import read_folder, read_topic

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")
READERS = {
    "topic": "`read_topic`",
    "folder": "`read_folder`",
    "confluent": "confluent-kafka",
    "kafka-python": "kafka-python",
}
TIMEOUT_S = 120.0
SLOW_SHARE = 10
"""kafka-python reads the number of records divided by this."""


def fill(bootstrap: str, topic: str, rows: int, size: int, partitions: int) -> None:
    """Write a topic with librdkafka, 5000 records to each partition in turn."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result(30)
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 500_000}
    producer = Producer(settings)
    value = (bytes(range(256)) * (size // 256 + 1))[:size]
    for i in range(rows):
        while True:
            try:
                producer.produce(topic, key=b"%010d" % i, value=value, partition=i // 5000 % partitions)
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(TIMEOUT_S) == 0


def table_of(columns: dict[str, list[Any]]) -> pa.Table:
    kinds = {"partition": pa.int32(), "timestamp": pa.timestamp("ms", tz="UTC")}
    return pa.table({name: pa.array(values, kinds.get(name)) for name, values in columns.items()})


def read_with_confluent(bootstrap: str, topic: str, rows: int, partitions: int) -> pa.Table:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    settings = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    consumer = Consumer({**settings, "fetch.max.bytes": 50 << 20, "max.partition.fetch.bytes": 8 << 20})
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    found, deadline = 0, time.perf_counter() + TIMEOUT_S
    while found < rows:
        assert time.perf_counter() < deadline, f"confluent-kafka has {found} of {rows} records"
        messages = consumer.consume(100_000, 0.05)
        columns["key"] += [message.key() for message in messages]
        columns["value"] += [message.value() for message in messages]
        columns["topic"] += [message.topic() for message in messages]
        columns["partition"] += [message.partition() for message in messages]
        columns["offset"] += [message.offset() for message in messages]
        columns["timestamp"] += [message.timestamp()[1] for message in messages]
        found += len(messages)
    consumer.close()
    return table_of(columns)


def read_with_kafka_python(bootstrap: str, topic: str, rows: int, partitions: int) -> pa.Table:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, max_partition_fetch_bytes=8 << 20)
    consumer.assign([TopicPartition(topic, index) for index in range(partitions)])
    consumer.seek_to_beginning()
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    found, deadline = 0, time.perf_counter() + TIMEOUT_S
    while found < rows:
        assert time.perf_counter() < deadline, f"kafka-python has {found} of {rows} records"
        for messages in consumer.poll(timeout_ms=50, max_records=100_000).values():
            for name in COLUMNS:
                columns[name] += [getattr(message, name) for message in messages]
            found += len(messages)
    consumer.close()
    return table_of(columns)


def timed(read: Callable[[], pa.Table], rows: int) -> float:
    """Return the records per second of one reader."""
    begin = time.perf_counter()
    table = read()
    took = time.perf_counter() - begin
    assert table.num_rows >= rows, f"{table.num_rows} of {rows} records"
    return table.num_rows / took


def measure(server: BarnabasServer, topic: str, rows: int, partitions: int, rounds: int) -> dict[str, list[float]]:
    """Run every reader in every round, and return their rates. The first round does not count."""
    bootstrap = server.bootstrap
    slow_rows = rows // SLOW_SHARE
    readers: dict[str, tuple[Callable[[], pa.Table], int]] = {
        "topic": (lambda: read_topic(bootstrap, topic, columns=COLUMNS).to_table(), rows),
        "folder": (lambda: read_folder(str(server.log_dir), topics=topic, columns=COLUMNS).to_table(), rows),
        "confluent": (lambda: read_with_confluent(bootstrap, topic, rows, partitions), rows),
        "kafka-python": (lambda: read_with_kafka_python(bootstrap, topic, slow_rows, partitions), slow_rows),
    }
    found: dict[str, list[float]] = {name: [] for name in readers}
    for number in range(rounds + 1):
        for name, (read, wanted) in readers.items():
            rate = timed(read, wanted)
            if number:
                found[name].append(rate)
    return found


def ratio(rates: list[float], base: list[float]) -> str:
    """Return the median, the smallest and the largest ratio of the rounds."""
    ratios = [a / b for a, b in zip(rates, base, strict=True)]
    return f"{statistics.median(ratios):.1f} ({min(ratios):.1f}–{max(ratios):.1f})"


def table(found: dict[int, dict[str, list[float]]]) -> str:
    """Return the table of records and value bytes per second, by value size."""
    titles = ["values", *READERS.values(), "topic × confluent-kafka", "topic × kafka-python", "folder × topic"]
    lines = ["| " + " | ".join(titles) + " |", "|---|" + "--:|" * (len(titles) - 1)]
    for size, rates in found.items():
        cells = [f"{size} B"]
        for name in READERS:
            rate = statistics.median(rates[name])
            cells.append(f"{rate / 1e6:.2f} M/s, {rate * size / 1e9:.2f} GB/s")
        cells += [ratio(rates["topic"], rates["confluent"]), ratio(rates["topic"], rates["kafka-python"])]
        lines.append("| " + " | ".join([*cells, ratio(rates["folder"], rates["topic"])]) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", default=["100:2000000", "1000:500000"], metavar="SIZE:ROWS")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--partitions", type=int, default=4)
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="barnabas-arrow-bench-"))
    found: dict[int, dict[str, list[float]]] = {}
    try:
        with BarnabasServer(folder / "server") as server:
            for size, rows in ((int(size), int(rows)) for size, rows in (text.split(":") for text in chosen.rows)):
                topic = f"of-{size}"
                fill(server.bootstrap, topic, rows, size, chosen.partitions)
                found[size] = measure(server, topic, rows, chosen.partitions, chosen.rounds)
        print(table(found))
        print(json.dumps(found), file=sys.stderr)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
