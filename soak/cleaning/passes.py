"""Cleaner passes over the log of a history: by Apache Kafka, and by Barnabas with or without compiled code."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from soak.cleaning.history import History
from soak.cleaning.kafka_cleaner import KafkaCleaner
from soak.cleaning.promises import Pass
from soak.cleaning.walk import stamp_files

from barnabas.storage.cleaning.clean_job import GroupCleaned, PassFinished
from barnabas.storage.cleaning.cleaner import clean
from barnabas.storage.cleaning.log_to_clean import CleanerSettings, LogToClean, log_to_clean

BYTES_PER_KEY = 24
Cleaning = Callable[[History, int], Pass | None]
"""A function that cleans a log once with an offset map of this number of slots. It returns None if the log is clean."""


def kafka_pass(kafka: KafkaCleaner) -> Cleaning:
    """Return a cleaning by Apache Kafka, which closes the log before the pass and reopens it afterwards."""

    def run(history: History, slots: int) -> Pass | None:
        history.close()
        stamp_files(history)
        result = kafka.clean(
            history.folder,
            high_watermark=history.end_offset,
            now_ms=history.clock.now_ms,
            topic=history.settings.topic(),
            first_dirty_offset=history.first_dirty_offset,
            memory=slots * BYTES_PER_KEY,
        )
        history.reopen()
        done = Pass(result["first_dirty_offset"], result["first_uncleanable_offset"], result["next_dirty_offset"])
        if done.next_dirty_offset <= done.first_dirty_offset:
            # Kafka's manager would not clean this log. Without a batch in the dirty part, the offset map has no end.
            return None
        history.first_dirty_offset = done.next_dirty_offset
        return done

    return run


def our_pass(*, use_native: bool, hash_name: str = "MD5", io_buffer_bytes: int = 1 << 16) -> Cleaning:
    """Return a cleaning by Barnabas of the range that the manager chooses."""

    def run(history: History, slots: int) -> Pass | None:
        settings = CleanerSettings(
            hash_name=hash_name,
            dedupe_buffer_bytes=slots * (64 if hash_name == "exact" else BYTES_PER_KEY),
            io_buffer_bytes=io_buffer_bytes,
        )
        history.log.flush()
        chosen = choice(history)
        if chosen.first_dirty_offset >= chosen.first_uncleanable_offset:
            return None
        job = chosen.job(settings, history.clock.now_ms)
        for event in clean(job, history.fs, lambda size: None, use_native=use_native):
            if isinstance(event, GroupCleaned):
                swap(history, event.base_offset, event.replaced)
            elif isinstance(event, PassFinished):
                history.first_dirty_offset = event.next_dirty_offset
        return Pass(job.first_dirty_offset, job.first_uncleanable_offset, history.first_dirty_offset)

    return run


def choice(history: History) -> LogToClean:
    """Return the log that the manager would clean."""
    log = history.log
    return log_to_clean(log.topic_partition, log, history.first_dirty_offset, history.clock.now_ms)


def swap(history: History, base_offset: int, replaced: Iterable[int]) -> None:
    """Swap a cleaned group of segments into the log and delete the replaced segments."""
    for path in history.log.begin_swap([base_offset]).run(list(replaced)):
        history.fs.unlink(path)
