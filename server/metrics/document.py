"""The page of all metrics: `python -m barnabas.server.metrics.document > docs/metrics.md`."""

from __future__ import annotations

from collections.abc import Iterator

from .catalogue import METRICS

INTRODUCTION = """\
# Metrics

*Generated from `server/metrics/catalogue.py` by `python -m barnabas.server.metrics.document`; a test compares them.*

```sh
barnabas start --data ./data --override metrics.listeners=127.0.0.1:9404
curl http://127.0.0.1:9404/metrics
```

`metrics.listeners` contains the addresses, `host:port` separated by commas. Without a host every client that can reach
the port can read the names of topics and groups and their activity; the broker logs a warning. `/metrics` returns
Prometheus' text format, or OpenMetrics if requested; `/health` and `/ready` return 200 once the broker serves clients,
and 503 from the begin of its stop. Responses of `/metrics` are cached for one second. The `Host` of a request must be
an address, `localhost`, this machine's name or a host of `metrics.listeners` or `advertised.listeners`;
`metrics.allowed.hosts` contains further names. Any other name is rejected, because a web page could use it
(DNS rebinding).

Names and labels are the result of Prometheus' JMX exporter with its rules for Kafka's MBeans, so that dashboards for
Kafka work; a test compares them with Apache Kafka 4.4.0. Groups have the names of kafka_exporter. Quantiles cover the
last 1028 measurements. Of the requests of an API the first in each hundredth of a second is timed, and represents the
untimed requests before it in the sum; all requests are counted. A metric without `topic` next to a metric with it is
the sum, as in Kafka. Groups and their offsets have separate series up to 50,000 in total, groups with members first.
So have the first 50,000 share-partitions, and the fetches and dead letters of the first 1000 share groups; the
quantiles of a group cover the last 100 fetches. The totals include all. Kafka's FetchLockTimeMs and FetchLockRatio do
not exist, because the event loop needs no lock of a share-partition.

`metrics.otlp.endpoint=http://collector:4318/v1/metrics` pushes the same metrics to an OpenTelemetry collector, every
`metrics.otlp.interval.ms`, over HTTP with OpenTelemetry's exporter (`pip install 'barnabas[otlp]'`), with or without
`metrics.listeners`: counters as sums without `_total`, quantiles as gauges. The exporter's environment variables apply:
headers, certificates, compression (`OTEL_EXPORTER_OTLP_HEADERS` and so on).

`docker/grafana/dashboard.json` is a dashboard for Grafana; `--profile metrics` of `docker/docker-compose.yml` starts it
with Prometheus and Grafana, and `docker/prometheus.yml` is the configuration of Prometheus.

Without either setting nothing is measured. With one of them each request costs a counter and two reads of the clock, in
compiled code, with the clock that the kernel updates about every 4 ms: the duration of an untimed request, which is
reported only if it was slow, has a precision of 2 ms. `python -m bench metrics-cost` sends requests of 100 bytes to a
broker that alternates between 50 ms with and without measurements, and requires at least 0.98 × the requests per
second: the result was 0.986 × at the median of seven brokers, 0.971 to 0.993. Two brokers without measurements differ
by more than that. Reading 3000 partitions takes some 15 ms of the event loop, in slices of less than a millisecond; the
text is rendered on another thread.

`promtool check metrics` accepts the output except for five or six names, which are Kafka's or kafka_exporter's.
`python -m soak.scrapes --minutes 60` runs Prometheus with a broker under load; a missing scrape is an error.

| metric | labels | description | in Kafka |
|--|--|--|--|"""

LABELS = {
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
        "`ErrorsPerSec`, `FailedProduceRequestsPerSec`, `FailedFetchRequestsPerSec`",
        "each response would have to be searched for errors",
    ),
    (
        "separate `FetchConsumer` and `FetchFollower`, `ReplicationBytesInPerSec`, `ReplicationBytesOutPerSec`",
        "all requests are `Fetch`; the bytes of followers are not counted",
    ),
    (
        "byte rates and throttle times of quotas, by client",
        "clients choose their ids, and may use another id for every request",
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
