"""Draws how the cost of a request grows with topics and partitions, as an SVG picture."""

import math
from collections.abc import Sequence

from tests.bench.report import BenchResult

WIDTH, HEIGHT, MARGIN = 640, 360, 56
COLOURS = {"ours": "#1f77b4", "kafka": "#d62728", "ceiling": "#7f7f7f"}
DASHES = {"growth-topics": "", "growth-partitions": "6 4"}

Line = tuple[str, str, list[tuple[int, float]]]


def growth_lines(results: Sequence[BenchResult]) -> list[Line]:
    """For each growth bench and target: (bench, target, [(count, microseconds)])."""
    lines: list[Line] = []
    for result in results:
        if result.bench.name in DASHES:
            for target in result.rounds:
                points = [
                    (int(figure.rsplit("_", 1)[1]), result.spread(target, figure).median)
                    for figure in result.bench.figures
                ]
                lines.append((result.bench.name, target, points))
    return lines


def growth_plot(results: Sequence[BenchResult]) -> str:
    """The picture: counts on a logarithmic axis to the right, microseconds of server time a request upwards."""
    lines = growth_lines(results)
    top = max((cost for _, _, points in lines for _, cost in points), default=1.0) * 1.1
    right = max((math.log10(count) for _, _, points in lines for count, _ in points), default=3.0) or 1.0

    def x(count: float) -> float:
        return MARGIN + math.log10(count) / right * (WIDTH - 2 * MARGIN - 120)

    def y(cost: float) -> float:
        return HEIGHT - MARGIN - cost / top * (HEIGHT - 2 * MARGIN)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">']
    parts.append(f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>')
    for step in range(6):
        cost = top * step / 5
        parts.append(f'<path d="M{MARGIN} {y(cost):.1f}H{WIDTH - MARGIN - 120}" stroke="#ddd"/>')
        parts.append(f'<text x="{MARGIN - 6}" y="{y(cost) + 4:.1f}" font-size="11" text-anchor="end">{cost:.0f}</text>')
    for power in range(int(right) + 1):
        label = f"{10**power:,}"
        place = f'x="{x(10**power):.1f}" y="{HEIGHT - MARGIN + 16}"'
        parts.append(f'<text {place} font-size="11" text-anchor="middle">{label}</text>')
    title = "server time of a single-record produce request, µs"
    parts.append(f'<text x="{MARGIN}" y="24" font-size="13">{title}</text>')
    for number, (bench, target, points) in enumerate(lines):
        path = "L".join(f"{x(count):.1f} {y(cost):.1f}" for count, cost in points)
        style = f'fill="none" stroke="{COLOURS[target]}" stroke-width="2" stroke-dasharray="{DASHES[bench]}"'
        parts.append(f'<path d="M{path}" {style}/>')
        where = f'x="{WIDTH - MARGIN - 110}" y="{MARGIN + 18 * number}"'
        label = f"{target}, {bench.removeprefix('growth-')}"
        parts.append(f'<text {where} font-size="11" fill="{COLOURS[target]}">{label}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
