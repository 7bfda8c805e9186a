"""Producer state through a log: idempotence, transactions, snapshots."""

from __future__ import annotations

import errno
import random
from collections import Counter
from typing import Any

import pytest
from tests.cases import in_one_test
from tests.storage.logs import NOW_MS, Clock, append, batch, marker, open_log
from tests.storage.producer_snapshots import encode_snapshot

from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError
from barnabas.protocol.file_layouts import SnapshotEntry, decode_snapshot
from barnabas.simulation.disk import SimDisk, SimFile
from barnabas.storage import producer_state, unreplicated_transactions
from barnabas.storage.log import Log
from barnabas.storage.log_validator import COORDINATOR_RULES
from barnabas.storage.log_values import LogAppendInfo
from barnabas.storage.producer_state import PRODUCERS_PER_WRITE, ProducedBatch, ProducerStateEntry

MAX_SEQUENCE = 2**31 - 1


def new_disk() -> SimDisk:
    found = SimDisk()
    found.make_dirs("/logs")
    return found


@pytest.fixture
def disk() -> SimDisk:
    return new_disk()


def opened(disk: SimDisk, **options: Any) -> Log:
    return open_log("/logs/topic-0", fs=disk, **options)


def produce(log: Log, sequence: int, count: int = 1, *, epoch: int = 0, **fields: Any) -> LogAppendInfo:
    records = batch(count, producer_id=9, producer_epoch=epoch, base_sequence=sequence, **fields)
    return log.append_as_leader(records, leader_epoch=0)


def refused(log: Log, sequence: int, count: int = 1, **fields: Any) -> ErrorCode:
    end = log.log_end_offset
    with pytest.raises(KafkaError) as caught:
        produce(log, sequence, count, **fields)
    assert log.log_end_offset == end, "a refused batch is not written"
    return caught.value.code


def test_a_window_of_five_batches_answers_repetitions_with_their_offsets(disk: SimDisk) -> None:
    log = opened(disk)
    first = [produce(log, sequence, 2).first_offset for sequence in range(0, 14, 2)]
    for sequence in range(4, 14, 2):
        again = produce(log, sequence, 2)
        assert (again.duplicate, again.first_offset, again.last_offset, again.valid_bytes) == (
            True,
            first[sequence // 2],
            first[sequence // 2] + 1,
            0,
        )
    assert log.log_end_offset == 14
    assert refused(log, 2, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_have_no_gaps_and_wrap(disk: SimDisk) -> None:
    log = opened(disk)
    produce(log, MAX_SEQUENCE - 1)
    assert refused(log, 0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    produce(log, MAX_SEQUENCE, 3)
    assert produce(log, MAX_SEQUENCE, 3).duplicate
    assert refused(log, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert not produce(log, 2).duplicate


def test_epochs_fence_and_start_at_zero(disk: SimDisk) -> None:
    log = opened(disk)
    produce(log, 17, epoch=3)
    assert refused(log, 5, epoch=4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    produce(log, 0, epoch=4)
    assert refused(log, 18, epoch=3) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_silent_producers_expire(disk: SimDisk) -> None:
    clock = Clock()
    log = opened(disk, clock=clock)
    produce(log, 0)
    clock.advance(86_399_999)
    assert log.producer_state.remove_expired(list(log.producer_state.producers), clock.now_ms) == 0
    clock.advance(1)
    assert log.producer_state.remove_expired(list(log.producer_state.producers), clock.now_ms) == 1
    assert not produce(log, 44, timestamp=clock.now_ms).duplicate


@pytest.mark.parametrize("clean", [True, False])
def test_the_newest_batch_is_known_after_a_restart(disk: SimDisk, clean: bool) -> None:
    log = opened(disk, segment_bytes=400)
    for sequence in range(10):
        produce(log, sequence)
    if clean:
        log.close()
    else:
        log.close_handles()
    log = opened(disk, clean=clean, recovery_point=log.recovery_point, segment_bytes=400)
    assert produce(log, 9).duplicate
    assert produce(log, 9).first_offset == 9
    assert not produce(log, 10).duplicate


def test_truncation_takes_producer_state_back(disk: SimDisk) -> None:
    log = opened(disk, segment_bytes=300)
    for sequence in range(10):
        produce(log, sequence)
    log.truncate_to(4)
    assert refused(log, 10) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(log, 4).first_offset == 4


def test_truncation_to_a_snapshot_takes_producer_state_back(disk: SimDisk) -> None:
    log = opened(disk)
    produce(log, 0)
    log.close()
    log = opened(disk)
    produce(log, 1)
    log.truncate_to(1)
    assert not produce(log, 1).duplicate


def transactional(log: Log, producer_id: int, sequence: int = 0, count: int = 2) -> int:
    records = batch(count, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=True)
    return log.append_as_leader(records, leader_epoch=0).first_offset


def end(log: Log, producer_id: int, *, commit: bool, coordinator_epoch: int = 0) -> None:
    records = marker(producer_id, commit=commit, coordinator_epoch=coordinator_epoch)
    log.append_as_leader(records, leader_epoch=0, rules=COORDINATOR_RULES)


@pytest.mark.parametrize("reopen", [None, True, False])
def test_open_transactions_hold_the_last_stable_offset(disk: SimDisk, reopen: bool | None) -> None:
    log = opened(disk)
    append(log)
    transactional(log, 1)
    transactional(log, 2)
    end(log, 1, commit=False)
    append(log)
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 3, "the transaction of producer 2 is open"
    end(log, 2, commit=True)
    assert log.last_stable_offset == 3, "its marker is above the high watermark"
    if reopen is not None:
        if reopen:
            log.close()
        else:
            log.close_handles()
        log = opened(disk, clean=reopen)
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == log.log_end_offset == 8
    found = log.read(0, 10_000, read_committed=True)
    assert [tuple(aborted) for aborted in found.aborted_transactions or []] == [(1, 1, 5, 3)]
    assert log.read(6, 10_000, read_committed=True).aborted_transactions == []
    assert log.read(0, 10_000).aborted_transactions is None


@pytest.mark.parametrize("days", [0, 2])
def test_a_stop_forgets_no_transaction_whose_marker_is_not_committed(disk: SimDisk, days: int) -> None:
    """However long it lasts: the producer's id expires meanwhile."""
    log = opened(disk)
    append(log)
    begun = transactional(log, 1)
    append(log)
    end(log, 1, commit=True)
    append(log)
    log.update_high_watermark(begun + 3)
    assert log.last_stable_offset == begun
    log.close()
    log = opened(disk, clock=Clock(NOW_MS + days * 86_400_000))
    log.restore_high_watermark(begun + 3)
    assert log.last_stable_offset == begun
    log.update_high_watermark(begun + 4)
    assert log.last_stable_offset == begun + 4


def test_a_log_that_is_cut_to_a_snapshot_forgets_no_transaction_whose_marker_is_not_committed(disk: SimDisk) -> None:
    log = opened(disk)
    begun = transactional(log, 1)
    end(log, 1, commit=False)
    log.roll()
    other = transactional(log, 2)
    log.truncate_to(log.log_end_offset - 2)
    assert log.log_end_offset == other
    log.update_high_watermark(begun + 1)
    assert log.last_stable_offset == begun
    log.update_high_watermark(other)
    assert log.last_stable_offset == other


def test_what_is_committed_is_stable_still_when_a_log_is_cut_above(disk: SimDisk) -> None:
    log = opened(disk)
    transactional(log, 1)
    end(log, 1, commit=True)
    log.update_high_watermark(log.log_end_offset)
    append(log)
    log.truncate_to(log.high_watermark)
    assert log.last_stable_offset == log.high_watermark == log.log_end_offset


def test_a_transaction_is_open_again_whose_marker_was_cut_off(disk: SimDisk) -> None:
    log = opened(disk)
    begun = transactional(log, 1)
    end(log, 1, commit=True)
    log.truncate_to(log.log_end_offset - 1)
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == begun
    end(log, 1, commit=True)
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == log.log_end_offset


@in_one_test("seed", range(40))
def test_what_is_stable_after_a_start_follows_from_the_log(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Whatever was rolled, cut and closed before, and wherever the high watermark is."""
    monkeypatch.setattr(unreplicated_transactions, "FIRST_STRETCH", 1)
    monkeypatch.setattr(unreplicated_transactions, "GROWTH", 2)
    rng, disk = random.Random(seed), new_disk()
    log, sequences = opened(disk), Counter[int]()
    history: list[tuple[int, int, bool]] = []
    """Offset and producer of each batch, and whether it is a marker."""
    for _ in range(rng.randint(20, 120)):
        producer_id, step = rng.randrange(4), rng.random()
        if step < 0.5:
            offset = transactional(log, producer_id, sequences[producer_id], 1)
            history.append((offset, producer_id, False))
            sequences[producer_id] += 1
        elif step < 0.8:
            history.append((log.log_end_offset, producer_id, True))
            end(log, producer_id, commit=rng.random() < 0.7)
        elif step < 0.9:
            log.roll()
        elif history:
            cut = rng.choice(history[-5:])[0]
            log.truncate_to(cut)
            history = [one for one in history if one[0] < cut]
            assert log.last_stable_offset == stable_offset(history, log.high_watermark)
            sequences = Counter(one[1] for one in history if not one[2])
        if rng.random() < 0.1:
            watermark = rng.randint(log.high_watermark, log.log_end_offset)
            log.update_high_watermark(watermark)
            assert log.last_stable_offset == stable_offset(history, watermark)
        if rng.random() < 0.1:
            watermark, is_clean = rng.randint(0, log.log_end_offset), rng.random() < 0.7
            if is_clean:
                log.close()
            else:
                log.flush()
                log.close_handles()
            log = opened(disk, clean=is_clean, recovery_point=rng.choice([0, log.log_end_offset]))
            log.restore_high_watermark(watermark)
            assert log.last_stable_offset == stable_offset(history, watermark)
    while log.high_watermark < log.log_end_offset:
        log.update_high_watermark(log.high_watermark + 1)
        assert log.last_stable_offset == stable_offset(history, log.high_watermark)


def stable_offset(history: list[tuple[int, int, bool]], high_watermark: int) -> int:
    """The first offset of a transaction without a committed marker, at most the high watermark."""
    first: dict[int, int] = {}
    unstable = [high_watermark]
    for offset, producer_id, is_marker in history:
        if not is_marker:
            first.setdefault(producer_id, offset)
        elif (begun := first.pop(producer_id, None)) is not None and offset >= high_watermark:
            unstable.append(begun)
    return min([*unstable, *first.values()])


@pytest.mark.parametrize("is_transactional", [True, False])
def test_damage_above_the_high_watermark_does_not_keep_a_log_from_being_opened(
    disk: SimDisk, caplog: pytest.LogCaptureFixture, is_transactional: bool
) -> None:
    log = opened(disk)
    if is_transactional:
        transactional(log, 1)
        end(log, 1, commit=True)
    else:
        produce(log, 0)
        produce(log, 1)
    log.close()
    file = disk.open("/logs/topic-0/00000000000000000000.log")
    file.pwrite(b"\xff" * 12, file.size() - 12)
    file.close()
    log = opened(disk)
    log.restore_high_watermark(1)
    assert log.last_stable_offset == 1
    assert ("cannot determine" in caplog.text) is is_transactional, "others are not looked through"


def test_records_outside_the_open_transaction_are_refused(disk: SimDisk) -> None:
    log = opened(disk)
    transactional(log, 9)
    assert refused(log, 2) is ErrorCode.INVALID_TXN_STATE


def test_markers_of_old_coordinators_are_fenced(disk: SimDisk) -> None:
    log = opened(disk)
    transactional(log, 9)
    end(log, 9, commit=True, coordinator_epoch=5)
    with pytest.raises(KafkaError) as caught:
        end(log, 9, commit=True, coordinator_epoch=4)
    assert caught.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_a_corrupt_snapshot_gives_way_to_a_longer_replay(disk: SimDisk) -> None:
    log = opened(disk, segment_bytes=300)
    for sequence in range(10):
        produce(log, sequence)
    log.close()
    newest = log.producer_state._snapshots[-1]
    disk.overwrite(f"/logs/topic-0/{newest:020d}.snapshot", 12, b"\xff\xff")
    assert produce(opened(disk, segment_bytes=300), 9).duplicate


def test_snapshot_layout() -> None:
    entry = SnapshotEntry(7, 2, 11, 100, 3, NOW_MS, 5, -1)
    data = encode_snapshot([entry, entry._replace(producer_id=8)])
    assert (data[:2], data[6:10], len(data)) == (b"\x00\x01", b"\x00\x00\x00\x02", 10 + 2 * 46)
    assert [found.producer_id for found in decode_snapshot(data)] == [7, 8]
    for bad in (data[:-1], data[:12] + b"\x01" + data[13:], b"", b"\x00\x02" + data[2:]):
        with pytest.raises(ProtocolError):
            decode_snapshot(bad)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", [b"\xff" * 34, b"x" * 100])
def test_a_damaged_transaction_index_is_made_anew(disk: SimDisk, clean: bool, damage: bytes) -> None:
    log = opened(disk, segment_bytes=1000)
    for number in range(40):
        append(
            log,
            producer_id=number % 3,
            producer_epoch=0,
            base_sequence=number // 3,
            is_transactional=True,
        )
        if number % 4 == 3:
            log.append_as_leader(marker(number % 3, commit=False), leader_epoch=0, rules=COORDINATOR_RULES)
    end = log.log_end_offset
    log.close()
    paths = [f"/logs/topic-0/{name}" for name in disk.list_dir("/logs/topic-0") if name.endswith(".txnindex")]
    whole = {path: disk.read_bytes(path) for path in paths}
    assert len(whole) > 2
    for path in paths:
        disk.write_atomic(path, damage)
    reopened = opened(disk, segment_bytes=1000, clean=clean, recovery_point=end)
    assert reopened.log_end_offset == end
    assert reopened.read(0, 1 << 20, min_one_message=True, read_committed=True).aborted_transactions
    reopened.close()
    assert {path: disk.read_bytes(path) for path in paths} == whole


def snapshot_entries(disk: SimDisk, offset: int) -> list[SnapshotEntry]:
    return decode_snapshot(disk.read_bytes(f"/logs/topic-0/{offset:020d}.snapshot"))


def produce_as(log: Log, producer_ids: range, sequence: int = 0) -> None:
    for producer_id in producer_ids:
        records = batch(producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        log.append_as_leader(records, leader_epoch=0)


def test_a_roll_encodes_no_producer_and_a_flush_writes_them_in_small_parts(
    disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(disk)
    producers = 3 * PRODUCERS_PER_WRITE + 1
    for producer_id in range(producers):  # as appends would leave them
        entry = log.producer_state.producers[producer_id] = ProducerStateEntry(producer_id, 0)
        entry.add_batch(ProducedBatch(0, 0, 0, NOW_MS))
    append(log)
    work: list[str] = []
    pack, copy, write = producer_state.pack_snapshot_entry, ProducerStateEntry.copy, SimFile.pwrite

    def counting_pack(*fields: Any) -> bytes:
        work.append("pack")
        return pack(*fields)

    def counting_copy(self: ProducerStateEntry, version: int) -> ProducerStateEntry:
        work.append("copy")
        return copy(self, version)

    def counting_write(self: SimFile, data: bytes, position: int) -> int:
        work.append("write")
        return write(self, data, position)

    monkeypatch.setattr(producer_state, "pack_snapshot_entry", counting_pack)
    monkeypatch.setattr(ProducerStateEntry, "copy", counting_copy)
    monkeypatch.setattr(SimFile, "pwrite", counting_write)
    log.roll()
    flush = log.begin_flush()
    assert not {"pack", "copy"} & {*work}, "the thread of the log only takes references"
    produce_as(log, range(7, 9), 1)
    assert work.count("copy") == 2, "only producers that go on are copied"
    produce_as(log, range(7, 9), 2)
    assert work.count("copy") == 2, "each of them once"
    work.clear()
    flush.run()
    assert work.count("pack") == producers
    parts = [part.count("pack") for part in " ".join(work).split("write")]
    assert max(parts) == PRODUCERS_PER_WRITE
    log.complete_flush(flush)
    assert [entry.last_sequence for entry in snapshot_entries(disk, 1)] == [0] * producers


def test_a_snapshot_that_is_written_later_has_the_state_at_its_offset(disk: SimDisk) -> None:
    log = opened(disk)
    produce_as(log, range(3))
    produce(log, 0, is_transactional=True)
    log.roll()
    produce_as(log, range(3), 1)
    log.append_as_leader(marker(9, commit=True), leader_epoch=0, rules=COORDINATOR_RULES)
    log.producer_state.remove_expired(list(log.producer_state.producers), NOW_MS * 2)
    log.flush()
    found = snapshot_entries(disk, 4)
    assert [(one.producer_id, one.last_sequence, one.last_offset) for one in found] == [
        (0, 0, 0),
        (1, 0, 1),
        (2, 0, 2),
        (9, 0, 3),
    ]
    assert [one.current_txn_first_offset for one in found] == [-1, -1, -1, 3]


@pytest.mark.parametrize("steps", range(4))
def test_a_truncation_during_a_flush_leaves_no_snapshot_of_what_was_removed(disk: SimDisk, steps: int) -> None:
    log = opened(disk)
    produce_as(log, range(3))
    log.roll()
    flush = log.begin_flush()
    for step in (flush.write, flush.sync, flush.rename)[:steps]:
        step()
    log.truncate_to(2)
    for step in (flush.write, flush.sync, flush.rename)[steps:]:
        step()
    flush.sync_names()
    log.complete_flush(flush)
    assert not [name for name in disk.list_dir("/logs/topic-0") if "00003.snapshot" in name]
    assert log.producer_state._snapshots in ([], [2])
    produce_as(log, range(5, 8))
    log.close()
    assert {*opened(disk).producer_state.producers} == {0, 1, 5, 6, 7}


def test_a_truncation_to_a_snapshot_that_is_not_written_yet_takes_its_state(disk: SimDisk) -> None:
    log = opened(disk)
    produce_as(log, range(3))
    log.roll()
    produce_as(log, range(3), 1)
    disk.fail("pread", errno.EIO, "000.log", times=None)
    log.truncate_to(3)
    assert [entry.last_sequence for entry in log.producer_state.producers.values()] == [0, 0, 0]
    produce_as(log, range(3), 1)


def test_a_full_disk_costs_a_snapshot_and_no_flush(disk: SimDisk) -> None:
    log = opened(disk)
    produce_as(log, range(3))
    log.roll()
    disk.fail("pwrite", errno.ENOSPC, ".snapshot", times=None)
    assert log.flush() == 3
    assert not log.producer_state._snapshots
    assert not [name for name in disk.list_dir("/logs/topic-0") if "snapshot" in name]
    log.close_handles()
    assert {*opened(disk, clean=False, recovery_point=3).producer_state.producers} == {0, 1, 2}


def test_a_roll_without_a_flush_before_a_crash_costs_no_producer(disk: SimDisk) -> None:
    log = opened(disk)
    produce_as(log, range(3))
    log.flush()
    log.roll()
    produce_as(log, range(3), 1)
    log.close_handles()
    log = opened(disk, clean=False, recovery_point=3)
    assert [entry.last_sequence for entry in log.producer_state.producers.values()] == [1, 1, 1]
