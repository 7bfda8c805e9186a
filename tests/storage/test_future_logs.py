"""Copies of logs in another directory: taking the log's place, crashes at every call of that, what is left behind."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from tests.storage.crash_world import NOW_MS, make_manager
from tests.storage.lanes import checkpoint, load, shut_down
from tests.storage.test_log_manager import ID_A, A, batch, started

from barnabas.protocol.record_batch import iter_batches
from barnabas.simulation.disk import Mode, SimCrash, SimDisk
from barnabas.storage.found_logs import DuplicateLogError
from barnabas.storage.future_logs import FutureLog
from barnabas.storage.log import Log
from barnabas.storage.log_dir import LOG_START_OFFSET_CHECKPOINT
from barnabas.storage.log_manager import LogManager
from barnabas.storage.partition_files import REPLACING_FILE

ONE, TWO = "/one", "/two"
WRITTEN = [f"value {number}".encode() * 20 for number in range(40)]


def prepared(disk: SimDisk, *, log_start: int = 0) -> tuple[LogManager, FutureLog]:
    """A log of forty records, flushed, and a complete copy of it in the other directory, flushed too."""
    manager = started(disk, ONE, TWO)
    log = manager.creation.get_or_create_log(A, topic_id=ID_A, is_new=True)
    for value in WRITTEN:
        log.append_as_leader(batch(value), leader_epoch=0)
    log.update_high_watermark(log.log_end_offset)
    log.flush()
    if log_start:
        log.maybe_increment_log_start_offset(log_start)
        checkpoint(manager, LOG_START_OFFSET_CHECKPOINT)
    destination = next(one for one in manager.dirs if one.path != manager.log_dir_of(A))
    copy = manager.future_logs.begin(A, destination)
    manager.future_logs.open(copy)
    assert copy.log is not None
    if log_start:
        copy.log.truncate_fully_and_start_at(log_start)
    while copy.log.log_end_offset < log.log_end_offset:
        records = log.read(copy.log.log_end_offset, 1 << 20, min_one_message=True).data
        copy.log.append_as_follower(memoryview(bytearray(records)))
    copy.log.flush()
    return manager, copy


def values(log: Log) -> list[bytes]:
    """Everything in a log, over all its segments."""
    found: list[bytes] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        for one in iter_batches(log.read(offset, 1 << 20, min_one_message=True).data):
            found += [bytes(record.value or b"") for record in one.records()]
            offset = one.last_offset + 1
    return found


def new_disk() -> SimDisk:
    return SimDisk(now_ms=lambda: NOW_MS)


def test_a_copy_takes_the_place_of_its_log() -> None:
    disk = new_disk()
    manager, copy = prepared(disk, log_start=10)
    before = manager.log_dir_of(A)
    log = manager.future_logs.replace(copy)
    assert manager.logs[A] is log and manager.log_dir_of(A) == copy.log_dir.path != before
    assert values(log) == WRITTEN[10:]
    assert [one.partition_count for one in manager.dirs if one is copy.log_dir] == [1]
    assert not disk.exists(f"{log.path}/{REPLACING_FILE}")
    shut_down(manager)
    again = started(disk, ONE, TWO)
    assert values(again.logs[A]) == WRITTEN[10:] and again.logs[A].topic_id == ID_A
    assert again.log_dir_of(A) == copy.log_dir.path


@pytest.mark.parametrize("mode", ["kill", "A", "B"])
def test_a_crash_at_any_call_leaves_the_log_or_its_copy(mode: Mode) -> None:
    call = 0
    while True:
        call += 1
        disk = new_disk()
        manager, copy = prepared(disk, log_start=10)
        disk.crash_at(call, written_fraction=random.Random(call).random())
        is_over = False
        with suppress(SimCrash):
            manager.future_logs.replace(copy)
            is_over = True
        disk.crash()
        for seed in range(4):
            found = started(disk.survivor(seed, mode), ONE, TWO)
            assert values(found.logs[A]) == WRITTEN[10:], f"call {call}, seed {seed}"
            assert found.logs[A].log_start_offset == 10
            found.close()
        if is_over:
            break
    assert call > 8


def test_a_copy_is_found_again_and_one_of_nothing_is_left_alone() -> None:
    disk = new_disk()
    manager, copy = prepared(disk)
    shut_down(manager)
    again = started(disk, ONE, TWO)
    assert again.future_logs.copies[A].path == copy.path
    again.future_logs.note_ends()
    again.future_logs.open(again.future_logs.copies[A])
    found = again.future_logs.copies[A].log
    assert found is not None and values(found) == WRITTEN
    again.delete_log(A)
    assert A not in again.future_logs.copies
    shut_down(again)
    assert disk.is_dir(copy.path)
    last = started(disk, ONE, TWO)
    assert not last.future_logs.copies and disk.is_dir(copy.path)


def test_a_copy_goes_no_further_than_the_log_did_when_the_broker_started() -> None:
    disk = new_disk()
    manager, _ = prepared(disk)
    manager.logs[A].truncate_to(30)
    shut_down(manager)
    again = started(disk, ONE, TWO)
    again.future_logs.note_ends()
    again.logs[A].append_as_leader(batch(*[b"other"] * 10), leader_epoch=1)
    again.future_logs.open(again.future_logs.copies[A])
    found = again.future_logs.copies[A].log
    assert found is not None and values(found) == WRITTEN[:30]


def test_two_folders_of_one_log_are_still_refused_if_nothing_says_which_counts() -> None:
    disk = new_disk()
    manager, copy = prepared(disk)
    shut_down(manager)
    disk.rename(copy.path, f"{copy.log_dir.path}/{A}")
    manager = make_manager(disk, (ONE, TWO))
    manager.open_dirs()
    with pytest.raises(DuplicateLogError):
        load(manager)
