"""Run one bench against several targets, a round of each in turn, so that a slow minute of the machine affects all."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from unittest import mock

from bench.bench import RIVAL, Bench, Figures, Run
from bench.report import BenchResult
from bench.targets import Target, make_target
from bench.warming import WarmUp


@dataclass(frozen=True)
class Plan:
    """The length and number of rounds, and the minimum of warm-up rounds. A bench may override the two numbers."""

    folder: Path
    seconds: float
    rounds: int
    warmup: int = 1
    properties: Mapping[str, str] = field(default_factory=dict)
    pythons: Mapping[str, Path] = field(default_factory=dict)
    """Additional targets: Barnabas on these interpreters, by the name of the target."""

    def warmup_of(self, bench: Bench) -> int:
        return self.warmup if bench.warmup is None else bench.warmup

    def rounds_of(self, bench: Bench) -> int:
        return self.rounds if bench.rounds is None else min(self.rounds, bench.rounds)


@contextmanager
def compiled_once(folder: Path) -> Iterator[None]:
    """Make Python servers keep bytecode in `folder`, as installed packages do, regardless of the caller's settings."""
    with mock.patch.dict(os.environ, {"PYTHONPYCACHEPREFIX": str(folder / "bytecode")}):
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        yield


def run_bench(bench: Bench, names: Sequence[str], plan: Plan) -> BenchResult:
    """Run the warm-up rounds, then the rounds that count. Targets that the bench does not have are left out."""
    result = BenchResult(bench)
    chosen = [name for name in names if name in bench.targets]
    if "barnabas" in chosen and bench.brokers == 1 and not bench.secured:
        chosen += plan.pythons
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
        kraft=bench.kraft,
        properties=properties,
        kafka_properties=bench.kafka_properties,
        secured=bench.secured,
        python=plan.pythons.get(name),
    )


def _run_side_by_side(result: BenchResult, names: Sequence[str], plan: Plan) -> None:
    """Start all targets, and measure them one after the other in each round."""
    bench = result.bench
    targets: list[Target] = []
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
        warming = WarmUp(bench.warming_figures if RIVAL in names else {}, plan.warmup_of(bench))
        numbers = count()
        while not warming.is_over():
            warming.add(_round(bench, runs, next(numbers)).get(RIVAL, {}))
        result.record_warm_up(warming.result())
        for number in islice(numbers, plan.rounds_of(bench)):
            for name, figures in _round(bench, runs, number).items():
                result.add(name, figures)
    finally:
        for target in targets:
            target.remove()


def _round(bench: Bench, runs: Sequence[Run], number: int) -> dict[str, Figures]:
    """Measure each target once, one after the other."""
    measured = {}
    for run in runs:
        run.number = number
        # Writeback of the previous target's files must not slow this target down.
        os.sync()
        measured[run.target.name] = bench.measure(run)
    return measured


def _run_fresh(result: BenchResult, names: Sequence[str], plan: Plan) -> None:
    """Create a new target with an empty folder in every round. The bench starts it itself."""
    bench, warmup = result.bench, plan.warmup_of(result.bench)
    for number in range(warmup + plan.rounds_of(bench)):
        for name in names:
            target = _make(bench, name, plan.folder / f"{bench.name}-{number}", plan)
            run = Run(target, plan.seconds, number)
            os.sync()
            try:
                figures = bench.measure(run)
            finally:
                target.remove()
            if number >= warmup:
                result.add(name, figures)
                if name == RIVAL:
                    result.record_warm_up(run.warm_up)
