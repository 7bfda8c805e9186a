"""Metrics of partitions, committed offsets and clients, and their text for Prometheus.

A broker may have tens of thousands of partitions and committed offsets. They are columns of numbers: with an object per
number, the garbage collector would take longer than the collection of all metrics.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from ..telemetry.received_metrics import ClientMetrics
from .catalogue import METRICS

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
Row = tuple[object, ...]


class Table:
    """A number per row and family. A row is the values of its labels; the row () has no labels and holds the sum."""

    __slots__ = ("_values", "families", "labels", "rows")

    def __init__(self, labels: tuple[str, ...], *families: str) -> None:
        self.labels = labels
        self.families = families
        self.rows: list[Row] = []
        self._values = array("q")

    def add(self, row: Row, *values: int) -> None:
        """Add a row with a number per family."""
        self.rows.append(row)
        self._values.extend(values)

    def column(self, family: str) -> array[int]:
        """Return the numbers of a family, row by row."""
        return self._values[self.families.index(family) :: len(self.families)]

    def text(self, *, is_openmetrics: bool) -> Iterator[str]:
        """Yield the text of each family."""
        if not self.rows:
            return
        labels = [label_text(zip(self.labels, row, strict=False)) for row in self.rows]
        for family in self.families:
            metric = METRICS[family]
            says = f"{metric.says} ({metric.source})"
            yield family_text(family, metric.kind, says, zip(labels, self.column(family), strict=True), is_openmetrics)


def label_text(pairs: Iterator[tuple[str, object]]) -> str:
    """Return the labels in braces, or an empty text without labels."""
    inside = ",".join([f'{name}="{str(value).translate(_ESCAPES)}"' for name, value in pairs])
    return f"{{{inside}}}" if inside else ""


def family_text(
    family: str, kind: str, says: str, values: Iterator[tuple[str, float]], is_openmetrics: bool
) -> str:  # fmt: skip
    """Return a family of counters or gauges with its header, which in OpenMetrics names a counter without `_total`."""
    name = family + ("_total" if kind == "counter" else "")
    head = family if is_openmetrics else name
    lines = [f"{name}{labels} {value}" for labels, value in values]
    return "\n".join((f"# HELP {head} {says}", f"# TYPE {head} {kind}", *lines, ""))


CLIENT_METRIC_PREFIX = "kafka_client_"
CLIENT_INFO = "barnabas_client_info"


def client_families(clients: Sequence[ClientMetrics], *, is_openmetrics: bool) -> Iterator[str]:
    """Yield the text of each family of metrics that clients pushed (KIP-714).

    `org.apache.kafka.producer.connection.creation.rate` becomes `kafka_client_producer_connection_creation_rate`. No
    metric of the broker has this prefix, so that a client cannot imitate one. If clients push a name as a counter and
    as a gauge, both families are reported.
    """
    families: dict[tuple[str, bool], list[tuple[str, float]]] = {}
    about: list[tuple[str, float]] = []
    for client in clients:
        about.append((label_text(iter({**dict(client.about), **dict(client.labels)}.items())), 1))
        for name, is_counter, labels, value in client.series:
            values = families.setdefault((name, is_counter), [])
            values.append((label_text(iter((*client.labels, *labels))), value))
    if about:
        says = "a client that pushes metrics, with its labels"
        yield family_text(CLIENT_INFO, "gauge", says, iter(about), is_openmetrics)
    for (name, is_counter), values in families.items():
        family, kind = CLIENT_METRIC_PREFIX + name, "counter" if is_counter else "gauge"
        if is_counter and is_openmetrics and (name, False) in families:
            family, kind = f"{family}_total", "unknown"  # OpenMetrics forbids a counter and a gauge of one name
        yield family_text(family, kind, "pushed by clients (KIP-714)", iter(values), is_openmetrics)
