"""Cleaner passes in threads of this process, where no other process can or should be started (Kafka: CleanerThread).

The work for each record is compiled and releases the GIL. The rest, in Python, is one buffer at a time, with a sleep
between two buffers.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from ...storage.cleaning.clean_job import CleanJob, Event
from ...storage.cleaning.cleaner import clean
from ...storage.filesystem import OsFileSystem
from ..runtime.ports import PassFailedError
from .throttle import PAUSE_SECONDS, SHORTEST_SLEEP, Throttler, with_less_progress
from .worker import NICENESS


class _EndedError(Exception):
    """The pass was cancelled."""


class ThreadPool:
    """`CleaningWork` in threads, one for each pass, which end with it. Loop-thread only."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._passes: dict[_Pass, asyncio.Future[None]] = {}
        self._bytes_per_second = float("inf")

    async def run(self, job: CleanJob, on_event: Callable[[Event], None]) -> None:
        """Run a job as `CleaningWork.run` does; a thread cannot die."""
        one_pass = _Pass(lambda event: self._loop.call_soon_threadsafe(on_event, event))
        thread = ThreadPoolExecutor(1, thread_name_prefix="cleaner")
        done = self._passes[one_pass] = self._loop.run_in_executor(thread, one_pass.run, job)
        self._share_rate()
        try:
            await asyncio.shield(done)
        except asyncio.CancelledError:
            one_pass.ended.set()
            await asyncio.gather(done, return_exceptions=True)
            raise
        finally:
            thread.shutdown()
            del self._passes[one_pass]
            self._share_rate()

    def limit(self, bytes_per_second: float) -> None:
        self._bytes_per_second = bytes_per_second
        self._share_rate()

    async def close(self) -> None:
        """Close as `CleaningWork.close`. A caller that waits for a pass receives `PassFailedError`."""
        for one_pass in self._passes:
            one_pass.ended.set()
        await asyncio.gather(*self._passes.values(), return_exceptions=True)

    def _share_rate(self) -> None:
        for one_pass in self._passes:
            one_pass.throttle.bytes_per_second = self._bytes_per_second / len(self._passes)


class _Pass:
    """One pass of the cleaner; `run` is called on its thread."""

    def __init__(self, tell: Callable[[Event], object]) -> None:
        self.ended = threading.Event()
        """Set from the loop: let there be no further buffer."""
        self.throttle = Throttler(time.monotonic, self._sleep, lambda: None)
        self.throttle.pause = PAUSE_SECONDS
        self._tell = tell

    def run(self, job: CleanJob) -> None:
        """Do the pass. Raises `PassFailedError`."""
        with suppress(OSError, AttributeError):
            # On Linux this is for the calling thread alone.
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        try:
            for event in with_less_progress(clean(job, OsFileSystem(), self._throttle), time.monotonic):
                self._tell(event)
        except _EndedError:
            raise PassFailedError("Ended", "the cleaner was closed") from None
        except Exception as error:
            number = error.errno if isinstance(error, OSError) else None
            raise PassFailedError(type(error).__name__, str(error), number) from error

    def _throttle(self, size: int) -> None:
        if self.ended.is_set():
            raise _EndedError
        self.throttle(size)

    def _sleep(self, seconds: float) -> None:
        if seconds < SHORTEST_SLEEP:
            time.sleep(seconds)
        elif self.ended.wait(seconds):
            raise _EndedError
