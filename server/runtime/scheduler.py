"""Recurring jobs of a broker, on the loop's timers (Kafka's KafkaScheduler)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ...protocol.room_logger import room_logger

logger = room_logger("scheduler")


class Scheduler:
    """Runs jobs again and again; a job's next run is timed from the end of the one before, so none overlap."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tasks: list[asyncio.Task[None]] = []

    def every(
        self,
        name: str,
        interval_ms: Callable[[], int],
        job: Callable[[], Coroutine[Any, Any, object] | object],
        *,
        delay_ms: int | None = None,
    ) -> None:
        """Run `job` each `interval_ms()` (asked anew each time, so that a changed setting holds at once).

        A job that fails is logged and runs again at its time.
        """
        self._tasks.append(self._loop.create_task(self._repeat(name, interval_ms, job, delay_ms)))

    async def close(self) -> None:
        """Stop; a job in the middle of a wait is cancelled."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def _repeat(
        self,
        name: str,
        interval_ms: Callable[[], int],
        job: Callable[[], Coroutine[Any, Any, object] | object],
        delay_ms: int | None,
    ) -> None:
        await asyncio.sleep((interval_ms() if delay_ms is None else delay_ms) / 1000)
        while True:
            try:
                result = job()
                if isinstance(result, Coroutine):
                    await result
            except Exception:
                logger.exception("%s failed; it runs again in %d ms", name, interval_ms())
            await asyncio.sleep(max(1, interval_ms()) / 1000)
