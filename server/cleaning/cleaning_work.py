"""Choice of the cleaner's workers: a process each, or threads of this process (`log.cleaner.worker`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...common.room_logger import room_logger
from ...storage.cleaning.clean_job import CleanJob, Event
from ..runtime.ports import CleaningWork
from .worker_pool import CannotStartError, WorkerPool

if TYPE_CHECKING:
    from .thread_pool import ThreadPool

logger = room_logger("cleaner")


def cleaning_work(kind: str, loop: asyncio.AbstractEventLoop) -> CleaningWork:
    """Return workers of a kind, `thread` or `process`; threads replace processes that cannot be started."""
    return _threads(loop) if kind == "thread" else ProcessOrThreadPool(loop)


def _threads(loop: asyncio.AbstractEventLoop) -> ThreadPool:
    # Imports the code that cleans logs: a broker with worker processes saves that memory.
    from .thread_pool import ThreadPool

    return ThreadPool(loop)


class ProcessOrThreadPool:
    """`CleaningWork` in processes, and in threads from the first one on that cannot be started. Loop-thread only."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._processes = WorkerPool(loop)
        self._threads: ThreadPool | None = None
        self._loop = loop
        self._bytes_per_second = float("inf")

    async def run(self, job: CleanJob, on_event: Callable[[Event], None]) -> None:
        if self._threads is None:
            try:
                await self._processes.run(job, on_event)
                return
            except CannotStartError as error:
                logger.warning("cannot start a process for the log cleaner; cleaning in threads instead: %s", error)
                self._threads = _threads(self._loop)
                self._threads.limit(self._bytes_per_second)
        await self._threads.run(job, on_event)

    def limit(self, bytes_per_second: float) -> None:
        self._bytes_per_second = bytes_per_second
        self._processes.limit(bytes_per_second)
        if self._threads is not None:
            self._threads.limit(bytes_per_second)

    async def close(self) -> None:
        await self._processes.close()
        if self._threads is not None:
            await self._threads.close()
