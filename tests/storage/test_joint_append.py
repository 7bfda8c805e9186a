"""Batches of several requests appended with one write: the log is the same as after one append for each of them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from tests.protocol.test_joint_produce import key, laid_out, request
from tests.storage.logs import NOW_MS, batch, open_log

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.joint_produce import MAX_JOINT_BATCH_BYTES, join_produces_py
from barnabas.simulation.disk import SimDisk
from barnabas.storage import joint_append
from barnabas.storage.joint_append import JOINT_RULES, JointAppend
from barnabas.storage.log import Log
from barnabas.storage.log_values import LogAppendInfo

NOTHING = memoryview(b"")


def append_jointly(log: Log, batches: list[memoryview]) -> tuple[JointAppend, LogAppendInfo]:
    buffer, parts = laid_out(*(request(bytes(records)) for records in batches))
    joint = JointAppend(buffer, parts, key(), log.log_start_offset, log.producer_state, 9)
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
        producers(log),
    )


def producers(log: Log) -> dict[int, tuple[object, ...]]:
    """The state of each producer, in the order in which a snapshot has them."""
    return {
        producer_id: (entry.producer_epoch, entry.batches[:], entry.last_timestamp, entry.current_txn_first_offset)
        for producer_id, entry in log.producer_state.producers.items()
    }


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
            NOTHING,
            leader_epoch=3,
            rules=JOINT_RULES,
            validate=JointAppend(buffer, parts, key(), 0, log.producer_state, 9),
        )
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (state(log), log.size, bytes(buffer)) == (before, size, received)
    disk.capacity = None
    log.append_as_leader(
        NOTHING, leader_epoch=3, rules=JOINT_RULES, validate=JointAppend(buffer, parts, key(), 0, log.producer_state, 9)
    )
    assert log.log_end_offset == 4


class Producers:
    """Some idempotent producers, and some batches without a producer id."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._next = {producer_id: (0, rng.choice([0, 5, 2**31 - 3])) for producer_id in range(6)}

    def batch(self) -> memoryview:
        rng = self._rng
        count, timestamp = rng.randrange(1, 4), NOW_MS + rng.randrange(-500, 500)
        if rng.random() < 0.2:
            return batch(count, timestamp=timestamp)
        producer_id = rng.choice(list(self._next))
        epoch, sequence = self._next[producer_id]
        if rng.random() < 0.05:
            epoch, sequence = epoch + 1, 0
        self._next[producer_id] = epoch, (sequence + count) % 2**31
        fields = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
        return batch(count, timestamp=timestamp, **fields)


@pytest.mark.parametrize("seed", range(6))
def test_producers_have_the_same_state_after_a_joint_append_as_after_single_appends(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    for name in ("one", "joint"):
        (tmp_path / name).mkdir()
    one, joint = (open_log(tmp_path / name / "t-0") for name in ("one", "joint"))
    source = Producers(rng)
    for turn in range(40):
        batches = [source.batch() for _ in range(rng.randrange(1, 30))]
        appended, info = append_jointly(joint, batches)
        assert appended.joined is not None
        assert all(appended.joined.responses), "each batch is the next one of its producer"
        for each in batches:
            last = one.append_as_leader(memoryview(bytearray(each)), leader_epoch=3).last_offset
        assert info.last_offset == last
        assert state(one) == state(joint)
        if turn % 10 == 5:
            one.roll()
            joint.roll()
    one.close()
    joint.close()
    assert files(tmp_path / "one" / "t-0") == files(tmp_path / "joint" / "t-0")
    again = open_log(tmp_path / "joint" / "t-0")
    assert producers(again) == producers(joint)
    again.close()


def next_batch(producer_id: int, sequence: int, *, epoch: int = 1, count: int = 2, **fields: Any) -> memoryview:
    return batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **fields)


UNUSUAL = {
    "a repeated batch": next_batch(1, 8),
    "an early batch of the window": next_batch(1, 0),
    "a batch before the window": next_batch(1, 0, count=1),
    "a gap": next_batch(1, 14),
    "an old epoch": next_batch(1, 0, epoch=0),
    "a new epoch that does not begin at 0": next_batch(1, 10, epoch=2),
    "a batch outside of the open transaction": next_batch(2, 2),
    "a batch of a transaction": next_batch(2, 2, is_transactional=True),
    "a batch of a new producer's transaction": next_batch(3, 0, is_transactional=True),
}


@pytest.mark.parametrize("name", UNUSUAL)
@pytest.mark.parametrize("twin", ["python", "compiled"])
def test_any_batch_but_the_next_of_its_producer_is_left_to_a_single_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, twin: str
) -> None:
    if twin == "python":
        monkeypatch.setattr(joint_append, "join_produces", join_produces_py)
    log = open_log(tmp_path / "t-0")
    for sequence in range(0, 10, 2):
        log.append_as_leader(next_batch(1, sequence), leader_epoch=3)
    log.append_as_leader(next_batch(2, 0, is_transactional=True), leader_epoch=3)
    before, others = producers(log), next_batch(1, 10)
    joint, info = append_jointly(log, [UNUSUAL[name]])
    assert (joint.joined, info.last_offset, producers(log)) == (None, -1, before)
    joint, info = append_jointly(log, [batch(), UNUSUAL[name], others, UNUSUAL[name], batch()])
    assert joint.joined is not None
    assert [bool(response) for response in joint.joined.responses] == [True, False, True, False, True]
    assert info.num_messages == 4
    assert {**producers(log), 1: before[1]} == before, "only the next batch of producer 1 changed the state"
    log.close()


def test_a_batch_after_an_earlier_one_of_the_same_append_is_checked_against_it(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    new = [next_batch(5, 7), next_batch(5, 7), next_batch(5, 9), next_batch(5, 9), next_batch(5, 20), next_batch(5, 11)]
    new += [next_batch(5, 0, epoch=2), next_batch(5, 13), next_batch(5, 2, epoch=2)]
    joint, _ = append_jointly(log, new)
    assert joint.joined is not None
    taken = [bool(response) for response in joint.joined.responses]
    assert taken == [True, False, True, False, False, True, True, False, True]
    entry = log.producer_state.producers[5]
    assert (entry.producer_epoch, [each.last_sequence for each in entry.batches]) == (2, [1, 3])
    repeated = log.append_as_leader(next_batch(5, 2, epoch=2), leader_epoch=3)
    assert (repeated.duplicate, repeated.first_offset, repeated.last_offset) == (True, 8, 9)
    log.close()


def test_a_failed_joint_append_does_not_change_producers() -> None:
    disk = SimDisk()
    disk.make_dirs("/data")
    log = open_log("/data/t-0", fs=disk)
    append_jointly(log, [next_batch(1, 0), next_batch(2, 0), next_batch(1, 2)])
    before = state(log)
    disk.capacity = disk.used + 100
    batches = [next_batch(1, 4), next_batch(9, 0), next_batch(2, 2)]
    with pytest.raises(KafkaError) as caught:
        append_jointly(log, batches)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert state(log) == before
    disk.capacity = None
    joint, _ = append_jointly(log, batches)
    assert joint.joined is not None
    assert all(joint.joined.responses)
    assert log.log_end_offset == 12


def test_a_roll_before_a_joint_append_keeps_the_earlier_state_in_its_snapshot(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", internal_segment_bytes=400)
    append_jointly(log, [next_batch(1, 0), next_batch(1, 2)])
    append_jointly(log, [next_batch(1, 4), next_batch(2, 0)])
    assert [each.base_offset for each in log.segments] == [0, 4]
    snapshot = log.producer_state._unwritten[4].read()
    assert [(entry.producer_id, entry.last_sequence) for entry in snapshot] == [(1, 1), (1, 3)]
    assert log.producer_state.producers[1].last_sequence == 5
    log.close()
