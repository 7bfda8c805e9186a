"""Metrics of a follower, served for Prometheus."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from ..protocol.topic_partition import TopicPartition
from .sink import Committed

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class FollowerMetrics:
    """Counters of one follower, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        labels = ("topic", "partition")
        self._lag = Gauge(
            "barnabas_table_lag_records", "Offsets after the table's offset.", labels, registry=self._registry
        )
        self._rows = Counter("barnabas_table_rows", "Rows committed.", registry=self._registry)
        self._files = Counter("barnabas_table_files", "Data files committed.", registry=self._registry)
        self._bytes = Counter("barnabas_table_bytes", "Bytes of committed data files.", registry=self._registry)
        self._merged = Counter("barnabas_table_merged_files", "Small files merged.", registry=self._registry)
        self._rejected = Counter("barnabas_table_dead_letters", "Unreadable records.", registry=self._registry)
        self._commits = Histogram(
            "barnabas_table_commit_seconds", "Duration of commits.", registry=self._registry, buckets=_SECONDS
        )
        self.rows = 0
        """Rows committed by this process."""

    def serve(self, host: str, port: int) -> int:
        """Serve the metrics at http://host:port/metrics on a separate thread; return the port. Raises OSError."""
        server, _ = start_http_server(port, host, registry=self._registry)
        return int(server.server_port)

    def show_lag(self, lags: Mapping[TopicPartition, int]) -> None:
        """Set the lag of each partition, in records."""
        for tp, lag in lags.items():
            self._lag.labels(tp.topic, str(tp.partition)).set(max(0, lag))

    def show_commit(self, done: Committed, seconds: float) -> None:
        """Count a commit."""
        self.rows += done.rows
        self._rows.inc(done.rows)
        self._files.inc(done.files)
        self._bytes.inc(done.size)
        self._commits.observe(seconds)

    def show_merge(self, files: int) -> None:
        """Count merged files."""
        self._merged.inc(files)

    def show_rejected(self, count: int) -> None:
        """Count unreadable records."""
        self._rejected.inc(count)
