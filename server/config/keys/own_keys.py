"""Keys that only Barnabas has."""

from __future__ import annotations

from ....storage.cleaning.clean_job import HASHES
from .builders import CLUSTER_WIDE, HIGH, MEDIUM, boolean, integer, list_of, password, string
from .definition import ConfigKey
from .validators import OneOf, Range

# fmt: off
OWN_KEYS: tuple[ConfigKey, ...] = (
    string("acks.all.durability", "disk", HIGH, OneOf("disk", "page-cache"),
        doc=(
            "When a record sent with acks=all is acknowledged: `disk` after an fdatasync of the record, `page-cache` "
            "after the write to the operating system, as in Apache Kafka."
        )),
    boolean("allow.insecure.listeners", False, HIGH,
        doc=(
            "Whether other machines may reach a listener without authentication; otherwise the broker does not start "
            "with such an address."
        )),
    boolean("coordinator.allow.remote", False, HIGH,
        doc=(
            "Whether other machines may reach the addresses in `coordinator.listeners`. Every client there can read "
            "and change all nodes without an ACL."
        )),
    string("coordinator.listeners", None, HIGH,
        doc=(
            "Addresses at which the metadata store is served to other brokers with ZooKeeper's protocol, for example "
            "`127.0.0.1:2181`; not set: disabled. Cannot be combined with `zookeeper.connect`."
        )),
    boolean("coordinator.owner.only", False, HIGH,
        doc=(
            "Whether `coordinator.listeners` refuses connections of other users of this machine, except root. Requires "
            "Linux: on other systems all connections from this machine are refused."
        )),
    integer("health.port", None, MEDIUM, Range(0, 65535),
        doc=(
            "Port on 127.0.0.1 where `GET /health` returns 200 once the broker serves clients, and where compaction "
            "can be observed and started and backups are taken (0: any free port, the default of `barnabas start`); "
            "not set: disabled."
        )),
    integer("log.dir.free.space.warning.percent", 5, MEDIUM, Range(0, 100), mode=CLUSTER_WIDE,
        doc=(
            "The broker logs a warning when less than this percentage of the disk of a log directory is free (0: no "
            "warning). A full disk is always logged as an error."
        )),
    string("log.cleaner.hash.algorithm", "MD5", MEDIUM, OneOf(*HASHES, "exact"), mode=CLUSTER_WIDE,
        doc=(
            "Hash by which the cleaner identifies keys: a longer hash makes collisions less likely; `exact` compares "
            "the keys themselves."
        )),
    string("log.cleaner.worker", "process", MEDIUM, OneOf("process", "thread"),
        doc=(
            "Where logs are compacted: `process`, in a separate process, or in threads if a process cannot be started; "
            "`thread`, in threads of the broker, as embedded brokers do."
        )),
    list_of("metrics.allowed.hosts", (), MEDIUM,
        doc=(
            "Additional host names under which `/metrics` may be requested. Addresses, `localhost`, this machine's "
            "name and the hosts of `metrics.listeners` and `advertised.listeners` are always allowed. A request with "
            "another `Host` is rejected: a web page could send it (DNS rebinding)."
        )),
    string("metrics.listeners", None, MEDIUM,
        doc=(
            "Addresses, `host:port` separated by commas, of `GET /metrics` for Prometheus and OpenMetrics, and of "
            "`/health` and `/ready` for external probes (no host: all interfaces; port 0: any free port); not set: "
            "disabled."
        )),
    string("metrics.otlp.endpoint", None, MEDIUM,
        doc=(
            "URL of an OpenTelemetry collector to which all metrics are pushed, `http://host:4318/v1/metrics` (`pip "
            "install 'barnabas[otlp]'`); not set: disabled."
        )),
    integer("metrics.otlp.interval.ms", 60_000, MEDIUM, Range(1000),
        doc="Interval of the pushes to `metrics.otlp.endpoint`."),
    string("metadata.store.path", None, MEDIUM,
        doc="File with topics, ids, settings and epochs; if not set, `metadata.sqlite` in the first log directory."),
    password("zookeeper.digest.auth", None, MEDIUM,
        doc="`user:password` with which the broker authenticates at the ensemble."),
)
# fmt: on
