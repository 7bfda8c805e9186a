"""The cleaner's processes as the broker sees them: started for a job, ended when there was none for a while."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from ...common.room_logger import room_logger
from ...storage.cleaning.clean_job import CleanJob, Event, event_from_json
from ..runtime.ports import PassFailedError, WorkerDiedError
from .throttle import PAUSE_SECONDS

logger = room_logger("cleaner")

IDLE_SECONDS = 30.0
"""The time for which a process waits for its next job before it ends and frees its memory."""
WATCH_SECONDS, BUSY_SHARE = 0.2, 0.05
"""This process is busy, so that its workers pause, if it used more than this share of a processor in the last
`WATCH_SECONDS`.
"""
_WORKER = f"{__name__.rpartition('.')[0]}.worker"


class CannotStartError(OSError):
    """No further process can be started."""


class WorkerPool:
    """`CleaningWork` in processes, each with one job at a time and a thread here that listens. Loop-thread only."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._idle: list[_Worker] = []
        self._busy: list[_Worker] = []
        self._bytes_per_second = float("inf")
        self._is_watching = False
        self._gives_way = False

    async def run(self, job: CleanJob, on_event: Callable[[Event], None]) -> None:
        """Run a job as `CleaningWork.run` does. Raises `CannotStartError` before the job begins."""
        worker = self._idle.pop() if self._idle else await _Worker.start(self._loop)
        self._busy.append(worker)
        self._share_rate()
        if not self._is_watching:
            self._watch(time.process_time())
        try:
            await worker.run(job, on_event)
        except BaseException:
            # The state of an ended job is useless, and its process must not write any more.
            self._busy.remove(worker)
            await worker.kill()
            raise
        self._busy.remove(worker)
        self._share_rate()
        self._idle.append(worker)
        worker.expiry = self._loop.call_later(IDLE_SECONDS, self._expire, worker)

    def limit(self, bytes_per_second: float) -> None:
        self._bytes_per_second = bytes_per_second
        self._share_rate()

    def _share_rate(self) -> None:
        pause = PAUSE_SECONDS if self._gives_way else 0.0
        for worker in self._busy:
            worker.limit(self._bytes_per_second / len(self._busy), pause)

    def _watch(self, used_before: float) -> None:
        """While there are jobs, watch whether this process is busy with requests."""
        used = time.process_time()
        gives_way = used - used_before > WATCH_SECONDS * BUSY_SHARE
        if gives_way != self._gives_way:
            self._gives_way = gives_way
            self._share_rate()
        self._is_watching = bool(self._busy)
        if self._is_watching:
            self._loop.call_later(WATCH_SECONDS, self._watch, used)

    def _expire(self, worker: _Worker) -> None:
        if worker in self._idle:
            self._idle.remove(worker)
            worker.end()

    async def close(self) -> None:
        for worker in [*self._idle, *self._busy]:
            await worker.kill()
        self._idle.clear()


class _Worker:
    """One worker process."""

    def __init__(self, process: subprocess.Popen[str], loop: asyncio.AbstractEventLoop) -> None:
        self._process = process
        self._loop = loop
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="cleaner")
        self._sending = threading.Lock()
        self.expiry: asyncio.TimerHandle | None = None

    @classmethod
    async def start(cls, loop: asyncio.AbstractEventLoop) -> _Worker:
        """Start a process. Raises `CannotStartError`."""
        try:
            # A process that is starting must not be lost with a cancelled task.
            return await asyncio.shield(loop.run_in_executor(None, lambda: cls(_spawn(), loop)))
        except OSError as error:
            raise CannotStartError(error.errno, error.strerror) from error

    async def run(self, job: CleanJob, on_event: Callable[[Event], None]) -> None:
        """Run a job in the process; `on_event` is called on the loop with its events."""
        if self.expiry is not None:
            self.expiry.cancel()
        await self._loop.run_in_executor(self._thread, self._follow, job.to_json(), on_event)

    def limit(self, bytes_per_second: float, pause: float) -> None:
        """Hold the process down to a rate, and have it sleep for `pause` seconds after each buffer."""
        self._send(json.dumps({"bytes_per_second": bytes_per_second, "pause": pause}))

    def _follow(self, job: str, on_event: Callable[[Event], None]) -> None:
        """Report the events of the worker's passes, on a thread of the worker."""
        self._send(job)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            fields = json.loads(line)
            if fields["event"] == "Failed":
                raise PassFailedError(fields["type"], fields["reason"], fields["errno"])
            self._loop.call_soon_threadsafe(on_event, event_from_json(line))
            if fields["event"] == "PassFinished":
                return
        raise WorkerDiedError(f"the cleaner's process ended with status {self._process.wait()}")

    def _send(self, line: str) -> None:
        """Write a line to the process; the reader of its output notices a dead process."""
        with self._sending, suppress(OSError, ValueError):
            assert self._process.stdin is not None
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def end(self) -> None:
        """End an idle process."""
        with suppress(OSError, ValueError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        self._thread.submit(self._process.wait)
        self._thread.shutdown(wait=False)

    async def kill(self) -> None:
        """End the process now: when this returns it writes nothing any more."""
        if self.expiry is not None:
            self.expiry.cancel()
        self._process.kill()
        await asyncio.shield(self._loop.run_in_executor(None, self._reap))

    def _reap(self) -> None:
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError, ValueError):
                if pipe is not None:
                    pipe.close()
        self._thread.shutdown(wait=True)


def _spawn() -> subprocess.Popen[str]:
    """Start the same Python, so that it finds this package where this process does."""
    package = sys.modules[__name__.partition(".")[0]].__file__
    assert package is not None
    paths = [str(Path(package).parent.parent), os.environ.get("PYTHONPATH", "")]
    return subprocess.Popen(  # noqa: S603 - a module of this package
        [sys.executable, "-m", _WORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        # Signals for the broker, such as an interrupt at a terminal, are not for its workers.
        start_new_session=True,
    )
