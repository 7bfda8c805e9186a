"""Limits of the process that parses untrusted input: memory, time, CPU time, size of a response, crashes."""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from barnabas.clients.worker_process import MAX_FRAME_BYTES, MEMORY_BYTES, WorkerFailedError, WorkerProcess

MODULE = "tests.clients.greedy_worker"
PATIENCE_S = 60.0
OUT_OF_MEMORY = "not read: out of memory, or the library crashed"


@pytest_asyncio.fixture
async def worker() -> AsyncIterator[WorkerProcess]:
    process = WorkerProcess(MODULE, PATIENCE_S, "read")
    yield process
    await process.close()


async def peak_of_children(worker: WorkerProcess, question: dict[str, Any]) -> int:
    """Send a request that fails; returns the greatest resident memory (bytes) of a process that has ended."""
    with pytest.raises(WorkerFailedError) as caught:
        await worker.ask(question)
    assert str(caught.value) == OUT_OF_MEMORY
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


@pytest.mark.parametrize("way", ["allocate", "allocate in small parts"])
async def test_a_request_that_exceeds_the_memory_fails_and_the_next_one_has_a_new_process(
    worker: WorkerProcess, way: str
) -> None:
    before = await worker.ask({"do": "nothing"})
    assert (await worker.ask({"do": "allocate", "bytes": MEMORY_BYTES // 4}))["allocated"] == MEMORY_BYTES // 4
    peak = await peak_of_children(worker, {"do": way, "bytes": 4 * MEMORY_BYTES})
    assert peak < 1.5 * MEMORY_BYTES
    after = await worker.ask({"do": "nothing"})
    assert after["pid"] != before["pid"]


async def test_a_request_that_loops_is_ended_by_the_timeout() -> None:
    worker = WorkerProcess(MODULE, 0.5, "read")
    with pytest.raises(WorkerFailedError, match=r"not read within 0\.5 seconds"):
        await worker.ask({"do": "loop"})
    await worker.close()


async def test_a_crash_and_a_response_that_is_too_large_are_errors_of_their_request(worker: WorkerProcess) -> None:
    for question in ({"do": "crash"}, {"do": "answer", "bytes": MAX_FRAME_BYTES}):
        with pytest.raises(WorkerFailedError) as caught:
            await worker.ask(question)
        assert str(caught.value) == OUT_OF_MEMORY
    assert (await worker.ask({"do": "answer", "bytes": 3}))["text"] == "xxx"


async def test_a_process_is_ended_while_a_part_of_its_response_is_unread(worker: WorkerProcess) -> None:
    asking = asyncio.ensure_future(worker.ask({"do": "answer", "bytes": MAX_FRAME_BYTES // 2}))
    async with asyncio.timeout(60):
        while worker._process is None or not getattr(worker._process.stdout, "_paused"):  # noqa: B009 - no public name
            await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert (await worker.ask({"do": "answer", "bytes": 3}))["text"] == "xxx"


async def test_a_request_whose_caller_is_cancelled_ends_with_its_process(worker: WorkerProcess) -> None:
    pid = (await worker.ask({"do": "nothing"}))["pid"]
    loop = asyncio.ensure_future(worker.ask({"do": "loop"}))
    await asyncio.sleep(0)
    while worker._process is None:
        await asyncio.sleep(0.01)
    loop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loop
    assert (await worker.ask({"do": "nothing"}))["pid"] != pid


def test_a_process_that_loops_after_the_end_of_its_parent_is_ended_by_its_cpu_time() -> None:
    """The limit counts from the request: a process that has used much time before has as much for the next one."""
    process = subprocess.Popen(
        [sys.executable, "-m", MODULE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert process.stdin is not None and process.stdout is not None
        for question in ({"do": "be slow", "seconds": 1}, {"do": "nothing"}):
            process.stdin.write(framed(question))
            process.stdin.flush()
            (size,) = struct.unpack(">I", process.stdout.read(4))
            assert "pid" in json.loads(process.stdout.read(size))
        process.stdin.write(framed({"do": "loop"}))
        process.stdin.close()  # a parent that was killed
        assert process.wait(PATIENCE_S) == -signal.SIGXCPU
    finally:
        process.kill()
        process.wait()


def framed(question: dict[str, Any]) -> bytes:
    text = json.dumps(question).encode()
    return struct.pack(">I", len(text)) + text
