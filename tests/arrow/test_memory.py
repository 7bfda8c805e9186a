"""Memory of a process that reads a topic of several times its limit, in records of 1 KB and compressed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.arrow_reads import fill
from tests.arrow.conftest import KEEP_ALL, folder_of
from tests.barnabas_server import BarnabasServer
from tests.foreign_tools import CHECKOUT

from barnabas.arrow import read_folder
from barnabas.protocol.compression import Compression
from barnabas.protocol.errors import KafkaError, ProtocolError
from barnabas.protocol.record_batch import RecordBatchBuilder

LIMIT_MB = 300
ROWS = 800_000
"""800 MB of values."""
READ = """
import sys
from pathlib import Path
from barnabas.arrow import read_folder, read_topic
kind, place, *rest = sys.argv[1:]
stream = read_topic(place, "t") if kind == "topic" else read_folder(place, topics="t")
rows = size = 0
for batch in stream:
    rows += batch.num_rows
    size += batch.nbytes
peak = [line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
print(rows, size, int(peak[0]) // 1024)
"""


def read(*arguments: str) -> tuple[int, int, int]:
    """The records, their bytes in Arrow, and the peak of the memory of the process in MB."""
    env = {**os.environ, "PYTHONPATH": f"{CHECKOUT / '.src'}{os.pathsep}{CHECKOUT}"}
    done = subprocess.run(
        [sys.executable, "-c", READ, *arguments], env=env, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
    rows, size, peak = map(int, done.stdout.split())
    return rows, size, peak


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasServer]:
    with BarnabasServer(tmp_path_factory.mktemp("broker"), properties=KEEP_ALL) as server:
        fill(server.bootstrap, "t", ROWS, 1000, 4)
        yield server


@pytest.mark.verify
@pytest.mark.timeout(280)
@pytest.mark.parametrize("kind", ["topic", "folder"])
def test_memory_does_not_grow_with_the_topic(server: BarnabasServer, kind: str) -> None:
    rows, size, peak = read(kind, server.bootstrap if kind == "topic" else str(server.log_dir))
    assert rows == ROWS and size > ROWS * 1000
    assert peak <= LIMIT_MB, f"{peak} MB"


def zeros(root: Path, size: int, batches: int) -> str:
    """A partition whose batches have one record of zeros, compressed to a thousandth."""
    parts = []
    for offset in range(batches):
        builder = RecordBatchBuilder(base_offset=offset, codec=Compression.ZSTD)
        builder.append(None, bytes(size), (), 1)
        parts.append(builder.build())
    folder_of(root, (0, b"".join(parts)))
    return str(root)


@pytest.mark.verify
def test_records_that_expand_a_thousandfold_are_not_read_together(tmp_path: Path) -> None:
    rows, size, peak = read("folder", zeros(tmp_path, 16 << 20, 100))
    assert rows == 100 and size > 100 * (16 << 20)
    assert peak <= LIMIT_MB, f"{peak} MB"


def test_a_batch_that_expands_beyond_the_limit_is_an_error(tmp_path: Path) -> None:
    path = zeros(tmp_path, 80 << 20, 1)
    with pytest.raises((ProtocolError, KafkaError), match=r"t-0 (from|at) offset 0: "):
        read_folder(path).to_table()
