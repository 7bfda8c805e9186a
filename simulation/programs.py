"""Programs under test: each on its own machine, which can be killed, paused and cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from .cluster import ClusterWorld

LOOK_SECONDS = 0.1
RESTART_SECONDS = 1.0
Failures: TypeAlias = type[Exception] | tuple[type[Exception], ...]


class Program:
    """One of your programs, on its own machine. A kill does not affect other code of your process."""

    def __init__(
        self,
        world: ClusterWorld,
        name: str,
        main: Callable[[], Coroutine[Any, Any, object]],
        *,
        failed: Callable[[BaseException], None],
        restart_on: Failures,
    ) -> None:
        self.name = name
        self.node = world.machine(name)
        self.lives = 0
        """Number of its starts."""
        self.is_stopped = False
        """Whether it was stopped: then only a call of `start` starts it again."""
        self._world = world
        self._main = main
        self._failed = failed
        self._restart_on = restart_on
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Return whether it was started, and has neither been killed nor ended."""
        return self._task is not None and not self._task.done()

    def start(self) -> None:
        """Call its function again. Raises RuntimeError while it runs."""
        if self.is_running:
            raise RuntimeError(f"{self.name} is running")
        self.is_stopped = False
        self.lives += 1
        self._task = self._world.spawn(self.node, self._run())

    def kill(self) -> None:
        """Kill it: none of its code runs any more, including open `finally` and `async with` blocks."""
        self._world.loop.keep_tasks()
        self._world.loop.frozen.discard(self.node)
        self.node.kill()
        self.node.start()
        self._task = None

    async def stop(self) -> None:
        """Cancel it, as SIGTERM does, and wait until it has ended or is killed."""
        self.is_stopped = True
        if self._task is not None and self.is_running:
            self._task.cancel()
            await self.wait()

    async def wait(self) -> None:
        """Wait until it has ended, or is killed or cancelled."""
        task = self._task
        while task is not None and task is self._task and not task.done():
            await asyncio.wait([task], timeout=LOOK_SECONDS)

    async def _run(self) -> None:
        while True:
            try:
                await self._main()
                return
            except self._restart_on:
                if self.is_stopped:
                    return
                await asyncio.sleep(RESTART_SECONDS)
                self.lives += 1
            except (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # noqa: BLE001 - it ends the simulation, as pytest.fail does
                self._failed(error)
                return
