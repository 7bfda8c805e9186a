"""Passes over a history's log: Apache Kafka's, and ours with or without the compiled part."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.cleaning.history import History
from tests.cleaning.kafka_cleaner import KafkaCleaner
from tests.cleaning.promises import Pass
from tests.cleaning.walk import stamp_files

from barnabas.storage.cleaning.clean_job import ActiveProducer, CleanJob, GroupCleaned, PassFinished, SourceSegment
from barnabas.storage.cleaning.cleaner import clean
from barnabas.storage.log import Log
from barnabas.storage.log_segment import SEGMENT_SUFFIXES, segment_file_name

BYTES_PER_KEY = 24
Cleaning = Callable[[History, int], Pass | None]
"""Cleans a history's log once with an offset map of so many slots; None if there was nothing to clean."""


def kafka_pass(kafka: KafkaCleaner) -> Cleaning:
    """Passes by Apache Kafka, between a stop of the log and a new start."""

    def run(history: History, slots: int) -> Pass | None:
        history.close()
        stamp_files(history)
        told = kafka.clean(
            history.folder,
            high_watermark=history.end_offset,
            now_ms=history.clock.now_ms,
            topic=history.settings.topic(),
            first_dirty_offset=history.first_dirty_offset,
            memory=slots * BYTES_PER_KEY,
        )
        history.reopen()
        first = told["first_dirty_offset"]
        # A dirty part without a batch leaves Kafka's map as it was: it would begin again at offset 0.
        done = Pass(first, told["first_uncleanable_offset"], max(first, told["next_dirty_offset"]))
        history.first_dirty_offset = done.next_dirty_offset
        return done

    return run


def our_pass(*, use_native: bool, hash_name: str = "MD5", io_buffer_bytes: int = 1 << 16) -> Cleaning:
    """Passes by our own cleaner."""

    def run(history: History, slots: int) -> Pass | None:
        bound = first_uncleanable_offset(history)
        if history.first_dirty_offset >= bound:
            return None
        job = job_of(history, bound, slots, hash_name, io_buffer_bytes)
        next_dirty_offset = job.first_dirty_offset
        for event in clean(job, history.fs, lambda size: None, use_native=use_native):
            if isinstance(event, GroupCleaned):
                swap(history, event.base_offset, event.replaced)
            elif isinstance(event, PassFinished):
                next_dirty_offset = event.next_dirty_offset
        done = Pass(job.first_dirty_offset, bound, next_dirty_offset)
        history.first_dirty_offset = done.next_dirty_offset
        return done

    return run


def first_uncleanable_offset(history: History) -> int:
    """Kafka's LogCleanerManager.cleanableOffsets: last stable offset, active segment, segments that are too young."""
    log = history.log
    bounds = [log.last_stable_offset, log.active_segment.base_offset]
    lag_ms = history.settings.min_compaction_lag_ms
    if lag_ms:
        dirty = [segment for segment in log.segments[:-1] if segment.base_offset >= history.first_dirty_offset]
        young = (segment for segment in dirty if segment.largest_timestamp > history.clock.now_ms - lag_ms)
        bounds += [segment.base_offset for segment in young][:1]
    return min(bounds)


def job_of(history: History, bound: int, slots: int, hash_name: str, io_buffer_bytes: int) -> CleanJob:
    """The job over everything below `bound`."""
    log, settings = history.log, history.settings
    producers = log.producer_state.producers.values()
    return CleanJob(
        directory=history.folder,
        segments=tuple(
            SourceSegment(segment.base_offset, segment.size)
            for segment in log.segments[:-1]
            if segment.base_offset < bound
        ),
        first_dirty_offset=history.first_dirty_offset,
        first_uncleanable_offset=bound,
        now_ms=history.clock.now_ms,
        delete_retention_ms=settings.delete_retention_ms,
        segment_bytes=settings.segment_bytes,
        segment_index_bytes=settings.segment_index_bytes,
        index_interval_bytes=settings.index_interval_bytes,
        active_producers=tuple(
            ActiveProducer(entry.producer_id, entry.last_offset, entry.producer_epoch) for entry in producers
        ),
        aborted_transactions=tuple(
            aborted for segment in log.segments for aborted in segment.transaction_index.entries
        ),
        hash_name=hash_name,
        dedupe_buffer_bytes=slots * (64 if hash_name == "exact" else BYTES_PER_KEY),
        io_buffer_bytes=io_buffer_bytes,
    )


def swap(history: History, base_offset: int, replaced: Iterable[int]) -> None:
    """Put a cleaned group into its place while nobody looks, with the log closed."""
    log: Log = history.log
    log.flush()
    log.close_handles()
    names = set(history.fs.list_dir(history.folder))
    for base in replaced:
        for suffix in SEGMENT_SUFFIXES:
            if segment_file_name(base, suffix) in names:
                history.fs.unlink(f"{history.folder}/{segment_file_name(base, suffix)}")
    for suffix in SEGMENT_SUFFIXES:
        name = segment_file_name(base_offset, suffix)
        if f"{name}.cleaned" in names:
            history.fs.rename(f"{history.folder}/{name}.cleaned", f"{history.folder}/{name}")
    history.reopen()
