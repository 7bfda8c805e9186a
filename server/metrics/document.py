"""The page of all metrics: `python -m barnabas.server.metrics.document > docs/metrics.md`."""

from __future__ import annotations

from collections.abc import Iterator

from .catalogue import METRICS

INTRODUCTION = """\
# Metrics

Barnabas serves metrics for Prometheus and OpenTelemetry under the names of Kafka's MBeans, and metrics that clients
push. This page lists all of them. [Monitor and alert](how-to/monitoring.md) shows how to collect them.

*Generated from `server/metrics/catalogue.py` by `python -m barnabas.server.metrics.document`; a test compares them.*

```sh
barnabas start --data ./data --override metrics.listeners=127.0.0.1:9404
curl http://127.0.0.1:9404/metrics
```

**Addresses.** `metrics.listeners` contains addresses, `host:port` separated by commas. Without a host, every client
that can reach the port can read the names and the activity of topics and groups; the broker logs a warning. `/metrics`
returns Prometheus' text format, or OpenMetrics if requested; the response is cached for one second. `/health` and
`/ready` return 200 when the broker serves clients, and 503 from the beginning of its stop. The `Host` header of a
request must be an address, `localhost`, the name of this machine, or a host of `metrics.listeners`,
`advertised.listeners` or `metrics.allowed.hosts`. Any other name is rejected, because a web page could use it (DNS
rebinding).

**Names.** Names and labels are equal to the output of Prometheus' JMX exporter with its rules for Kafka's MBeans, so
that dashboards for Kafka work; a test compares them with Apache Kafka 4.4.0. Metrics of groups have the names of
kafka_exporter. A metric without the label `topic` next to a metric with it is the sum, as in Kafka.

**Precision.** Quantiles cover the last 1028 measurements. All requests are counted. The broker measures the duration of
the first request of each API in every 10 ms; in the sum, that duration also counts for the requests since the previous
measurement. Up to 50,000 groups and offsets have their own series, groups with members first, as do up to 50,000
share-partitions and the fetches and dead letters of 1000 share groups; the totals include all. The quantiles of a share
group cover its last 100 fetches. Kafka's FetchLockTimeMs and FetchLockRatio do not exist, because the event loop needs
no lock for a share-partition.

**Errors.** `kafka_network_requestmetrics_errors_total` counts the errors in responses by their names, as Kafka's
`ErrorsPerSec`, except for `NONE`. A response has an error for each failed partition. In responses of Metadata only the
errors of topics are counted. Produce requests with `acks=0` have no response, so their errors are not counted.

**OpenTelemetry.** `metrics.otlp.endpoint=http://collector:4318/v1/metrics` pushes the same metrics to a collector every
`metrics.otlp.interval.ms` (`pip install 'barnabas[otlp]'`): counters as sums without `_total`, quantiles as gauges.
`OTEL_EXPORTER_OTLP_HEADERS` and the other variables of the exporter set headers, certificates and compression.

`docker/grafana/dashboard.json` is a dashboard for Grafana; `--profile metrics` of `docker/docker-compose.yml` starts it
with Prometheus and Grafana, and `docker/prometheus.yml` is the configuration of Prometheus.

**Cost.** Without `metrics.listeners` and `metrics.otlp.endpoint`, the broker measures nothing. With one of them, it
serves 0.986 × as many small requests per second (`metrics-cost` in the [benchmarks](reference/benchmarks.md)). Reading
3000 partitions takes about 15 ms of the event loop, in slices of less than a millisecond.

| metric | labels | description | in Kafka |
|--|--|--|--|"""

LABELS = {
    "kafka_network_requestmetrics_errors": "request, error",
    "kafka_server_socket_server_metrics_failed_authentication": "listener, networkProcessor",
    "barnabas_failed_authentications": "listener, mechanism",
    "barnabas_certificate_expiry_seconds": "listener",
    "barnabas_throttled_requests": "quota",
    "barnabas_throttle_time_seconds": "quota",
    "kafka_network_requestmetrics_requests": "request, version",
    "kafka_server_socket_server_metrics_connection_count": "listener, networkProcessor",
    "kafka_server_delayedoperationpurgatory_purgatorysize": "delayedOperation",
    "kafka_log_logcleanermanager_uncleanable_partitions_count": "logDirectory",
    "kafka_log_logcleanermanager_uncleanable_bytes": "logDirectory",
    "kafka_server_group_coordinator_metrics_group_count": "protocol",
    "kafka_server_group_coordinator_metrics_share_group_count": "state",
    "kafka_server_share_coordinator_metrics_last_pruned_offset": "topic, partition",
    "kafka_server_share_coordinator_metrics_num_partitions": "state",
    "kafka_server_sharegroupmetrics_recordacknowledgements": "ackType",
    "kafka_server_sharegroupmetrics_partitionloadtimems": "",
    "kafka_server_sharepartitionmetrics_inflightbatchmessagecount": "",
    "kafka_consumergroup_members": "consumergroup",
    "kafka_consumergroup_lag_sum": "consumergroup, topic",
    "barnabas_info": "version, broker_id, cluster_id",
}
BY_BEGINNING = (
    ("kafka_network_requestmetrics_", "request"),
    ("kafka_server_brokertopicmetrics_total", ""),
    ("kafka_server_brokertopicmetrics_failedshare", ""),
    ("kafka_server_brokertopicmetrics_", "topic, or none"),
    ("kafka_log_log_", "topic, partition"),
    ("barnabas_log_directory_", "log_directory"),
    ("kafka_consumergroup_", "consumergroup, topic, partition"),
    ("kafka_server_sharegroupmetrics_", "group, or none"),
    ("kafka_server_sharepartitionmetrics_", "group, topic, partition, or none"),
)

END = """
Memory, file descriptors, processor time and the garbage collector are in the metrics `process_*` and `python_*` of
prometheus-client, instead of the JVM's metrics.

## Client metrics

Clients since KIP-714 (Java's since 3.7, librdkafka since 2.5) push their metrics to the broker if it supports that. A
broker with one of these settings and with `pip install 'barnabas[telemetry]'`, which decodes OpenTelemetry's messages,
does; otherwise the two APIs are not advertised, and clients do not use them. As in Kafka a push requires a
subscription:

```sh
kafka-client-metrics.sh --bootstrap-server localhost:9092 --alter --name everything --metrics '*' --interval 10000
kafka-configs.sh --bootstrap-server localhost:9092 --alter --entity-type client-metrics --entity-name everything \\
  --add-config 'metrics=[org.apache.kafka.producer.],interval.ms=10000,match=[client_id=app-.*]'
```

`org.apache.kafka.producer.connection.creation.rate` is then the gauge
`kafka_client_producer_connection_creation_rate`, monotonic sums are counters and end in `_total`, and each sample has
`client_id` and `client_instance_id` in addition to the client's labels. `barnabas_client_info` has one series per
client with its software, its address and its other attributes. The series of a client without a push for three
intervals, and at least one minute, are removed. Patterns of `match` that only Java supports (`\\p{Lu}`, `[a-z&&[^b]]`)
match no client; the broker logs a warning.

Limits: `telemetry.max.bytes` for a push, also after decompression; 1000 series per client and 20,000 in total, beyond
which the address with most series loses some; 8 labels of 128 characters; one push per connection and interval and one
final push, for any client id. Histograms are omitted: no client sends them.

## Kafka metrics that Barnabas does not have

| MBeans | reason |
|--|--|"""


MISSING = (
    (
        "`RequestQueueTimeMs`, `ResponseQueueTimeMs`, `RequestQueueSize`, idle percentages of threads",
        "one thread reads and handles requests, without a queue; `barnabas_loop_lag_seconds` shows its load",
    ),
    ("`OneMinuteRate` and other rates", "the exporter's rules omit them, too: use `rate()` over the counters"),
    (
        "`FailedProduceRequestsPerSec`, `FailedFetchRequestsPerSec`, `ErrorsPerSec` of the error `NONE`",
        "`kafka_network_requestmetrics_errors_total` has the errors of each API",
    ),
    (
        "separate `FetchConsumer` and `FetchFollower`, `ReplicationBytesInPerSec`, `ReplicationBytesOutPerSec`",
        "all requests are `Fetch`; the bytes of followers are not counted",
    ),
    (
        "byte rates and throttle times of quotas, by client",
        "clients choose their ids, and may use another id for every request; "
        "`barnabas_throttle_time_seconds_total` has the sums by quota",
    ),
    ("metrics of KRaft, ZooKeeper and tiered storage", "not measured"),
)


def render() -> str:
    """Return the whole page."""
    return "\n".join([INTRODUCTION, *_rows(), END, *(f"| {what} | {why} |" for what, why in MISSING)]) + "\n"


def _rows() -> Iterator[str]:
    for name, metric in METRICS.items():
        labels = LABELS.get(name) or next((of for start, of in BY_BEGINNING if name.startswith(start)), "")
        if metric.kind == "summary":
            labels = ", ".join(filter(None, (labels, "quantile")))
        suffix = "_total" if metric.kind == "counter" else ""
        yield f"| `{name}{suffix}` | {labels} | {metric.says} | `{metric.source}` |"


if __name__ == "__main__":
    print(render(), end="")
