"""Draws how the cost of a request grows with topics, partitions and connections, as an SVG picture."""

import math
from collections.abc import Sequence

from bench.report import BenchResult

WIDTH, HEIGHT = 760, 340
PANEL_WIDTH, PANEL_TOP, PANEL_BOTTOM = 300, 60, 280
LEFT = 52
PREFIX = "growth-"
STYLES = {"topics": ("#1f77b4", ""), "partitions": ("#d62728", "7 4"), "connections": ("#2ca02c", "2 3")}

Points = list[tuple[int, float]]


def lines_of(results: Sequence[BenchResult], target: str) -> dict[str, Points]:
    """Return the points (count, microseconds) of `target` for each growing quantity."""
    made = {}
    for result in results:
        kind = result.bench.name.removeprefix(PREFIX)
        if kind in STYLES and target in result.rounds and result.bench.name.startswith(PREFIX):
            figures = result.bench.figures
            made[kind] = [(int(name.rsplit("_", 1)[1]), result.spread(target, name).median) for name in figures]
    return made


def text(x: float, y: float, words: str, *, size: int = 11, anchor: str = "middle", colour: str = "#333") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}">{words}</text>'


def panel(left: float, title: str, lines: dict[str, Points]) -> list[str]:
    """One target: counts on a logarithmic axis to the right, microseconds upwards from zero."""
    top = max(cost for points in lines.values() for _, cost in points) * 1.15
    right = max(math.log10(count) for points in lines.values() for count, _ in points) or 1.0

    def x(count: float) -> float:
        return left + math.log10(count) / right * PANEL_WIDTH

    def y(cost: float) -> float:
        return PANEL_BOTTOM - cost / top * (PANEL_BOTTOM - PANEL_TOP)

    parts = [text(left, PANEL_TOP - 12, title, size=13, anchor="start")]
    for step in range(5):
        cost = top * step / 4
        parts.append(f'<path d="M{left:.1f} {y(cost):.1f}h{PANEL_WIDTH}" stroke="#ddd"/>')
        parts.append(text(left - 6, y(cost) + 4, f"{cost:.0f}", anchor="end"))
    parts += [text(x(10**power), PANEL_BOTTOM + 16, f"{10**power:,}") for power in range(round(right) + 1)]
    for kind, points in lines.items():
        colour, dashes = STYLES[kind]
        path = "L".join(f"{x(count):.1f} {y(cost):.1f}" for count, cost in points)
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"/>')
        for count, cost in points:
            parts.append(f'<circle cx="{x(count):.1f}" cy="{y(cost):.1f}" r="3" fill="{colour}"/>')
    return parts


def growth_plot(results: Sequence[BenchResult]) -> str:
    """The picture: one panel for each target, each with its own scale."""
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">']
    parts.append(f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>')
    parts.append(
        text(LEFT, 22, "Server time of a single-record produce request, in microseconds", size=14, anchor="start")
    )
    left: float = LEFT
    for target, title in (("barnabas", "Barnabas"), ("kafka", "Apache Kafka")):
        lines = lines_of(results, target)
        if lines:
            parts += panel(left, title, lines)
            left += PANEL_WIDTH + 80
    for number, (kind, (colour, dashes)) in enumerate(STYLES.items()):
        at, height = LEFT + 180 * number, PANEL_BOTTOM + 44
        parts.append(
            f'<path d="M{at} {height - 4}h28" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"/>'
        )
        parts.append(text(at + 34, height, f"number of {kind}", anchor="start"))
    return "\n".join([*parts, "</svg>"]) + "\n"
