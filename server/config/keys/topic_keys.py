"""Keys of a topic; most take their default from a broker key."""

from __future__ import annotations

from .builders import LONG_MAX, LOW, MEDIUM, boolean, double, integer, list_of, long, string
from .definition import ConfigKey
from .validators import MetadataVersion, OneOf, Range, RangeOr, ThrottledReplicas, ValidList

# Shared with the broker keys of the same meaning.
MESSAGE_FORMAT_DOC = (
    "Format of stored records, by the release that introduced it (0.8.0, 0.10.0, 0.11.0), as in Kafka 3: it applies "
    "only if `inter.broker.protocol.version` is below 3.0. The older two formats have no record headers."
)
MIN_IN_SYNC_DOC = (
    "Minimum number of in-sync replicas for writes with acks=all, at most the number of replicas of the partition, as "
    "in Kafka."
)
UNCLEAN_ELECTION_DOC = (
    "Whether a replica that is not in sync may become the leader if no in-sync replica is available. Records that it "
    "does not have are lost."
)
LARGEST_BATCH_DOC = (
    "Maximum size of a record batch, after compression by the producer. A decompressed batch may have 24 times this "
    "size, at most 64 MiB, or this size if it is larger; above 24 MiB it may have at most 24 times its compressed "
    "size. "
    "A batch may have one record per byte of this size, or 100 000 records if that is more."
)
CLEANUP_POLICY_DOC = (
    "`delete` removes old segments by age and size, `compact` all records of a key except the latest; both can be "
    "combined. Empty: all records are kept until DeleteRecords removes them (KIP-1161)."
)
MAX_DECOMPRESSED_DOC = (
    "Maximum size of one record after decompression, without the length field in front of it. Larger records are "
    "rejected."
)
LARGEST_DECOMPRESSED = 2147483639

# fmt: off
TOPIC_KEYS: tuple[ConfigKey, ...] = (
    list_of("cleanup.policy", ("delete",), MEDIUM, ValidList("compact", "delete"),
        doc=CLEANUP_POLICY_DOC),
    integer("compression.gzip.level", -1, MEDIUM, RangeOr(1, 9, -1),
        doc="Compression level of the broker for gzip; -1 is gzip's own default."),
    integer("compression.lz4.level", 9, MEDIUM, Range(1, 17),
        doc="Compression level of the broker for lz4."),
    string("compression.type", "producer", MEDIUM, OneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        doc=(
            "Codec of stored batches; `producer` keeps the codec of the producer, `uncompressed` stores without "
            "compression."
        )),
    integer("compression.zstd.level", 3, MEDIUM, Range(-131072, 22),
        doc="Compression level of the broker for zstd."),
    long("delete.retention.ms", 86400000, MEDIUM, Range(0),
        doc="Time for which a tombstone, a key without a value, is retained in a compacted log."),
    boolean("errors.deadletterqueue.group.enable", False, MEDIUM,
        doc="Whether share groups may use the topic as their dead-letter queue (KIP-1191)."),
    long("file.delete.delay.ms", 60000, MEDIUM, Range(0),
        doc="Time before the files of a deleted segment are removed."),
    long("flush.messages", LONG_MAX, MEDIUM, Range(1),
        doc=(
            "Number of unflushed records after which the log is synced to disk, before the last of them is "
            "acknowledged."
        )),
    long("flush.ms", LONG_MAX, MEDIUM, Range(0),
        doc="Time after which an unflushed record is synced to disk."),
    list_of("follower.replication.throttled.replicas", (), MEDIUM, ThrottledReplicas(),
        doc=(
            "Replicas, `partition:broker,…` or `*`, whose fetches are limited by their broker's "
            "`follower.replication.throttled.rate` while they are not in sync."
        )),
    integer("index.interval.bytes", 4096, MEDIUM, Range(0),
        doc="Bytes of records between two index entries."),
    integer("internal.segment.bytes", None, MEDIUM, Range(100), internal=True,
        doc=(
            "Size at which a new segment is rolled, instead of `segment.bytes`; for tests. A larger batch is rejected; "
            "a batch with a single short record has about 80 bytes."
        )),
    list_of("leader.replication.throttled.replicas", (), MEDIUM, ThrottledReplicas(),
        doc=(
            "Replicas, `partition:broker,…` or `*`, to which the leader sends at most "
            "`leader.replication.throttled.rate` while they are not in sync."
        )),
    long("local.retention.bytes", -2, MEDIUM, Range(-2)),
    long("local.retention.ms", -2, MEDIUM, Range(-2)),
    long("max.compaction.lag.ms", LONG_MAX, MEDIUM, Range(1),
        doc="Maximum time after which the log of a new record becomes eligible for compaction."),
    integer("max.decompressed.message.bytes", LARGEST_DECOMPRESSED, MEDIUM, Range(1, LARGEST_DECOMPRESSED),
        doc=MAX_DECOMPRESSED_DOC),
    integer("max.message.bytes", 1048588, MEDIUM, Range(0),
        doc=LARGEST_BATCH_DOC),
    boolean("message.downconversion.enable", True, LOW),
    string("message.format.version", "3.0-IV1", MEDIUM, MetadataVersion(),
        doc=MESSAGE_FORMAT_DOC),
    long("message.timestamp.after.max.ms", LONG_MAX, MEDIUM, Range(0),
        doc="Maximum time by which a record's timestamp may be ahead of the broker's clock."),
    long("message.timestamp.before.max.ms", LONG_MAX, MEDIUM, Range(0),
        doc="Maximum time by which a record's timestamp may be older than the broker's clock."),
    long("message.timestamp.difference.max.ms", LONG_MAX, MEDIUM, Range(0),
        doc=(
            "Former key for `message.timestamp.before.max.ms` and `.after.max.ms`, which take precedence if they are "
            "set."
        )),
    string("message.timestamp.type", "CreateTime", MEDIUM, OneOf("CreateTime", "LogAppendTime"),
        doc=(
            "Whether records keep the producer's timestamp (CreateTime) or receive the time of the append "
            "(LogAppendTime)."
        )),
    double("min.cleanable.dirty.ratio", 0.5, MEDIUM, Range(0, 1),
        doc="Ratio of dirty bytes to all bytes of a log above which the log is eligible for compaction."),
    long("min.compaction.lag.ms", 0, MEDIUM, Range(0),
        doc="Minimum time for which a record is not compacted."),
    integer("min.insync.replicas", 1, MEDIUM, Range(1),
        doc=MIN_IN_SYNC_DOC),
    boolean("preallocate", False, MEDIUM,
        doc="Whether segment files have their full size from their creation on."),
    long("remote.copy.lag.bytes", -1, MEDIUM, Range(-1)),
    long("remote.copy.lag.ms", 0, MEDIUM, Range(-1)),
    boolean("remote.log.copy.disable", False, MEDIUM),
    boolean("remote.log.delete.on.disable", False, MEDIUM),
    boolean("remote.storage.enable", False, MEDIUM),
    long("retention.bytes", -1, MEDIUM,
        doc="Size of a partition above which its oldest segments are deleted; -1: no limit."),
    long("retention.ms", 604800000, MEDIUM, Range(-1),
        doc="Age at which segments are deleted; -1: never."),
    integer("segment.bytes", 1073741824, MEDIUM, Range(14),
        doc="Size at which a new segment is rolled."),
    integer("segment.index.bytes", 10485760, MEDIUM, Range(4),
        doc="Maximum size of an index file; a full index rolls the segment."),
    long("segment.jitter.ms", 0, MEDIUM, Range(0),
        doc="Maximum random reduction of `segment.ms`, which spreads the rolls of many logs over time."),
    long("segment.ms", 604800000, MEDIUM, Range(1),
        doc="Age at which a new segment is rolled."),
    boolean("unclean.leader.election.enable", False, MEDIUM,
        doc=UNCLEAN_ELECTION_DOC),
)
# fmt: on
