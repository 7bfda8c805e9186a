"""Runs one bench against several targets, a round of each in turn, so that a slow minute of the machine hits all."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.bench.catalogue import Bench, Run
from tests.bench.report import BenchResult
from tests.bench.targets import Target, make_target


def run_bench(
    bench: Bench,
    names: Sequence[str],
    *,
    folder: Path,
    seconds: float,
    rounds: int,
    warmup: int = 1,
    properties: Mapping[str, str] | None = None,
) -> BenchResult:
    """`warmup` rounds that do not count, then `rounds` that do; targets the bench does not know are left out."""
    result = BenchResult(bench)
    chosen = [name for name in names if name in bench.targets]
    if bench.started:
        _run_side_by_side(
            result,
            chosen,
            folder,
            seconds,
            (bench.warmup if bench.warmup is not None else warmup, bench.rounds or rounds),
            properties or {},
        )
    else:
        _run_fresh(result, chosen, folder, seconds, bench.rounds or rounds, properties or {})
    return result


def _make(bench: Bench, name: str, folder: Path, properties: Mapping[str, str]) -> Target:
    return make_target(name, folder, partitions=bench.partitions, properties={**bench.properties, **properties})


def _run_side_by_side(
    result: BenchResult,
    names: Sequence[str],
    folder: Path,
    seconds: float,
    rounds: tuple[int, int],
    properties: Mapping[str, str],
) -> None:
    """All targets stay up; each round asks one after the other."""
    warmup, counted = rounds
    bench = result.bench
    targets: list[Target] = []
    try:
        runs = []
        for name in names:
            target = _make(bench, name, folder / bench.name, properties)
            targets.append(target)
            target.start()
            runs.append(Run(target, seconds, 0))
        for run in runs:
            if bench.prepare:
                bench.prepare(run)
        for number in range(warmup + counted):
            for run in runs:
                run.number = number
                figures = bench.measure(run)
                if number >= warmup:
                    result.add(run.target.name, figures)
    finally:
        for target in targets:
            target.remove()


def _run_fresh(
    result: BenchResult,
    names: Sequence[str],
    folder: Path,
    seconds: float,
    rounds: int,
    properties: Mapping[str, str],
) -> None:
    """Every round has a new server with an empty folder, which the bench starts itself."""
    for number in range(rounds):
        for name in names:
            target = _make(result.bench, name, folder / f"{result.bench.name}-{number}", properties)
            try:
                result.add(name, result.bench.measure(Run(target, seconds, number)))
            finally:
                target.remove()
