"""The tables of benches as Markdown, and their place in docs/performance.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.report import GOAL_HEADER, BenchResult

BEGIN, END = "<!-- figures: written by bench -->", "<!-- end of figures -->"
GOALS = "Goals"


@dataclass
class Published:
    """By the name of each bench: its rows in the table of goals, and what stands below its heading."""

    goals: dict[str, list[list[str]]] = field(default_factory=dict)
    sections: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, results: Sequence[BenchResult]) -> Published:
        """Median (smallest–largest) of the rounds."""
        made = cls()
        for result in results:
            about = f"{result.bench.about[0].upper()}{result.bench.about[1:]}. {result.how()}"
            made.goals[result.bench.name] = result.goal_rows()
            made.sections[result.bench.name] = f"{about}\n\n{markdown_table(result.header(), result.rows())}"
        return made

    @classmethod
    def read(cls, document: str) -> Published:
        """Read the tables between `BEGIN` and `END`; none if the document does not have these marks."""
        found = cls()
        place = document.partition(BEGIN)[2].partition(END)[0]
        for part in f"\n{place}".split("\n### ")[1:]:
            title, _, text = part.partition("\n")
            if title == GOALS:
                for row in table_in(text)[1:]:
                    found.goals.setdefault(row[0], []).append(row)
            else:
                found.sections[title] = text.strip()
        return found

    def text(self, order: Iterable[str]) -> str:
        """The goals first, and the benches in this order."""
        names = [name for name in order if name in self.sections]
        goals = [row for name in names for row in self.goals.get(name, [])]
        parts = [f"### {GOALS}", markdown_table(GOAL_HEADER, goals)] if goals else []
        for name in names:
            parts += [f"### {name}", self.sections[name]]
        return "\n\n".join(parts) + "\n"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def table_in(text: str) -> list[list[str]]:
    """Header and rows of the table that `markdown_table` wrote."""
    return [line[2:-2].split(" | ") for line in text.splitlines() if line.startswith("| ")]


def markdown(results: Sequence[BenchResult]) -> str:
    """The tables on their own."""
    return Published.of(results).text(result.bench.name for result in results)


def write_markdown(path: Path, results: Sequence[BenchResult], order: Iterable[str]) -> None:
    """Write the tables to `path`; in a document that has a place for them, only that place changes.

    What it has of other benches in `order` stays there.
    """
    before = path.read_text() if path.exists() else ""
    if BEGIN not in before or END not in before:
        path.write_text(markdown(results))
        return
    shown, fresh = Published.read(before), Published.of(results)
    tables = Published(shown.goals | fresh.goals, shown.sections | fresh.sections).text(order)
    head, rest = before.split(BEGIN, 1)
    path.write_text(f"{head}{BEGIN}\n\n{tables}\n{END}{rest.split(END, 1)[1]}")
