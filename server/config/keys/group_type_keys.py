"""Keys of share groups (KIP-932), of their coordinator and dead-letter queues, and of streams groups (KIP-1071)."""

from __future__ import annotations

from .builders import (
    CLUSTER_WIDE,
    HIGH,
    INT_MAX,
    LOW,
    MEDIUM,
    boolean,
    class_name,
    integer,
    list_of,
    long,
    short,
    string,
)
from .definition import ConfigKey
from .validators import Range, ValidList

# fmt: off
SHARE_KEYS: tuple[ConfigKey, ...] = (
    boolean("errors.deadletterqueue.auto.create.topics.enable", False, MEDIUM, mode=CLUSTER_WIDE,
        doc="Whether a missing dead-letter topic is created when a share group writes to it."),
    string("errors.deadletterqueue.topic.name.prefix", "dlq.", MEDIUM, mode=CLUSTER_WIDE,
        doc="Required prefix of the names of dead-letter topics; empty for no requirement."),
    integer("group.share.assignment.interval.ms", 1000, MEDIUM, Range(0), mode=CLUSTER_WIDE,
        doc="Minimum time between two assignments of a share group. A group can override it."),
    boolean("group.share.assignor.offload.enable", True, MEDIUM, internal=True, mode=CLUSTER_WIDE),
    list_of("group.share.assignors", ("simple",), MEDIUM, ValidList(is_empty_allowed=False),
        doc="The assignor of share groups: `simple`."),
    integer("group.share.delivery.count.limit", 5, MEDIUM, Range(2, 10),
        doc=(
            "Maximum number of deliveries of a record. After the last one a record that is not accepted is archived, "
            "or written to the dead-letter topic. A group can override it."
        )),
    string(
        "group.share.dlq.manager.class.name",
        "org.apache.kafka.server.share.dlq.DefaultShareGroupDLQManager",
        MEDIUM,
        internal=True,
    ),
    boolean("group.share.enable", False, MEDIUM, internal=True),
    integer("group.share.heartbeat.interval.ms", 5000, MEDIUM, Range(1),
        doc="Heartbeat interval of members of a share group. A group can override it."),
    integer("group.share.initialize.retry.interval.ms", 30000, LOW, Range(1), internal=True,
        doc="Time after which a group coordinator repeats an initialization of share state whose result is unknown."),
    integer("group.share.max.assignment.interval.ms", 15000, MEDIUM, Range(0),
        doc="Maximum assignment interval of a share group."),
    integer("group.share.max.delivery.count.limit", 10, MEDIUM, Range(5, 25),
        doc="Maximum value of `share.delivery.count.limit` of a group."),
    short("group.share.max.groups", 10, MEDIUM, Range(1, 100)),
    integer("group.share.max.heartbeat.interval.ms", 15000, MEDIUM, Range(1),
        doc="Maximum heartbeat interval of a share group."),
    integer("group.share.max.partition.max.record.locks", 4000, MEDIUM, Range(2000, 10000),
        doc="Maximum value of `share.partition.max.record.locks` of a group."),
    integer("group.share.max.record.lock.duration.ms", 60000, MEDIUM, Range(30000, 3600000),
        doc="Maximum value of `share.record.lock.duration.ms` of a group."),
    integer("group.share.max.session.timeout.ms", 60000, MEDIUM, Range(1),
        doc="Maximum session timeout of a share group."),
    integer("group.share.max.share.sessions", 2000, MEDIUM, Range(1),
        doc="Maximum number of share sessions on this broker."),
    integer("group.share.max.size", 200, MEDIUM, Range(1, 1000),
        doc="Maximum number of members of a share group."),
    integer("group.share.min.assignment.interval.ms", 0, MEDIUM, Range(0),
        doc="Minimum assignment interval of a share group."),
    integer("group.share.min.delivery.count.limit", 2, MEDIUM, Range(2, 5),
        doc="Minimum value of `share.delivery.count.limit` of a group."),
    integer("group.share.min.heartbeat.interval.ms", 5000, MEDIUM, Range(1),
        doc="Minimum heartbeat interval of a share group."),
    integer("group.share.min.partition.max.record.locks", 100, MEDIUM, Range(100, 2000),
        doc="Minimum value of `share.partition.max.record.locks` of a group."),
    integer("group.share.min.record.lock.duration.ms", 15000, MEDIUM, Range(1000, 30000),
        doc="Minimum value of `share.record.lock.duration.ms` of a group."),
    integer("group.share.min.session.timeout.ms", 45000, MEDIUM, Range(1),
        doc="Minimum session timeout of a share group."),
    integer("group.share.partition.max.record.locks", 2000, MEDIUM, Range(100, 10000),
        doc="Maximum number of records in flight in a share-partition. A group can override it."),
    string(
        "group.share.persister.class.name",
        "org.apache.kafka.server.share.persister.DefaultStatePersister",
        MEDIUM,
        internal=True,
    ),
    integer("group.share.record.lock.duration.ms", 30000, MEDIUM, Range(1000, 3600000),
        doc=(
            "Duration of the acquisition lock of a record, after which a record that is not acknowledged is delivered "
            "again. A group can override it."
        )),
    integer("group.share.session.timeout.ms", 45000, MEDIUM, Range(1),
        doc="Session timeout of members of a share group. A group can override it."),
    integer("share.coordinator.append.linger.ms", -1, MEDIUM, Range(-1),
        doc=(
            "Time for which the share coordinator collects writes for one batch; with -1 it collects the writes of one "
            "turn of the event loop."
        )),
    integer("share.coordinator.cached.buffer.max.bytes", 1048588, MEDIUM, Range(524288), mode=CLUSTER_WIDE),
    integer("share.coordinator.cold.partition.snapshot.interval.ms", 300000, LOW, Range(1), internal=True,
        doc=(
            "Age at which the last snapshot of a share-partition is written again, so that the records before it can "
            "be deleted. Checked at this interval."
        )),
    integer("share.coordinator.load.buffer.size", 5242880, HIGH, Range(1)),
    integer("share.coordinator.snapshot.update.records.per.snapshot", 500, MEDIUM, Range(0, 500),
        doc="Number of update records of a share-partition between two snapshots."),
    integer("share.coordinator.state.topic.compression.codec", 0, HIGH),
    short("share.coordinator.state.topic.min.isr", 1, HIGH, Range(1),
        doc="`min.insync.replicas` of `__share_group_state` when it is created."),
    integer("share.coordinator.state.topic.num.partitions", 50, HIGH, Range(1),
        doc="Partitions of `__share_group_state` when it is created."),
    integer("share.coordinator.state.topic.prune.interval.ms", 300000, LOW, Range(1), internal=True,
        doc="Interval at which redundant records of `__share_group_state` are deleted."),
    short("share.coordinator.state.topic.replication.factor", 1, HIGH, Range(1),
        doc="Replicas of `__share_group_state` when it is created."),
    integer("share.coordinator.state.topic.segment.bytes", 104857600, HIGH, Range(1),
        doc="Segment size of `__share_group_state` when it is created."),
    integer("share.coordinator.threads", 1, MEDIUM, Range(1)),
    integer("share.coordinator.write.timeout.ms", 5000, HIGH, Range(1),
        doc="Timeout of an append to `__share_group_state`."),
    integer("share.fetch.purgatory.purge.interval.requests", 1000, MEDIUM),
)

STREAMS_KEYS: tuple[ConfigKey, ...] = (
    long("group.streams.acceptable.recovery.lag", 10000, MEDIUM, Range(0), internal=True,
        doc=(
            "Maximum lag, in offsets, at which a member counts as caught up with the state of a task; sent to the "
            "members. A group can override it."
        )),
    integer("group.streams.assignment.interval.ms", 1000, MEDIUM, Range(0), mode=CLUSTER_WIDE,
        doc="Minimum time between two assignments of a streams group. A group can override it."),
    boolean("group.streams.assignor.offload.enable", True, MEDIUM, internal=True, mode=CLUSTER_WIDE),
    list_of("group.streams.assignors", ("sticky",), MEDIUM, ValidList(is_empty_allowed=False),
        doc="Task assignors of streams groups, the default first: `sticky`."),
    integer("group.streams.heartbeat.interval.ms", 5000, MEDIUM, Range(1),
        doc="Heartbeat interval of members of a streams group. A group can override it."),
    integer("group.streams.initial.rebalance.delay.ms", 3000, MEDIUM, Range(0),
        doc=(
            "Delay of the first assignment of an empty streams group, in which further members can join. A group can "
            "override it."
        )),
    integer("group.streams.max.assignment.interval.ms", 15000, MEDIUM, Range(0),
        doc="Maximum assignment interval of a streams group."),
    integer("group.streams.max.heartbeat.interval.ms", 15000, MEDIUM, Range(1),
        doc="Maximum heartbeat interval of a streams group."),
    integer("group.streams.max.session.timeout.ms", 60000, MEDIUM, Range(1),
        doc="Maximum session timeout of a streams group."),
    integer("group.streams.max.size", INT_MAX, MEDIUM, Range(1),
        doc="Maximum number of members of a streams group."),
    integer("group.streams.max.standby.replicas", 2, MEDIUM, Range(0),
        doc="Maximum number of standby replicas of a task."),
    integer("group.streams.max.warmup.replicas", 20, MEDIUM, Range(0), internal=True,
        doc="Maximum value of `group.streams.num.warmup.replicas`, which has no effect."),
    integer("group.streams.min.assignment.interval.ms", 0, MEDIUM, Range(0),
        doc="Minimum assignment interval of a streams group."),
    integer("group.streams.min.heartbeat.interval.ms", 5000, MEDIUM, Range(1),
        doc="Minimum heartbeat interval of a streams group."),
    integer("group.streams.min.session.timeout.ms", 45000, MEDIUM, Range(1),
        doc="Minimum session timeout of a streams group."),
    integer("group.streams.min.task.offset.interval.ms", 15000, MEDIUM, Range(1), internal=True,
        doc="Minimum task offset interval of a streams group."),
    integer("group.streams.num.standby.replicas", 0, MEDIUM, Range(0),
        doc="Number of standby replicas of each task. A group can override it."),
    integer("group.streams.num.warmup.replicas", 2, MEDIUM, Range(0), internal=True),
    list_of("group.streams.rack.aware.assignment.tags", (), LOW, ValidList(),
        doc=(
            "Client tags that members must have; a member without them receives a status in its heartbeat responses. "
            "A group can "
            "override it."
        )),
    integer("group.streams.session.timeout.ms", 45000, MEDIUM, Range(1),
        doc="Session timeout of members of a streams group. A group can override it."),
    integer("group.streams.task.offset.interval.ms", 60000, MEDIUM, Range(1), internal=True,
        doc="Interval at which members of a streams group report the offsets of their tasks. A group can override it."),
    class_name("group.streams.topology.description.plugin.class", None, MEDIUM),
)
# fmt: on
