"""Keys of listeners, sockets, request queues, quotas and metrics."""

from __future__ import annotations

from .builders import CLUSTER_WIDE, HIGH, INT_MAX, LOW, MEDIUM, boolean, class_name, integer, list_of, long, string
from .definition import ConfigKey
from .validators import OneOf, Range, ValidList

# fmt: off
NETWORK_KEYS: tuple[ConfigKey, ...] = (
    list_of("advertised.listeners", None, HIGH, ValidList(is_empty_allowed=False, is_null_allowed=True),
        doc="Addresses of the listeners that are sent to clients, if they differ from `listeners`."),
    boolean("auto.include.jmx.reporter", True, LOW),
    class_name("client.quota.callback.class", None, LOW),
    list_of("config.providers", (), LOW, ValidList(), mode=CLUSTER_WIDE,
        doc=(
            "Names of config providers, whose values replace variables such as `${file:/path:key}` in the file. In the "
            "settings of a broker or of all brokers, names of providers of the file that apply there."
        )),
    integer("connection.failed.authentication.delay.ms", 100, LOW, Range(0),
        doc="Delay before a failed authentication is reported to the client."),
    long("connections.max.idle.ms", 600000, MEDIUM,
        doc="Time without traffic after which a connection is closed; a negative value disables this."),
    string("control.plane.listener.name", None, HIGH,
        doc="Separate listener for requests from and to the controller; if not set, the listener between brokers."),
    string("inter.broker.listener.name", None, MEDIUM,
        doc="Listener for connections between brokers; if not set, the listener of `security.inter.broker.protocol`."),
    integer("kafka.metrics.polling.interval.secs", 10, LOW, Range(1)),
    list_of("kafka.metrics.reporters", (), LOW, ValidList()),
    string(
        "listener.security.protocol.map",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        LOW,
        doc="Security protocol of each listener name.",
    ),
    list_of("listeners", ("PLAINTEXT://127.0.0.1:9092",), HIGH, ValidList(is_empty_allowed=False),
        doc="Addresses to bind, as NAME://host:port; no host means all interfaces, port 0 any free port."),
    integer("max.connection.creation.rate", INT_MAX, MEDIUM, Range(0), mode=CLUSTER_WIDE,
        doc=(
            "Maximum number of new connections per second: of all listeners, or of one listener with the listener "
            "prefix. Further connections wait. A separate listener between brokers is subject to the limit with its "
            "own prefix only. Four connections from the broker's own machine never wait. The limit cannot be changed "
            "to 0 while the "
            "broker runs."
        )),
    integer("max.connections", 20000, MEDIUM, Range(0), mode=CLUSTER_WIDE,
        doc=(
            "Maximum number of open connections: of the broker, or of one listener with the listener prefix. Further "
            "connections are closed immediately. Four connections from the broker's own machine are always accepted, "
            "so that an operator can correct the limit. A new connection of a broker on a separate listener between "
            "brokers closes the longest idle connection of another listener instead. The limit cannot be changed to "
            "0 while the broker runs."
        )),
    integer("max.connections.per.ip", 1000, MEDIUM, Range(0), mode=CLUSTER_WIDE,
        doc=(
            "Maximum number of open connections from one IP address; further connections are closed immediately. "
            "Four connections "
            "from the broker's own machine are always accepted. 0 accepts only addresses in "
            "`max.connections.per.ip.overrides`."
        )),
    string("max.connections.per.ip.overrides", "", MEDIUM, mode=CLUSTER_WIDE,
        doc=(
            "Other values of `max.connections.per.ip` for some addresses, as `address:count,...`; 0 rejects an "
            "address. Four connections from the broker's own machine are always accepted, independently of this list."
        )),
    list_of(
        "metric.reporters",
        ("org.apache.kafka.common.metrics.JmxReporter",),
        LOW,
        ValidList(),
        mode=CLUSTER_WIDE,
    ),
    integer("metrics.num.samples", 2, LOW, Range(1)),
    string("metrics.recording.level", "INFO", LOW),
    long("metrics.sample.window.ms", 30000, LOW, Range(1)),
    integer("num.io.threads", 8, HIGH, Range(1), mode=CLUSTER_WIDE),
    integer("num.network.threads", 3, HIGH, Range(1), mode=CLUSTER_WIDE),
    long("queued.max.request.bytes", -1, MEDIUM,
        doc=(
            "Memory for incomplete and waiting requests of all connections; -1: 256 MiB, or a quarter of the control "
            "group's memory limit if that is less. A single request may be larger and is then read alone, while others "
            "wait."
        )),
    integer("queued.max.requests", 500, HIGH, Range(1)),
    integer("quota.window.num", 11, LOW, Range(1),
        doc="Number of windows of `quota.window.size.seconds` over which the use of client quotas is measured."),
    integer("quota.window.size.seconds", 1, LOW, Range(1),
        doc="Length of each of the `quota.window.num` windows."),
    integer("request.timeout.ms", 30000, HIGH,
        doc="Timeout of the markers of a transaction, after which they are written again."),
    string(
        "security.inter.broker.protocol", "PLAINTEXT", MEDIUM, OneOf("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        doc="Name of the listener for connections between brokers, unless `inter.broker.listener.name` is set.",
    ),
    long("socket.connection.setup.timeout.max.ms", 30000, MEDIUM),
    long("socket.connection.setup.timeout.ms", 10000, MEDIUM),
    integer("socket.listen.backlog.size", 50, MEDIUM, Range(1),
        doc="Number of connections that wait to be accepted."),
    integer("socket.receive.buffer.bytes", 102400, HIGH),
    integer("socket.request.max.bytes", 104857600, HIGH, Range(1),
        doc="Maximum size of a request; a larger request closes the connection."),
    integer("socket.send.buffer.bytes", 102400, HIGH,
        doc=(
            "Send buffer of each connection; -1 is the default of the operating system. It limits the bytes in flight "
            "to a client: a distant client with high throughput requires its bandwidth times the round-trip time, or "
            "-1."
        )),
    integer("telemetry.max.bytes", 1048576, LOW, Range(1),
        doc=(
            "Maximum size of a push of client metrics, before and after decompression; applies if `metrics.listeners` "
            "publishes them."
        )),
)
# fmt: on
