"""Keys of a KRaft quorum or of ZooKeeper."""

from __future__ import annotations

from .builders import HIGH, LONG_MAX, LOW, MEDIUM, boolean, integer, list_of, long, password, string
from .definition import ConfigKey
from .validators import Range, ValidList, Voters

# fmt: off
QUORUM_KEYS: tuple[ConfigKey, ...] = (
    integer("broker.heartbeat.interval.ms", 2000, MEDIUM,
        doc="Interval of the heartbeats to the controller of a KRaft cluster."),
    integer("broker.session.timeout.ms", 9000, MEDIUM,
        doc="Time without a heartbeat after which the controllers of a KRaft cluster fence the broker."),
    list_of("controller.listener.names", None, HIGH, ValidList(is_empty_allowed=False),
        doc="Listener of the controllers, whose security protocol is in `listener.security.protocol.map`."),
    long("controller.performance.always.log.threshold.ms", 2000, MEDIUM, Range(0), internal=True),
    long("controller.performance.sample.period.ms", 60000, MEDIUM, Range(100), internal=True),
    integer("controller.quorum.append.linger.ms", 25, MEDIUM, Range(0)),
    boolean("controller.quorum.auto.join.enable", False, LOW),
    list_of("controller.quorum.bootstrap.servers", (), HIGH, Voters(),
        doc="Addresses of controllers of a KRaft cluster, separated by commas."),
    integer("controller.quorum.election.backoff.max.ms", 1000, HIGH, Range(0)),
    integer("controller.quorum.election.timeout.ms", 1000, HIGH, Range(0)),
    integer("controller.quorum.fetch.max.bytes", 1048576, LOW, Range(1),
        doc="Maximum number of bytes of the metadata log in one response."),
    integer("controller.quorum.fetch.snapshot.max.bytes", 1048576, LOW, Range(1),
        doc="Maximum number of bytes of a metadata snapshot in one response."),
    integer("controller.quorum.fetch.timeout.ms", 2000, HIGH, Range(0)),
    integer("controller.quorum.request.timeout.ms", 2000, MEDIUM, Range(0),
        doc="Timeout of fetches of the metadata log."),
    integer("controller.quorum.retry.backoff.ms", 20, LOW, Range(0),
        doc="Pause before a fetch of the metadata log is repeated."),
    list_of("controller.quorum.voters", (), HIGH, Voters(),
        doc="Ids and addresses of the controllers (`id@host:port`), if there are no bootstrap servers."),
    integer("controller.quota.window.num", 11, LOW, Range(1),
        doc=(
            "Number of windows of `controller.quota.window.size.seconds` in which unused quota of topic changes "
            "accumulates."
        )),
    integer("controller.quota.window.size.seconds", 1, LOW, Range(1),
        doc="Length of each of the `controller.quota.window.num` windows."),
    integer("controller.socket.timeout.ms", 30000, MEDIUM,
        doc="Timeout of requests to other brokers, except fetches."),
    list_of("early.start.listeners", None, HIGH, ValidList(is_null_allowed=True),
        doc=(
            "Each name must be in `listeners` or `controller.listener.names`. A broker has the ACLs before any of its "
            "listeners accepts clients, as Kafka's with the StandardAuthorizer."
        )),
    boolean("eligible.leader.replicas.enable", False, HIGH),
    integer("initial.broker.registration.timeout.ms", 60000, MEDIUM,
        doc="Time after which a broker stops if no controller has registered it."),
    long("internal.metadata.delete.delay.millis", 60000, LOW, internal=True),
    integer("internal.metadata.log.segment.bytes", None, LOW, internal=True),
    integer("internal.metadata.max.batch.size.in.bytes", 8388608, LOW, internal=True),
    integer("internal.metadata.max.fetch.size.in.bytes", 8388608, LOW, internal=True),
    string("metadata.log.dir", None, HIGH,
        doc="The directory of `log.dirs` with the replica of the metadata log; the first one if not set."),
    long("metadata.log.max.record.bytes.between.snapshots", 20971520, HIGH, Range(1),
        doc="Bytes of records in the metadata log after which a snapshot of the metadata is stored."),
    long("metadata.log.max.snapshot.interval.ms", 3600000, HIGH, Range(0),
        doc="Time after which a snapshot of the metadata is stored; 0: no limit."),
    integer("metadata.log.segment.bytes", 1073741824, HIGH, Range(8388608),
        doc="Size at which a new segment of the metadata log is rolled."),
    integer("metadata.log.segment.min.bytes", 8388608, HIGH, Range(12), internal=True),
    long("metadata.log.segment.ms", 604800000, HIGH,
        doc="Age at which a new segment of the metadata log is rolled."),
    integer("metadata.max.idle.interval.ms", 500, LOW, Range(0)),
    long("metadata.max.retention.bytes", 104857600, HIGH,
        doc="Size of the metadata log and its snapshots above which the oldest are deleted."),
    long("metadata.max.retention.ms", 604800000, HIGH,
        doc="Age at which parts of the metadata log and snapshots are deleted."),
    integer("node.id", -1, HIGH, Range(0),
        doc="Id of this broker, KRaft's name for `broker.id`."),
    string("password.encoder.cipher.algorithm", "AES/CBC/PKCS5Padding", LOW,
        doc="Cipher of passwords in the metadata tree: `AES/CBC/PKCS5Padding` or `AES/GCM/NoPadding`."),
    integer("password.encoder.iterations", 4096, LOW, Range(1024),
        doc="Iterations of PBKDF2 that derive the key of a stored password from the secret."),
    integer("password.encoder.key.length", 128, LOW, Range(8),
        doc="Bits of the key of a stored password: 128, 192 or 256."),
    string("password.encoder.keyfactory.algorithm", None, LOW,
        doc="PBKDF2 variant that derives the key of a stored password; `PBKDF2WithHmacSHA512` if not set."),
    password("password.encoder.old.secret", None, MEDIUM,
        doc=(
            "Previous value of `password.encoder.secret`: at start, passwords encoded with it are encoded again with "
            "the new secret. Remove it after the restart of all brokers."
        )),
    password("password.encoder.secret", None, MEDIUM,
        doc=(
            "Secret with which passwords in dynamic settings are encrypted in the metadata tree, in the format of "
            "Kafka 3.9. Without it AlterConfigs rejects them. Requires `pip install 'barnabas[tls]'`."
        )),
    list_of("process.roles", (), HIGH, ValidList("broker", "controller", is_empty_allowed=False),
        doc="`broker`: a member of a KRaft cluster. Not set, or with `controller`: a standalone broker, or a member "
            "of a ZooKeeper cluster."),
    string("sasl.mechanism.controller.protocol", "GSSAPI", HIGH,
        doc="SASL mechanism of connections to controllers."),
    long("server.max.startup.time.ms", LONG_MAX, MEDIUM, Range(0), internal=True),
    long("unclean.leader.election.interval.ms", 300000, MEDIUM, Range(1), internal=True),
    boolean("unstable.api.versions.enable", False, HIGH, internal=True),
    boolean("unstable.feature.versions.enable", False, HIGH, internal=True),
    string("zookeeper.clientCnxnSocket", None, MEDIUM),
    string("zookeeper.connect", None, HIGH,
        doc=(
            "Addresses of the ZooKeeper ensemble of the cluster, separated by commas, and after the last address the "
            "path of the cluster, which is created if it is missing. Not set: a standalone broker."
        )),
    integer("zookeeper.connection.timeout.ms", None, HIGH,
        doc="Timeout of the first connection to the ensemble; if not set, `zookeeper.session.timeout.ms`."),
    integer("zookeeper.max.in.flight.requests", 10, HIGH, Range(1),
        doc="Maximum number of requests to the ensemble in flight."),
    boolean("zookeeper.metadata.migration.enable", False, HIGH),
    integer("zookeeper.metadata.migration.min.batch.size", 200, MEDIUM, Range(1), internal=True),
    integer("zookeeper.session.timeout.ms", 18000, HIGH,
        doc="Time without contact after which the session of a broker expires."),
    boolean("zookeeper.set.acl", False, HIGH,
        doc=(
            "Whether brokers restrict the nodes that they create to their own identity: changes for all nodes, and "
            "reads for credentials."
        )),
    list_of("zookeeper.ssl.cipher.suites", None, LOW,
        doc="Not supported: a value is rejected."),
    boolean("zookeeper.ssl.client.enable", False, MEDIUM,
        doc="Whether to connect to the ensemble with TLS."),
    boolean("zookeeper.ssl.crl.enable", False, LOW,
        doc="Not supported: `true` is rejected."),
    list_of("zookeeper.ssl.enabled.protocols", None, LOW),
    string("zookeeper.ssl.endpoint.identification.algorithm", "HTTPS", LOW,
        doc=(
            "`HTTPS`: the certificates of the ensemble must contain its host names; empty: the host name is not "
            "checked."
        )),
    string("zookeeper.ssl.keystore.location", None, MEDIUM,
        doc="PEM file with the client certificate and its key for the ensemble."),
    password("zookeeper.ssl.keystore.password", None, MEDIUM,
        doc="Password of the key in `zookeeper.ssl.keystore.location`."),
    string("zookeeper.ssl.keystore.type", None, MEDIUM,
        doc="`PEM`; any other value is rejected."),
    boolean("zookeeper.ssl.ocsp.enable", False, LOW,
        doc="Not supported: `true` is rejected."),
    string("zookeeper.ssl.protocol", "TLSv1.2", LOW),
    string("zookeeper.ssl.truststore.location", None, MEDIUM,
        doc=(
            "PEM file with the certificates that verify the ensemble's certificates; if not set, the trust store of "
            "the operating system."
        )),
    password("zookeeper.ssl.truststore.password", None, MEDIUM),
    string("zookeeper.ssl.truststore.type", None, MEDIUM,
        doc="`PEM`; any other value is rejected."),
)
# fmt: on

# Keys for members of a KRaft cluster only, which a standalone broker ignores. `node.id` is not included: it is the id
# of the broker.
KRAFT_NAMES = frozenset(
    key.name
    for key in QUORUM_KEYS
    if key.name.startswith(("controller.", "metadata.", "internal.metadata.", "process.", "broker."))
    or key.name in ("early.start.listeners", "initial.broker.registration.timeout.ms")
) - {"controller.socket.timeout.ms", "controller.quota.window.num", "controller.quota.window.size.seconds"}

# Keys of ZooKeeper clusters without effect: keys of its Java client and of the migration to KRaft.
ZOOKEEPER_NAMES = frozenset(
    key.name
    for key in QUORUM_KEYS
    if key.name.startswith("zookeeper.metadata.")
    or key.name
    in (
        "zookeeper.clientCnxnSocket",
        "zookeeper.ssl.enabled.protocols",
        "zookeeper.ssl.protocol",
        "zookeeper.ssl.truststore.password",
    )
)
