"""Memory while a folder that is compacted grows tenfold, with more keys than an offset map takes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.foreign_tools import CHECKOUT

from barnabas.protocol.record_batch import RecordBatchBuilder
from barnabas.storage.cleaning.clean_job import CleanJob, PassFinished, SourceSegment
from barnabas.storage.cleaning.cleaner import clean
from barnabas.storage.filesystem import OsFileSystem

pytestmark = [pytest.mark.verify, pytest.mark.nightly, pytest.mark.timeout(290)]

SMALL, LARGE = 60_000, 600_000
HEAP = "600m"
JOB = f"""
import sys
from barnabas.spark import jobs
from barnabas.spark.session import session
source, target = sys.argv[1:]
spark = session("local[2]", config={{"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "{HEAP}", "spark.sql.shuffle.partitions": "16"}})
spark.sparkContext.setLogLevel("ERROR")
jobs.compact(jobs.log_records(spark, source, options={{"splitBytes": "4000000"}}), target)
print(spark.read.format("barnabas-log").load(target).count())
"""


def write_log(folder: Path, records: int) -> None:
    """Each key twice, far apart, values of 200 bytes; segments of 8 MB."""
    folder.mkdir(parents=True)
    parts: list[bytes] = []
    base = size = 0
    for first in range(0, records, 500):
        builder = RecordBatchBuilder(base_offset=first)
        for offset in range(first, first + 500):
            builder.append(b"key-%09d" % (offset % (records // 2)), b"%0200d" % offset, (), 1_700_000_000_000)
        parts.append(builder.build())
        size += len(parts[-1])
        if size > 8_000_000 or first + 500 >= records:
            (folder / f"{base:020}.log").write_bytes(b"".join(parts))
            parts, size, base = [], 0, first + 500


def memory_of(session: int) -> dict[str, int]:
    """The most that the JVM, and any one Python process, of a session have had, in bytes."""
    most = {"java": 0, "python": 0}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            if os.getsid(int(status.parent.name)) != session:
                continue
            text = status.read_text()
            program = (status.parent / "cmdline").read_bytes().partition(b"\0")[0]
        except (OSError, ProcessLookupError):
            continue
        peak = next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("VmHWM")), 0)
        # Not by its name, which is that of a thread in what the JVM forks, as large as itself, to start a program.
        kind = "java" if program.endswith(b"/java") else "python"
        most[kind] = max(most[kind], peak)
    return most


def compact(source: Path, target: Path) -> tuple[int, dict[str, int]]:
    """How many records were left, and what memory it took."""
    env = {**os.environ, "PYTHONPATH": f"{CHECKOUT / '.src'}{os.pathsep}{CHECKOUT}"}
    process = subprocess.Popen(
        [sys.executable, "-c", JOB, str(source), str(target)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        start_new_session=True,
    )
    most = {"java": 0, "python": 0}
    while process.poll() is None:
        for kind, peak in memory_of(process.pid).items():
            most[kind] = max(most[kind], peak)
        time.sleep(0.1)  # between two looks
    output, errors = process.communicate()
    assert process.returncode == 0, errors[-3000:]
    return int(output.split()[-1]), most


def test_memory_stays_while_the_folder_grows_tenfold(tmp_path: Path) -> None:
    took = {}
    for records in (SMALL, LARGE):
        source, target = tmp_path / f"log-{records}", tmp_path / f"out-{records}"
        write_log(source / "t-0", records)
        left, took[records] = compact(source, target)
        assert left == records // 2
    small, large = took[SMALL], took[LARGE]
    assert large["python"] < 1.5 * small["python"], took
    assert large["java"] < 1_500_000_000, took
    segments = tuple(SourceSegment(int(p.stem), p.stat().st_size) for p in sorted((source / "t-0").glob("*.log")))
    job = CleanJob(
        str(source / "t-0"),
        segments,
        first_dirty_offset=0,
        first_uncleanable_offset=LARGE,
        now_ms=1_700_000_000_000,
        dedupe_buffer_bytes=24 * 100_000,
    )
    finished = [event for event in clean(job, OsFileSystem(), lambda size: None) if isinstance(event, PassFinished)]
    assert finished[-1].next_dirty_offset < LARGE // 2, "an offset map of that size would not have done"
