"""What a scenario is given: a running cluster, what can go wrong with it, and machines for programs."""

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

MOST_REPLICAS = 3
MOST_SECONDS = 3600.0
LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Setup:
    """What all runs of a scenario have in common."""

    brokers: int = 3
    config: Mapping[str, Setting] = field(default_factory=dict)
    most_seconds: float = MOST_SECONDS

    def settings(self) -> dict[str, str]:
        """Of each broker. Raises ValueError, TypeError."""
        if self.brokers < 1:
            raise ValueError(f"a cluster has brokers, not {self.brokers}")
        replicas = str(min(self.brokers, MOST_REPLICAS))
        settings: dict[str, str | None] = {
            **EMBEDDED_DEFAULTS,
            # Power may be lost here.
            "acks.all.durability": "disk",
            "default.replication.factor": replicas,
            "log.initial.task.delay.ms": "0",
            "log.retention.check.interval.ms": "300000",
            "log.retention.ms": "-1",
            "min.insync.replicas": "2" if self.brokers >= MOST_REPLICAS else "1",
            "offsets.topic.num.partitions": "3",
            "offsets.topic.replication.factor": replicas,
            # Simulated waiting costs nothing, what brokers say to each other meanwhile does.
            "replica.fetch.wait.max.ms": "5000",
            "replica.lag.time.max.ms": "10000",
            "transaction.state.log.num.partitions": "3",
            "transaction.state.log.replication.factor": replicas,
            "zookeeper.session.timeout.ms": "6000",
            **properties(self.config),
        }
        return {name: value for name, value in settings.items() if value is not None}


class Simulation:
    """What a scenario is given: a running cluster, what can go wrong with it, and machines for programs.

    All times are simulated seconds. `asyncio.sleep`, `loop.time()`, `time.time()` and `time.monotonic()` go by them.
    """

    def __init__(self, loop: SimLoop, seed: int, setup: Setup) -> None:
        self._loop = loop
        self._setup = setup
        self._world = ClusterWorld(loop, seed, setup.settings(), brokers_count=setup.brokers)
        self._failure: asyncio.Future[BaseException] = loop.create_future()
        self.seed = seed
        self.random: random.Random = chance(f"{seed}/scenario")
        """Chance for the scenario's own choices."""
        self.log: list[str] = []
        """What went wrong and what was noted, with the time."""
        self.programs: dict[str, Program] = {}
        """Those of `program`, by name."""
        self.cluster = SimCluster(self._world)
        self.faults = ClusterFaults(self._world, self.programs, self.log)
        loop.set_exception_handler(self._unhandled)

    @property
    def bootstrap(self) -> str:
        """`bootstrap.servers`: all brokers, running or not."""
        return self._world.bootstrap

    @property
    def time(self) -> float:
        """Seconds since the start."""
        return self._loop.time()

    def note(self, what: str) -> None:
        """Put a line into `log`, which a failure shows."""
        self.log.append(f"{self.time:.3f} {what}")

    def program(
        self,
        name: str,
        main: Callable[..., Coroutine[Any, Any, object]],
        *arguments: object,
        restart_on: Failures = (),
    ) -> Program:
        """Start `main(*arguments)` as a program on a machine of its own.

        Random faults may kill it; then it is started anew with the same arguments, as by a supervisor. So it is after
        an error of `restart_on`; any other that it raises ends the run. Raises ValueError for a name that is taken.
        """
        if name in self.programs:
            raise ValueError(f"there is a program {name!r}")
        program = self.programs[name] = Program(
            self._world, name, partial(main, *arguments), failed=self.fail, restart_on=restart_on
        )
        program.start()
        return program

    async def until(self, holds: Callable[[], bool], seconds: float = 60.0, what: str = "what was waited for") -> None:
        """Wait until something holds. Raises TimeoutError with `what` if it does not within so many seconds."""
        deadline = self.time + seconds
        while not holds():
            if self.time >= deadline:
                raise TimeoutError(f"{what} has not come true within {seconds:g} simulated seconds")
            await asyncio.sleep(LOOK_SECONDS)

    # -- how it is carried out -------------------------------------------------------------------------------------

    async def carry_out(self, scenario: Scenario) -> None:
        """Start the brokers, run the scenario, and raise what went wrong, first things first."""
        await asyncio.gather(*(broker.start() for broker in self._world.brokers.values()))
        await self.cluster.ready()
        task = self._loop.create_task(scenario(self))
        ends: list[asyncio.Future[Any]] = [task, self._failure]
        await asyncio.wait(ends, timeout=self._setup.most_seconds, return_when=asyncio.FIRST_COMPLETED)
        if task.done() and not self._failure.done():
            # Tasks that have failed unseen say so when they are collected.
            gc.collect()
        if self._failure.done():
            raise self._failure.result()
        if not task.done():
            raise TimeoutError(
                f"the scenario has not come to its end within {self._setup.most_seconds:g} simulated seconds: "
                f"{_place_of(task)}"
            )
        task.result()

    def fail(self, error: BaseException) -> None:
        """End the run with an error; the first one counts."""
        if not self._failure.done() and not self._loop.is_closed():
            self._failure.set_result(error)

    def _unhandled(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None:
            error.add_note(f"asyncio: {context['message']}")
            self.fail(error)


Scenario: TypeAlias = Callable[[Simulation], Coroutine[Any, Any, object]]


def _place_of(task: asyncio.Task[Any]) -> str:
    """Where a task waits, from the outermost line to the innermost."""
    lines = []
    work: Any = task.get_coro()
    while (frame := getattr(work, "cr_frame", None)) is not None:
        lines.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        work = work.cr_await
    return "it waits at " + " in ".join(reversed(lines))
