"""Keys of logs, segments, retention, compaction and compression."""

from __future__ import annotations

from .builders import (
    CLUSTER_WIDE,
    HIGH,
    LONG_MAX,
    LOW,
    MEDIUM,
    PER_BROKER,
    boolean,
    double,
    integer,
    list_of,
    long,
    string,
)
from .definition import ConfigKey
from .topic_keys import (
    CLEANUP_POLICY_DOC,
    LARGEST_BATCH_DOC,
    LARGEST_DECOMPRESSED,
    MAX_DECOMPRESSED_DOC,
    MESSAGE_FORMAT_DOC,
)
from .validators import MetadataVersion, OneOf, Range, RangeOr, ValidList

DEFAULT_DEDUPE_BUFFER_BYTES = 134217728

# fmt: off
LOG_KEYS: tuple[ConfigKey, ...] = (
    integer("compression.gzip.level", -1, MEDIUM, RangeOr(1, 9, -1), mode=CLUSTER_WIDE,
        doc="Compression level of the broker for gzip; -1 is gzip's own default."),
    integer("compression.lz4.level", 9, MEDIUM, Range(1, 17), mode=CLUSTER_WIDE,
        doc="Compression level of the broker for lz4."),
    string(
        "compression.type",
        "producer",
        HIGH,
        OneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        mode=CLUSTER_WIDE,
        doc=(
            "Codec of stored batches; `producer` keeps the codec of the producer, `uncompressed` stores without "
            "compression."
        ),
    ),
    integer("compression.zstd.level", 3, MEDIUM, Range(-131072, 22), mode=CLUSTER_WIDE,
        doc="Compression level of the broker for zstd."),
    long("log.cleaner.backoff.ms", 15000, MEDIUM, Range(0), mode=CLUSTER_WIDE,
        doc="Pause of the cleaner when no log is dirty enough."),
    long("log.cleaner.dedupe.buffer.size", DEFAULT_DEDUPE_BUFFER_BYTES, MEDIUM, mode=CLUSTER_WIDE,
        doc=(
            "Memory for the offset maps of all `log.cleaner.threads` together. The default value means a quarter of "
            "the control group's memory limit if that is less."
        )),
    long("log.cleaner.delete.retention.ms", 86400000, MEDIUM, Range(0), mode=CLUSTER_WIDE,
        doc="Time for which a tombstone, a key without a value, is retained in a compacted log."),
    boolean("log.cleaner.enable", True, MEDIUM,
        doc="Whether logs of topics with `cleanup.policy=compact` are compacted automatically."),
    double("log.cleaner.io.buffer.load.factor", 0.9, MEDIUM, mode=CLUSTER_WIDE,
        doc="Maximum load of the offset map in one pass."),
    integer("log.cleaner.io.buffer.size", 524288, MEDIUM, Range(0), mode=CLUSTER_WIDE,
        doc="Read buffers of all `log.cleaner.threads` together."),
    double("log.cleaner.io.max.bytes.per.second", 1.7976931348623157e308, MEDIUM, mode=CLUSTER_WIDE,
        doc="Maximum average rate of reads and writes of the cleaner."),
    long("log.cleaner.max.compaction.lag.ms", LONG_MAX, MEDIUM, Range(1), mode=CLUSTER_WIDE,
        doc="Maximum time after which the log of a new record becomes eligible for compaction."),
    double("log.cleaner.min.cleanable.ratio", 0.5, MEDIUM, Range(0, 1), mode=CLUSTER_WIDE,
        doc="Ratio of dirty bytes to all bytes of a log above which the log is eligible for compaction."),
    long("log.cleaner.min.compaction.lag.ms", 0, MEDIUM, Range(0), mode=CLUSTER_WIDE,
        doc="Minimum time for which a record is not compacted."),
    integer("log.cleaner.threads", 1, MEDIUM, Range(0), mode=CLUSTER_WIDE,
        doc="Number of logs that are cleaned at the same time, each by a separate process."),
    list_of("cordoned.log.dirs", (), MEDIUM, ValidList(is_null_allowed=True), mode=PER_BROKER,
        doc=(
            "Log directories of `log.dirs` without new partitions, or `*` for all; if all are cordoned, a standalone "
            "broker creates no topics, and a member of a cluster ignores the setting."
        )),
    list_of("log.cleanup.policy", ("delete",), MEDIUM, ValidList("compact", "delete"), mode=CLUSTER_WIDE,
        doc=CLEANUP_POLICY_DOC),
    list_of("log.dir", ("barnabas-data",), HIGH, ValidList(is_empty_allowed=False),
        doc="Log directory if `log.dirs` is not set."),
    list_of("log.dirs", None, HIGH, ValidList(is_empty_allowed=False, is_null_allowed=True),
        doc=(
            "Log directories, separated by commas; a new partition is created in the directory with the fewest "
            "partitions."
        )),
    long("log.flush.interval.messages", LONG_MAX, HIGH, Range(1), mode=CLUSTER_WIDE,
        doc=(
            "Number of unflushed records after which the log is synced to disk, before the last of them is "
            "acknowledged."
        )),
    long("log.flush.interval.ms", None, HIGH, mode=CLUSTER_WIDE,
        doc="Time after which an unflushed record is synced to disk."),
    integer("log.flush.offset.checkpoint.interval.ms", 60000, HIGH, Range(0),
        doc="Interval at which recovery points, the offsets below which all records are on disk, are written."),
    long("log.flush.scheduler.interval.ms", LONG_MAX, HIGH,
        doc="Interval at which logs are checked for records to flush."),
    integer("log.flush.start.offset.checkpoint.interval.ms", 60000, HIGH, Range(0),
        doc="Interval at which log start offsets are written."),
    integer("log.index.interval.bytes", 4096, MEDIUM, Range(0), mode=CLUSTER_WIDE,
        doc="Bytes of records between two index entries."),
    integer("log.index.size.max.bytes", 10485760, MEDIUM, Range(4), mode=CLUSTER_WIDE,
        doc="Maximum size of an index file; a full index rolls the segment."),
    long("log.initial.task.delay.ms", 30000, LOW, Range(0), internal=True,
        doc="Delay of the first retention check after the start."),
    boolean("log.message.downconversion.enable", True, LOW, mode=CLUSTER_WIDE),
    string("log.message.format.version", "3.0-IV1", MEDIUM, MetadataVersion(),
        doc=MESSAGE_FORMAT_DOC),
    long("log.message.timestamp.after.max.ms", LONG_MAX, MEDIUM, Range(0), mode=CLUSTER_WIDE,
        doc="Maximum time by which a record's timestamp may be ahead of the broker's clock."),
    long("log.message.timestamp.before.max.ms", LONG_MAX, MEDIUM, Range(0), mode=CLUSTER_WIDE,
        doc="Maximum time by which a record's timestamp may be older than the broker's clock."),
    long("log.message.timestamp.difference.max.ms", LONG_MAX, MEDIUM, Range(0), mode=CLUSTER_WIDE,
        doc=(
            "Former key for `log.message.timestamp.before.max.ms` and `.after.max.ms`, which take precedence if they "
            "are set."
        )),
    string("log.message.timestamp.type", "CreateTime", MEDIUM, OneOf("CreateTime", "LogAppendTime"), mode=CLUSTER_WIDE,
        doc=(
            "Whether records keep the producer's timestamp (CreateTime) or receive the time of the append "
            "(LogAppendTime)."
        )),
    boolean("log.preallocate", False, MEDIUM, mode=CLUSTER_WIDE,
        doc="Whether segment files have their full size from their creation on."),
    long("log.retention.bytes", -1, HIGH, mode=CLUSTER_WIDE,
        doc="Size of a partition above which its oldest segments are deleted; -1: no limit."),
    long("log.retention.check.interval.ms", 300000, MEDIUM, Range(1),
        doc="Interval at which logs are checked for segments to delete."),
    integer("log.retention.hours", 168, HIGH,
        doc="Age at which segments are deleted, if `log.retention.minutes` and `log.retention.ms` are not set."),
    integer("log.retention.minutes", None, HIGH,
        doc="Age at which segments are deleted, if `log.retention.ms` is not set."),
    long("log.retention.ms", None, HIGH, mode=CLUSTER_WIDE,
        doc="Age at which segments are deleted; -1: never."),
    integer("log.roll.hours", 168, HIGH, Range(1),
        doc="Age at which a new segment is rolled, if `log.roll.ms` is not set."),
    integer("log.roll.jitter.hours", 0, HIGH, Range(0),
        doc="Maximum random reduction of `log.roll.hours`, which spreads the rolls of many logs over time."),
    long("log.roll.jitter.ms", None, HIGH, mode=CLUSTER_WIDE,
        doc="Maximum random reduction of `log.roll.ms`, which spreads the rolls of many logs over time."),
    long("log.roll.ms", None, HIGH, mode=CLUSTER_WIDE,
        doc="Age at which a new segment is rolled."),
    integer("log.segment.bytes", 1073741824, HIGH, Range(14), mode=CLUSTER_WIDE,
        doc="Size at which a new segment is rolled."),
    long("log.segment.delete.delay.ms", 60000, HIGH, Range(0), mode=CLUSTER_WIDE,
        doc="Time before the files of a deleted segment are removed."),
    integer(
        "max.decompressed.message.bytes",
        LARGEST_DECOMPRESSED,
        MEDIUM,
        Range(1, LARGEST_DECOMPRESSED),
        mode=CLUSTER_WIDE,
        doc=MAX_DECOMPRESSED_DOC,
    ),
    integer("message.max.bytes", 1048588, HIGH, Range(0), mode=CLUSTER_WIDE,
        doc=LARGEST_BATCH_DOC),
)
# fmt: on
