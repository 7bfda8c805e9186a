"""`barnabas table follow`: rows per second into a new table, and the age of records when they become visible in it.

    python -m bench.table_follow [--rounds 3] [--rows 3000000] [--size 100] [--kinds iceberg delta parquet duckdb]
                                 [--rate 500000] [--seconds 20]

The broker and the follower are separate processes. In every round each kind of table receives all records of a topic
with four partitions. The time includes the creation of the table, but not the start of Python. Then equal batches of
5000 records are written at a fixed rate, with timestamps set by the broker, while the command follows the topic to
Iceberg with its default settings. The age is the time of a snapshot minus the time of the oldest record in its files.
The output is two Markdown tables.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from bench.arrow_reads import fill
from tests.barnabas_server import BarnabasServer
from tests.foreign_tools import CHECKOUT
from tests.table.conftest import location

from barnabas.arrow.client import BlockingClient, ClientSettings
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.record_batch import RecordBatchBuilder
from barnabas.protocol.topic_partition import TopicPartition

PARTITIONS = 4
BATCH = 5_000
TIMEOUT_S = 120.0
FOLLOW = """
import sys, time
import pyarrow
from barnabas.table import FollowSettings, TableFollower, open_table
bootstrap, topic, to = sys.argv[1:]
pyarrow.set_memory_pool(pyarrow.system_memory_pool())
with open_table(to) as sink:
    follower = TableFollower(sink, FollowSettings(bootstrap, [topic]), is_stopping=lambda: False)
    begin = time.perf_counter()
    follower.run(once=True)
    print(follower.metrics.rows, time.perf_counter() - begin)
"""


def environment() -> dict[str, str]:
    allocator = {"ARROW_DEFAULT_MEMORY_POOL": "system"}  # as in the command
    return {**os.environ, **allocator, "PYTHONPATH": f"{CHECKOUT / '.src'}{os.pathsep}{CHECKOUT}"}


def rate_of(bootstrap: str, topic: str, to: str, rows: int) -> float:
    """Return the rows per second of one follower into a new table."""
    command = [sys.executable, "-c", FOLLOW, bootstrap, topic, to]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    found, took = done.stdout.split()
    assert int(found) == rows, f"{found} of {rows} rows"
    return rows / float(took)


class PacedProducer:
    """A producer that writes equal batches, one after the other, at a fixed rate of records."""

    def __init__(self, bootstrap: str, topic: str, size: int, rate: int) -> None:
        self._client = BlockingClient(ClientSettings(bootstrap, {}, "bench"))
        self._partitions = [TopicPartition(topic, index) for index in range(PARTITIONS)]
        self._rate = rate
        builder = RecordBatchBuilder(max_size=1 << 30)
        value = (bytes(range(256)) * (size // 256 + 1))[:size]
        for i in range(BATCH):
            builder.append(b"%010d" % i, value, (), 0)
        self._batch = builder.build()
        self.written = 0
        self.seconds = 0.0

    def run(self, seconds: float) -> None:
        """Write for this time, and set `written` and `seconds`, from which the reached rate follows."""
        begin, first = time.monotonic(), self.written
        while (now := time.monotonic()) < begin + seconds:
            if self.written - first > (now - begin) * self._rate:
                time.sleep(0.005)
                continue
            self.write_batch()
        self.seconds = time.monotonic() - begin
        self._client.close()

    def write_batch(self) -> None:
        """Write the next batch."""
        tp = self._partitions[self.written // BATCH % PARTITIONS]
        if not self.written:
            self._client.refresh([tp.topic])
        self._write(tp)
        self.written += BATCH

    def _write(self, tp: TopicPartition) -> None:
        data = [PartitionProduceData(index=tp.partition, records=self._batch)]
        request = ProduceRequest(
            transactional_id=None,
            acks=1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=tp.topic, partition_data=data)],
        )
        connection = self._client.connection(self._client.leader(tp))
        answer = connection.ask(request, highest=11).responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.NONE, answer


def iceberg(folder: Path) -> Any:
    """Return the table of `location("iceberg", folder)`."""
    from pyiceberg.catalog.sql import SqlCatalog

    lake = folder / "lake"
    return SqlCatalog("local", uri=f"sqlite:///{lake}/catalog.db", warehouse=f"file://{lake}").load_table("db.rows")


def rows_in(folder: Path) -> int:
    """Return the number of rows in the table, 0 before its first commit."""
    from pyiceberg.exceptions import NoSuchTableError

    try:
        return int(iceberg(folder).scan().count())
    except NoSuchTableError:
        return 0


def ages_of(table: Any) -> list[float]:
    """Return the age in seconds of the oldest record of each snapshot that added records, without merges of files.

    The first snapshot is left out: its record was written before the follower started.
    """
    from pyiceberg.conversions import from_bytes
    from pyiceberg.manifest import ManifestEntryStatus
    from pyiceberg.table.snapshots import Operation

    column = table.schema().find_field("timestamp")
    ages = []
    for snapshot in sorted(table.snapshots(), key=lambda one: one.timestamp_ms):
        if snapshot.summary.operation is not Operation.APPEND:
            continue
        entries = [
            entry
            for manifest in snapshot.manifests(table.io)
            if manifest.added_snapshot_id == snapshot.snapshot_id
            for entry in manifest.fetch_manifest_entry(table.io)
            if entry.status is ManifestEntryStatus.ADDED
        ]
        bounds = [from_bytes(column.field_type, entry.data_file.lower_bounds[column.field_id]) for entry in entries]
        ages.append(snapshot.timestamp_ms / 1000 - int(min(bounds)) / 1e6)
    return ages[1:]


def measure_ages(server: BarnabasServer, folder: Path, size: int, rate: int, seconds: float) -> str:
    """Write at a rate, follow to Iceberg, and return a row of the second table."""
    from confluent_kafka.admin import AdminClient, NewTopic

    topic = "paced"
    config = {"message.timestamp.type": "LogAppendTime"}
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=config)]).values():
        future.result(30)
    command = [sys.executable, "-m", "barnabas.tools.cli", "table", "follow", topic, "-b", server.bootstrap]
    to = location("iceberg", folder)
    follower = subprocess.Popen([*command, "--to", to], env=environment())
    producer = PacedProducer(server.bootstrap, topic, size, rate)

    def wait_for_end() -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not (folder / "lake" / "catalog.db").exists() or rows_in(folder) < producer.written:
            assert time.monotonic() < deadline and follower.poll() is None, "the follower has not reached the end"
            time.sleep(0.2)

    try:
        producer.write_batch()
        wait_for_end()
        thread = threading.Thread(target=producer.run, args=(seconds,))
        thread.start()
        thread.join()
        wait_for_end()
        follower.send_signal(signal.SIGTERM)
        follower.wait(TIMEOUT_S)
    finally:
        follower.kill()
        follower.wait()
    table = iceberg(folder)
    assert table.scan().count() == producer.written
    ages = sorted(ages_of(table))
    return (
        f"| {producer.written / producer.seconds / 1e6:.2f} M/s | {producer.written / 1e6:.1f} M | {len(ages)} | "
        f"{statistics.median(ages):.1f} s | {ages[-1]:.1f} s |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a value")
    parser.add_argument("--kinds", nargs="*", default=["iceberg", "delta", "parquet", "duckdb"])
    parser.add_argument("--rate", type=int, default=500_000, help="records per second; 0 skips the ages")
    parser.add_argument("--seconds", type=float, default=20.0)
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="barnabas-table-bench-"))
    found: dict[str, list[float]] = {kind: [] for kind in chosen.kinds}
    try:
        with BarnabasServer(folder / "server") as server:
            if found:
                fill(server.bootstrap, "t", chosen.rows, chosen.size, PARTITIONS)
            for number in range(chosen.rounds):
                for kind, rates in found.items():
                    place = folder / f"{kind}-{number}"
                    place.mkdir()
                    rates.append(rate_of(server.bootstrap, "t", location(kind, place), chosen.rows))
                    shutil.rmtree(place)
            print(f"| table | values of {chosen.size} B (lowest–highest) |\n|---|--:|")
            for kind, rates in found.items():
                middle, low, high = (f(rates) / 1e6 for f in (statistics.median, min, max))
                print(f"| {kind} | {middle:.2f} M/s ({low:.2f}–{high:.2f}) |")
            if chosen.rate:
                print("\n| written | records | commits | oldest record, median | maximum |\n|--:|--:|--:|--:|--:|")
                (folder / "paced").mkdir()
                print(measure_ages(server, folder / "paced", chosen.size, chosen.rate, chosen.seconds))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
