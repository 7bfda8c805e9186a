"""Keys of a KRaft quorum or of ZooKeeper."""

from __future__ import annotations

from .builders import HIGH, LONG_MAX, LOW, MEDIUM, boolean, integer, list_of, long, password, string
from .definition import ConfigKey
from .validators import OneOf, Range, Voters

QUORUM_KEYS: tuple[ConfigKey, ...] = (
    integer("broker.heartbeat.interval.ms", 2000, MEDIUM),
    integer("broker.session.timeout.ms", 9000, MEDIUM),
    string("controller.listener.names", None, HIGH),
    long("controller.performance.always.log.threshold.ms", 2000, MEDIUM, Range(0), internal=True),
    long("controller.performance.sample.period.ms", 60000, MEDIUM, Range(100), internal=True),
    integer("controller.quorum.append.linger.ms", 25, MEDIUM, Range(0)),
    list_of("controller.quorum.bootstrap.servers", (), HIGH, Voters()),
    integer("controller.quorum.election.backoff.max.ms", 1000, HIGH, Range(0)),
    integer("controller.quorum.election.timeout.ms", 1000, HIGH, Range(0)),
    integer("controller.quorum.fetch.timeout.ms", 2000, HIGH, Range(0)),
    integer("controller.quorum.request.timeout.ms", 2000, MEDIUM, Range(0)),
    integer("controller.quorum.retry.backoff.ms", 20, LOW, Range(0)),
    list_of("controller.quorum.voters", (), HIGH, Voters()),
    integer("controller.quota.window.num", 11, LOW, Range(1)),
    integer("controller.quota.window.size.seconds", 1, LOW, Range(1)),
    integer("controller.socket.timeout.ms", 30000, MEDIUM),
    string("early.start.listeners", None, HIGH),
    boolean("eligible.leader.replicas.enable", False, HIGH),
    integer("initial.broker.registration.timeout.ms", 60000, MEDIUM),
    long("internal.metadata.delete.delay.millis", 60000, LOW, internal=True),
    integer("internal.metadata.log.segment.bytes", None, LOW, internal=True),
    integer("internal.metadata.max.batch.size.in.bytes", 8388608, LOW, internal=True),
    integer("internal.metadata.max.fetch.size.in.bytes", 8388608, LOW, internal=True),
    string("metadata.log.dir", None, HIGH),
    long("metadata.log.max.record.bytes.between.snapshots", 20971520, HIGH, Range(1)),
    long("metadata.log.max.snapshot.interval.ms", 3600000, HIGH, Range(0)),
    integer("metadata.log.segment.bytes", 1073741824, HIGH, Range(8388608)),
    integer("metadata.log.segment.min.bytes", 8388608, HIGH, Range(12), internal=True),
    long("metadata.log.segment.ms", 604800000, HIGH),
    integer("metadata.max.idle.interval.ms", 500, LOW, Range(0)),
    long("metadata.max.retention.bytes", 104857600, HIGH),
    long("metadata.max.retention.ms", 604800000, HIGH),
    integer("node.id", -1, HIGH, Range(0)),
    string("password.encoder.cipher.algorithm", "AES/CBC/PKCS5Padding", LOW),
    integer("password.encoder.iterations", 4096, LOW, Range(1024)),
    integer("password.encoder.key.length", 128, LOW, Range(8)),
    string("password.encoder.keyfactory.algorithm", None, LOW),
    password("password.encoder.old.secret", None, MEDIUM),
    password("password.encoder.secret", None, MEDIUM),
    list_of("process.roles", (), HIGH, OneOf("broker", "controller")),
    string("sasl.mechanism.controller.protocol", "GSSAPI", HIGH),
    long("server.max.startup.time.ms", LONG_MAX, MEDIUM, Range(0), internal=True),
    long("unclean.leader.election.interval.ms", 300000, MEDIUM, Range(1), internal=True),
    boolean("unstable.api.versions.enable", False, HIGH, internal=True),
    boolean("unstable.feature.versions.enable", False, HIGH, internal=True),
    string("zookeeper.clientCnxnSocket", None, MEDIUM),
    string("zookeeper.connect", None, HIGH),
    integer("zookeeper.connection.timeout.ms", None, HIGH),
    integer("zookeeper.max.in.flight.requests", 10, HIGH, Range(1)),
    boolean("zookeeper.metadata.migration.enable", False, HIGH),
    integer("zookeeper.metadata.migration.min.batch.size", 200, MEDIUM, Range(1), internal=True),
    integer("zookeeper.session.timeout.ms", 18000, HIGH),
    boolean("zookeeper.set.acl", False, HIGH),
    list_of("zookeeper.ssl.cipher.suites", None, LOW),
    boolean("zookeeper.ssl.client.enable", False, MEDIUM),
    boolean("zookeeper.ssl.crl.enable", False, LOW),
    list_of("zookeeper.ssl.enabled.protocols", None, LOW),
    string("zookeeper.ssl.endpoint.identification.algorithm", "HTTPS", LOW),
    string("zookeeper.ssl.keystore.location", None, MEDIUM),
    password("zookeeper.ssl.keystore.password", None, MEDIUM),
    string("zookeeper.ssl.keystore.type", None, MEDIUM),
    boolean("zookeeper.ssl.ocsp.enable", False, LOW),
    string("zookeeper.ssl.protocol", "TLSv1.2", LOW),
    string("zookeeper.ssl.truststore.location", None, MEDIUM),
    password("zookeeper.ssl.truststore.password", None, MEDIUM),
    string("zookeeper.ssl.truststore.type", None, MEDIUM),
)

# Keys that only mean something to a member of a KRaft quorum. `node.id` is not among them: it names the broker.
KRAFT_NAMES = frozenset(
    key.name
    for key in QUORUM_KEYS
    if key.name.startswith(("controller.", "metadata.", "internal.metadata.", "process.", "broker."))
    or key.name in ("early.start.listeners", "initial.broker.registration.timeout.ms")
) - {"controller.socket.timeout.ms", "controller.quota.window.num", "controller.quota.window.size.seconds"}

# Keys of ZooKeeper's clusters on which nothing depends here: of its Java client, of the way to KRaft, and of what Kafka
# stored there in encrypted form.
ZOOKEEPER_NAMES = frozenset(
    key.name
    for key in QUORUM_KEYS
    if key.name.startswith(("zookeeper.metadata.", "password.encoder."))
    or key.name
    in (
        "zookeeper.clientCnxnSocket",
        "zookeeper.ssl.enabled.protocols",
        "zookeeper.ssl.protocol",
        "zookeeper.ssl.truststore.password",
    )
)
