"""The process of the cleaner by itself: lines in, lines out, and no longer than somebody listens."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.storage.cleaning.compacted import TP, fill
from tests.storage.logs import NOW_MS, open_log

from barnabas.server.cleaning.worker import NICENESS
from barnabas.server.cleaning.worker_pool import WorkerPool, _spawn, _Worker
from barnabas.storage.cleaning.clean_job import CleanJob, GroupCleaned, PassFinished, event_from_json
from barnabas.storage.cleaning.log_to_clean import CleanerSettings, log_to_clean

DEADLINE = 60


@pytest.fixture
def worker() -> Iterator[subprocess.Popen[str]]:
    process = _spawn()
    yield process
    process.kill()
    process.wait(DEADLINE)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


@pytest.fixture
def job(tmp_path: Path) -> CleanJob:
    log = open_log(tmp_path / "t-0", cleanup_policy="compact", segment_bytes=600)
    fill(log)
    log.close()
    return log_to_clean(TP, log, None, NOW_MS).job(CleanerSettings(), NOW_MS)


def send(worker: subprocess.Popen[str], line: str) -> None:
    assert worker.stdin is not None
    worker.stdin.write(line + "\n")
    worker.stdin.flush()


def lines_until(worker: subprocess.Popen[str], last: str) -> list[str]:
    assert worker.stdout is not None
    lines = []
    for line in worker.stdout:
        lines.append(line)
        if json.loads(line)["event"] == last:
            return lines
    raise AssertionError(f"no {last} in {lines}")


def test_jobs_are_done_one_after_another(worker: subprocess.Popen[str], job: CleanJob) -> None:
    for _ in range(2):
        send(worker, job.to_json())
        events = [event_from_json(line) for line in lines_until(worker, "PassFinished")]
        assert isinstance(events[-1], PassFinished)
        groups = [event for event in events if isinstance(event, GroupCleaned)]
        assert [base for group in groups for base in group.replaced] == [s.base_offset for s in job.segments]


def test_it_gives_way(worker: subprocess.Popen[str], job: CleanJob) -> None:
    send(worker, job.to_json())
    lines_until(worker, "PassFinished")
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert os.getpriority(os.PRIO_PROCESS, worker.pid) == min(own + NICENESS, 19)
    if hasattr(os, "SCHED_BATCH"):
        assert os.sched_getscheduler(worker.pid) == os.SCHED_BATCH


def test_a_failure_is_told_and_the_next_job_is_done(worker: subprocess.Popen[str], job: CleanJob) -> None:
    lost = json.loads(job.to_json()) | {"directory": "/nowhere/t-0"}
    send(worker, json.dumps(lost))
    failure = json.loads(lines_until(worker, "Failed")[-1])
    assert (failure["type"], failure["errno"]) == ("FileNotFoundError", 2)
    send(worker, job.to_json())
    assert lines_until(worker, "PassFinished")


def test_it_ends_with_its_input_in_the_middle_of_a_job(worker: subprocess.Popen[str], job: CleanJob) -> None:
    send(worker, json.dumps({"bytes_per_second": 1.0, "pause": 0.0}))
    send(worker, job.to_json())
    assert worker.stdin is not None
    assert worker.poll() is None
    worker.stdin.close()
    assert worker.wait(DEADLINE) == 0


async def test_it_is_told_to_pause_while_the_broker_is_busy(job: CleanJob, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[float] = []
    send_line = _Worker._send

    def send_and_note(worker: _Worker, line: str) -> None:
        told.append(json.loads(line).get("pause", -1.0))
        send_line(worker, line)

    monkeypatch.setattr(_Worker, "_send", send_and_note)
    pool = WorkerPool(asyncio.get_running_loop())
    pool.limit(100.0)
    running = asyncio.create_task(pool.run(job, lambda event: None))
    deadline = time.monotonic() + DEADLINE
    while max(told, default=0.0) <= 0.0:
        spun = time.process_time() + 0.05
        while time.process_time() < spun:
            assert time.monotonic() < deadline
        await asyncio.sleep(0)
    while told[-1] > 0.0:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await pool.close()
