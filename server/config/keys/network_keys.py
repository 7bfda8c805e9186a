"""Keys of listeners, sockets, request queues, quotas and metrics."""

from __future__ import annotations

from .builders import CLUSTER_WIDE, HIGH, INT_MAX, LOW, MEDIUM, boolean, class_name, integer, list_of, long, string
from .definition import ConfigKey
from .validators import OneOf, Range

NETWORK_KEYS: tuple[ConfigKey, ...] = (
    string("advertised.listeners", None, HIGH),
    boolean("auto.include.jmx.reporter", True, LOW),
    class_name("client.quota.callback.class", None, LOW),
    integer("connection.failed.authentication.delay.ms", 100, LOW, Range(0)),
    long("connections.max.idle.ms", 600000, MEDIUM),
    string("control.plane.listener.name", None, HIGH),
    string("inter.broker.listener.name", None, MEDIUM),
    integer("kafka.metrics.polling.interval.secs", 10, LOW, Range(1)),
    list_of("kafka.metrics.reporters", (), LOW),
    string(
        "listener.security.protocol.map",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        LOW,
    ),
    string("listeners", "PLAINTEXT://127.0.0.1:9092", HIGH),
    integer("max.connection.creation.rate", INT_MAX, MEDIUM, Range(0), mode=CLUSTER_WIDE),
    integer("max.connections", 20000, MEDIUM, Range(0), mode=CLUSTER_WIDE),
    integer("max.connections.per.ip", 1000, MEDIUM, Range(0), mode=CLUSTER_WIDE),
    string("max.connections.per.ip.overrides", "", MEDIUM, mode=CLUSTER_WIDE),
    list_of("metric.reporters", ("org.apache.kafka.common.metrics.JmxReporter",), LOW, mode=CLUSTER_WIDE),
    integer("metrics.num.samples", 2, LOW, Range(1)),
    string("metrics.recording.level", "INFO", LOW),
    long("metrics.sample.window.ms", 30000, LOW, Range(1)),
    integer("num.io.threads", 8, HIGH, Range(1), mode=CLUSTER_WIDE),
    integer("num.network.threads", 3, HIGH, Range(1), mode=CLUSTER_WIDE),
    long("queued.max.request.bytes", -1, MEDIUM),
    integer("queued.max.requests", 500, HIGH, Range(1)),
    integer("quota.window.num", 11, LOW, Range(1)),
    integer("quota.window.size.seconds", 1, LOW, Range(1)),
    integer("request.timeout.ms", 30000, HIGH),
    string(
        "security.inter.broker.protocol", "PLAINTEXT", MEDIUM, OneOf("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    ),
    long("socket.connection.setup.timeout.max.ms", 30000, MEDIUM),
    long("socket.connection.setup.timeout.ms", 10000, MEDIUM),
    integer("socket.listen.backlog.size", 50, MEDIUM, Range(1)),
    integer("socket.receive.buffer.bytes", 102400, HIGH),
    integer("socket.request.max.bytes", 104857600, HIGH, Range(1)),
    integer("socket.send.buffer.bytes", 102400, HIGH),
    integer("telemetry.max.bytes", 1048576, LOW, Range(1)),
)
