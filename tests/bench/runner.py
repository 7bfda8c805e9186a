"""Runs one bench against several targets, a round of each in turn, so that a slow minute of the machine hits all."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from tests.bench.bench import Bench, Figures, Run
from tests.bench.report import BenchResult
from tests.bench.targets import Target, make_target


@dataclass(frozen=True)
class Plan:
    """How long and how often; a bench may have its own mind about `rounds` and `warmup`."""

    folder: Path
    seconds: float
    rounds: int
    warmup: int = 1
    properties: Mapping[str, str] = field(default_factory=dict)

    def warmup_of(self, bench: Bench) -> int:
        return self.warmup if bench.warmup is None else bench.warmup

    def rounds_of(self, bench: Bench) -> int:
        return self.rounds if bench.rounds is None else min(self.rounds, bench.rounds)


MOST_WARMUPS = 10
STILL_WARMING = 1.03
"""A figure that is so much better than the best before still rises."""


class WarmUp:
    """Rounds that do not count until `least` are over and a rival's figure has stopped rising, `MOST_WARMUPS` at most.

    A JVM compiles what has run often enough, and again what has run still more often: a few seconds are not enough.
    """

    def __init__(self, bench: Bench, least: int) -> None:
        self._figure = bench.warm_by if least else None
        self._sign = 1 if self._figure is None or bench.figures[self._figure] == "higher" else -1
        self._left = least
        self._rounds = 0
        self._best: float | None = None

    def goes_on(self, rivals: Figures | None) -> bool:
        """Whether another round is to warm up, after one with these figures of the rival; None if there was none."""
        self._rounds += 1
        if self._figure is not None and rivals is not None:
            value = rivals[self._figure] ** self._sign
            is_rising = self._best is None or value > self._best * STILL_WARMING
            self._best = value if self._best is None else max(self._best, value)
            if is_rising and self._rounds < MOST_WARMUPS:
                return True
        return self._rounds < self._left


@contextmanager
def compiled_once(folder: Path) -> Iterator[None]:
    """Let Python servers keep their bytecode in `folder`, as installed packages do, whatever the caller's settings."""
    with mock.patch.dict(os.environ, {"PYTHONPYCACHEPREFIX": str(folder / "bytecode")}):
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        yield


def run_bench(bench: Bench, names: Sequence[str], plan: Plan) -> BenchResult:
    """Rounds that do not count, then rounds that do; targets the bench does not know are left out."""
    result = BenchResult(bench)
    chosen = [name for name in names if name in bench.targets]
    with compiled_once(plan.folder):
        if bench.started:
            _run_side_by_side(result, chosen, plan)
        else:
            _run_fresh(result, chosen, plan)
    return result


def _make(bench: Bench, name: str, folder: Path, plan: Plan) -> Target:
    properties = {**bench.properties, **plan.properties}
    return make_target(
        name,
        folder,
        partitions=bench.partitions,
        brokers=bench.brokers,
        properties=properties,
        kafka_properties=bench.kafka_properties,
        doors=bench.doors,
    )


def _run_side_by_side(result: BenchResult, names: Sequence[str], plan: Plan) -> None:
    """All targets stay up; each round asks one after the other."""
    bench, warmup = result.bench, plan.warmup_of(result.bench)
    targets: list[Target] = []
    warming = WarmUp(bench, warmup) if warmup else None
    try:
        runs = []
        for name in names:
            target = _make(bench, name, plan.folder / bench.name, plan)
            targets.append(target)
            target.start()
            runs.append(Run(target, plan.seconds, 0))
        for run in runs:
            if bench.prepare:
                bench.prepare(run)
        number, left = 0, plan.rounds_of(bench)
        while left:
            measured: dict[str, Figures] = {}
            for run in runs:
                run.number = number
                # What the one before wrote goes to disk before this one is measured.
                os.sync()
                measured[run.target.name] = bench.measure(run)
            number += 1
            if warming is not None:
                if not warming.goes_on(measured.get("kafka")):
                    warming = None
                continue
            left -= 1
            for name, figures in measured.items():
                result.add(name, figures)
    finally:
        for target in targets:
            target.remove()


def _run_fresh(result: BenchResult, names: Sequence[str], plan: Plan) -> None:
    """Every round has a new server with an empty folder, which the bench starts itself."""
    bench, warmup = result.bench, plan.warmup_of(result.bench)
    for number in range(warmup + plan.rounds_of(bench)):
        for name in names:
            target = _make(bench, name, plan.folder / f"{bench.name}-{number}", plan)
            os.sync()
            try:
                figures = bench.measure(Run(target, plan.seconds, number))
            finally:
                target.remove()
            if number >= warmup:
                result.add(name, figures)
