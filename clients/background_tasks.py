"""Named background tasks, at most one per name, for a loop of steps that does not wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any

from ..common.room_logger import room_logger
from ..protocol.errors import KafkaError

logger = room_logger("clients")


class BackgroundTasks:
    """The running tasks of one producer or consumer, on its event loop.

    Calls `finished` after each task. A KafkaError of a task is logged, another error is kept for `raise_failure`.
    """

    def __init__(self, finished: Callable[[], None]) -> None:
        self._finished = finished
        self._tasks: dict[Hashable, asyncio.Task[None]] = {}
        self._failure: BaseException | None = None

    def raise_failure(self) -> None:
        """Raise the error of a task unless it is a KafkaError: it is a defect of this program, and no retry helps."""
        if self._failure is not None:
            raise self._failure

    def is_running(self, name: Hashable) -> bool:
        """Return whether a task with this name is running."""
        return name in self._tasks

    async def wait(self) -> None:
        """Wait for the end of the running tasks, without raising their errors."""
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    def run(self, name: Hashable, work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Start a task unless a task with this name is running; returns whether it was started."""
        if name in self._tasks:
            return False
        task = asyncio.get_running_loop().create_task(work())
        self._tasks[name] = task
        task.add_done_callback(lambda task: self._done(name, task))
        return True

    async def close(self) -> None:
        """Cancel the running tasks and wait for their end."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _done(self, name: Hashable, task: asyncio.Task[None]) -> None:
        del self._tasks[name]
        error = None if task.cancelled() else task.exception()
        if isinstance(error, KafkaError):
            logger.info("%s", error)
        elif error is not None:
            self._failure = error
        self._finished()
