"""Few files may be open: logs take turns, and what somebody counts on stays open."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest
from tests.storage.crash_world import NOW_MS, SMALL
from tests.storage.lanes import retain, shut_down
from tests.storage.logs import Clock, append, finished, marker, open_log
from tests.storage.test_log_manager import batch, started, values

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.simulation.disk import SimDisk
from barnabas.storage.log import Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.log_manager import LogManager
from barnabas.storage.log_validator import COORDINATOR_RULES
from barnabas.storage.unsynced_files import run_together

LIMIT = 16
PARTITIONS = [TopicPartition("t", index) for index in range(60)]


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(now_ms=lambda: NOW_MS)


def limited(disk: SimDisk, config: LogConfig = SMALL) -> LogManager:
    manager = started(disk, config=config)
    manager.limit_open_files(LIMIT)
    # What one operation has open at a time is not counted on.
    disk.max_open_files = LIMIT + 4
    return manager


def test_logs_that_are_written_rolled_read_and_flushed_in_turn_need_few_files(disk: SimDisk) -> None:
    manager = limited(disk)
    logs = [manager.creation.get_or_create_log(partition, is_new=True) for partition in PARTITIONS]
    for turn in range(12):
        for log in logs:
            log.append_as_leader(batch(b"x" * 100, b"%d" % turn), leader_epoch=0)
        for log in logs:
            assert values(log)
    assert all(len(log.segments) > 1 for log in logs), "they have rolled"
    for log in logs:
        log.flush()
        assert log.recovery_point == log.log_end_offset == 24
        assert len(log.read(0, 1 << 20, min_one_message=True).data) > 0
    assert disk.open_files <= LIMIT


def test_what_is_being_flushed_stays_open(disk: SimDisk) -> None:
    manager = limited(disk)
    logs = [manager.creation.get_or_create_log(partition, is_new=True) for partition in PARTITIONS]
    for log in logs:
        log.append_as_leader(batch(b"1"), leader_epoch=0)
    held = [(log, log.begin_flush()) for log in logs[: LIMIT // 2]]
    for log in logs:
        log.append_as_leader(batch(b"2"), leader_epoch=0)
    run_together([task for _, task in held])
    for log, task in held:
        assert log.complete_flush(task) == 1
    assert manager.held.online_dirs


def test_other_threads_close_nothing(disk: SimDisk) -> None:
    manager = started(disk)
    logs = [manager.creation.get_or_create_log(partition, is_new=True) for partition in PARTITIONS]
    manager.limit_open_files(LIMIT, is_owner=lambda: False)
    for log in logs:
        log.append_as_leader(batch(b"1"), leader_epoch=0)
    assert disk.open_files == len(logs)


def test_a_truncation_among_few_files(disk: SimDisk) -> None:
    manager = limited(disk)
    logs = [manager.creation.get_or_create_log(partition, is_new=True) for partition in PARTITIONS]
    for log in logs:
        for _ in range(8):
            log.append_as_leader(batch(b"x" * 100), leader_epoch=0)
        log.update_high_watermark(8)
    manager.truncate_to(dict.fromkeys(PARTITIONS, 5))
    assert {log.log_end_offset for log in logs} == {5}
    assert manager.held.online_dirs


def test_looks_into_old_segments_need_few_files(disk: SimDisk) -> None:
    manager = limited(disk)
    for partition in PARTITIONS:
        log = manager.creation.get_or_create_log(partition, is_new=True)
        for _ in range(16):
            log.append_as_leader(batch(b"x" * 100), leader_epoch=0)
        assert len(log.segments) > 3
    shut_down(manager)
    again = limited(disk, replace(SMALL, retention_ms=NOW_MS))
    logs = list(again.logs.values())
    for log in logs:
        log.update_high_watermark(log.log_end_offset)
    retain(again)
    assert again.held.online_dirs
    assert disk.open_files <= LIMIT
    for log in logs:
        assert log.fetch_offset_by_timestamp(NOW_MS) is not None
        assert finished(log.find_max_timestamp()) is not None
    assert disk.open_files <= LIMIT


def test_retention_without_a_file_left_waits(disk: SimDisk) -> None:
    clock = Clock(NOW_MS)
    disk.mkdir("/t-0")
    log = open_log("/t-0", fs=disk, segment_bytes=300)
    for _ in range(8):
        append(log, size=100)
    log.close()
    log = open_log("/t-0", fs=disk, clock=clock, segment_bytes=300, retention_ms=1000)
    log.update_high_watermark(8)
    log.give_files_back()
    clock.advance(2000)
    disk.max_open_files = 0
    with pytest.raises(KafkaError) as raised:
        log.begin_retention()
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.log_start_offset == 0
    disk.max_open_files = None
    assert log.begin_retention() == 8


@pytest.mark.parametrize("how", ["clean", "kill"])
def test_a_stop_and_a_start_need_few_files(disk: SimDisk, how: str) -> None:
    manager = limited(disk)
    for partition in PARTITIONS:
        log = manager.creation.get_or_create_log(partition, is_new=True)
        for _ in range(8):
            log.append_as_leader(batch(b"x" * 100), leader_epoch=0)
    shut_down(manager) if how == "clean" else manager.close()
    assert disk.open_files == 0
    disk.max_open_files = 8
    again = started(disk)
    assert disk.open_files == 0
    assert {log.log_end_offset for log in again.logs.values()} == {8}


def abort_unflushed(disk: SimDisk) -> Log:
    """A log of which the end of an aborted transaction is not on disk."""
    disk.mkdir("/t-0")
    disk.make_everything_durable()
    log = open_log("/t-0", fs=disk)
    log.flush()
    disk.fsync_dir("/t-0")
    append(log, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.append_as_leader(marker(1, commit=False), leader_epoch=0, rules=COORDINATOR_RULES)
    return log


def check_abort_is_known(disk: SimDisk) -> None:
    for seed in range(20):
        again = open_log("/t-0", fs=disk.survivor(seed, "B"), clean=False, recovery_point=2)
        again.update_high_watermark(2)
        aborted = again.read(0, 1000, read_committed=True).aborted_transactions or ()
        assert [one.producer_id for one in aborted] == [1]


def test_an_aborted_transaction_lasts_though_a_file_could_not_be_opened_at_first(disk: SimDisk) -> None:
    log = abort_unflushed(disk)
    log.give_files_back()
    disk.fail("open", errno.EMFILE, ".log")
    with pytest.raises(KafkaError):
        log.begin_flush()
    assert log.flush() == 2
    check_abort_is_known(disk)


def test_an_aborted_transaction_lasts_though_its_segment_could_not_be_closed(disk: SimDisk) -> None:
    log = abort_unflushed(disk)
    disk.fail("open", errno.ENOSPC, "2.log")  # of the next segment, after this one got its final form
    with pytest.raises(KafkaError):
        log.roll()
    assert log.flush() == 2
    check_abort_is_known(disk)
