"""Memory of `barnabas table follow` for a topic of several times the limit, of values that do not compress."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.barnabas_server import BarnabasServer
from tests.foreign_tools import CHECKOUT
from tests.table.conftest import ALL_FORMATS, location

LIMIT_MB = 300
ROWS, KEYS, PARTITIONS = 640_000, 100_000, 4
SIZE = 1000
FOLLOW = """
import sys
from pathlib import Path
from barnabas.tools.cli import main
status = main(["table", "follow", *sys.argv[1:]])
peak = [line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
print(status, int(peak[0]) // 1024)
"""
MERGE = """
import os, sys
os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # as in the command
from pathlib import Path
from random import Random
import pyarrow as pa
from barnabas.table import TableOffsets, open_table
from barnabas.table.parquet_files import TableSettings
chance = Random(1)
with open_table(sys.argv[1], TableSettings(merge_at=12)) as sink:
    sink.load()
    schema = sink.prepare(pa.schema([("value", pa.binary())]))
    for _ in range(12):
        for _ in range(25):
            values = [chance.randbytes(1000) for _ in range(1000)]
            sink.write(pa.record_batch([pa.array(values, pa.binary())], schema=schema))
        sink.commit(TableOffsets())
    merged = sink.maintain()
peak = [line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
print(merged, int(peak[0]) // 1024)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasServer]:
    """A broker with a topic of 640 MB, in which each key is in one partition and has six or seven values."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    with BarnabasServer(tmp_path_factory.mktemp("broker")) as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        (created,) = admin.create_topics([NewTopic("t", PARTITIONS, 1)]).values()
        created.result(30)
        producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 50})
        noise = Random(1).randbytes(16 << 20)
        for i in range(ROWS):
            key, at = i * 7919 % KEYS, i * 997 % (len(noise) - SIZE)
            record: dict[str, Any] = {"key": b"%d" % key, "value": noise[at : at + SIZE], "partition": key % PARTITIONS}
            while True:
                try:
                    producer.produce("t", **record)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(60) == 0
        yield server


def follow(server: BarnabasServer, to: str, *options: str) -> int:
    """Follow to the end in a process; return the peak of its memory in MB."""
    status, peak = in_process(FOLLOW, "t", "--to", to, "-b", server.bootstrap, "--once", *options)
    assert status == 0
    return peak


def in_process(program: str, *arguments: str) -> list[int]:
    """Run a program; return the two numbers that it prints."""
    env = {**os.environ, "PYTHONPATH": f"{CHECKOUT / '.src'}{os.pathsep}{CHECKOUT}"}
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [int(number) for number in done.stdout.split()]


def totals(to: str) -> tuple[int, int, int]:
    """The number of rows and of keys, and the bytes of the values, as DuckDB finds them."""
    import duckdb

    kind, _, place = to.partition("://")
    with duckdb.connect() as connection:
        if kind == "iceberg":
            from pyiceberg.catalog.sql import SqlCatalog

            folder, _, name = place.partition("#")
            catalog = SqlCatalog("local", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
            tasks = catalog.load_table(name).scan().plan_files()
            source = f"read_parquet({[task.file.file_path.removeprefix('file://') for task in tasks]})"
        elif kind == "delta":
            from deltalake import DeltaTable

            source = f"read_parquet({DeltaTable(place).file_uris()})"
        elif kind == "parquet":
            source = f"read_parquet('{place}/*.parquet')"
        else:
            path, _, name = to.removeprefix("duckdb:").partition("#")
            connection.execute(f"ATTACH '{path}' AS found (READ_ONLY)")
            source = f"found.{name}"
        count = "SELECT count(*), count(DISTINCT key), sum(octet_length(value))::BIGINT"
        row = connection.execute(f"{count} FROM {source}").fetchone()
        assert row is not None
        return row


@pytest.mark.verify
@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize("kind", ALL_FORMATS)
def test_memory_does_not_grow_with_the_topic(server: BarnabasServer, tmp_path: Path, kind: str, mode: str) -> None:
    to = location(kind, tmp_path)
    peak = follow(server, to, *(["--upsert"] if mode == "upsert" else []))
    rows = ROWS if mode == "append" else KEYS
    assert totals(to) == (rows, KEYS, rows * SIZE)
    print(kind, mode, peak, "MB")
    assert peak <= LIMIT_MB, f"{peak} MB"


@pytest.mark.verify
@pytest.mark.nightly
@pytest.mark.parametrize("kind", [kind for kind in ALL_FORMATS if kind != "duckdb"])
def test_memory_of_a_merge_does_not_grow_with_the_files(tmp_path: Path, kind: str) -> None:
    merged, peak = in_process(MERGE, location(kind, tmp_path))
    print(kind, peak, "MB")
    assert merged == 12
    assert peak <= LIMIT_MB, f"{peak} MB"
