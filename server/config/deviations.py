"""Where a key is deliberately not what Apache Kafka 4.1 (or, for keys that it dropped, 3.9) has, and why."""

from __future__ import annotations

from typing import NamedTuple


class Deviation(NamedTuple):
    """One property of one key. `what` is default, allowed values (validator), update mode or required."""

    resource: str
    key: str
    what: str
    ours: str
    reason: str


_ONE_BROKER = "one broker is the usual cluster here, and there cannot be more replicas than brokers"
_FUTURE = "as in every release before 4.0, records of clients whose clock is fast are taken"
_SMALL_SEGMENTS = "as in every release before 4.0; folders and tests with small segments exist"
_NO_BATCH_FITS = "in smaller segments no batch has room, so that the topic would refuse every record"
_BOUNDED = "a flood meets a bound of the broker before it meets one of the machine"
_BOUND_ONCE = "sockets are bound once, at start"
_NOT_ONLY_KRAFT = "as up to 3.9: not every configuration is one of a KRaft quorum"
_FEW_PARTITIONS = "the usual cluster is one broker, where more only means more files and more syncs of the disk"
_LONG_MAX = str(2**63 - 1)

DEVIATIONS: tuple[Deviation, ...] = (
    Deviation("broker", "listeners", "default", "PLAINTEXT://127.0.0.1:9092", "nobody else can connect by accident"),
    Deviation("broker", "listeners", "mode", "read-only", _BOUND_ONCE),
    Deviation("broker", "listener.security.protocol.map", "mode", "read-only", _BOUND_ONCE),
    Deviation("broker", "log.dir", "default", "barnabas-data", "a folder below the present one outlives a reboot"),
    Deviation("broker", "node.id", "default", "-1", _NOT_ONLY_KRAFT),
    Deviation("broker", "process.roles", "default", "", _NOT_ONLY_KRAFT),
    Deviation("broker", "max.connections", "default", "20000", _BOUNDED),
    Deviation("broker", "max.connections.per.ip", "default", "1000", _BOUNDED),
    Deviation("broker", "group.max.size", "default", "1000", _BOUNDED),
    Deviation("broker", "log.segment.bytes", "validator", "[14,...]", _SMALL_SEGMENTS),
    Deviation("topic", "segment.bytes", "validator", "[14,...]", _SMALL_SEGMENTS),
    Deviation("topic", "internal.segment.bytes", "validator", "[100,...]", _NO_BATCH_FITS),
    Deviation("broker", "log.message.timestamp.after.max.ms", "default", _LONG_MAX, _FUTURE),
    Deviation("topic", "message.timestamp.after.max.ms", "default", _LONG_MAX, _FUTURE),
    Deviation("broker", "offsets.topic.num.partitions", "default", "8", _FEW_PARTITIONS),
    Deviation("broker", "offsets.topic.replication.factor", "default", "1", _ONE_BROKER),
    Deviation("broker", "share.coordinator.state.topic.min.isr", "default", "1", _ONE_BROKER),
    Deviation("broker", "share.coordinator.state.topic.replication.factor", "default", "1", _ONE_BROKER),
    Deviation("broker", "transaction.state.log.min.isr", "default", "1", _ONE_BROKER),
    Deviation("broker", "transaction.state.log.replication.factor", "default", "1", _ONE_BROKER),
)
