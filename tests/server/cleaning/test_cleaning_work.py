"""The two forms of the cleaner's work do the same, and end when they are told to."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.storage.cleaning.compacted import TP, fill
from tests.storage.logs import NOW_MS, open_log
from tests.waiting import until

from barnabas.server.cleaning import worker_pool
from barnabas.server.cleaning.cleaning_work import cleaning_work
from barnabas.server.runtime.ports import CleaningWork, PassFailedError
from barnabas.storage.cleaning.clean_job import CleanJob, Event, GroupCleaned, PassFinished
from barnabas.storage.cleaning.log_to_clean import CleanerSettings, log_to_clean

DEADLINE = 60


@pytest.fixture
def job(tmp_path: Path) -> CleanJob:
    log = open_log(tmp_path / "t-0", cleanup_policy="compact", segment_bytes=600)
    fill(log)
    log.close()
    return log_to_clean(TP, log, None, NOW_MS).job(CleanerSettings(), NOW_MS)


@pytest.fixture(params=["process", "thread"])
async def work(request: pytest.FixtureRequest) -> AsyncIterator[CleaningWork]:
    made = cleaning_work(request.param, asyncio.get_running_loop())
    yield made
    await made.close()


async def test_a_pass_is_done_and_told_on_the_loop(work: CleaningWork, job: CleanJob) -> None:
    events: list[Event] = []

    def told(event: Event) -> None:
        assert threading.current_thread() is threading.main_thread()
        events.append(event)

    for _ in range(2):
        events.clear()
        await work.run(job, told)
        assert isinstance(events[-1], PassFinished)
        groups = [event for event in events if isinstance(event, GroupCleaned)]
        assert [base for group in groups for base in group.replaced] == [s.base_offset for s in job.segments]


async def test_a_failure_has_its_number_and_the_next_pass_is_done(work: CleaningWork, job: CleanJob) -> None:
    with pytest.raises(PassFailedError) as failure:
        await work.run(replace(job, directory="/nowhere/t-0"), lambda event: None)
    assert failure.value.errno == 2
    await work.run(job, lambda event: None)


async def test_what_is_cancelled_writes_nothing_any_more(work: CleaningWork, job: CleanJob, tmp_path: Path) -> None:
    work.limit(500.0)
    running = asyncio.create_task(work.run(job, lambda event: None))
    await until(lambda: any(tmp_path.rglob("*.cleaned")))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not [one for one in threading.enumerate() if one.name.startswith("cleaner")]


async def test_closing_ends_what_is_going_on(work: CleaningWork, job: CleanJob, tmp_path: Path) -> None:
    work.limit(500.0)
    running = asyncio.create_task(work.run(job, lambda event: None))
    await until(lambda: any(tmp_path.rglob("*.cleaned")))
    await work.close()
    (outcome,) = await asyncio.gather(running, return_exceptions=True)
    assert isinstance(outcome, Exception)


async def test_a_rate_is_held_and_may_change_meanwhile(work: CleaningWork, job: CleanJob) -> None:
    work.limit(1.0)
    running = asyncio.create_task(work.run(job, lambda event: None))
    done, _ = await asyncio.wait([running], timeout=0.3)
    assert not done
    work.limit(float("inf"))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await asyncio.wait_for(work.run(job, lambda event: None), DEADLINE)


async def test_without_processes_there_are_threads(
    job: CleanJob, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused() -> subprocess.Popen[str]:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(worker_pool, "_spawn", refused)
    work = cleaning_work("process", asyncio.get_running_loop())
    for _ in range(2):
        events: list[Event] = []
        await work.run(job, events.append)
        assert isinstance(events[-1], PassFinished)
    assert caplog.text.count("cleaning in threads instead") == 1
    await work.close()
