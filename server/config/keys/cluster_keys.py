"""Keys of identity, topics, replication, leadership and policies."""

from __future__ import annotations

from .builders import CLUSTER_WIDE, HIGH, LONG_MAX, LOW, MEDIUM, boolean, class_name, integer, long, string
from .definition import ConfigKey
from .topic_keys import MIN_IN_SYNC_DOC, UNCLEAN_ELECTION_DOC
from .validators import MetadataVersion, Range

# fmt: off
CLUSTER_KEYS: tuple[ConfigKey, ...] = (
    class_name("alter.config.policy.class.name", None, LOW),
    integer("alter.log.dirs.replication.quota.window.num", 11, LOW, Range(1),
        doc=(
            "Number of windows of `alter.log.dirs.replication.quota.window.size.seconds` over which the rate of moves "
            "between log directories is measured."
        )),
    integer("alter.log.dirs.replication.quota.window.size.seconds", 1, LOW, Range(1),
        doc="Length of each of the `alter.log.dirs.replication.quota.window.num` windows."),
    boolean("auto.create.topics.enable", True, HIGH,
        doc="Whether a Metadata request for a missing topic creates it."),
    boolean("auto.leader.rebalance.enable", True, HIGH,
        doc="Whether the controller periodically elects preferred leaders again."),
    integer("background.threads", 10, HIGH, Range(1), mode=CLUSTER_WIDE),
    integer("broker.id", -1, HIGH,
        doc="Id of this broker; -1 selects the id in the log directories, or else 1."),
    boolean("broker.id.generation.enable", True, MEDIUM,
        doc="Whether a broker of a cluster without an id in its file or log directories receives a generated id."),
    string("broker.rack", None, MEDIUM,
        doc="Rack of this broker, which is sent to clients."),
    boolean("controlled.shutdown.enable", True, MEDIUM,
        doc="Whether a broker of a cluster transfers its leaderships to other brokers before it stops."),
    integer("controlled.shutdown.max.retries", 3, MEDIUM,
        doc="Number of attempts of ControlledShutdown."),
    long("controlled.shutdown.retry.backoff.ms", 5000, MEDIUM,
        doc="Pause between two attempts of ControlledShutdown."),
    class_name("create.topic.policy.class.name", None, LOW),
    integer("default.replication.factor", 1, MEDIUM,
        doc="Replicas of a topic that is created without an explicit number."),
    integer("delete.records.purgatory.purge.interval.requests", 1, MEDIUM),
    boolean("delete.topic.enable", True, HIGH,
        doc="Whether topics can be deleted."),
    integer("fetch.max.bytes", 57671680, MEDIUM, Range(1024),
        doc="Maximum size of the records in one fetch response, which limits the value of the client."),
    integer("fetch.purgatory.purge.interval.requests", 1000, MEDIUM),
    string("inter.broker.protocol.version", "3.9-IV0", MEDIUM, MetadataVersion(),
        doc=(
            "Newest release whose request versions brokers of a cluster use with each other; below 3.0 the settings of "
            "message formats apply, too."
        )),
    long("leader.imbalance.check.interval.seconds", 300, HIGH, Range(1),
        doc="Interval of the checks of `auto.leader.rebalance.enable`."),
    integer("leader.imbalance.per.broker.percentage", 10, HIGH,
        doc=(
            "Percentage of a broker's preferred partitions with another leader above which "
            "`auto.leader.rebalance.enable` elects the preferred leaders."
        )),
    long("log.dir.failure.timeout.ms", 30000, LOW, Range(1),
        doc=(
            "Time within which a controller of a KRaft cluster must confirm a failed log directory. Otherwise the "
            "broker stops."
        )),
    integer("max.incremental.fetch.session.cache.slots", 1000, MEDIUM, Range(0),
        doc="Maximum number of incremental fetch sessions."),
    integer("max.request.partition.size.limit", 2000, MEDIUM, Range(1),
        doc="Maximum number of partitions in a DescribeTopicPartitions response."),
    integer("min.insync.replicas", 1, HIGH, Range(1), mode=CLUSTER_WIDE,
        doc=MIN_IN_SYNC_DOC),
    integer("num.partitions", 1, MEDIUM, Range(1),
        doc="Partitions of a topic that is created without an explicit number."),
    integer("num.recovery.threads.per.data.dir", 2, HIGH, Range(1), mode=CLUSTER_WIDE,
        doc="Number of logs of one directory that are loaded at the same time at start."),
    integer("num.replica.alter.log.dirs.threads", None, HIGH),
    integer("num.replica.fetchers", 1, HIGH, Range(1), mode=CLUSTER_WIDE,
        doc="Number of connections to each leader for the replication of its partitions."),
    integer("producer.purgatory.purge.interval.requests", 1000, MEDIUM),
    integer("replica.fetch.backoff.ms", 1000, MEDIUM, Range(0),
        doc="Pause of a follower after a failed fetch."),
    integer("replica.fetch.max.bytes", 1048576, MEDIUM, Range(0),
        doc="Maximum bytes of one partition in a fetch of a follower."),
    integer("replica.fetch.min.bytes", 1, HIGH,
        doc="Minimum bytes for an early response to the fetch of a follower."),
    integer("replica.fetch.response.max.bytes", 10485760, MEDIUM, Range(0),
        doc="Maximum bytes of all partitions in a fetch of a follower."),
    integer("replica.fetch.wait.max.ms", 500, HIGH,
        doc="Maximum wait of a follower's fetch at the leader for new records."),
    long("replica.high.watermark.checkpoint.interval.ms", 5000, HIGH,
        doc="Interval at which high watermarks are written."),
    long("replica.lag.time.max.ms", 30000, HIGH,
        doc=(
            "A follower that has not caught up with its leader for this long is removed from the ISR. Checked every "
            "half of this interval."
        )),
    string("replica.selector.class", None, MEDIUM,
        doc=(
            "`RackAwareReplicaSelector`, with or without Kafka's package: consumers with a `client.rack` read from a "
            "replica in the same rack."
        )),
    integer("replica.socket.receive.buffer.bytes", 65536, HIGH),
    integer("replica.socket.timeout.ms", 30000, HIGH,
        doc="Timeout of fetches from other brokers; must exceed the maximum wait of a fetch."),
    integer("replication.quota.window.num", 11, LOW, Range(1),
        doc=(
            "Number of windows of `replication.quota.window.size.seconds` over which throttled replication is "
            "measured."
        )),
    integer("replication.quota.window.size.seconds", 1, LOW, Range(1),
        doc="Length of each of the `replication.quota.window.num` windows."),
    integer("reserved.broker.max.id", 1000, MEDIUM, Range(0),
        doc="Largest id for configured brokers; generated ids are larger."),
    boolean("unclean.leader.election.enable", False, HIGH, mode=CLUSTER_WIDE,
        doc=UNCLEAN_ELECTION_DOC),
)
# fmt: on

# Replication throttles, which only ever live in the store: a file cannot set them.
# fmt: off
DYNAMIC_ONLY_KEYS: tuple[ConfigKey, ...] = (
    long("follower.replication.throttled.rate", LONG_MAX, MEDIUM, Range(0), mode=CLUSTER_WIDE),
    long("leader.replication.throttled.rate", LONG_MAX, MEDIUM, Range(0), mode=CLUSTER_WIDE),
    long("replica.alter.log.dirs.io.max.bytes.per.second", LONG_MAX, MEDIUM, Range(0), mode=CLUSTER_WIDE),
)
# fmt: on
