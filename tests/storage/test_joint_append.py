"""Batches of several requests appended with one write: the log is the same as after one append for each of them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from tests.protocol.test_joint_produce import key, laid_out, request
from tests.storage.logs import NOW_MS, batch, open_log

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.joint_produce import MAX_JOINT_BATCH_BYTES
from barnabas.simulation.disk import SimDisk
from barnabas.storage.joint_append import JOINT_RULES, JointAppend
from barnabas.storage.log import Log
from barnabas.storage.log_values import LogAppendInfo

NOTHING = memoryview(b"")


def append_jointly(log: Log, batches: list[memoryview]) -> tuple[JointAppend, LogAppendInfo]:
    buffer, parts = laid_out(*(request(bytes(records)) for records in batches))
    joint = JointAppend(buffer, parts, key(), log.log_start_offset, 9)
    return joint, log.append_as_leader(NOTHING, leader_epoch=3, rules=JOINT_RULES, validate=joint)


def state(log: Log) -> tuple[object, ...]:
    segment = log.active_segment
    return (
        log.log_end_offset,
        log.appended_records,
        log.appended_bytes,
        log.leader_epochs.entries,
        [(each.base_offset, each.size) for each in log.segments],
        segment.indexes.max_timestamp,
        segment.indexes.bytes_since_last_entry,
        segment.age.first_timestamp,
    )


def files(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


@pytest.mark.parametrize("seed", range(4))
def test_a_joint_append_writes_the_same_files_as_single_appends(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    interval = rng.choice([0, 200, 1000, 4096])
    for name in ("one", "joint"):
        (tmp_path / name).mkdir()
    one, joint = (open_log(tmp_path / name / "t-0", index_interval_bytes=interval) for name in ("one", "joint"))
    for _ in range(30):
        batches = [
            batch(rng.randrange(1, 4), timestamp=NOW_MS + rng.randrange(-500, 500), size=rng.randrange(200))
            for _ in range(rng.randrange(1, 40))
        ]
        _, info = append_jointly(joint, batches)
        assert info.first_offset == one.log_end_offset
        for each in batches:
            last = one.append_as_leader(memoryview(bytearray(each)), leader_epoch=3).last_offset
        assert (info.last_offset, info.num_messages) == (last, last + 1 - info.first_offset)
        assert state(one) == state(joint)
    for offset in range(0, one.log_end_offset, 7):
        assert one.read(offset, 1000).data == joint.read(offset, 1000).data
        assert one.active_segment.position_of(offset) == joint.active_segment.position_of(offset)
    one.close()
    joint.close()
    assert files(tmp_path / "one" / "t-0") == files(tmp_path / "joint" / "t-0")


def test_a_joint_append_rolls_a_full_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", internal_segment_bytes=1000)
    for _ in range(5):
        append_jointly(log, [batch() for _ in range(8)])
    assert log.log_end_offset == 40
    assert [each.base_offset for each in log.segments] == [0, 8, 16, 24, 32]
    log.close()


def test_batches_that_have_to_be_changed_are_left_out(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    large = batch(size=MAX_JOINT_BATCH_BYTES)
    joint, info = append_jointly(log, [batch(), large, batch(2)])
    assert (info.first_offset, info.last_offset, info.num_messages) == (0, 2, 3)
    assert joint.joined is not None
    assert [bool(response) for response in joint.joined.responses] == [True, False, True]
    log.close()


@pytest.mark.parametrize("settings", [{"message_timestamp_type": "LogAppendTime"}, {"compression_type": "gzip"}])
def test_nothing_is_joined_where_the_broker_changes_batches(tmp_path: Path, settings: dict[str, Any]) -> None:
    log = open_log(tmp_path / "t-0", **settings)
    joint, info = append_jointly(log, [batch(), batch()])
    assert (joint.joined, info.last_offset, log.log_end_offset, log.size) == (None, -1, 0, 0)
    log.close()


def test_a_full_disk_leaves_the_log_and_the_requests_as_they_were() -> None:
    disk = SimDisk()
    disk.make_dirs("/data")
    log = open_log("/data/t-0", fs=disk)
    append_jointly(log, [batch(), batch()])
    before, size = state(log), log.size
    buffer, parts = laid_out(request(bytes(batch())), request(bytes(batch())))
    received = bytes(buffer)
    disk.capacity = disk.used + 100
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(
            NOTHING, leader_epoch=3, rules=JOINT_RULES, validate=JointAppend(buffer, parts, key(), 0, 9)
        )
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (state(log), log.size, bytes(buffer)) == (before, size, received)
    disk.capacity = None
    log.append_as_leader(NOTHING, leader_epoch=3, rules=JOINT_RULES, validate=JointAppend(buffer, parts, key(), 0, 9))
    assert log.log_end_offset == 4
