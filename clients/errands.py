"""Background tasks by name, one of each name at a time: what a step that never waits leaves to be waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any

from ..protocol.errors import KafkaError
from ..protocol.room_logger import room_logger

logger = room_logger("clients")


class Errands:
    """Owns the tasks it starts. After each, `finished` is called; a KafkaError is logged, others are kept."""

    def __init__(self, finished: Callable[[], None]) -> None:
        self._finished = finished
        self._tasks: dict[Hashable, asyncio.Task[None]] = {}
        self._failure: BaseException | None = None

    def raise_failure(self) -> None:
        """Raise what an errand raised that is no KafkaError: a mistake in this program, not a matter of retries."""
        if self._failure is not None:
            raise self._failure

    def run(self, name: Hashable, errand: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Start the errand unless one of that name is under way; returns whether it did."""
        if name in self._tasks:
            return False
        task = asyncio.get_running_loop().create_task(errand())
        self._tasks[name] = task
        task.add_done_callback(lambda task: self._done(name, task))
        return True

    async def close(self) -> None:
        """Cancel what is under way and wait for its end."""
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
