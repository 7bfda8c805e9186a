"""Keys of a group (KIP-848, KIP-932, KIP-1071, KIP-1191). Most take their default from a broker key."""

from __future__ import annotations

from .builders import LOW, MEDIUM, boolean, integer, list_of, long, string
from .definition import ConfigKey
from .validators import OffsetReset, OneOf, Range, ValidList

# fmt: off
GROUP_KEYS: tuple[ConfigKey, ...] = (
    integer("consumer.assignment.interval.ms", 1000, MEDIUM, Range(0)),
    boolean("consumer.assignor.offload.enable", True, MEDIUM, internal=True),
    integer("consumer.heartbeat.interval.ms", 5000, MEDIUM, Range(1)),
    integer("consumer.session.timeout.ms", 45000, MEDIUM, Range(1)),
    boolean("errors.deadletterqueue.copy.record.enable", False, MEDIUM,
        doc="Whether a dead letter has the key and value of the record, in addition to headers that describe it."),
    string("errors.deadletterqueue.topic.name", "", MEDIUM,
        doc=(
            "Dead-letter topic of the share group (KIP-1191), which requires `errors.deadletterqueue.group.enable`; "
            "empty for none."
        )),
    integer("share.assignment.interval.ms", 1000, MEDIUM, Range(0)),
    boolean("share.assignor.offload.enable", True, MEDIUM, internal=True),
    string("share.auto.offset.reset", "latest", MEDIUM, OffsetReset(),
        doc=(
            "Position at which a share group begins to read a partition: `earliest`, `latest`, or `by_duration:` with "
            "an ISO 8601 duration before the present time."
        )),
    integer("share.delivery.count.limit", 5, MEDIUM, Range(2)),
    integer("share.heartbeat.interval.ms", 5000, MEDIUM, Range(1)),
    string("share.isolation.level", "read_uncommitted", MEDIUM, OneOf("read_committed", "read_uncommitted"),
        doc="Whether a share group receives records of open and aborted transactions: only with `read_uncommitted`."),
    integer("share.partition.max.record.locks", 2000, MEDIUM, Range(100)),
    integer("share.record.lock.duration.ms", 30000, MEDIUM, Range(1000)),
    boolean("share.renew.acknowledge.enable", True, MEDIUM,
        doc="Whether members may renew the acquisition lock of a record (KIP-1222)."),
    integer("share.session.timeout.ms", 45000, MEDIUM, Range(1)),
    long("streams.acceptable.recovery.lag", 10000, MEDIUM, Range(0), internal=True),
    integer("streams.assignment.interval.ms", 1000, MEDIUM, Range(0)),
    string("streams.assignor.name", None, MEDIUM,
        doc="Task assignor of the streams group, one of `group.streams.assignors`."),
    boolean("streams.assignor.offload.enable", True, MEDIUM, internal=True),
    integer("streams.heartbeat.interval.ms", 5000, MEDIUM, Range(1)),
    integer("streams.initial.rebalance.delay.ms", 3000, MEDIUM, Range(0)),
    integer("streams.num.standby.replicas", 0, MEDIUM, Range(0)),
    integer("streams.num.warmup.replicas", 2, MEDIUM, Range(0), internal=True),
    list_of("streams.rack.aware.assignment.tags", (), LOW, ValidList()),
    integer("streams.session.timeout.ms", 45000, MEDIUM, Range(1)),
    integer("streams.task.offset.interval.ms", 60000, MEDIUM, Range(1), internal=True),
)
# fmt: on
