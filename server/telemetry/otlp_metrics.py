"""Decodes OpenTelemetry metrics from clients with opentelemetry-proto, off the event loop: a megabyte takes a while.

All input is bounded: the bytes, the number of parsed parts, each name and value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from ...protocol.compression import decompress
from ...protocol.errors import ErrorCode, KafkaError

MAX_SERIES = 1000
"""The limit per client. A Java client with all metrics has some hundred series, and more per broker and topic."""
MAX_PARSED_PARTS = 20 * MAX_SERIES
"""The number of parts of a message that are parsed, including empty ones."""
MAX_LABELS = 8
LONGEST_NAME = 128
LONGEST_LABEL = 64
LONGEST_VALUE = 128
OF_KAFKA = "org.apache.kafka."
OURS = frozenset({"client_id", "client_instance_id"})
"""Labels that identify the client; clients cannot set them."""
_NO_NAME = re.compile(r"[^a-zA-Z0-9_]+")
_TOTAL = re.compile(r"(?:_total)+\Z")
_DELTA = 1
"""AGGREGATION_TEMPORALITY_DELTA."""

Labels = tuple[tuple[str, str], ...]


class PushedPoint(NamedTuple):
    """One number of a client."""

    name: str
    """The name in Prometheus' form, without `_total`."""
    is_counter: bool
    is_delta: bool
    """Whether the value is the increase since the client's last push."""
    labels: Labels
    value: float


class PushedMetrics(NamedTuple):
    """All that one push holds."""

    resource: Labels
    """The labels that describe the client."""
    points: list[PushedPoint]


def read_metrics(codec: int, data: bytes, most_bytes: int) -> PushedMetrics:
    """Decode pushed metrics. Raises KafkaError: TELEMETRY_TOO_LARGE if they exceed `most_bytes` when decompressed,
    INVALID_RECORD for an invalid message, UNSUPPORTED_COMPRESSION_TYPE.
    """
    from google.protobuf.message import DecodeError  # loaded with the first push: it takes some megabytes
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    try:
        plain = decompress(codec, data, max_size=most_bytes)
        message = MetricsData.FromString(plain)
    except (KafkaError, DecodeError) as error:
        if not isinstance(error, KafkaError) or error.code is ErrorCode.CORRUPT_MESSAGE:
            raise KafkaError(ErrorCode.INVALID_RECORD, f"invalid OpenTelemetry metrics: {error}") from None
        if error.code is ErrorCode.MESSAGE_TOO_LARGE:
            reason = f"Telemetry is decompressed to more than {most_bytes} bytes"
            raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE, reason) from None
        raise
    resource: dict[str, str] = {}
    for one in islice(message.resource_metrics, MAX_LABELS):
        resource.update(_labels(one.resource.attributes))
    points = (point for point in islice(_points(message), MAX_PARSED_PARTS) if point is not None)
    return PushedMetrics(tuple(resource.items())[:MAX_LABELS], list(islice(points, MAX_SERIES)))


def _points(message: Any) -> Iterator[PushedPoint | None]:
    """Yield each number, and None for each part that is examined."""
    for of_resource in message.resource_metrics:
        yield None
        for of_scope in of_resource.scope_metrics:
            yield None
            for metric in of_scope.metrics:
                yield None
                yield from _of_metric(metric)


def _of_metric(metric: Any) -> Iterator[PushedPoint | None]:
    kind = metric.WhichOneof("data")
    if kind not in ("gauge", "sum"):
        return  # clients have no others (KIP-714)
    data = getattr(metric, kind)
    name = _TOTAL.sub("", _plain(metric.name.removeprefix(OF_KAFKA), LONGEST_NAME))
    is_counter = kind == "sum" and data.is_monotonic
    is_delta = kind == "sum" and data.aggregation_temporality == _DELTA
    for point in data.data_points:
        yield None
        value = point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
        if name:
            labels = tuple(sorted(dict(_labels(point.attributes)).items()))
            yield PushedPoint(name, is_counter, is_delta, labels, float(value))


def _labels(attributes: Iterable[Any]) -> Iterator[tuple[str, str]]:
    for attribute in islice(attributes, MAX_LABELS):
        kind = attribute.value.WhichOneof("value")
        name = _plain(attribute.key, LONGEST_LABEL).lstrip("_0123456789")
        if name and name not in OURS and kind in ("string_value", "int_value", "double_value", "bool_value"):
            yield name, str(getattr(attribute.value, kind))[:LONGEST_VALUE]


def _plain(name: str, longest: int) -> str:
    return _NO_NAME.sub("_", name[:longest])
