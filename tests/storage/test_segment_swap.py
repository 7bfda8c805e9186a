"""Cleaned segments take the place of others: for readers at every step, and for every crash on the way."""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest
from tests.storage.cleaning.compacted import PATH, SETTINGS, committed, compact, fill, new_log, put, state, to_clean
from tests.storage.logs import Clock, base_offsets, finished, open_log, retain

from barnabas.simulation.disk import Mode, SimCrash, SimDisk
from barnabas.storage.cleaning.clean_job import GroupCleaned
from barnabas.storage.cleaning.cleaner import clean
from barnabas.storage.cleaning.log_to_clean import CleanerSettings
from barnabas.storage.errors import LogDirFailedError
from barnabas.storage.log import Log

SURVIVORS: tuple[tuple[Mode, int], ...] = (
    ("A", 0), ("B", 0), ("A", 1), ("B", 1), ("A", 2), ("B", 2), ("B", 3), ("kill", 0),
)  # fmt: skip


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()


def filled(disk: SimDisk) -> Log:
    log = new_log(disk)
    fill(log)
    return log


def cleaned_groups(log: Log, disk: SimDisk) -> list[GroupCleaned]:
    """A pass whose output waits under `.cleaned`."""
    job = to_clean(log).job(CleanerSettings(), 1_700_000_000_000)
    return [event for event in clean(job, disk, lambda size: None) if isinstance(event, GroupCleaned)]


def names(disk: SimDisk, suffix: str) -> list[str]:
    return sorted(name for name in disk.list_dir(PATH) if name.endswith(suffix))


def test_a_pass_leaves_the_last_value_of_each_key(disk: SimDisk) -> None:
    log = filled(disk)
    before, end = state(log), log.log_end_offset
    size = log.size
    assert compact(log, disk) == log.active_segment.base_offset
    assert (state(log), log.log_end_offset) == (before, end)
    assert log.size < 0.75 * size
    keys = [key for offset, key, _ in committed(log) if offset < log.active_segment.base_offset]
    assert len(keys) == len(set(keys))
    log.close()
    assert state(open_log(PATH, fs=disk, recovery_point=end, **SETTINGS)) == before


def test_readers_find_everything_at_each_step(disk: SimDisk) -> None:
    log = filled(disk)
    before = state(log)
    for group in cleaned_groups(log, disk):
        swap = log.begin_swap([group.base_offset])
        steps = (swap.prepare, lambda swap=swap, group=group: swap.install(group.replaced), swap.finish, swap.complete)
        for step in steps:
            step()
            assert state(log) == before
            assert finished(log.find_max_timestamp()) is not None
            log.legacy_fetch_offsets_before(-1, 10)
    assert not log._unsynced._holds
    assert names(disk, ".swap") == names(disk, ".cleaned") == []
    assert names(disk, ".deleted")


def test_snapshots_of_segments_that_are_gone_go_with_them(disk: SimDisk) -> None:
    log = filled(disk)
    compact(log, disk)
    kept = {f"{base:020d}.snapshot" for base in base_offsets(log)}
    assert set(names(disk, ".snapshot")) <= kept
    assert names(disk, ".deleted") == []


def test_handles_stay_open_while_files_change_their_names(disk: SimDisk) -> None:
    log = filled(disk)
    (group, *_) = cleaned_groups(log, disk)
    swap = log.begin_swap([group.base_offset])
    swap.prepare()
    flush = log.begin_flush()
    swap.install(group.replaced)
    log.close_handles()
    opened = disk.open_files
    swap.finish()
    flush.run()
    assert disk.open_files == opened > 0
    swap.complete()
    assert disk.open_files == opened
    log.complete_flush(flush)
    assert disk.open_files == 0


def test_no_handle_left_means_another_time(disk: SimDisk) -> None:
    log = filled(disk)
    before = state(log)
    (group, *_) = cleaned_groups(log, disk)
    log.close_handles()
    swap = log.begin_swap([group.base_offset])
    disk.max_open_files = disk.open_files + 1
    with pytest.raises(OSError, match=rf"\[Errno {errno.EMFILE}\]"):
        swap.prepare()
    swap.abandon()
    disk.max_open_files = None
    assert names(disk, ".swap") == []
    assert compact(log, disk) and state(log) == before


def test_no_handle_left_for_the_new_names_takes_them_back(disk: SimDisk) -> None:
    log = filled(disk)
    before = state(log)
    (group, *_) = cleaned_groups(log, disk)
    swap = log.begin_swap([group.base_offset])
    disk.fail("fsync_dir", errno.EMFILE)
    with pytest.raises(OSError, match=rf"\[Errno {errno.EMFILE}\]"):
        swap.prepare()
    swap.abandon()
    assert names(disk, ".swap") == []
    assert compact(log, disk) and state(log) == before


@pytest.mark.parametrize("done", range(3))
def test_a_swap_that_lacked_a_handle_is_finished_by_another_attempt(disk: SimDisk, done: int) -> None:
    log = filled(disk)
    before = state(log)
    (group, *_) = cleaned_groups(log, disk)
    swap = log.begin_swap([group.base_offset])
    swap.prepare()
    swap.install(group.replaced)
    disk.fail("fsync_dir", errno.EMFILE, skip=done)
    with pytest.raises(OSError, match=rf"\[Errno {errno.EMFILE}\]"):
        swap.finish()
    swap.finish()
    swap.complete()
    log.give_files_back()
    assert state(log) == before
    log.close()
    assert state(open_log(PATH, fs=disk, recovery_point=log.log_end_offset, **SETTINGS)) == before


def test_a_disk_that_fails_on_the_way_fails_the_directory(disk: SimDisk) -> None:
    log = filled(disk)
    (group, *_) = cleaned_groups(log, disk)
    disk.fail("rename", errno.EIO, ".log.swap")
    with pytest.raises(LogDirFailedError):
        log.begin_swap([group.base_offset]).run(group.replaced)


@pytest.mark.parametrize("part", range(4))
def test_every_crash_leaves_a_log_that_reads_the_same(part: int) -> None:
    """At each call of a pass and its swaps, which put several segments into one as well as one in place of another.

    Every third survivor is struck again while it recovers.
    """
    disk = SimDisk(keep_log=False)
    log = filled(disk)
    compact(log, disk)
    for number in range(3):
        put(log, [(f"k{number}", "again"), ("new", str(number)), ("pad", "z" * 120)])
        log.roll()
    log.flush()
    expected, end = state(log), log.log_end_offset
    log.close_handles()
    disk.make_everything_durable()
    base = disk.survivor(0, "kill")

    def run(call: int | None) -> SimDisk:
        struck = base.survivor(0, "kill")
        struck.make_everything_durable()
        log = open_log(PATH, fs=struck, recovery_point=end, **SETTINGS)
        log.update_high_watermark(end)
        struck.crash_at(call)
        with suppress(SimCrash):
            compact(log, struck)
        struck.crash()
        return struck

    undisturbed = run(None)
    calls = undisturbed.calls
    logs = [
        [name for name in one.list_dir(PATH) if name.endswith(".log")]
        for one in (base, undisturbed.survivor(0, "kill"))
    ]
    assert calls > 60 and len(logs[1]) < len(logs[0]), "no segments were put together"
    for call in range(1 + part, calls + 1, 4):
        struck = run(call)
        for number, (mode, seed) in enumerate(SURVIVORS):
            found = struck.survivor(call * 100 + seed, mode)
            if (call + number) % 3 == 0:
                found.crash_at(1 + (call + number) % 7)
                with suppress(SimCrash):
                    reopened(found, end)
                found.crash()
                found = found.survivor(call, mode)
            log = reopened(found, end)
            assert (state(log), log.log_end_offset) == (expected, end), (call, mode, seed)
            assert [n for n in found.list_dir(PATH) if n.endswith((".swap", ".cleaned", ".deleted"))] == []
            log.close_handles()


def reopened(disk: SimDisk, end: int) -> Log:
    log = open_log(PATH, fs=disk, clean=False, recovery_point=end, **SETTINGS)
    log.update_high_watermark(end)
    return log


def test_two_new_segments_count_together_or_not_at_all(disk: SimDisk) -> None:
    """A power loss between their renames must not let the lower one replace what only both of them hold."""
    log = filled(disk)
    before, end = state(log), log.log_end_offset
    closed = base_offsets(log)[:-1]
    for segment in log.segments[:-1]:
        segment.close_handles()
        for path in segment.files.existing_paths():
            file = disk.open(path + ".cleaned", create=True)
            file.pwrite(disk.read_bytes(path), 0)
            file.fsync()
            file.close()
    disk.fsync_dir(PATH)
    swap = log.begin_swap(closed)
    calls = disk.calls
    swap.prepare()
    calls = disk.calls - calls
    for call in range(1, calls + 1):
        for mode, seed in SURVIVORS:
            again = SimDisk()
            other = filled(again)
            for segment in other.segments[:-1]:
                segment.close_handles()
                for path in segment.files.existing_paths():
                    file = again.open(path + ".cleaned", create=True)
                    file.pwrite(again.read_bytes(path), 0)
                    file.fsync()
                    file.close()
            again.fsync_dir(PATH)
            again.make_everything_durable()
            again.crash_at(call)
            with suppress(SimCrash):
                other.begin_swap(closed).run(closed)
            again.crash()
            assert state(reopened(again.survivor(seed, mode), end)) == before


def test_appends_go_on_while_segments_are_replaced(disk: SimDisk) -> None:
    log = filled(disk)
    (group, *_) = cleaned_groups(log, disk)
    swap = log.begin_swap([group.base_offset])
    swap.prepare()
    put(log, [("during", "1")])
    swap.install(group.replaced)
    put(log, [("during", "2")])
    log.roll()
    swap.finish()
    put(log, [("during", "3")])
    swap.complete()
    log.flush()
    assert state(log)["during"] == "3"
    log.close()
    assert state(open_log(PATH, fs=disk, recovery_point=log.log_end_offset, **SETTINGS))["during"] == "3"


def test_retention_by_time_keeps_to_the_newest_source(disk: SimDisk) -> None:
    """A cleaned segment is as old as the newest record in it."""
    clock = Clock()
    log = new_log(disk, clock, cleanup_policy="compact,delete", retention_ms=1000)
    for turn in range(8):
        put(log, [(f"k{turn}", "v" * 60), ("same", str(turn))], timestamp=clock.now_ms + turn)
    log.roll()
    log.flush()
    compact(log, disk, now_ms=clock.now_ms)
    clock.advance(1003)
    retain(log)
    assert "k7" in state(log)
    clock.advance(1000)
    assert retain(log)
    assert state(log) == {}


def test_new_segments_know_their_largest_timestamps(disk: SimDisk) -> None:
    log = filled(disk)
    compact(log, disk)
    cleaned = list(log.segments)[:-1]
    assert cleaned
    for segment in cleaned:
        assert segment.indexes.max_timestamp.timestamp == max(
            one.max_timestamp for one in segment.records.batch_positions(0)
        )
