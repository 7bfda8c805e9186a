"""Metrics that very many things of one kind have: columns of numbers, which cost little to read and to write down.

A broker may have tens of thousands of partitions and of committed offsets. An object for each number would keep the
garbage collector busy for longer than all reading takes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from .catalogue import METRICS

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
Row = tuple[object, ...]


class Table:
    """For each row, which is the values of its labels, a number of each family. The row () has no labels: the sum."""

    __slots__ = ("_values", "families", "labels", "rows")

    def __init__(self, labels: tuple[str, ...], *families: str) -> None:
        self.labels = labels
        self.families = families
        self.rows: list[Row] = []
        self._values = array("q")

    def add(self, row: Row, *values: int) -> None:
        """One more row, with a number for each family."""
        self.rows.append(row)
        self._values.extend(values)

    def column(self, family: str) -> array[int]:
        """The numbers of a family, row by row."""
        return self._values[self.families.index(family) :: len(self.families)]

    def text(self, *, is_openmetrics: bool) -> Iterator[str]:
        """As Prometheus reads it, a piece for each family."""
        if not self.rows:
            return
        labels = [label_text(zip(self.labels, row, strict=False)) for row in self.rows]
        for family in self.families:
            metric = METRICS[family]
            says = f"{metric.says} ({metric.source})"
            yield family_text(family, metric.kind, says, zip(labels, self.column(family), strict=True), is_openmetrics)


def label_text(pairs: Iterator[tuple[str, object]]) -> str:
    """Labels in braces; nothing if there are none."""
    inside = ",".join([f'{name}="{str(value).translate(_ESCAPES)}"' for name, value in pairs])
    return f"{{{inside}}}" if inside else ""


def family_text(
    family: str, kind: str, says: str, values: Iterator[tuple[str, float]], is_openmetrics: bool
) -> str:  # fmt: skip
    """One family of counters or gauges, with its head. Only in OpenMetrics a counter's name is without `_total`."""
    name = family + ("_total" if kind == "counter" else "")
    head = family if is_openmetrics else name
    lines = [f"{name}{labels} {value}" for labels, value in values]
    return "\n".join((f"# HELP {head} {says}", f"# TYPE {head} {kind}", *lines, ""))
