"""Which log is due, what of it can be cleaned, and what is remembered of it: Kafka's LogCleanerManager."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.storage.cleaning.compacted import SETTINGS, compact, end_transaction, new_log, put, to_clean
from tests.storage.lanes import load, retain, shut_down
from tests.storage.logs import NOW_MS, Clock, marker

from barnabas.protocol.topic_partition import TopicPartition
from barnabas.simulation.disk import SimDisk
from barnabas.storage.cleaning.log_to_clean import CleanerSettings, log_to_clean
from barnabas.storage.log import Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.log_dir import CLEANER_CHECKPOINT
from barnabas.storage.log_manager import LogManager
from barnabas.storage.log_validator import COORDINATOR_RULES

A, B, OTHER = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("other", 0)
ROOT = "/data"


class Manager:
    """A log manager over a simulated disk, whose settings a test may change."""

    def __init__(self, disk: SimDisk | None = None) -> None:
        self.disk = disk or SimDisk()
        self.clock = Clock()
        self.settings: dict[str, Any] = dict(SETTINGS)
        self.logs = LogManager(
            [ROOT],
            fs=self.disk,
            config_for=self._config,
            now_ms=self.clock,
            rng=random.Random(0),
        )
        self.logs.open_dirs()
        load(self.logs)
        self.cleaner = self.logs.cleaner_manager

    def _config(self, topic: str) -> LogConfig:
        own = {"cleanup_policy": "delete"} if topic == OTHER.topic else {}
        return LogConfig(**self.settings | own)  # type: ignore[arg-type]

    def log(self, key: TopicPartition, turns: int = 0) -> Log:
        """The log of a partition, with so many closed segments of overwritten keys."""
        log = self.logs.creation.get_or_create_log(key)
        for turn in range(turns):
            put(log, [("k", str(turn)), ("other", "x" * 40)], timestamp=self.clock.now_ms)
            log.roll()
        log.flush()
        return log

    def checkpoint(self) -> list[str]:
        path = f"{ROOT}/{CLEANER_CHECKPOINT}"
        return self.disk.read_bytes(path).decode().split("\n")[2:-1] if self.disk.exists(path) else []

    def note(self) -> None:
        self.logs.cleaner_checkpoint_task(ROOT)()


@pytest.fixture
def manager() -> Manager:
    return Manager()


def test_the_dirtiest_log_comes_first(manager: Manager) -> None:
    manager.log(A, 4)
    manager.log(B, 4)
    manager.cleaner.clean_offsets[A] = 4
    manager.settings["min_cleanable_dirty_ratio"] = 0.0
    first = manager.cleaner.grab_filthiest_compacted_log()
    assert first is not None and (first.topic_partition, first.dirty_ratio) == (B, 1.0)
    second = manager.cleaner.grab_filthiest_compacted_log()
    assert second is None, "a ratio of exactly the threshold is not above it"
    for log in manager.logs.logs.values():
        log.config = replace(log.config, min_cleanable_dirty_ratio=0.49)
    second = manager.cleaner.grab_filthiest_compacted_log()
    assert second is not None and (second.topic_partition, second.dirty_ratio) == (A, 0.5)
    assert manager.cleaner.grab_filthiest_compacted_log() is None, "both are being cleaned"


def test_only_compacted_logs_are_looked_at(manager: Manager) -> None:
    manager.log(OTHER, 3)
    assert manager.cleaner.look() == []
    manager.logs.logs[OTHER].config = replace(manager.logs.logs[OTHER].config, cleanup_policy="compact,delete")
    assert [one.topic_partition for one in manager.cleaner.look()] == [OTHER]


def test_the_active_segment_is_never_touched(manager: Manager) -> None:
    log = manager.log(A, 2)
    put(log, [("k", "active")])
    log.flush()
    (one,) = manager.cleaner.look()
    assert one.first_uncleanable_offset == log.active_segment.base_offset == 4
    assert one.cleanable_bytes == log.size - log.active_segment.size


def test_nothing_from_the_last_stable_offset_on_is_touched(manager: Manager) -> None:
    log = manager.log(A, 2)
    fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    put(log, [("open", "1")], **fields)
    log.roll()
    put(log, [("k", "later")])
    log.roll()
    log.flush()
    assert to_clean(log).first_uncleanable_offset == 4
    end_transaction(log, 7, commit=True)
    log.roll()
    log.flush()
    assert to_clean(log).first_uncleanable_offset == log.log_end_offset


def test_nothing_above_the_high_watermark_is_touched(manager: Manager) -> None:
    log = manager.log(A, 4)
    log.high_watermark = 3
    assert to_clean(log).first_uncleanable_offset == 2, "the segment that holds offset 3 begins at 2"


def test_what_is_not_on_disk_is_not_touched(manager: Manager) -> None:
    log = manager.log(A, 2)
    put(log, [("k", "not flushed")])
    log.roll()
    assert to_clean(log).first_uncleanable_offset == 4
    log.flush()
    assert to_clean(log).first_uncleanable_offset == 5


def test_young_segments_wait_for_min_compaction_lag(manager: Manager) -> None:
    manager.settings["min_compaction_lag_ms"] = 1000
    log = manager.log(A, 2)
    manager.clock.advance(600)
    manager.log(A, 2)
    now = manager.clock.now_ms
    assert to_clean(log, now_ms=now).first_uncleanable_offset == 0
    assert to_clean(log, now_ms=now + 401).first_uncleanable_offset == 4
    assert to_clean(log, now_ms=now + 1000).first_uncleanable_offset == 8
    assert log_to_clean(A, log, None, now, ignore_lag=True).first_uncleanable_offset == 8


def test_a_log_is_due_when_its_oldest_dirty_record_waited_for_too_long(manager: Manager) -> None:
    manager.settings.update(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1000)
    log = manager.log(A, 2)
    manager.cleaner.clean_offsets[A] = 2
    assert manager.cleaner.grab_filthiest_compacted_log() is None
    manager.clock.advance(1001)
    one = manager.cleaner.grab_filthiest_compacted_log()
    assert one is not None and one.compaction_delay_ms == 1
    manager.cleaner.done_cleaning(one, log.log_end_offset)
    assert manager.cleaner.grab_filthiest_compacted_log() is None, "nothing dirty is left, however old"


def test_max_compaction_lag_closes_segments_early() -> None:
    assert LogConfig(cleanup_policy="compact", max_compaction_lag_ms=5000).max_segment_ms == 5000
    assert LogConfig(cleanup_policy="delete", max_compaction_lag_ms=5000).max_segment_ms == 604_800_000
    log = new_log(SimDisk(), max_compaction_lag_ms=5000, segment_bytes=1 << 20)
    put(log, [("k", "1")], timestamp=NOW_MS)
    put(log, [("k", "2")], timestamp=NOW_MS + 5000)
    assert len(log.segments) == 1
    put(log, [("k", "3")], timestamp=NOW_MS + 5001)
    assert len(log.segments) == 2


@pytest.mark.parametrize("offset", [-5, 1, 99])
def test_a_clean_offset_outside_of_the_log_counts_as_none(manager: Manager, offset: int) -> None:
    log = manager.log(A, 4)
    log.maybe_increment_log_start_offset(2)
    manager.cleaner.clean_offsets[A] = offset
    assert manager.cleaner.look()[0].first_dirty_offset == 2


def test_what_is_clean_survives_a_restart(manager: Manager) -> None:
    log = manager.log(A, 4)
    one = manager.cleaner.grab_filthiest_compacted_log()
    assert one is not None
    manager.cleaner.done_cleaning(one, compact(log, manager.disk))
    manager.note()
    assert manager.checkpoint() == ["a 0 8"]
    shut_down(manager.logs)
    again = Manager(manager.disk)
    assert again.cleaner.clean_offsets == {A: 8}
    assert not again.cleaner.look()[0].is_cleanable


def test_a_deleted_log_is_forgotten_before_another_of_its_name_can_begin(manager: Manager) -> None:
    manager.log(A, 2)
    manager.cleaner.clean_offsets[A] = 4
    manager.cleaner.uncleanable[A] = "why"
    manager.note()
    manager.logs.delete_log(A)
    assert (manager.checkpoint(), manager.cleaner.clean_offsets, manager.cleaner.uncleanable) == ([], {}, {})


def test_the_checkpoint_of_a_log_that_is_gone_is_dropped_at_start(manager: Manager) -> None:
    manager.log(A)
    shut_down(manager.logs)
    manager.disk.write_atomic(f"{ROOT}/{CLEANER_CHECKPOINT}", b"0\n2\na 0 3\ngone 0 9\n")
    again = Manager(manager.disk)
    assert again.cleaner.clean_offsets == {A: 3}
    assert again.checkpoint() == ["a 0 3"]


def test_a_log_that_is_cut_is_not_clean_beyond_the_cut(manager: Manager) -> None:
    manager.log(A, 4)
    manager.cleaner.clean_offsets[A] = 6
    manager.logs.truncate_to({A: 7})
    assert manager.cleaner.clean_offsets[A] == 6
    manager.logs.truncate_to({A: 3})
    assert (manager.cleaner.clean_offsets[A], manager.checkpoint()) == (3, ["a 0 3"])


def test_an_aborted_pass_counts_for_nothing(manager: Manager) -> None:
    manager.log(A, 4)
    one = manager.cleaner.grab_filthiest_compacted_log()
    assert one is not None
    assert manager.cleaner.abort_cleaning(A) and manager.cleaner.is_aborted(A)
    assert not manager.cleaner.abort_cleaning(B)
    manager.cleaner.done_cleaning(one, 8)
    assert A not in manager.cleaner.clean_offsets
    assert manager.cleaner.grab_filthiest_compacted_log() is not None


def test_a_log_is_named_in_the_checkpoint_before_its_first_pass(manager: Manager) -> None:
    manager.log(A, 4)
    one = manager.cleaner.grab_filthiest_compacted_log()
    assert one is not None and manager.cleaner.note_begun(one)
    manager.note()
    assert manager.checkpoint() == ["a 0 0"]
    manager.cleaner.done_cleaning(one, 8)
    later = manager.cleaner.describe(A, manager.logs.logs[A])
    assert not manager.cleaner.note_begun(later), "that is known by now"
    assert manager.cleaner.clean_offsets == {A: 8}


def test_a_paused_log_waits_for_as_many_resumes(manager: Manager) -> None:
    manager.log(A, 4)
    manager.cleaner.pause_cleaning(A)
    manager.cleaner.pause_cleaning(A)
    manager.cleaner.resume_cleaning(A)
    assert manager.cleaner.grab_filthiest_compacted_log() is None
    manager.cleaner.resume_cleaning(A)
    assert manager.cleaner.grab_filthiest_compacted_log() is not None


def test_a_log_that_cannot_be_cleaned_is_left_alone_and_others_go_on(manager: Manager) -> None:
    manager.log(A, 4)
    manager.log(B, 4)
    manager.cleaner.mark_partition_uncleanable(A, "no sound batch")
    one = manager.cleaner.grab_filthiest_compacted_log()
    assert one is not None and one.topic_partition == B
    assert manager.cleaner.uncleanable == {A: "no sound batch"}


def test_a_log_that_cannot_even_be_looked_at_is_marked(manager: Manager, monkeypatch: pytest.MonkeyPatch) -> None:
    log = manager.log(A, 2)
    manager.log(B, 2)
    describe: Callable[..., object] = manager.cleaner.describe

    def failing(key: TopicPartition, its_log: Log, **options: bool) -> object:
        if its_log is log:
            raise OSError("unreadable")
        return describe(key, its_log, **options)

    monkeypatch.setattr(manager.cleaner, "describe", failing)
    assert [one.topic_partition for one in manager.cleaner.look()] == [B]
    assert manager.cleaner.uncleanable == {A: "OSError: unreadable"}


def test_retention_waits_for_the_end_of_a_pass(manager: Manager) -> None:
    manager.settings.update(cleanup_policy="compact,delete", retention_ms=1000)
    log = manager.log(A, 4)
    one = manager.cleaner.grab_filthiest_compacted_log()
    assert one is not None
    manager.clock.advance(5000)
    retain(manager.logs)
    assert len(log.segments) == 5
    manager.cleaner.done_cleaning(one, None)
    retain(manager.logs)
    assert len(log.segments) == 1


def test_compacted_logs_lose_only_what_is_below_their_start(manager: Manager) -> None:
    manager.settings.update(retention_ms=1, retention_bytes=1)
    log = manager.log(A, 4)
    manager.clock.advance(5000)
    retain(manager.logs)
    assert len(log.segments) == 5
    log.maybe_increment_log_start_offset(4)
    retain(manager.logs)
    assert [segment.base_offset for segment in log.segments] == [4, 6, 8]


def test_the_job_names_whole_segments_producers_and_aborted_transactions(manager: Manager) -> None:
    log = manager.log(A, 2)
    fields = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 0, "is_transactional": True}
    put(log, [("aborted", "1")], **fields)
    log.roll()
    log.append_as_leader(marker(7, epoch=3, commit=False), leader_epoch=0, rules=COORDINATOR_RULES)
    log.update_high_watermark(log.log_end_offset)
    log.flush()
    job = to_clean(log).job(CleanerSettings(), NOW_MS)
    assert [segment.base_offset for segment in job.segments] == [0, 2, 4]
    assert sum(segment.size for segment in job.segments) == log.size - log.active_segment.size
    assert [(p.producer_id, p.last_data_offset, p.producer_epoch) for p in job.active_producers] == [(7, 4, 3)]
    assert [(one.producer_id, one.first_offset) for one in job.aborted_transactions] == [(7, 4)]
