"""Results of a bench: its rounds as rows of tables, as tables on the terminal, and as JSON."""

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

from bench.bench import LIMIT, RIVAL, Bench, Figures, Goal
from bench.warming import WarmUpResult
from rich.console import Console
from rich.table import Table
from tests.kafka import LAST_WITH_ZOOKEEPER, NEWEST


@dataclass(frozen=True)
class Spread:
    """Median, smallest and largest of the rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> "Spread":
        return cls(median(values), min(values), max(values))

    def __str__(self) -> str:
        if self.low == self.high:
            return shown(self.median)
        return f"{shown(self.median)} ({shown(self.low)}–{shown(self.high)})"


def shown(value: float) -> str:
    """Format a number with three significant digits and thousands separators."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


@dataclass(frozen=True)
class RunInfo:
    """The date, the commit and the versions of a run, the machine, and the options of the command."""

    date: str
    commit: str
    versions: Mapping[str, str]
    machine: Mapping[str, str | int]
    options: Mapping[str, object]

    def versions_of(self, bench: Bench) -> dict[str, str]:
        """Return the versions with the release of Apache Kafka that the bench starts, if it starts one."""
        made = dict(self.versions)
        kafka = made.pop("kafka_with_zookeeper" if bench.brokers > 1 and not bench.kraft else "kafka", "")
        made.pop("kafka", None)
        made.pop("kafka_with_zookeeper", None)
        return {"kafka": kafka, **made} if RIVAL in bench.targets and kafka else made


@dataclass
class BenchResult:
    """All rounds of one bench: target -> figures of each round."""

    bench: Bench
    rounds: dict[str, list[Figures]] = field(default_factory=dict)
    warm_up: WarmUpResult | None = None
    """None if it was not recorded: in runs of earlier versions, and if the bench starts its servers itself."""
    run: RunInfo | None = None
    """None for a result that was not written to a file, or by an earlier version."""

    def record_warm_up(self, warm_up: WarmUpResult | None) -> None:
        """Record the warm-up of a round, unless the rival was not warm in an earlier round."""
        if self.warm_up is None or not self.warm_up.rising:
            self.warm_up = warm_up

    def add(self, target: str, figures: Figures) -> None:
        self.rounds.setdefault(target, []).append(figures)

    def spread(self, target: str, figure: str) -> Spread:
        return Spread.of([figures[figure] for figures in self.rounds[target]])

    def ratio(self, figure: str, against: str) -> Spread | None:
        """Return the ratio of Barnabas's figure to that of `against`, round by round. With `LIMIT` return the figure.

        Return None if a target did not run.
        """
        if against == LIMIT:
            return self.spread("barnabas", figure) if "barnabas" in self.rounds else None
        measured, others = self.rounds.get("barnabas"), self.rounds.get(against)
        if not measured or not others:
            return None
        pairs = zip(measured, others, strict=False)
        values = [one[figure] / other[figure] for one, other in pairs if other[figure]]
        return Spread.of(values) if values else None

    def reached(self, goal: Goal) -> bool | None:
        """Return whether the median of the ratios reaches the goal, or None if it was not measured."""
        ratio = self.ratio(goal.figure, goal.against)
        if ratio is None:
            return None
        higher = self.bench.figures[goal.figure] == "higher"
        return ratio.median >= goal.ratio if higher else ratio.median <= goal.ratio

    def header(self) -> list[str]:
        against = [name for name in self.rounds if name != "barnabas"] if "barnabas" in self.rounds else []
        return ["figure", *self.rounds, *(f"barnabas ÷ {name}" for name in against)]

    def rows(self) -> list[list[str]]:
        """Return one row for each figure: every target, then the ratios of Barnabas."""
        made = []
        for figure, better in self.bench.figures.items():
            cells = [f"{figure} ({better} is better)"]
            cells += [str(self.spread(target, figure)) for target in self.rounds]
            if "barnabas" in self.rounds:
                cells += [str(self.ratio(figure, name)) for name in self.rounds if name != "barnabas"]
            made.append(cells)
        return made

    def goal_rows(self) -> list[list[str]]:
        """Return one row for each measured goal: bench, figure, against, goal, ratio, and whether it was reached."""
        made = []
        for goal in self.bench.goals:
            reached = self.reached(goal)
            if reached is not None:
                sign = "≥" if self.bench.figures[goal.figure] == "higher" else "≤"
                ratio = str(self.ratio(goal.figure, goal.against))
                words = "yes" if reached else "**no**"
                if goal.against == RIVAL and self.warm_up is not None and self.warm_up.rising:
                    words += ", Kafka not warm"
                bound = f"{sign} {goal.ratio:g}" + (" ×" if goal.against != LIMIT else "")
                made.append([self.bench.name, goal.figure, goal.against, bound, ratio, words])
        return made

    def how(self) -> str:
        """Return the sentences on the number of rounds and the warm-up of the rival."""
        parts = [f"Rounds: {max(map(len, self.rounds.values()))}."]
        if self.warm_up is not None:
            parts.append(f"Warm-up: {self.warm_up}.")
        if self.bench.cold and RIVAL in self.rounds:
            parts.append(f"Kafka is cold: {self.bench.cold}.")
        return " ".join(parts)


GOAL_HEADER = ["bench", "figure", "against", "goal", "barnabas ÷ it", "reached"]


def print_result(result: BenchResult) -> None:
    """Print a table of the figures and a table of the goals."""
    console = Console(width=max(Console().width, 180))
    for title, caption, header, rows in (
        (f"{result.bench.name}: {result.bench.about}", result.how(), result.header(), result.rows()),
        ("", "", GOAL_HEADER, result.goal_rows()),
    ):
        if rows:
            table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
            for column in header:
                table.add_column(column, no_wrap=True)
            for row in rows:
                table.add_row(*row)
            console.print(table)


def machine() -> dict[str, str | int]:
    """Return the description of this machine for reports."""
    return {"cpus": os.cpu_count() or 0, "python": platform.python_version(), "system": platform.platform(terse=True)}


def commit() -> str:
    """Return the commit of the checkout, with `+changes` if files differ from it, or `unknown`."""
    try:
        head = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
        changes = subprocess.run(["git", "status", "--porcelain"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.stdout.strip() + ("+changes" if changes.stdout.strip() else "")


def versions() -> dict[str, str]:
    """Return the versions of the programs that a run measures or uses."""
    made = {"kafka": NEWEST, "kafka_with_zookeeper": LAST_WITH_ZOOKEEPER, "python": platform.python_version()}
    for package in ("barnabas", "uvloop", "confluent-kafka"):
        try:
            made[package] = version(package)
        except PackageNotFoundError:
            continue
    return made


def write_json(path: Path, results: Sequence[BenchResult], options: Mapping[str, object]) -> None:
    """Write every figure of every round, with the date, the commit and the versions."""
    data = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": commit(),
        "versions": versions(),
        "machine": machine(),
        "options": dict(options),
        "benches": {result.bench.name: result.rounds for result in results},
        "warm_ups": {result.bench.name: asdict(result.warm_up) for result in results if result.warm_up is not None},
    }
    path.write_text(json.dumps(data, indent=1) + "\n")


def read_json(paths: Sequence[Path], benches: Mapping[str, Bench]) -> list[BenchResult]:
    """Read files of `write_json`, in the order of `benches`. A bench in a later file replaces the earlier one."""
    found: dict[str, BenchResult] = {}
    for path in paths:
        data = json.loads(path.read_text())
        warm_ups = data.get("warm_ups", {})
        run = None
        if "commit" in data:
            run = RunInfo(data["date"], data["commit"], data["versions"], data["machine"], data["options"])
        for name in data["benches"].keys() & benches.keys():
            warm_up = _warm_up_in(warm_ups[name]) if name in warm_ups else None
            found[name] = BenchResult(benches[name], data["benches"][name], warm_up, run)
    return [found[name] for name in benches if name in found]


def _warm_up_in(data: Mapping[str, Any]) -> WarmUpResult:
    return WarmUpResult(data["rounds"], data["seconds"], tuple(data["rising"]))
