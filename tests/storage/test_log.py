"""A log's appends, rolls, retention, flushes and failures, one case at a time."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from tests.storage.logs import (
    NOW_MS,
    Clock,
    append,
    base_offsets,
    batch,
    finished,
    marker,
    offsets_in,
    open_log,
    retain,
)

from barnabas.protocol.compression import Compression
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.record_batch import RecordBatchBuilder, iter_batches
from barnabas.simulation.disk import SimDisk
from barnabas.storage.errors import LogDirFailedError
from barnabas.storage.log import KEPT_APPEND_BYTES, Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.log_reader import LogReader
from barnabas.storage.log_validator import COORDINATOR_RULES

PATH = "/logs/topic-0"
DAY_MS = 86_400_000


@pytest.fixture
def disk() -> SimDisk:
    found = SimDisk()
    found.make_dirs("/logs")
    return found


@pytest.fixture
def clock() -> Clock:
    return Clock()


def opened(disk: SimDisk, **options: Any) -> Log:
    return open_log(PATH, fs=disk, **options)


# -- rolling -----------------------------------------------------------------------------------------------------------


def test_segments_roll_by_size(disk: SimDisk) -> None:
    size = len(batch())
    log = opened(disk, segment_bytes=3 * size)
    for _ in range(7):
        append(log)
    assert base_offsets(log) == [0, 3, 6]
    assert offsets_in(log) == list(range(7))


def test_segments_roll_by_the_time_of_records(disk: SimDisk, clock: Clock) -> None:
    log = opened(disk, clock=clock, segment_ms=1000)
    append(log, timestamp=NOW_MS)
    clock.advance(DAY_MS)
    append(log, timestamp=NOW_MS + 1000)
    assert base_offsets(log) == [0], "the clock does not count where records have timestamps"
    append(log, timestamp=NOW_MS + 1001)
    assert base_offsets(log) == [0, 2]


def test_segments_roll_earlier_by_a_chance_of_their_own(disk: SimDisk) -> None:
    log = opened(disk, segment_ms=10_000, segment_jitter_ms=5_000)
    for number in range(0, 400_000, 100):
        append(log, timestamp=NOW_MS + number)
    first_timestamps = [segment.age.load_first_timestamp() or 0 for segment in log.segments]
    spans = [later - earlier for earlier, later in pairwise(first_timestamps)]
    assert all(5_000 < span <= 10_100 for span in spans)
    assert max(spans) - min(spans) > 2_000, "each segment has a jitter of its own"


def test_segments_without_timestamps_roll_by_the_clock(disk: SimDisk, clock: Clock) -> None:
    log = opened(disk, clock=clock, segment_ms=1000)
    append(log, timestamp=-1, step=0)
    clock.advance(1001)
    append(log, timestamp=-1, step=0)
    assert base_offsets(log) == [0, 1]


def test_segments_roll_when_an_index_is_full(disk: SimDisk) -> None:
    log = opened(disk, index_interval_bytes=0, segment_index_bytes=48)
    for number in range(12):
        append(log, timestamp=NOW_MS + number)
    assert len(base_offsets(log)) > 1
    assert offsets_in(log) == list(range(12))


def test_followers_roll_before_relative_offsets_overflow(disk: SimDisk) -> None:
    log = opened(disk)
    log.append_as_follower(batch(base_offset=5, partition_leader_epoch=0))
    log.append_as_follower(batch(base_offset=2**31 + 9, partition_leader_epoch=3))
    assert base_offsets(log) == [0, 2**31 + 9]
    assert log.leader_epochs.entries == [(0, 5), (3, 2**31 + 9)]
    assert offsets_in(log, 0) == [5, 2**31 + 9]


def test_a_batch_larger_than_a_segment_is_refused(disk: SimDisk) -> None:
    log = opened(disk, segment_bytes=100)
    with pytest.raises(KafkaError) as caught:
        append(log, size=200)
    assert caught.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.log_end_offset == 0


@pytest.mark.parametrize("end", ["close", "kill", "kill after a flush"])
def test_reserved_space_is_given_back(disk: SimDisk, end: str) -> None:
    log = opened(disk, preallocate=True, segment_bytes=1000)
    for _ in range(2 * (1000 // len(batch())) + 1):
        append(log)
    last = log.segments[-1]
    assert len(log.segments) == 3
    assert [disk.size(segment.records.path) for segment in log.segments] == [*(s.size for s in log.segments[:2]), 1000]
    recovery_point = log.flush() if end == "kill after a flush" else 0
    if end == "close":
        log.close()
        assert disk.size(last.records.path) == last.size
        recovery_point = log.log_end_offset
    again = opened(disk, clean=end == "close", recovery_point=recovery_point, preallocate=True, segment_bytes=1000)
    assert (again.log_end_offset, offsets_in(again)) == (log.log_end_offset, list(range(log.log_end_offset)))
    append(again)
    assert offsets_in(again) == list(range(log.log_end_offset + 1))


def test_an_empty_segment_is_not_rolled(disk: SimDisk) -> None:
    log = opened(disk)
    assert log.roll() is log.active_segment
    assert base_offsets(log) == [0]


# -- reading -----------------------------------------------------------------------------------------------------------


def test_reads_outside_the_log_are_out_of_range(disk: SimDisk) -> None:
    log = opened(disk)
    append(log, 3)
    log.update_high_watermark(3)
    log.maybe_increment_log_start_offset(1)
    for offset in (0, 4):
        with pytest.raises(KafkaError) as caught:
            log.read(offset, 100)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(3, 100).records == b""


def test_the_high_watermark_bounds_reads(disk: SimDisk) -> None:
    log = opened(disk)
    for _ in range(4):
        append(log, 2)
    size = len(batch(2))
    assert len(log.read(0, 10_000, max_offset=4).records) == 2 * size
    assert log.read(4, 10_000, max_offset=4).records == b""
    assert log.bytes_between(2, 6) == 2 * size
    assert log.convert_to_offset_metadata(5)[1:] == (0, 2 * size)


def test_one_whole_batch_comes_however_small_the_limit(disk: SimDisk) -> None:
    log = opened(disk)
    append(log, size=5000)
    assert len(log.read(0, 10, min_one_message=True).records) == len(batch(size=5000))
    assert len(log.read(0, 10, hard_limit=True).records) == 10
    assert len(log.read(0, 10).records) == 0


def test_reads_of_a_kept_append_are_those_of_the_file(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(disk)
    append(log, 2)
    records = batch(3)
    log.append_as_leader(records, leader_epoch=0, keeps_appended=True)
    reads: list[tuple[int, int, dict[str, Any]]] = [
        (2, len(records), {}),
        (2, len(records), {"read_committed": True, "as_file_slice": True}),
        (2, len(records), {"max_offset": 5}),
        (2, len(records) - 1, {"hard_limit": True}),
        (2, len(records) - 1, {"min_one_message": True}),
        (2, len(records), {"max_offset": 2}),
        (3, 1000, {}),
        (0, 1000, {}),
        (5, 1000, {}),
    ]
    kept = [log.read(offset, size, **options) for offset, size, options in reads]
    with monkeypatch.context() as patch:
        patch.setattr(LogReader, "read", None)
        log.read(2, 1000)
    log.release_appended()
    records[:] = bytes(len(records))  # as when a connection reads its next request
    assert kept == [log.read(offset, size, **options) for offset, size, options in reads]
    assert offsets_in(log) == list(range(5))


def test_large_appends_are_read_from_the_file(disk: SimDisk) -> None:
    log = opened(disk)
    records = batch(size=KEPT_APPEND_BYTES)
    log.append_as_leader(records, leader_epoch=0, keeps_appended=True)
    expected = bytes(records)
    records[:] = bytes(len(records))
    assert log.read(0, 10_000).records == expected


def test_old_segments_do_not_keep_their_files_open(disk: SimDisk) -> None:
    log = opened(disk, segment_bytes=100)
    for _ in range(40):
        append(log)
    log.flush()
    assert offsets_in(log) == list(range(40))
    assert disk.open_files < 20


def test_legacy_offsets_come_newest_first(disk: SimDisk) -> None:
    log = opened(disk, segment_bytes=100)
    for _ in range(3):
        append(log)
    assert log.legacy_fetch_offsets_before(-1, 10) == [3, 2, 1, 0]
    assert log.legacy_fetch_offsets_before(-1, 1) == [3]
    assert log.legacy_fetch_offsets_before(-2, 10) == [0]


def test_the_largest_timestamp_is_found_in_old_segments(disk: SimDisk) -> None:
    log = opened(disk, segment_bytes=200)
    for timestamp in (5, 90, 20, 90, 30):
        append(log, 2, timestamp=timestamp, step=-1)
    assert finished(log.find_max_timestamp()) == (90, 2)
    assert opened(disk, clean=False).fetch_offset_by_timestamp(90) == (90, 2)
    assert log.fetch_offset_by_timestamp(91) is None


@pytest.mark.parametrize("segment_bytes", [200, 10_000])
def test_the_greatest_timestamp_is_one_of_the_records_that_are_left(disk: SimDisk, segment_bytes: int) -> None:
    log = opened(disk, segment_bytes=segment_bytes, index_interval_bytes=100)
    timestamps = [5, 90, 20, 70, 30, 70, 10, 60, 1]
    for timestamp in timestamps:
        append(log, 2, timestamp=timestamp, step=-1)
    log.update_high_watermark(log.log_end_offset)
    records = [(timestamp - number % 2, number) for number, timestamp in enumerate(t for t in timestamps for _ in "ab")]
    for start in range(len(records)):
        log.maybe_increment_log_start_offset(start)
        assert finished(log.find_max_timestamp()) == max(records[start:], key=lambda one: (one[0], -one[1])), start
    log.maybe_increment_log_start_offset(len(records))
    assert finished(log.find_max_timestamp()) is None


def test_the_greatest_timestamp_left_takes_steps_and_is_remembered(disk: SimDisk) -> None:
    log = opened(disk, segment_bytes=1_000_000)
    append(log, timestamp=900)
    for number in range(1500):
        append(log, timestamp=number % 700)
    log.update_high_watermark(log.log_end_offset)
    log.maybe_increment_log_start_offset(1)
    assert sum(1 for _ in log.find_max_timestamp()) >= 7
    append(log, timestamp=800)
    again = log.find_max_timestamp()
    assert next(again) is None
    with pytest.raises(StopIteration) as end:
        next(again)
    assert end.value.value == (800, 1501)


# -- retention ---------------------------------------------------------------------------------------------------------


def test_retention_by_time_spares_what_is_above_the_high_watermark(disk: SimDisk, clock: Clock) -> None:
    log = opened(disk, clock=clock, segment_bytes=100, retention_ms=1000)
    for _ in range(3):
        append(log)
    clock.advance(DAY_MS)
    log.update_high_watermark(1)
    retain(log)
    assert base_offsets(log) == [1, 2]
    log.update_high_watermark(3)
    paths = retain(log)
    assert base_offsets(log) == [3], "the active segment is rolled, as it has expired, too"
    assert (log.log_start_offset, log.size) == (3, 0)
    assert f"{PATH}/{1:020d}.log.deleted" in paths
    assert all(disk.exists(path) for path in paths)


def test_retention_by_size_keeps_at_least_the_limit(disk: SimDisk) -> None:
    size = len(batch())
    log = opened(disk, segment_bytes=size, retention_bytes=2 * size)
    for _ in range(5):
        append(log)
    log.update_high_watermark(5)
    retain(log)
    assert base_offsets(log) == [3, 4]


def test_segments_below_the_log_start_go_from_compacted_logs_too(disk: SimDisk) -> None:
    log = Log.open(
        PATH,
        config=LogConfig(segment_bytes=100, cleanup_policy="compact", retention_ms=0),
        fs=disk,
        now_ms=Clock(NOW_MS + DAY_MS),
        rng=random.Random(0),
        recovery_point=0,
        log_start_offset=0,
        clean_shutdown=True,
    )
    for _ in range(4):
        append(log)
    log.update_high_watermark(4)
    assert retain(log) == []
    log.maybe_increment_log_start_offset(2)
    retain(log)
    assert base_offsets(log) == [2, 3]


def test_retention_lets_nothing_go_before_the_new_start_is_kept(disk: SimDisk) -> None:
    log = opened(disk, segment_bytes=len(batch()), retention_bytes=len(batch()))
    for _ in range(4):
        append(log)
    log.update_high_watermark(4)
    names = set(disk.list_dir(PATH))
    below = log.begin_retention()
    assert below == log.log_start_offset == 3
    assert set(disk.list_dir(PATH)) == names
    log.maybe_increment_log_start_offset(4)
    for _ in range(2):
        append(log)
    assert log.finish_retention(2, 64)
    assert base_offsets(log) == [2, 3, 4, 5], "a start that rose since is not on disk"
    log.finish_retention(below, 64)
    assert base_offsets(log) == [3, 4, 5]


# -- flushing ----------------------------------------------------------------------------------------------------------


def test_a_flush_covers_what_was_appended_before_it_began(disk: SimDisk) -> None:
    log = opened(disk, segment_bytes=200, flush_messages=3)
    append(log)
    assert not log.needs_flush()
    append(log, 2)
    assert log.needs_flush()
    task = log.begin_flush()
    append(log)
    log.roll()
    append(log)
    task.run()
    assert log.complete_flush(task) == 3
    assert log.needs_flush(), "a rolled segment waits"
    assert log.flush() == 5
    assert not log.needs_flush()


def test_flushes_complete_in_order(disk: SimDisk) -> None:
    log = opened(disk)
    append(log)
    first = log.begin_flush()
    append(log)
    second = log.begin_flush()
    second.run()
    assert log.complete_flush(second) == 0
    first.run()
    assert log.complete_flush(first) == 2


def test_truncation_and_deletion_during_a_flush(disk: SimDisk) -> None:
    log = opened(disk, segment_bytes=100)
    for _ in range(5):
        append(log)
    task = log.begin_flush()
    log.truncate_to(2)
    append(log)
    append(log)
    log.rename_dir("/logs/topic-0.0123-delete")
    log.close_handles()
    task.run()
    assert log.complete_flush(task) == 2
    assert disk.open_files == 0


def test_a_segment_that_is_rolled_cut_rolled_again_and_cut_off_is_flushed_by_nobody(disk: SimDisk) -> None:
    log = opened(disk)
    append(log)
    log.roll()
    append(log, 2)
    log.roll()
    append(log)
    log.truncate_to(2)
    log.roll()
    append(log)
    log.truncate_to(1)
    assert base_offsets(log) == [0, 1]
    log.truncate_to(0)
    log.flush()
    log.close()
    assert disk.open_files == 0


def test_a_deletion_between_the_steps_of_a_flush_on_another_thread(
    disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(disk)
    append(log, leader_epoch=4)
    task = log.begin_flush()
    task.write()
    rename, met = disk.rename, []

    def rename_and_be_interrupted(old: str, new: str) -> None:
        rename(old, new)
        if old == PATH:
            # The lane's thread runs before the one that deletes comes back from the system call.
            task.sync()
            task.rename()
            task.sync_names()
            met.append(new)

    monkeypatch.setattr(disk, "rename", rename_and_be_interrupted)
    log.rename_dir("/logs/topic-0.0123-delete")
    assert met, "the flush went on in the middle of the deletion"


def test_a_flush_writes_epochs_and_syncs_names_last(disk: SimDisk) -> None:
    log = opened(disk, segment_bytes=100)
    append(log, leader_epoch=4)
    append(log, leader_epoch=5)
    task = log.begin_flush()
    start = len(disk.log)
    task.run()
    steps = [step for step in disk.log[start:] if "sync" in step or "rename" in step]
    assert "fdatasync" in steps[0]
    assert ".log" in steps[0]
    assert "rename" in steps[-2]
    assert "fsync_dir" in steps[-1]
    assert disk.read_bytes(f"{PATH}/leader-epoch-checkpoint") == b"0\n2\n4 0\n5 1\n"


# -- failures ----------------------------------------------------------------------------------------------------------


def test_a_full_disk_leaves_the_log_usable(disk: SimDisk) -> None:
    log = opened(disk)
    append(log, 2)
    size = log.size
    disk.fail("pwrite", errno.ENOSPC, ".log")
    with pytest.raises(KafkaError) as caught:
        append(log, 3)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.log_end_offset, log.size) == (2, size)
    assert append(log) == 2
    assert offsets_in(log) == [0, 1, 2]


def test_a_full_disk_during_a_roll_leaves_the_log_usable(disk: SimDisk) -> None:
    log = opened(disk, segment_bytes=100)
    append(log)
    for path in (".index", ".snapshot", "00001.log"):
        disk.fail("pwrite" if path != "00001.log" else "open", errno.ENOSPC, path)
        try:
            append(log)
        except KafkaError as error:
            assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
        disk.heal()
    append(log)
    assert offsets_in(log) == list(range(log.log_end_offset))
    log.close()
    assert offsets_in(opened(disk)) == list(range(log.log_end_offset))


@pytest.mark.parametrize("operation", ["pwrite", "fdatasync"])
def test_any_other_error_fails_the_directory(disk: SimDisk, operation: str) -> None:
    log = opened(disk)
    append(log)
    disk.fail(operation, errno.EIO, ".log")
    with pytest.raises(LogDirFailedError) as caught:
        append(log)
        log.flush()
    assert caught.value.path == "/logs"


def follow(log: Log) -> None:
    """Append what follows two records, as a leader has it."""
    log.append_as_follower(memoryview(bytearray(batch(base_offset=2))))


def cut(log: Log) -> None:
    """Take the second record off."""
    log.truncate_to(1)


@pytest.mark.parametrize("work", [append, follow, cut])
def test_so_does_an_error_when_a_log_that_was_found_is_looked_into(disk: SimDisk, work: Callable[[Log], Any]) -> None:
    log = opened(disk, index_interval_bytes=0)
    append(log)
    append(log)
    log.close()
    log = opened(disk, index_interval_bytes=0)
    disk.fail("pread", errno.EIO, ".log", times=None)
    with pytest.raises(LogDirFailedError):
        work(log)


@pytest.mark.parametrize("suffix", [".snapshot", ".index", ".timeindex"])
def test_a_full_disk_does_not_keep_a_log_from_being_cut(disk: SimDisk, suffix: str) -> None:
    log = opened(disk, index_interval_bytes=0)
    for sequence in range(3):
        append(log, producer_id=7, producer_epoch=0, base_sequence=sequence)
    disk.fail("pwrite", errno.ENOSPC, suffix, times=None)
    log.truncate_to(2)
    append(log, producer_id=7, producer_epoch=0, base_sequence=2)
    log.flush()
    log.close_handles()
    disk.heal()
    again = opened(disk, clean=False)
    assert offsets_in(again) == [0, 1, 2]
    with pytest.raises(KafkaError) as caught:
        append(again, producer_id=7, producer_epoch=0, base_sequence=9)
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_full_disk_keeps_a_log_from_being_opened_whose_aborted_transactions_find_no_room(disk: SimDisk) -> None:
    """Nobody would write them down later, and readers after the next start would get what was aborted."""
    log = opened(disk)
    append(log, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.append_as_leader(marker(7, commit=False), leader_epoch=0, rules=COORDINATOR_RULES)
    log.roll()
    append(log)
    log.close_handles()
    disk.unlink(f"{PATH}/00000000000000000000.txnindex")  # which no flush had made last
    disk.fail("pwrite", errno.ENOSPC, ".txnindex", times=None)
    with pytest.raises(OSError):
        opened(disk, clean=False)
    disk.heal()
    opened(disk, clean=False).close()
    (aborted,) = opened(disk).read(0, 1000, read_committed=True).aborted_transactions or []
    assert (aborted.producer_id, aborted.first_offset) == (7, 0)


# -- opening -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["torn", "zeros", "flipped", "rubbish"])
def test_an_unclean_stop_is_cut_at_the_first_bad_batch(disk: SimDisk, damage: str) -> None:
    log = opened(disk, index_interval_bytes=0)
    for _ in range(5):
        append(log, 2)
    log.close_handles()
    path, size = f"{PATH}/{0:020d}.log", len(batch(2))
    if damage == "torn":
        disk.cut(path, 3 * size + 30)
    elif damage == "zeros":
        disk.overwrite(path, 3 * size, bytes(2 * size))
    elif damage == "flipped":
        disk.overwrite(path, 3 * size + 70, b"\xff")
    else:
        disk.overwrite(path, 3 * size, b"\x00\xff" * size)
    log = opened(disk, clean=False)
    assert (log.log_end_offset, log.size, log.recovery_point) == (6, 3 * size, 6)
    assert append(log) == 6
    assert offsets_in(log) == list(range(7))


def test_segments_behind_a_bad_batch_go_durably(disk: SimDisk) -> None:
    log = opened(disk, segment_bytes=100)
    for _ in range(4):
        append(log)
    log.close_handles()
    disk.overwrite(f"{PATH}/{1:020d}.log", 70, b"\xff")
    disk.make_everything_durable()
    log = opened(disk, clean=False, segment_bytes=100)
    assert (base_offsets(log), log.log_end_offset) == ([0, 1], 1)
    survivor = disk.survivor(1, "B")
    assert not [name for name in survivor.list_dir(PATH) if name.startswith((f"{2:020d}", f"{3:020d}"))]


def test_what_lies_below_the_recovery_point_is_trusted(disk: SimDisk) -> None:
    log = opened(disk, segment_bytes=100)
    for _ in range(4):
        append(log)
    log.close()
    reads: list[str] = []
    log = opened(disk, clean=False, recovery_point=3, segment_bytes=100)
    reads = [step for step in disk.log if "unlink" in step and f"{0:020d}" in step]
    assert not reads, "no index of an old segment was rebuilt"
    assert log.log_end_offset == 4


def test_lost_indexes_are_rebuilt_on_use(disk: SimDisk) -> None:
    log = opened(disk, index_interval_bytes=100)
    for _ in range(30):
        append(log)
    log.close()
    disk.unlink(f"{PATH}/{0:020d}.index")
    disk.cut(f"{PATH}/{0:020d}.timeindex", 13)
    log = opened(disk, index_interval_bytes=100)
    assert offsets_in(log) == list(range(30))
    assert log.active_segment.indexes.offset.entries > 5


def test_a_log_that_ends_below_its_start_starts_over(disk: SimDisk) -> None:
    log = opened(disk)
    append(log, 3)
    log.close()
    log = opened(disk, log_start_offset=10)
    assert (log.log_start_offset, log.log_end_offset, base_offsets(log)) == (10, 10, [10])


def test_opening_and_closing_an_untouched_log_writes_nothing(disk: SimDisk) -> None:
    log = opened(disk, segment_bytes=200)
    for _ in range(5):
        append(log)
    log.close()
    calls = disk.calls
    opened(disk, segment_bytes=200).close()
    assert disk.calls == calls
    assert disk.open_files == 0


def test_interrupted_swaps_are_finished_or_undone(disk: SimDisk) -> None:
    log = opened(disk, segment_bytes=100)
    for _ in range(4):
        append(log)
    log.close()
    name = f"{PATH}/{0:020d}"
    for suffix in (".log", ".index", ".timeindex"):
        disk.write_atomic(f"{name}{suffix}.swap", disk.read_bytes(f"{name}{suffix}"))
    disk.write_atomic(f"{PATH}/{2:020d}.log.cleaned", b"half")
    disk.write_atomic(f"{PATH}/{3:020d}.log.swap", b"of an unfinished cleaning")
    disk.write_atomic(f"{PATH}/{1:020d}.log.deleted", b"gone")
    disk.write_atomic(f"{PATH}/{9:020d}.index", b"")
    assert offsets_in(opened(disk, segment_bytes=100)) == [0, 1, 2, 3]
    left = disk.list_dir(PATH)
    assert not [
        entry for entry in left if entry.endswith((".swap", ".cleaned", ".deleted")) or entry.startswith("0" * 19 + "9")
    ]


def test_the_topic_id_is_kept(disk: SimDisk) -> None:
    topic_id = UUID(int=7)
    log = opened(disk)
    log.assign_topic_id(topic_id)
    assert disk.read_bytes(f"{PATH}/partition.metadata") == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABw\n"
    again = opened(disk)
    assert again.topic_id == topic_id
    with pytest.raises(KafkaError) as caught:
        again.assign_topic_id(UUID(int=8))
    assert caught.value.code is ErrorCode.INCONSISTENT_TOPIC_ID


def test_a_batch_that_expands_to_more_than_most_is_found_by_time(disk: SimDisk) -> None:
    log = opened(disk, max_message_bytes=100 << 20)
    value = random.Random(0).randbytes(4 << 20) + bytes(62 << 20)
    builder = RecordBatchBuilder(codec=Compression.LZ4)
    builder.append(b"key", value, (), NOW_MS)
    log.append_as_leader(memoryview(bytearray(builder.build())), leader_epoch=0)
    assert log.fetch_offset_by_timestamp(NOW_MS) == (NOW_MS, 0)
    (found,) = iter_batches(log.read(0, 100 << 20).data)
    assert [record.value for record in found.records()] == [value]
