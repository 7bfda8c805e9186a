"""The dirty ratio of a log, and the part of the log that can be cleaned now."""

from dataclasses import dataclass

from ...protocol.topic_partition import TopicPartition
from ..log import Log
from ..log_segment import LogSegment
from .clean_job import NO_DATA_OFFSET, ActiveProducer, CleanJob, SourceSegment


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """The `log.cleaner.*` settings of one pass."""

    hash_name: str = "MD5"
    dedupe_buffer_bytes: int = 134_217_728
    load_factor: float = 0.9
    io_buffer_bytes: int = 524_288


@dataclass(frozen=True, slots=True)
class LogToClean:
    """Kafka's LogToClean: one log at one moment.

    The part below `first_dirty_offset` is clean. The log can be cleaned up to `first_uncleanable_offset`, the base
    offset of a segment. The delay is the excess of the oldest dirty record's age over `max.compaction.lag.ms`, at
    least 0.
    """

    topic_partition: TopicPartition
    log: Log
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    compaction_delay_ms: int

    @property
    def total_bytes(self) -> int:
        """Clean and cleanable."""
        return self.clean_bytes + self.cleanable_bytes

    @property
    def dirty_ratio(self) -> float:
        """Cleanable bytes in all bytes that a pass would go through."""
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0

    @property
    def is_cleanable(self) -> bool:
        """Whether there is anything that a pass would look at."""
        return self.first_dirty_offset < self.first_uncleanable_offset and self.cleanable_bytes > 0

    @property
    def is_clean(self) -> bool:
        """Whether everything that may be cleaned has been, and that is something."""
        return self.first_dirty_offset == self.first_uncleanable_offset and self.clean_bytes > 0

    @property
    def is_due(self) -> bool:
        """Whether the log is dirty enough, or has been dirty for long enough."""
        too_dirty = self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio
        return self.is_cleanable and (too_dirty or self.compaction_delay_ms > 0)

    def job(self, settings: CleanerSettings, now_ms: int) -> CleanJob:
        """Return the pass as a value."""
        log, bound = self.log, self.first_uncleanable_offset
        config = log.config
        return CleanJob(
            directory=log.path,
            segments=tuple(SourceSegment(s.base_offset, s.size) for s in log.segments if s.base_offset < bound),
            first_dirty_offset=self.first_dirty_offset,
            first_uncleanable_offset=bound,
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_size,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            max_decompressed_message_bytes=config.max_decompressed_message_bytes,
            active_producers=tuple(
                ActiveProducer(entry.producer_id, max(entry.last_offset, NO_DATA_OFFSET), entry.producer_epoch)
                for entry in log.producer_state.producers.values()
            ),
            aborted_transactions=tuple(
                aborted
                for segment in log.segments
                for aborted in segment.indexes.transactions.entries
                if aborted.first_offset < bound
            ),
            hash_name=settings.hash_name,
            dedupe_buffer_bytes=settings.dedupe_buffer_bytes,
            load_factor=settings.load_factor,
            io_buffer_bytes=settings.io_buffer_bytes,
        )


def log_to_clean(
    topic_partition: TopicPartition, log: Log, clean_offset: int | None, now_ms: int, *, ignore_lag: bool = False
) -> LogToClean:
    """Describe a log that is clean below `clean_offset` (None: not cleaned yet). Raises OSError.

    A clean offset outside the log, which was truncated or restored, is ignored. The pass does not touch the active
    segment, records from the last stable offset on, records younger than `min.compaction.lag.ms`, and records that are
    not yet on disk: a crash must not lose a later value after the cleaner has removed the earlier value of its key.
    """
    start = log.log_start_offset
    first_dirty = start if clean_offset is None or not start <= clean_offset <= log.log_end_offset else clean_offset
    active = log.active_segment.base_offset
    bound = min(log.last_stable_offset, log.recovery_point, active)
    dirty = _between(log.segments[:-1], first_dirty, active)
    if log.config.min_compaction_lag_ms > 0 and not ignore_lag:
        limit = now_ms - log.config.min_compaction_lag_ms
        bound = min(bound, next((one.base_offset for one in dirty if one.largest_timestamp > limit), bound))
    bound = next((one.base_offset for one in reversed(log.segments) if one.base_offset <= bound), 0)
    below = [segment for segment in log.segments if segment.base_offset < bound]
    cleanable = sum(segment.size for segment in _between(below, first_dirty, bound))
    return LogToClean(
        topic_partition=topic_partition,
        log=log,
        first_dirty_offset=first_dirty,
        first_uncleanable_offset=bound,
        clean_bytes=sum(segment.size for segment in below) - cleanable,
        cleanable_bytes=cleanable,
        compaction_delay_ms=_compaction_delay(log, dirty, now_ms),
    )


def _between(segments: list[LogSegment], start: int, end: int) -> list[LogSegment]:
    """Return the segments, of which the last one ends at `end`, that may hold offsets from `start` on."""
    ends = [segment.base_offset for segment in segments[1:]] + [end]
    return [segment for segment, its_end in zip(segments, ends, strict=bool(segments)) if its_end > start]


def _compaction_delay(log: Log, dirty: list[LogSegment], now_ms: int) -> int:
    """Kafka's maxCompactionDelay, by the timestamps of the first batches of the dirty segments."""
    until = now_ms - log.config.max_compaction_lag_ms
    if until <= 0:
        return 0
    firsts = [first for segment in dirty if (first := segment.age.load_first_timestamp()) is not None and first > 0]
    return max(until - min(firsts), 0) if firsts else 0
