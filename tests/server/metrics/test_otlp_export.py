"""`metrics.otlp.endpoint`: a collector of OpenTelemetry gets what Prometheus would read."""

from __future__ import annotations

import gzip
import itertools
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from barnabas.server.config.broker_config import BrokerConfig
from barnabas.server.config.keys.validators import ConfigError
from barnabas.server.metrics import otlp_export
from barnabas.testing import Broker

PATIENCE_S = 60
Told = dict[tuple[str, frozenset[tuple[str, str]]], tuple[str, float]]


class Collector(ThreadingHTTPServer):
    """Takes what is pushed, or says that it cannot."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Taking)
        self.requests: Queue[ExportMetricsServiceRequest] = Queue()
        self.status = 200

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1/metrics"


class Taking(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        self.send_response(self.server.status)
        self.send_header("content-length", "0")
        self.end_headers()
        self.server.requests.put(ExportMetricsServiceRequest.FromString(body))

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        thread = threading.Thread(target=collector.serve_forever, args=(0.01,))
        thread.start()
        yield collector
        collector.shutdown()
        thread.join()


def told(request: ExportMetricsServiceRequest) -> Told:
    found: Told = {}
    for metric in request.resource_metrics[0].scope_metrics[0].metrics:
        kind = metric.WhichOneof("data")
        for point in getattr(metric, kind).data_points:
            labels = frozenset((one.key, one.value.string_value) for one in point.attributes)
            value = point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
            found[metric.name, labels] = kind, value
    return found


def settings(collector: Collector) -> dict[str, Any]:
    return {"metrics.otlp.endpoint": collector.endpoint, "metrics.otlp.interval.ms": 1000}


def test_a_collector_is_told_what_prometheus_reads(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp_export, "POINTS", 50)
    with Broker({"t": 40}, config=settings(collector)) as broker:
        broker.produce("t", ["v"] * 5, partition=1)
        found: Told = {}
        written = "kafka_server_brokertopicmetrics_messagesin", frozenset({("topic", "t")})
        while found.get(written) != ("sum", 5):
            request = collector.requests.get(timeout=PATIENCE_S)
            resource = {one.key: one.value.string_value for one in request.resource_metrics[0].resource.attributes}
            assert (resource["service.name"], resource["service.instance.id"]) == ("barnabas", "1")
            found |= told(request)
            assert len(told(request)) <= 50
        place = frozenset({("topic", "t"), ("partition", "1")})
        while ("kafka_log_log_logendoffset", place) not in found:
            found |= told(collector.requests.get(timeout=PATIENCE_S))
        assert found["kafka_log_log_logendoffset", place] == ("gauge", 5)
        assert ("kafka_controller_kafkacontroller_activecontrollercount", frozenset()) in found


def test_a_collector_that_refuses_is_told_of_once(collector: Collector, caplog: pytest.LogCaptureFixture) -> None:
    collector.status = 400
    with Broker(config=settings(collector)) as broker:
        for _ in range(3):
            collector.requests.get(timeout=PATIENCE_S)
        assert broker.server.metrics is not None
    said = [record.getMessage() for record in caplog.records if record.name == otlp_export.logger.name]
    assert said == [f"Metrics cannot be pushed to {collector.endpoint}"]


def test_a_push_that_raises_is_not_the_last(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As exporters do that know of fewer errors of their connections."""
    caplog.set_level("INFO", otlp_export.logger.name)
    export, pushes = OTLPMetricExporter.export, itertools.count()

    def failing_at_first(exporter: OTLPMetricExporter, *told: Any, **how: Any) -> Any:
        if next(pushes) < 2:
            raise ConnectionRefusedError("nobody listens")
        return export(exporter, *told, **how)

    monkeypatch.setattr(OTLPMetricExporter, "export", failing_at_first)
    with Broker(config=settings(collector)):
        for _ in range(2):
            collector.requests.get(timeout=PATIENCE_S)
    said = [record.getMessage() for record in caplog.records if record.name == otlp_export.logger.name]
    assert said[0] == f"Metrics cannot be pushed to {collector.endpoint}"
    assert said[1:] in ([], [f"Metrics are pushed again to {collector.endpoint}"])


def test_what_pushes_has_to_be_installed(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.metric_exporter", None)
    with pytest.raises(ConfigError, match=r"pip install 'barnabas\[otlp\]'"), Broker(config=settings(collector)):
        pass


def test_an_endpoint_that_is_none() -> None:
    with pytest.raises(ConfigError, match="begins with http"):
        BrokerConfig({"metrics.otlp.endpoint": "collector:4317"})
