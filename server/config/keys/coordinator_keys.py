"""Keys of the group, offset and transaction coordinators."""

from __future__ import annotations

from .builders import CLUSTER_WIDE, HIGH, INT_MAX, LOW, MEDIUM, boolean, integer, list_of, long, short, string
from .definition import ConfigKey
from .validators import OneOf, Range, ValidList

# fmt: off
COORDINATOR_KEYS: tuple[ConfigKey, ...] = (
    integer("add.partitions.to.txn.retry.backoff.max.ms", 100, HIGH, Range(0)),
    integer("add.partitions.to.txn.retry.backoff.ms", 20, HIGH, Range(1)),
    integer("group.consumer.assignment.interval.ms", 1000, MEDIUM, Range(0), mode=CLUSTER_WIDE,
        doc=(
            "Minimum time between two assignments of a group of the consumer protocol (KIP-1263). A group can override "
            "it."
        )),
    boolean("group.consumer.assignor.offload.enable", True, MEDIUM, internal=True, mode=CLUSTER_WIDE),
    list_of("group.consumer.assignors", ("uniform", "range"), MEDIUM, ValidList(is_empty_allowed=False),
        doc="Server-side assignors for members of the consumer protocol, the default first: `uniform` and `range`."),
    integer("group.consumer.heartbeat.interval.ms", 5000, MEDIUM, Range(1),
        doc="Heartbeat interval of members of the consumer protocol. A group can override it."),
    integer("group.consumer.max.assignment.interval.ms", 15000, MEDIUM, Range(0),
        doc="Maximum assignment interval of a group."),
    integer("group.consumer.max.heartbeat.interval.ms", 15000, MEDIUM, Range(1),
        doc="Maximum heartbeat interval of a group."),
    integer("group.consumer.max.session.timeout.ms", 60000, MEDIUM, Range(1),
        doc="Maximum session timeout of a group."),
    integer("group.consumer.max.size", INT_MAX, MEDIUM, Range(1),
        doc="Maximum number of members of a group of the consumer protocol."),
    string(
        "group.consumer.migration.policy",
        "bidirectional",
        MEDIUM,
        OneOf("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL", ignore_case=True),
        doc=(
            "Whether a group is converted to the consumer protocol when its first member with that protocol joins "
            "(upgrade), and back when the last one leaves (downgrade)."
        ),
    ),
    integer("group.consumer.min.assignment.interval.ms", 0, MEDIUM, Range(0),
        doc="Minimum assignment interval of a group."),
    integer("group.consumer.min.heartbeat.interval.ms", 5000, MEDIUM, Range(1),
        doc="Minimum heartbeat interval of a group."),
    integer("group.consumer.min.session.timeout.ms", 45000, MEDIUM, Range(1),
        doc="Minimum session timeout of a group."),
    integer("group.consumer.regex.refresh.interval.ms", 600000, MEDIUM, Range(10000), internal=True),
    integer("group.consumer.session.timeout.ms", 45000, MEDIUM, Range(1),
        doc="Session timeout of members of the consumer protocol. A group can override it."),
    integer("group.coordinator.append.linger.ms", -1, MEDIUM, Range(-1)),
    integer("group.coordinator.background.threads", 2, HIGH, Range(1)),
    integer("group.coordinator.cached.buffer.max.bytes", 1048588, MEDIUM, Range(524288), mode=CLUSTER_WIDE),
    boolean("group.coordinator.new.enable", False, MEDIUM, internal=True),
    list_of(
        "group.coordinator.rebalance.protocols",
        ("classic", "consumer", "streams"),
        MEDIUM,
        ValidList("consumer", "classic", "share", "streams", is_empty_allowed=False),
        doc=(
            "Enabled group protocols: without `consumer` or `streams`, members of this protocol are rejected. Share "
            "groups depend on `share.version` only."
        ),
    ),
    integer("group.coordinator.threads", 4, HIGH, Range(1)),
    integer("group.initial.rebalance.delay.ms", 3000, MEDIUM,
        doc=(
            "Time for which an empty group waits for more members before its first assignment. Each new member "
            "restarts it, up to the rebalance timeout."
        )),
    integer("group.max.session.timeout.ms", 1800000, MEDIUM,
        doc="Maximum session timeout of a member of a classic group."),
    integer("group.max.size", 1000, MEDIUM, Range(1),
        doc="Maximum number of members of a group."),
    integer("group.min.session.timeout.ms", 6000, MEDIUM,
        doc="Minimum session timeout of a member of a classic group."),
    integer("offset.metadata.max.bytes", 4096, HIGH,
        doc="Maximum length of the metadata of a committed offset."),
    short("offsets.commit.required.acks", -1, HIGH),
    integer("offsets.commit.timeout.ms", 5000, HIGH, Range(1),
        doc="Timeout of the write of a commit of offsets, or of a group's assignment."),
    integer("offsets.load.buffer.size", 5242880, HIGH, Range(1)),
    long("offsets.retention.check.interval.ms", 600000, HIGH, Range(1),
        doc="Interval of the removal of expired offsets."),
    integer("offsets.retention.minutes", 10080, HIGH, Range(1),
        doc=(
            "Time for which offsets are retained after their group lost its last member, or after the commit for "
            "consumers with manual assignment."
        )),
    integer("offsets.topic.compression.codec", 0, HIGH),
    integer("offsets.topic.num.partitions", 8, HIGH, Range(1),
        doc="Partitions of `__consumer_offsets` when it is created."),
    short("offsets.topic.replication.factor", 1, HIGH, Range(1),
        doc="Replicas of `__consumer_offsets` when it is created."),
    integer("offsets.topic.segment.bytes", 104857600, HIGH, Range(1),
        doc="Segment size of `__consumer_offsets` when it is created."),
    integer("producer.id.expiration.check.interval.ms", 600000, LOW, Range(1), internal=True,
        doc="Interval of the removal of expired producer ids."),
    integer("producer.id.expiration.ms", 86400000, LOW, Range(1), mode=CLUSTER_WIDE,
        doc="Time for which the state of a producer id is retained after its last record."),
    integer("transaction.abort.timed.out.transaction.cleanup.interval.ms", 10000, LOW, Range(1),
        doc="Interval of the check for transactions that exceed their timeout."),
    integer("transaction.max.timeout.ms", 900000, HIGH, Range(1),
        doc="Maximum timeout of a transaction."),
    boolean("transaction.partition.verification.enable", True, LOW, mode=CLUSTER_WIDE,
        doc=(
            "Whether a partition is verified with the transaction coordinator before a producer of protocol version 1 "
            "begins a transaction on it."
        )),
    integer("transaction.remove.expired.transaction.cleanup.interval.ms", 3600000, LOW, Range(1),
        doc="Interval of the removal of expired transactional ids."),
    integer("transaction.state.log.load.buffer.size", 5242880, HIGH, Range(1)),
    integer("transaction.state.log.min.isr", 1, HIGH, Range(1),
        doc="`min.insync.replicas` of `__transaction_state` when it is created."),
    integer("transaction.state.log.num.partitions", 50, HIGH, Range(1),
        doc="Partitions of `__transaction_state` when it is created."),
    short("transaction.state.log.replication.factor", 1, HIGH, Range(1),
        doc="Replicas of `__transaction_state` when it is created."),
    integer("transaction.state.log.segment.bytes", 104857600, HIGH, Range(1),
        doc="Segment size of `__transaction_state` when it is created."),
    boolean("transaction.two.phase.commit.enable", False, LOW),
    integer("transactional.id.expiration.ms", 604800000, HIGH, Range(1),
        doc="Time for which a transactional id is retained after its last transaction."),
)
# fmt: on
