"""Runs of a scenario with one seed after another, until one fails."""

from __future__ import annotations

import gc
import inspect
import logging
import sys
import warnings
from asyncio import _get_running_loop
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any

from ..testing.arguments import Setting
from .chance import chance
from .host import (
    SEED_VARIABLE,
    NotSimulatedError,
    SimClock,
    asked_for_seed,
    garbage_by_the_step,
    hashes_vary,
    out_of_reach,
)
from .loop import FORMER, SimLoop, bury, run
from .machines import START_MS
from .simulation import MAX_SECONDS, Scenario, Setup, Simulation

SEEDS = 100
ENDLESS_STEPS = 1 << 62
STEP_SECONDS = 1e-5
SHOWN_LINES = 40
"""Lines of the log of a failed run."""


class SimulationError(AssertionError):
    """A run has failed with the error that is this one's cause. `seed` repeats it."""

    def __init__(self, message: str, seed: int) -> None:
        super().__init__(message)
        self.seed = seed


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """The result of a run."""

    seed: int
    seconds: float
    """Simulated seconds."""
    steps: int
    digest: int
    """Equal for equal runs."""
    log: tuple[str, ...]
    """Faults and notes, with their times."""


def simulate(
    scenario: Scenario,
    *,
    seeds: int | Iterable[int] = SEEDS,
    brokers: int = 3,
    config: Mapping[str, Setting] | None = None,
    most_seconds: float = MAX_SECONDS,
) -> list[SimulatedRun]:
    """Run `await scenario(simulation)` with each seed; `BARNABAS_SEED` in the environment limits this to one.

    seeds: a number of seeds, or a list. config: Kafka broker settings for all brokers; None gives a setting its
    default. most_seconds: maximum simulated seconds of a run.

    Raises SimulationError for the first seed that fails, with an exception of the scenario, of one of its programs or
    tasks, or with a TimeoutError. Raises RuntimeError on a running loop, since a simulation has its own, and
    ValueError.
    """
    __tracebackhide__ = True
    if _get_running_loop() is not None:
        raise RuntimeError(
            "a simulation runs its own loop: call simulate() where no loop is running, not in a coroutine"
        )
    setup = Setup(brokers, config or {}, most_seconds)
    setup.settings()
    asked = asked_for_seed()
    chosen = [asked] if asked is not None else range(seeds) if isinstance(seeds, int) else seeds
    with garbage_by_the_step():
        runs = [_play(scenario, seed, setup) for seed in chosen]
    if not runs:
        raise ValueError(f"seeds={seeds}: expected at least one seed")
    return runs


def simulated(
    *,
    seeds: int | Iterable[int] = SEEDS,
    brokers: int = 3,
    config: Mapping[str, Setting] | None = None,
    most_seconds: float = MAX_SECONDS,
) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """`simulate` as a decorator, which turns a scenario into a function that runs it, such as a test.

    Further parameters of the scenario are parameters of the function: pytest's fixtures.
    """

    def decorate(scenario: Callable[..., Any]) -> Callable[..., None]:
        @wraps(scenario)
        def play(*arguments: Any, **named: Any) -> None:
            __tracebackhide__ = True
            simulate(
                lambda simulation: scenario(simulation, *arguments, **named),
                seeds=seeds,
                brokers=brokers,
                config=config,
                most_seconds=most_seconds,
            )

        signature = inspect.signature(scenario)
        others = list(signature.parameters.values())[1:]
        # The names that pytest treats as fixtures.
        vars(play)["__signature__"] = signature.replace(parameters=others)
        return play

    return decorate


def _play(scenario: Scenario, seed: int, setup: Setup) -> SimulatedRun:
    __tracebackhide__ = True
    began: list[tuple[SimLoop, Simulation]] = []

    async def main(loop: SimLoop) -> None:
        began.append((loop, Simulation(loop, seed, setup)))
        await began[0][1].carry_out(scenario)

    def refused(error: NotSimulatedError) -> None:
        for _, simulation in began:
            simulation.fail(error)

    clock = SimClock(lambda: began[0][0].time() if began else 0.0, lambda: began[0][0].steps if began else 0, START_MS)
    with out_of_reach(clock, chance(f"{seed}/real world"), refused):
        try:
            run(main, seed, most_steps=ENDLESS_STEPS, step_seconds=STEP_SECONDS)
            return _came_to(began, seed)
        except Exception as error:
            raise SimulationError(_told(began, seed, error), seed) from error
        except BaseException as error:
            error.add_note(f"in the simulation of seed {seed}")
            raise
        finally:
            began.clear()
            _forget()


def _came_to(began: list[tuple[SimLoop, Simulation]], seed: int) -> SimulatedRun:
    loop, simulation = began[0]
    return SimulatedRun(seed, loop.time(), loop.steps, loop.digest, tuple(simulation.log))


def _forget() -> None:
    """Release the world that has ended. Errors of its remaining objects are ignored."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    level = logging.root.manager.disable
    logging.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            while FORMER:
                bury(FORMER.pop())
            gc.collect()
    finally:
        sys.unraisablehook = hook
        logging.disable(level)


def _told(began: list[tuple[SimLoop, Simulation]], seed: int, error: BaseException) -> str:
    time, log = (began[0][0].time(), began[0][1].log) if began else (0.0, [])
    return "\n".join(
        [
            f"seed {seed} fails after {time:.3f} simulated seconds: {type(error).__name__}: {error}",
            *(f"    {line}" for line in log[-SHOWN_LINES:]),
            f"repeat it with seeds=[{seed}], or {SEED_VARIABLE}={seed} in the environment",
            *(["in other processes the run may differ, unless all have PYTHONHASHSEED=0"] if hashes_vary() else []),
        ]
    )
