"""Turns the rounds of a bench into a table for the terminal, JSON and Markdown."""

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table
from tests.bench.catalogue import Bench, Figures


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
        return f"{shown(self.median)} ({shown(self.low)}–{shown(self.high)})"


def shown(value: float) -> str:
    """Three significant digits, thousands separated."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


@dataclass
class BenchResult:
    """All rounds of one bench: target -> figures of each round."""

    bench: Bench
    rounds: dict[str, list[Figures]] = field(default_factory=dict)

    def add(self, target: str, figures: Figures) -> None:
        self.rounds.setdefault(target, []).append(figures)

    def spread(self, target: str, figure: str) -> Spread:
        return Spread.of([figures[figure] for figures in self.rounds[target]])

    def ratio(self, figure: str, against: str) -> Spread | None:
        """Ours divided by `against`, round by round; None when one of them did not run."""
        ours, theirs = self.rounds.get("ours"), self.rounds.get(against)
        if not ours or not theirs:
            return None
        pairs = zip(ours, theirs, strict=False)
        values = [mine[figure] / other[figure] for mine, other in pairs if other[figure]]
        return Spread.of(values) if values else None

    def header(self) -> list[str]:
        against = [name for name in self.rounds if name != "ours"] if "ours" in self.rounds else []
        return ["figure", *self.rounds, *(f"ours ÷ {name}" for name in against)]

    def rows(self) -> list[list[str]]:
        """One row for each figure: every target, then the ratios of ours."""
        made = []
        for figure, better in self.bench.figures.items():
            cells = [f"{figure} ({better} is better)"]
            cells += [str(self.spread(target, figure)) for target in self.rounds]
            if "ours" in self.rounds:
                cells += [str(self.ratio(figure, name)) for name in self.rounds if name != "ours"]
            made.append(cells)
        return made


def print_result(result: BenchResult) -> None:
    """A table on the terminal."""
    table = Table(title=f"{result.bench.name}: {result.bench.about}", title_justify="left")
    for column in result.header():
        table.add_column(column, no_wrap=True)
    for row in result.rows():
        table.add_row(*row)
    Console(width=max(Console().width, 140)).print(table)


def markdown(results: list[BenchResult]) -> str:
    """The tables as docs/performance.md shows them: median (smallest–largest) of the rounds."""
    parts = []
    for result in results:
        header = result.header()
        lines = [f"### {result.bench.name}", "", f"{result.bench.about}.", ""]
        lines += ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
        lines += ["| " + " | ".join(row) + " |" for row in result.rows()]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def machine() -> dict[str, str | int]:
    """What the figures were taken on."""
    return {"cpus": os.cpu_count() or 0, "python": platform.python_version(), "system": platform.platform(terse=True)}


def write_json(path: Path, results: list[BenchResult], options: Mapping[str, object]) -> None:
    """Every figure of every round."""
    data = {
        "machine": machine(),
        "options": dict(options),
        "benches": {result.bench.name: result.rounds for result in results},
    }
    path.write_text(json.dumps(data, indent=1) + "\n")
