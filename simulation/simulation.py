"""The objects of a scenario: a running cluster, its faults, and machines for programs."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from ..testing.arguments import Setting, properties
from ..testing.broker import EMBEDDED_DEFAULTS
from .chance import chance
from .cluster import ClusterWorld
from .facts import SimCluster
from .faults import ClusterFaults
from .loop import SimLoop
from .programs import Failures, Program

MAX_REPLICAS = 3
MAX_SECONDS = 3600.0
LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Setup:
    """The common settings of all runs of a scenario."""

    brokers: int = 3
    config: Mapping[str, Setting] = field(default_factory=dict)
    most_seconds: float = MAX_SECONDS

    def settings(self) -> dict[str, str]:
        """Return the settings of each broker. Raises ValueError, TypeError."""
        if self.brokers < 1:
            raise ValueError(f"expected at least one broker, not {self.brokers}")
        replicas = str(min(self.brokers, MAX_REPLICAS))
        settings: dict[str, str | None] = {
            **EMBEDDED_DEFAULTS,
            # Power may be lost in a simulation.
            "acks.all.durability": "disk",
            "default.replication.factor": replicas,
            "log.initial.task.delay.ms": "0",
            "log.retention.check.interval.ms": "300000",
            "log.retention.ms": "-1",
            "min.insync.replicas": "2" if self.brokers >= MAX_REPLICAS else "1",
            "offsets.topic.num.partitions": "3",
            "offsets.topic.replication.factor": replicas,
            # Simulated waiting is free, but messages between brokers during that time are not.
            "replica.fetch.wait.max.ms": "5000",
            "replica.lag.time.max.ms": "10000",
            "share.coordinator.state.topic.num.partitions": "3",
            "share.coordinator.state.topic.replication.factor": replicas,
            "transaction.state.log.num.partitions": "3",
            "transaction.state.log.replication.factor": replicas,
            "zookeeper.session.timeout.ms": "6000",
            **properties(self.config),
        }
        return {name: value for name, value in settings.items() if value is not None}


class Simulation:
    """The objects of a scenario: a running cluster, its faults, and machines for programs.

    All times are simulated seconds, which `asyncio.sleep`, `loop.time()`, `time.time()` and `time.monotonic()` use.
    """

    def __init__(self, loop: SimLoop, seed: int, setup: Setup) -> None:
        self._loop = loop
        self._setup = setup
        self._world = ClusterWorld(loop, seed, setup.settings(), brokers_count=setup.brokers)
        self._failure: asyncio.Future[BaseException] = loop.create_future()
        self.seed = seed
        self.random: random.Random = chance(f"{seed}/scenario")
        """Random numbers for the scenario's own choices."""
        self.log: list[str] = []
        """Faults and notes, with their times."""
        self.programs: dict[str, Program] = {}
        """The programs of `program`, by name."""
        self.cluster = SimCluster(self._world)
        self.faults = ClusterFaults(self._world, self.programs, self.log)
        loop.set_exception_handler(self._unhandled)

    @property
    def bootstrap(self) -> str:
        """Return `bootstrap.servers` with all brokers, running or not."""
        return self._world.bootstrap

    @property
    def time(self) -> float:
        """Return seconds since the start."""
        return self._loop.time()

    def note(self, what: str) -> None:
        """Add a line to `log`, which is part of the report of a failure."""
        self.log.append(f"{self.time:.3f} {what}")

    def program(
        self,
        name: str,
        main: Callable[..., Coroutine[Any, Any, object]],
        *arguments: object,
        restart_on: Failures = (),
    ) -> Program:
        """Start `main(*arguments)` as a program on its own machine.

        Random faults may kill it; then it is started again with the same arguments, as by a supervisor. The same
        happens after an exception in `restart_on`; any other exception ends the run. Raises ValueError for a name in
        use.
        """
        if name in self.programs:
            raise ValueError(f"the program name {name!r} is in use")
        program = self.programs[name] = Program(
            self._world, name, partial(main, *arguments), failed=self.fail, restart_on=restart_on
        )
        program.start()
        return program

    async def until(self, holds: Callable[[], bool], seconds: float = 60.0, what: str = "the condition") -> None:
        """Wait until a condition is true. Raises TimeoutError with `what` after the given seconds."""
        deadline = self.time + seconds
        while not holds():
            if self.time >= deadline:
                raise TimeoutError(f"{what} is not true after {seconds:g} simulated seconds")
            await asyncio.sleep(LOOK_SECONDS)

    # -- execution ---------------------------------------------------------------------------------------------------

    async def carry_out(self, scenario: Scenario) -> None:
        """Start the brokers, run the scenario, and raise the first error."""
        await asyncio.gather(*(broker.start() for broker in self._world.brokers.values()))
        await self.cluster.ready()
        task = self._loop.create_task(scenario(self))
        ends: list[asyncio.Future[Any]] = [task, self._failure]
        await asyncio.wait(ends, timeout=self._setup.most_seconds, return_when=asyncio.FIRST_COMPLETED)
        if task.done() and not self._failure.done():
            # Failed tasks that were never awaited report their exception when they are collected.
            gc.collect()
        if self._failure.done():
            raise self._failure.result()
        if not task.done():
            raise TimeoutError(
                f"the scenario has not ended within {self._setup.most_seconds:g} simulated seconds: {_place_of(task)}"
            )
        task.result()

    def fail(self, error: BaseException) -> None:
        """End the run with an error; only the first error is reported."""
        if not self._failure.done() and not self._loop.is_closed():
            self._failure.set_result(error)

    def _unhandled(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None:
            error.add_note(f"asyncio: {context['message']}")
            self.fail(error)


Scenario: TypeAlias = Callable[[Simulation], Coroutine[Any, Any, object]]


def _place_of(task: asyncio.Task[Any]) -> str:
    """Return the stack of a waiting task, from the outermost line to the innermost."""
    lines = []
    work: Any = task.get_coro()
    while (frame := getattr(work, "cr_frame", None)) is not None:
        lines.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        work = work.cr_await
    return "it waits at " + " in ".join(reversed(lines))
