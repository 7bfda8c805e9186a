"""SVG charts of the published ratios to Apache Kafka, and of the cost of a request as the broker grows."""

import math
from collections.abc import Sequence

from bench.published import Published, table_in
from bench.report import BenchResult

WIDTH, HEIGHT = 760, 340
PANEL_WIDTH, PANEL_TOP, PANEL_BOTTOM = 300, 60, 280
LEFT = 52
PREFIX = "growth-"
STYLES = {"topics": ("#1f77b4", ""), "partitions": ("#d62728", "7 4"), "connections": ("#2ca02c", "2 3")}

OVERVIEW = (
    ("produce-1k", "mb_per_s", "Produce, 1 KB records: MB/s"),
    ("produce-100b", "mb_per_s", "Produce, 100-byte records: MB/s"),
    ("produce-1k-32-zstd", "mb_per_s", "Produce, 32 partitions, zstd: MB/s"),
    ("java-produce-1k-32-zstd", "mb_per_s", "Java's producer, 32 partitions, zstd: MB/s"),
    ("fetch-1k", "mb_per_s", "Fetch, 1 KB records: MB/s"),
    ("connections", "requests_per_s_1000", "Small requests, 1000 connections: requests/s"),
    ("latency", "p50_ms", "Latency, median"),
    ("latency", "p99_ms", "Latency, 99th percentile"),
    ("acks-all-disk", "mb_per_s", "acks=all on disk, 1 KB records: MB/s"),
    ("transactions-32", "transactions_per_s", "Transactions of 32 producers: transactions/s"),
    ("group-joins", "joined_s", "1000 groups join: time"),
    ("group-rebalance", "rebalance_s", "Rebalance of 1000 members: time"),
    ("metadata-1000", "p50_ms", "Metadata of 1000 partitions: time"),
    ("cleaning-1k-90", "mb_per_s", "Compaction, 1 KB records: MB/s"),
    ("cluster-produce-1k", "mb_per_s", "Three brokers, acks=all: MB/s"),
    ("start", "first_ack_s", "Start to first record: time"),
    ("start", "idle_mb", "Memory when idle"),
)
"""The bars of the overview: bench, figure, label. Times and sizes are inverted, so that a longer bar is better."""
BAR_HEIGHT, BAR_LEFT, BAR_WIDTH = 22, 320, 380
LARGEST_RATIO = 16

Points = list[tuple[int, float]]


def ratios_of(published: Published) -> list[tuple[str, float]]:
    """Return the label and the factor by which Barnabas is better than Kafka (below 1: worse) of each bar."""
    made = []
    for bench, figure, label in OVERVIEW:
        header, *rows = table_in(published.sections[bench])
        for row in rows:
            cells = dict(zip(header, row, strict=True))
            name, _, better = row[0].partition(" ")
            if name == figure:
                ratio = float(cells["barnabas ÷ kafka"].split()[0].replace(",", ""))
                made.append((label, ratio if better.startswith("(higher") else 1 / ratio))
    return made


def overview_plot(published: Published) -> str:
    """Return the chart: a bar for each ratio on a logarithmic axis, to the right where Barnabas is better."""
    bars = ratios_of(published)
    height = BAR_HEIGHT * len(bars) + 84
    scale = BAR_WIDTH / math.log2(LARGEST_RATIO * 2)

    def x(ratio: float) -> float:
        return BAR_LEFT + scale * (1 + math.log2(ratio))

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        text(
            16,
            24,
            "Barnabas compared with Apache Kafka on two cores: factor, longer is better",
            size=14,
            anchor="start",
        ),
    ]
    bottom = 44 + BAR_HEIGHT * len(bars)
    for power in range(-1, int(math.log2(LARGEST_RATIO)) + 1):
        parts.append(f'<path d="M{x(2**power):.1f} 40V{bottom}" stroke="{"#333" if power == 0 else "#ddd"}"/>')
        parts.append(text(x(2**power), bottom + 16, f"{2.0**power:g} ×"))
    for number, (label, ratio) in enumerate(bars):
        top = 44 + BAR_HEIGHT * number
        left, right = sorted((x(1), x(min(ratio, LARGEST_RATIO))))
        colour = "#1f77b4" if ratio >= 1 else "#d62728"
        parts.append(text(BAR_LEFT - 10, top + 14, label, anchor="end"))
        parts.append(
            f'<rect x="{left:.1f}" y="{top + 3}" width="{right - left:.1f}" height="{BAR_HEIGHT - 7}" fill="{colour}"/>'
        )
        parts.append(text(right + 6, top + 14, f"{ratio:.3g}", anchor="start"))
    return "\n".join([*parts, "</svg>"]) + "\n"


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
    """Return the panel of one target: counts on a logarithmic x axis, microseconds on a y axis from zero."""
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
    """Return the chart: one panel for each target, each with its own scale."""
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
