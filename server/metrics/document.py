"""The page of all metrics: `python -m barnabas.server.metrics.document > docs/metrics.md`."""

from __future__ import annotations

from collections.abc import Iterator

from .catalogue import METRICS

INTRODUCTION = """\
# Metrics

*Written from `server/metrics/catalogue.py` by `python -m barnabas.server.metrics.document`; a test holds it to that.*

```sh
barnabas start --data ./data --override metrics.listeners=127.0.0.1:9404
curl http://127.0.0.1:9404/metrics
```

`metrics.listeners` names the addresses, `host:port` with commas in between. Without a host everybody who reaches the
port is told the names of topics and groups and how much they do, of which the log warns. `/metrics` answers Prometheus'
text format, or OpenMetrics where that is asked for; `/health` and `/ready` answer 200 once clients are served, and 503
from the moment a stop begins. What is asked for again within a second is what it was.

Names and labels are those that Prometheus' JMX exporter makes of Kafka's MBeans by its rules for Kafka, so that
dashboards for Kafka work, and a test holds them to Apache Kafka 4.1.1; groups are named as by kafka_exporter. A
quantile is of the last 1028 measurements; of an API's requests the first in each hundredth of a second is timed, and in
the sum stands for those before it that are not; all are counted. A metric without `topic` beside one with it is the
sum, as there. Groups and their offsets are told one by one up to 50,000 together, those with members first; the totals
count all.

`metrics.otlp.endpoint=http://collector:4318/v1/metrics` pushes the same to a collector of OpenTelemetry, each
`metrics.otlp.interval.ms`, over HTTP and by OpenTelemetry's own exporter (`pip install 'barnabas[otlp]'`), with or
without `metrics.listeners`: counters as sums without `_total`, quantiles as gauges. Its variables count: headers,
certificates, compression (`OTEL_EXPORTER_OTLP_HEADERS` and so on).

`docker/grafana/dashboard.json` is a dashboard for Grafana; `--profile metrics` of `docker/docker-compose.yml` brings it
with Prometheus and Grafana, and `docker/prometheus.yml` is what Prometheus is told.

Without either setting nothing is measured. With one a count and two looks at a clock come to each request, in compiled
code and at the clock that the kernel moves on each 4 ms or so: what a request took that is not timed, and is told only
if it was slow, is known to 2 ms. `python -m tests.bench metrics-cost` sends requests of 100 bytes to a broker that
measures and in the next 50 ms does not, and wants at least 0.98 × as many a second: it was 0.986 × at the median of
seven brokers, 0.971 to 0.993. Two brokers of which neither measures differ by more than that. To read 3000
partitions takes some 15 ms of the loop, in turns of less than a millisecond; they are rendered beside it.

`promtool check metrics` reads all of it and finds fault with five or six names, which are Kafka's or kafka_exporter's
own. `python -m tests.server.metrics --minutes 60` has Prometheus read a broker at work, and fails where it misses a
scrape.

| metric | labels | what | in Kafka |
|--|--|--|--|"""

LABELS = {
    "kafka_network_requestmetrics_requests": "request, version",
    "kafka_server_socket_server_metrics_connection_count": "listener, networkProcessor",
    "kafka_server_delayedoperationpurgatory_purgatorysize": "delayedOperation",
    "kafka_log_logcleanermanager_uncleanable_partitions_count": "logDirectory",
    "kafka_log_logcleanermanager_uncleanable_bytes": "logDirectory",
    "kafka_consumergroup_members": "consumergroup",
    "kafka_consumergroup_lag_sum": "consumergroup, topic",
    "barnabas_info": "version, broker_id, cluster_id",
}
BY_BEGINNING = (
    ("kafka_network_requestmetrics_", "request"),
    ("kafka_server_brokertopicmetrics_total", ""),
    ("kafka_server_brokertopicmetrics_", "topic, or none"),
    ("kafka_log_log_", "topic, partition"),
    ("kafka_consumergroup_", "consumergroup, topic, partition"),
)

END = """
Memory, descriptors, processor time and the garbage collector are `process_*` and `python_*` of prometheus-client, where
Kafka has the JVM's.

## What clients measure

Clients since KIP-714 (Java's since 3.7, librdkafka since 2.5) push what they measure of themselves to the broker, if it
takes that. This one does where one of these is set and `pip install 'barnabas[telemetry]'` has brought what reads
OpenTelemetry's messages; elsewhere the two APIs are not advertised and no client asks. As in Kafka nothing is pushed
before somebody wants it:

```sh
kafka-client-metrics.sh --bootstrap-server localhost:9092 --alter --name everything --metrics '*' --interval 10000
kafka-configs.sh --bootstrap-server localhost:9092 --alter --entity-type client-metrics --entity-name everything \\
  --add-config 'metrics=[org.apache.kafka.producer.],interval.ms=10000,match=[client_id=app-.*]'
```

`org.apache.kafka.producer.connection.creation.rate` is then the gauge
`kafka_client_producer_connection_creation_rate`, sums that only grow are counters and end in `_total`, and each number
has `client_id` and `client_instance_id` beside the labels that the client gave it. `barnabas_client_info` tells once
for each client its software, its address and what else it says of itself. A client that is silent for three intervals,
and a minute at least, is told of no more. Patterns of `match` that only Java can read (`\\p{Lu}`, `[a-z&&[^b]]`) mean
no client, of which the log warns.

Bounds: `telemetry.max.bytes` for what is pushed, decompressed as well; 1000 series of a client and 20,000 of all, where
the address that has most makes room; 8 labels of 128 characters; no more than one push for a connection and interval
and one to take leave, whatever the client calls itself. Histograms are left out: no client has any.

## What Kafka has and this has not

| MBeans | why |
|--|--|"""


MISSING = (
    (
        "`RequestQueueTimeMs`, `ResponseQueueTimeMs`, `RequestQueueSize`, idle percentages of threads",
        "one thread takes requests and answers them, without a queue; `barnabas_loop_lag_seconds` tells how busy it is",
    ),
    ("`OneMinuteRate` and other rates", "the exporter's rules leave them to `rate()` over the counters, too"),
    (
        "`ErrorsPerSec`, `FailedProduceRequestsPerSec`, `FailedFetchRequestsPerSec`",
        "each answer would have to be gone through",
    ),
    (
        "`FetchConsumer` and `FetchFollower` apart, `ReplicationBytesInPerSec`, `ReplicationBytesOutPerSec`",
        "requests are all `Fetch`; the bytes that followers copy are not counted",
    ),
    (
        "byte rates and throttle times of quotas, by client",
        "clients name themselves, and may have as many names as they send requests",
    ),
    ("those of KRaft, ZooKeeper and tiered storage", "nothing of the kind is measured"),
)


def render() -> str:
    """The whole page."""
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
