"""Recurring jobs of a broker, on the loop's timers (Kafka's KafkaScheduler), and work that outlives its request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from ...common.room_logger import room_logger
from ...protocol.errors import ErrorCode, KafkaError, as_value

logger = room_logger("scheduler")

T = TypeVar("T")


class IsolatedWork:
    """Context of work on one of many entities: its exception is logged, and the others have their turn nevertheless.

    One entity that always fails would else end each pass over all at the same place. Reusable, one entity at a time.
    """

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        """`what` is logged in front of the traceback."""
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        logger.error("%s", self._what, exc_info=error)
        return True


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
        """Run `job` each `interval_ms()` (called each time, so that a changed setting applies to the next run).

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


class BackgroundWork:
    """Work that continues after the request that began it was answered. Owned by the part that does the work; used on
    the loop's thread."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def wait_for(self, name: str, work: Coroutine[Any, Any, T], timeout_ms: float) -> T:
        """Return the result of `work`, or raise its exception.

        Raises TimeoutError after `timeout_ms`; with 0 or less the work has one turn of the loop, in which it can be
        refused. The work continues after a timeout, and its error is logged under `name`.
        """
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            # Unlike wait_for of asyncio this leaves the task alone, also when the waiting request is cancelled.
            await asyncio.wait({task}, timeout=max(timeout_ms, 0) / 1000)
        finally:
            if not task.done():
                task.add_done_callback(partial(_log_failure, name))
        if not task.done():
            raise TimeoutError
        failure: BaseException | None = None
        try:
            failure = task.exception()
            if failure is None:
                return task.result()
            raise as_value(failure) if isinstance(failure, KafkaError) else failure
        finally:
            # The traceback holds this frame: with these names it would be a cycle that only the collector frees.
            del failure, task

    async def close(self) -> None:
        """Cancel the work that is not done."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


_FAULTS = frozenset({ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR})
"""Errors that an operator must see."""


def _log_failure(name: str, task: asyncio.Task[Any]) -> None:
    if task.cancelled() or (error := task.exception()) is None:
        return
    if isinstance(error, KafkaError) and error.code not in _FAULTS:
        # The client's own doing, or a change that was dropped at its deadline.
        logger.info("%s was rejected after its request had timed out: %s", name, as_value(error))
    elif isinstance(error, KafkaError):
        logger.error("%s failed after its request had timed out: %s", name, as_value(error))
    else:
        logger.error("%s failed after its request had timed out", name, exc_info=error)
