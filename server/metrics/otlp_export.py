"""The push of all metrics to an OpenTelemetry collector (OTLP over HTTP) with its exporter (`barnabas[otlp]`).

The exporter takes the usual variables: `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_EXPORTER_OTLP_CERTIFICATE`,
`OTEL_EXPORTER_OTLP_COMPRESSION`, `OTEL_RESOURCE_ATTRIBUTES`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from ... import __version__
from ...common.room_logger import room_logger
from ..telemetry.received_metrics import ClientMetrics
from .catalogue import METRICS
from .readings import Reading
from .tables import CLIENT_METRIC_PREFIX

if TYPE_CHECKING:
    from ..broker_state import BrokerState

logger = room_logger("metrics")

LANE = "otlp"
POINTS = 1000
"""Points per request: its objects are freed before the next request, so that the garbage collector finds few."""
TIMEOUT_SECONDS = 5.0
"""The timeout of one export, including its retries; a stop waits no longer."""
NANOSECONDS_PER_MS = 1_000_000


class Number(NamedTuple):
    """One data point of OpenTelemetry."""

    name: str
    is_total: bool
    says: str
    labels: dict[str, str]
    value: float


class OtlpExport:
    """Pushes at its interval from `start` to `close`. Loop-thread only."""

    def __init__(
        self, endpoint: str, interval_ms: int, read: Callable[[], Awaitable[Reading]], state: BrokerState
    ) -> None:
        """`read` returns all metrics. Raises ImportError without the extra."""
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        self._exporter = OTLPMetricExporter(endpoint=endpoint, timeout=TIMEOUT_SECONDS)
        self._endpoint = endpoint
        self._interval = interval_ms / 1000
        self._read = read
        self._state = state
        self._since_ms = state.ports.now_ms()
        self._works = True
        self._is_closed = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop pushing; a request in flight may take `TIMEOUT_SECONDS`."""
        self._is_closed = True
        self._exporter.shutdown()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            works, reason = False, None
            try:
                works = await self._push_now()
            except Exception as error:  # noqa: BLE001 - older exporters raise exceptions of requests
                reason = error
            if works != self._works:
                self._works = works
                say = logger.info if works else logger.warning
                done = "are pushed again" if works else "cannot be pushed"
                say("Metrics %s to %s", done, self._endpoint, exc_info=reason)

    async def _push_now(self) -> bool:
        reading = await self._read()
        telemetry, now_ms = self._state.telemetry, self._state.ports.now_ms()
        clients = [] if telemetry is None else telemetry.received()
        return await self._state.ports.work.run(LANE, partial(self._push, reading, clients, now_ms))

    def _push(self, reading: Reading, clients: Sequence[ClientMetrics], now_ms: int) -> bool:
        """Return whether the collector accepted everything. Called on a lane."""
        from opentelemetry.sdk.metrics.export import MetricExportResult

        numbers = otlp_numbers(reading, clients)
        times = self._since_ms * NANOSECONDS_PER_MS, now_ms * NANOSECONDS_PER_MS
        while not self._is_closed and (some := list(islice(numbers, POINTS))):
            data = _message(some, str(self._state.broker_id), *times)
            if self._exporter.export(data) is not MetricExportResult.SUCCESS:
                return False
        return True


def otlp_numbers(reading: Reading, clients: Sequence[ClientMetrics]) -> Iterator[Number]:
    """Yield all metrics. Quantiles are gauges: the OpenTelemetry API has no summaries."""
    for sample in reading.samples:
        metric = METRICS[sample.family]
        is_total = metric.kind == "counter" or sample.part in ("_count", "_sum")
        name = sample.family if metric.kind == "counter" else sample.family + sample.part
        yield Number(name, is_total, metric.says, dict(sample.labels), sample.value)
    for table in reading.tables:
        for family in table.families:
            metric = METRICS[family]
            for row, value in zip(table.rows, table.column(family), strict=True):
                labels = {name: str(one) for name, one in zip(table.labels, row, strict=False)}
                yield Number(family, metric.kind == "counter", metric.says, labels, value)
    for client in clients:
        for one in client.series:
            labels = dict((*client.labels, *one.labels))
            yield Number(CLIENT_METRIC_PREFIX + one.name, one.is_counter, "pushed by clients", labels, one.value)


def _message(numbers: list[Number], broker_id: str, since: int, now: int) -> Any:
    """Return the metrics in the form in which OpenTelemetry's SDK passes them to exporters."""
    from opentelemetry.sdk.metrics import export as sdk
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    metrics = []
    for (name, is_total, says), group in groupby(numbers, key=itemgetter(0, 1, 2)):
        points = [sdk.NumberDataPoint(one.labels, since if is_total else 0, now, one.value) for one in group]
        cumulative = sdk.AggregationTemporality.CUMULATIVE
        data = sdk.Sum(points, cumulative, True) if is_total else sdk.Gauge(points)
        metrics.append(sdk.Metric(name, says, "", data))
    about = {"service.name": "barnabas", "service.version": __version__, "service.instance.id": broker_id}
    scope = sdk.ScopeMetrics(InstrumentationScope("barnabas", __version__), metrics, "")
    return sdk.MetricsData([sdk.ResourceMetrics(Resource.create(about), [scope], "")])
