"""A search over seeds: replay one seed, or play seeds until their number or the time is reached.

`--progress FILE` stores which seeds were played, and the next search with the same file continues after these seeds.
`--jobs` plays several seeds in parallel.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from soak.sim.outcome import Outcome

SEEDS_OF_A_PROCESS = 100
"""A worker process is replaced after this number of seeds, which bounds its memory."""
NO_FAULT = "none"
Play = Callable[[int], Outcome[Any]]


@dataclass
class Progress:
    """The seeds that were played so far, by all searches with the same file, and their totals."""

    next_seed: int
    """All seeds below this seed are played."""
    ahead: list[int] = field(default_factory=list)
    """The played seeds above `next_seed`."""
    played: int = 0
    acknowledged: int = 0
    simulated_seconds: float = 0.0
    spent_seconds: float = 0.0
    failed: list[int] = field(default_factory=list)
    acknowledged_under: dict[str, int] = field(default_factory=dict)
    """The number of acknowledged records in the seeds with each fault, or `none`."""

    @classmethod
    def load(cls, file: Path | None, first: int) -> Progress:
        """Read the file. If there is no file, return the state before the first seed."""
        if file is None or not file.exists():
            return cls(first)
        return cls(**json.loads(file.read_text()))

    def save(self, file: Path | None) -> None:
        """Replace the file, if there is one, atomically: a killed process leaves the old or the new state."""
        if file is not None:
            new = file.with_name(f"{file.name}.new")
            new.write_text(json.dumps(asdict(self)) + "\n")
            new.replace(file)

    def add(self, outcome: Outcome[Any], spent: float) -> None:
        """Add the outcome of a seed, which took `spent` seconds of processor time."""
        self.ahead.append(outcome.plan.seed)
        while self.next_seed in self.ahead:
            self.ahead.remove(self.next_seed)
            self.next_seed += 1
        self.played += 1
        for fault in sorted(outcome.plan.faults) or [NO_FAULT]:
            self.acknowledged_under[fault] = self.acknowledged_under.get(fault, 0) + outcome.acknowledged
        self.acknowledged += outcome.acknowledged
        self.simulated_seconds += outcome.seconds
        self.spent_seconds += spent
        if outcome.violations:
            self.failed.append(outcome.plan.seed)

    def seeds(self) -> Iterator[int]:
        """Yield the seeds that were not played, in order."""
        played = frozenset(self.ahead)
        return (seed for seed in count(self.next_seed) if seed not in played)

    def __str__(self) -> str:
        under = sorted(self.acknowledged_under.items(), key=lambda one: (-one[1], one[0]))
        return (
            f"{self.played} seeds, {len(self.failed)} failed {self.failed or ''}, {self.acknowledged} acknowledged, "
            f"{self.simulated_seconds:.0f} s simulated in {self.spent_seconds:.0f} s of processor time\n"
            f"acknowledged in seeds with: {', '.join(f'{fault} {number}' for fault, number in under)}"
        )


def search_parser(prog: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options of every search."""
    parser = argparse.ArgumentParser(prog=f"python -m {prog}", description=description)
    parser.add_argument("--seed", type=int, help="replay this seed; --verbose shows the logs")
    parser.add_argument("--first", type=int, default=0, help="first seed of a search (default: 0)")
    parser.add_argument("--minutes", type=float, default=10.0, help="stop after this many minutes (default: 10)")
    parser.add_argument("--progress", type=Path, help="file with the progress, to continue and to update")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes (default: 1; 0: one per processor)")
    parser.add_argument("--verbose", action="store_true", help="show the logs of brokers and clients")
    return parser


def search_seeds(prog: str, description: str | None, play_seed: Callable[..., Outcome[Any]]) -> int:
    """Parse the usual options, search until a number of seeds is played, and return the exit status."""
    parser = search_parser(prog, description)
    parser.add_argument("--seeds", type=int, default=100, help="number of runs, earlier runs included (default: 100)")
    parser.add_argument("--quick", action="store_true", help="play short runs, as in the tests")
    options = parser.parse_args()
    return search(options, partial(play_seed, quick=options.quick), lambda progress: progress.played >= options.seeds)


def search(options: argparse.Namespace, play: Play, is_enough: Callable[[Progress], bool]) -> int:
    """Replay or search seeds according to the options of `search_parser`; return the exit status.

    `play` must be picklable.
    """
    _set_logging(is_verbose=options.verbose)
    if options.seed is not None:
        outcome = play(options.seed)
        print(outcome.explain())
        return 1 if outcome.violations else 0
    progress = Progress.load(options.progress, options.first)
    deadline = time.monotonic() + options.minutes * 60

    def is_over() -> bool:
        return is_enough(progress) or time.monotonic() >= deadline

    for outcome, spent in _played(options, play, progress.seeds(), is_over):
        progress.add(outcome, spent)
        progress.save(options.progress)
        if outcome.violations:
            print(outcome.explain(), flush=True)
    print(progress)
    return 1 if progress.failed else 0


def _played(
    options: argparse.Namespace, play: Play, seeds: Iterator[int], is_over: Callable[[], bool]
) -> Iterator[tuple[Outcome[Any], float]]:
    """Play seeds until `is_over`; yield each outcome with its processor time in seconds. Started seeds are finished."""
    jobs = options.jobs or os.cpu_count() or 1
    if jobs == 1:
        while not is_over():
            yield timed(play, next(seeds))
        return
    with ProcessPoolExecutor(
        jobs,
        multiprocessing.get_context("spawn"),
        initializer=_set_logging,
        initargs=(options.verbose,),
        max_tasks_per_child=SEEDS_OF_A_PROCESS,
    ) as pool:
        running: set[Future[tuple[Outcome[Any], float]]] = set()
        while running or not is_over():
            while len(running) < jobs and not is_over():
                running.add(pool.submit(timed, play, next(seeds)))
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for one in done:
                yield one.result()


def timed(play: Play, seed: int) -> tuple[Outcome[Any], float]:
    """Play a seed; return its outcome and the processor time in seconds."""
    began = time.process_time()
    return play(seed), time.process_time() - began


def _set_logging(is_verbose: bool) -> None:
    if is_verbose:
        logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    else:
        logging.disable(logging.CRITICAL)
