"""The text of all metrics for Prometheus, made with prometheus-client. It takes long for many metrics: use a lane."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from ..telemetry.received_metrics import ClientMetrics
from .catalogue import METRICS
from .readings import Reading, Sample
from .tables import client_families

_END = b"# EOF\n"
"""The last line of OpenMetrics."""


class _SampleCollector:
    """A collector that returns collector samples."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._families: dict[str, Family] = {}
        for family, part, labels, value in samples:
            known = self._families.get(family)
            if known is None:
                metric = METRICS[family]
                known = self._families[family] = Family(family, f"{metric.says} ({metric.source})", metric.kind)
            known.add_sample(family + part, dict(labels), value)

    def collect(self) -> Iterator[Family]:
        """Yield the families, as the registry requires."""
        yield from self._families.values()


class Exposition:
    """The renderer of metrics, as OpenMetrics or the older text format. Used on any thread, one at a time."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def render(self, reading: Reading, clients: Sequence[ClientMetrics], accept: str) -> tuple[str, bytes]:
        """Return the content type and the body."""
        collector = _SampleCollector(reading.samples)
        self._registry.register(collector)
        try:
            encode, content_type = choose_encoder(accept)
            body = encode(self._registry)
        finally:
            self._registry.unregister(collector)
        is_openmetrics = body.endswith(_END)
        parts = [body.removesuffix(_END)]
        for table in reading.tables:
            parts += [text.encode() for text in table.text(is_openmetrics=is_openmetrics)]
        parts += [text.encode() for text in client_families(clients, is_openmetrics=is_openmetrics)]
        return content_type, b"".join([*parts, _END] if is_openmetrics else parts)
