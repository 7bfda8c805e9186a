"""Keys of a topic; most take their default from a broker key."""

from __future__ import annotations

from .builders import LONG_MAX, LOW, MEDIUM, boolean, double, integer, list_of, long, string
from .definition import ConfigKey
from .validators import MetadataVersion, OneOf, Range, RangeOr, ThrottledReplicas

TOPIC_KEYS: tuple[ConfigKey, ...] = (
    list_of("cleanup.policy", ("delete",), MEDIUM, OneOf("compact", "delete")),
    integer("compression.gzip.level", -1, MEDIUM, RangeOr(1, 9, -1)),
    integer("compression.lz4.level", 9, MEDIUM, Range(1, 17)),
    string("compression.type", "producer", MEDIUM, OneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
    integer("compression.zstd.level", 3, MEDIUM, Range(-131072, 22)),
    long("delete.retention.ms", 86400000, MEDIUM, Range(0)),
    long("file.delete.delay.ms", 60000, MEDIUM, Range(0)),
    long("flush.messages", LONG_MAX, MEDIUM, Range(1)),
    long("flush.ms", LONG_MAX, MEDIUM, Range(0)),
    list_of("follower.replication.throttled.replicas", (), MEDIUM, ThrottledReplicas()),
    integer("index.interval.bytes", 4096, MEDIUM, Range(0)),
    integer("internal.segment.bytes", None, MEDIUM, Range(100), internal=True),
    list_of("leader.replication.throttled.replicas", (), MEDIUM, ThrottledReplicas()),
    long("local.retention.bytes", -2, MEDIUM, Range(-2)),
    long("local.retention.ms", -2, MEDIUM, Range(-2)),
    long("max.compaction.lag.ms", LONG_MAX, MEDIUM, Range(1)),
    integer("max.message.bytes", 1048588, MEDIUM, Range(0)),
    boolean("message.downconversion.enable", True, LOW),
    string("message.format.version", "3.0-IV1", MEDIUM, MetadataVersion()),
    long("message.timestamp.after.max.ms", LONG_MAX, MEDIUM, Range(0)),
    long("message.timestamp.before.max.ms", LONG_MAX, MEDIUM, Range(0)),
    long("message.timestamp.difference.max.ms", LONG_MAX, MEDIUM, Range(0)),
    string("message.timestamp.type", "CreateTime", MEDIUM, OneOf("CreateTime", "LogAppendTime")),
    double("min.cleanable.dirty.ratio", 0.5, MEDIUM, Range(0, 1)),
    long("min.compaction.lag.ms", 0, MEDIUM, Range(0)),
    integer("min.insync.replicas", 1, MEDIUM, Range(1)),
    boolean("preallocate", False, MEDIUM),
    boolean("remote.log.copy.disable", False, MEDIUM),
    boolean("remote.log.delete.on.disable", False, MEDIUM),
    boolean("remote.storage.enable", False, MEDIUM),
    long("retention.bytes", -1, MEDIUM),
    long("retention.ms", 604800000, MEDIUM, Range(-1)),
    integer("segment.bytes", 1073741824, MEDIUM, Range(14)),
    integer("segment.index.bytes", 10485760, MEDIUM, Range(4)),
    long("segment.jitter.ms", 0, MEDIUM, Range(0)),
    long("segment.ms", 604800000, MEDIUM, Range(1)),
    boolean("unclean.leader.election.enable", False, MEDIUM),
)
