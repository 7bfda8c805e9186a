"""Keys of tiered storage, which Barnabas does not support: all are accepted without effect."""

from __future__ import annotations

from .builders import CLUSTER_WIDE, LONG_MAX, LOW, MEDIUM, boolean, double, integer, long, string
from .definition import ConfigKey
from .validators import NonEmpty, Range

REMOTE_KEYS: tuple[ConfigKey, ...] = (
    boolean("follower.fetch.last.tiered.offset.enable", False, MEDIUM, mode=CLUSTER_WIDE),
    long("log.local.retention.bytes", -2, MEDIUM, Range(-2), mode=CLUSTER_WIDE),
    long("log.local.retention.ms", -2, MEDIUM, Range(-2), mode=CLUSTER_WIDE),
    long("log.remote.copy.lag.bytes", -1, MEDIUM, Range(-1), mode=CLUSTER_WIDE),
    long("log.remote.copy.lag.ms", 0, MEDIUM, Range(-1), mode=CLUSTER_WIDE),
    integer("remote.fetch.max.wait.ms", 500, MEDIUM, Range(1), mode=CLUSTER_WIDE),
    long("remote.list.offsets.request.timeout.ms", 30000, MEDIUM, Range(1), mode=CLUSTER_WIDE),
    long("remote.log.index.file.cache.total.size.bytes", 1073741824, LOW, Range(1), mode=CLUSTER_WIDE),
    long("remote.log.index.file.cache.ttl.ms", 900000, LOW, Range(-1), internal=True),
    integer("remote.log.manager.copier.thread.pool.size", 10, MEDIUM, Range(1), mode=CLUSTER_WIDE),
    long("remote.log.manager.copy.max.bytes.per.second", LONG_MAX, MEDIUM, Range(1), mode=CLUSTER_WIDE),
    integer("remote.log.manager.copy.quota.window.num", 11, MEDIUM, Range(1)),
    integer("remote.log.manager.copy.quota.window.size.seconds", 1, MEDIUM, Range(1)),
    integer("remote.log.manager.expiration.thread.pool.size", 10, MEDIUM, Range(1), mode=CLUSTER_WIDE),
    long("remote.log.manager.fetch.max.bytes.per.second", LONG_MAX, MEDIUM, Range(1), mode=CLUSTER_WIDE),
    integer("remote.log.manager.fetch.quota.window.num", 11, MEDIUM, Range(1)),
    integer("remote.log.manager.fetch.quota.window.size.seconds", 1, MEDIUM, Range(1)),
    integer("remote.log.manager.follower.thread.pool.size", 2, MEDIUM, Range(1), mode=CLUSTER_WIDE),
    long("remote.log.manager.task.interval.ms", 30000, LOW, Range(1)),
    long("remote.log.manager.task.retry.backoff.max.ms", 30000, LOW, Range(1), internal=True),
    long("remote.log.manager.task.retry.backoff.ms", 500, LOW, Range(1), internal=True),
    double("remote.log.manager.task.retry.jitter", 0.2, LOW, Range(0, 0.5), internal=True),
    integer("remote.log.manager.thread.pool.size", 2, MEDIUM, Range(1)),
    integer("remote.log.metadata.custom.metadata.max.bytes", 128, LOW, Range(0)),
    string(
        "remote.log.metadata.manager.class.name",
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        MEDIUM,
        NonEmpty(),
    ),
    string("remote.log.metadata.manager.class.path", None, MEDIUM),
    string("remote.log.metadata.manager.impl.prefix", "rlmm.config.", MEDIUM, NonEmpty()),
    string("remote.log.metadata.manager.listener.name", None, MEDIUM, NonEmpty()),
    integer("remote.log.reader.max.pending.tasks", 100, MEDIUM, Range(1)),
    integer("remote.log.reader.threads", 10, MEDIUM, Range(1), mode=CLUSTER_WIDE),
    string("remote.log.storage.manager.class.name", None, MEDIUM, NonEmpty()),
    string("remote.log.storage.manager.class.path", None, MEDIUM),
    string("remote.log.storage.manager.impl.prefix", "rsm.config.", MEDIUM, NonEmpty()),
    boolean("remote.log.storage.system.enable", False, MEDIUM),
)
