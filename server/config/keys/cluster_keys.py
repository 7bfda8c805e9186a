"""Keys of identity, topics, replication, leadership and policies."""

from __future__ import annotations

from .builders import CLUSTER_WIDE, HIGH, LONG_MAX, LOW, MEDIUM, boolean, class_name, integer, long, string
from .definition import ConfigKey
from .validators import MetadataVersion, Range

CLUSTER_KEYS: tuple[ConfigKey, ...] = (
    class_name("alter.config.policy.class.name", None, LOW),
    integer("alter.log.dirs.replication.quota.window.num", 11, LOW, Range(1)),
    integer("alter.log.dirs.replication.quota.window.size.seconds", 1, LOW, Range(1)),
    boolean("auto.create.topics.enable", True, HIGH),
    boolean("auto.leader.rebalance.enable", True, HIGH),
    integer("background.threads", 10, HIGH, Range(1), mode=CLUSTER_WIDE),
    integer("broker.id", -1, HIGH),
    boolean("broker.id.generation.enable", True, MEDIUM),
    string("broker.rack", None, MEDIUM),
    boolean("controlled.shutdown.enable", True, MEDIUM),
    integer("controlled.shutdown.max.retries", 3, MEDIUM),
    long("controlled.shutdown.retry.backoff.ms", 5000, MEDIUM),
    class_name("create.topic.policy.class.name", None, LOW),
    integer("default.replication.factor", 1, MEDIUM),
    integer("delete.records.purgatory.purge.interval.requests", 1, MEDIUM),
    boolean("delete.topic.enable", True, HIGH),
    integer("fetch.max.bytes", 57671680, MEDIUM, Range(1024)),
    integer("fetch.purgatory.purge.interval.requests", 1000, MEDIUM),
    string("inter.broker.protocol.version", "3.9-IV0", MEDIUM, MetadataVersion()),
    long("leader.imbalance.check.interval.seconds", 300, HIGH, Range(1)),
    integer("leader.imbalance.per.broker.percentage", 10, HIGH),
    long("log.dir.failure.timeout.ms", 30000, LOW, Range(1)),
    integer("max.incremental.fetch.session.cache.slots", 1000, MEDIUM, Range(0)),
    integer("max.request.partition.size.limit", 2000, MEDIUM, Range(1)),
    integer("min.insync.replicas", 1, HIGH, Range(1), mode=CLUSTER_WIDE),
    integer("num.partitions", 1, MEDIUM, Range(1)),
    integer("num.recovery.threads.per.data.dir", 2, HIGH, Range(1), mode=CLUSTER_WIDE),
    integer("num.replica.alter.log.dirs.threads", None, HIGH),
    integer("num.replica.fetchers", 1, HIGH, mode=CLUSTER_WIDE),
    integer("producer.purgatory.purge.interval.requests", 1000, MEDIUM),
    integer("replica.fetch.backoff.ms", 1000, MEDIUM, Range(0)),
    integer("replica.fetch.max.bytes", 1048576, MEDIUM, Range(0)),
    integer("replica.fetch.min.bytes", 1, HIGH),
    integer("replica.fetch.response.max.bytes", 10485760, MEDIUM, Range(0)),
    integer("replica.fetch.wait.max.ms", 500, HIGH),
    long("replica.high.watermark.checkpoint.interval.ms", 5000, HIGH),
    long("replica.lag.time.max.ms", 30000, HIGH),
    string("replica.selector.class", None, MEDIUM),
    integer("replica.socket.receive.buffer.bytes", 65536, HIGH),
    integer("replica.socket.timeout.ms", 30000, HIGH),
    integer("replication.quota.window.num", 11, LOW, Range(1)),
    integer("replication.quota.window.size.seconds", 1, LOW, Range(1)),
    integer("reserved.broker.max.id", 1000, MEDIUM, Range(0)),
    boolean("unclean.leader.election.enable", False, HIGH, mode=CLUSTER_WIDE),
)

# Replication throttles, which only ever live in the store: a file cannot set them.
DYNAMIC_ONLY_KEYS: tuple[ConfigKey, ...] = (
    long("follower.replication.throttled.rate", LONG_MAX, MEDIUM, Range(0), mode=CLUSTER_WIDE),
    long("leader.replication.throttled.rate", LONG_MAX, MEDIUM, Range(0), mode=CLUSTER_WIDE),
    long("replica.alter.log.dirs.io.max.bytes.per.second", LONG_MAX, MEDIUM, Range(0), mode=CLUSTER_WIDE),
)
