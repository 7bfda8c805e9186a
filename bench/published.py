"""The tables of benches as Markdown, their place in docs/reference/benchmarks.md, and the raw results next to it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.report import GOAL_HEADER, BenchResult, Spread

BEGIN, END = "<!-- figures: written by bench -->", "<!-- end of figures -->"
GOALS = "Goals"
RAW = "benchmarks"
"""The folder of the raw results, next to the document."""


@dataclass
class Published:
    """The rows of each bench in the table of goals, and the text below its heading, both by its name."""

    goals: dict[str, list[list[str]]] = field(default_factory=dict)
    sections: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, results: Sequence[BenchResult]) -> Published:
        """Return the tables of these results, with the median (smallest–largest) of the rounds."""
        made = cls()
        for result in results:
            about = f"{result.bench.about[0].upper()}{result.bench.about[1:]}. {result.how()}"
            if result.run is not None:
                about += f" {raw_link(raw_result(result))}"
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
        """Return the text: the goals first, then the benches in this order."""
        names = [name for name in order if name in self.sections]
        goals = [row for name in names for row in self.goals.get(name, [])]
        parts = [f"### {GOALS}", markdown_table(GOAL_HEADER, goals)] if goals else []
        for name in names:
            parts += [f"### {name}", self.sections[name]]
        return "\n\n".join(parts) + "\n"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def table_in(text: str) -> list[list[str]]:
    """Return the header and the rows of a table that `markdown_table` wrote."""
    return [line[2:-2].split(" | ") for line in text.splitlines() if line.startswith("| ")]


def raw_result(result: BenchResult) -> dict[str, Any]:
    """Return the content of the file of raw results: the run, the rounds, and the figures of the table."""
    run = result.run
    assert run is not None, "a result that was read from a file of this version has a run"
    return {
        "bench": result.bench.name,
        "date": run.date,
        "commit": run.commit,
        "versions": run.versions_of(result.bench),
        "machine": dict(run.machine),
        "options": dict(run.options),
        "rounds": result.rounds,
        "figures": {figure: _cells(result, figure) for figure in result.bench.figures},
    }


def _cells(result: BenchResult, figure: str) -> dict[str, dict[str, float]]:
    spreads: dict[str, Spread | None] = {target: result.spread(target, figure) for target in result.rounds}
    if "barnabas" in result.rounds:
        others = [name for name in result.rounds if name != "barnabas"]
        spreads |= {f"barnabas ÷ {name}": result.ratio(figure, name) for name in others}
    return {
        column: {"median": spread.median, "smallest": spread.low, "largest": spread.high}
        for column, spread in spreads.items()
        if spread is not None
    }


def raw_link(raw: Mapping[str, Any]) -> str:
    """Return the sentence below the heading of a bench: the run, and the link to its raw results."""
    kafka = raw["versions"].get("kafka")
    servers = f", Apache Kafka {kafka}" if kafka else ""
    return f"Run: {raw['date']}, commit {raw['commit']}{servers} ([JSON]({RAW}/{raw['bench']}.json))."


def write_raw(folder: Path, raw: Mapping[str, Any]) -> None:
    """Write the raw results of one bench."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(raw, indent=1, ensure_ascii=False)
    (folder / f"{raw['bench']}.json").write_text(f"{text}\n", encoding="utf-8")


def markdown(results: Sequence[BenchResult]) -> str:
    """Return the tables without a document."""
    return Published.of(results).text(result.bench.name for result in results)


def write_markdown(path: Path, results: Sequence[BenchResult], order: Iterable[str]) -> None:
    """Write the tables to `path`. In a document with `BEGIN` and `END`, replace only the text between these marks.

    The tables of other benches in `order` are kept. The raw results are written to the folder `RAW` next to `path`.
    """
    for result in results:
        if result.run is not None:
            write_raw(path.parent / RAW, raw_result(result))
    before = path.read_text() if path.exists() else ""
    if BEGIN not in before or END not in before:
        path.write_text(markdown(results))
        return
    shown, fresh = Published.read(before), Published.of(results)
    tables = Published(shown.goals | fresh.goals, shown.sections | fresh.sections).text(order)
    head, rest = before.split(BEGIN, 1)
    path.write_text(f"{head}{BEGIN}\n\n{tables}\n{END}{rest.split(END, 1)[1]}")
