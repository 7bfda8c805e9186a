"""Logs whose tail was torn, zeroed or flipped are cut at the first damaged batch, never before and never behind it."""

import random
from dataclasses import replace

import pytest
from tests.storage.crash_check import check_derived_state, check_indexes, read_everything
from tests.storage.crash_world import NOW_MS, SMALL, TP, make_manager, new_disk
from tests.storage.lanes import load

from barnabas.protocol.record_batch import RecordBatchBuilder
from barnabas.simulation.disk import SimDisk
from barnabas.storage.log import Log

BATCHES = 12
LOG = f"/data/{TP}/{0:020d}.log"
ONE_SEGMENT = replace(SMALL, segment_bytes=1 << 20)


def written() -> tuple[SimDisk, list[int]]:
    """A killed log of one segment, and the position at which each batch starts, with the end of the last."""
    disk = new_disk()
    manager = make_manager(disk, config=ONE_SEGMENT)
    manager.open_dirs()
    load(manager)
    log = manager.creation.get_or_create_log(TP, is_new=True)
    bounds = [0]
    for number in range(BATCHES):
        builder = RecordBatchBuilder(producer_id=5, producer_epoch=0, base_sequence=number)
        builder.append(b"key", f"value {number} ".encode() * 5, (), NOW_MS + number)
        log.append_as_leader(memoryview(bytearray(builder.build())), leader_epoch=number // 4)
        bounds.append(log.active_segment.size)
    log.flush()
    disk.make_everything_durable()
    disk.crash()
    return disk, bounds


def reopened(disk: SimDisk) -> Log:
    manager = make_manager(disk, config=ONE_SEGMENT)
    manager.open_dirs()
    load(manager)
    return manager.logs[TP]


def check_cut(damaged: SimDisk, original: bytes, bounds: list[int], good: int) -> None:
    """Exactly the first `good` batches are there, as they were; appends go on behind them; it opens again."""
    log = reopened(damaged)
    batches = read_everything(log)
    assert log.log_end_offset == good
    assert b"".join(bytes(batch.view) for batch in batches) == original[: bounds[good]]
    check_derived_state(log, batches)
    builder = RecordBatchBuilder()
    builder.append(None, b"next", (), NOW_MS + 1000)
    log.append_as_leader(memoryview(bytearray(builder.build())), leader_epoch=9)
    log.close()
    check_indexes(damaged)
    damaged.crash()
    again = reopened(damaged.survivor(0, "kill"))
    assert again.log_end_offset == good + 1


def whole_batches(bounds: list[int], position: int) -> int:
    """How many batches end at or before a position."""
    return sum(1 for end in bounds[1:] if end <= position)


def test_a_torn_tail_is_cut_at_the_batch() -> None:
    disk, bounds = written()
    original = disk.tree()[LOG]
    sizes = {*range(bounds[-3], bounds[-1] + 1, 5), *bounds, *(bound - 1 for bound in bounds[1:]), bounds[-2] + 1}
    for size in sorted(sizes):
        damaged = disk.survivor(0, "kill")
        damaged.cut(LOG, size)
        check_cut(damaged, original, bounds, whole_batches(bounds, size))


def test_a_zeroed_tail_is_cut_at_the_batch() -> None:
    disk, bounds = written()
    original = disk.tree()[LOG]
    for start in range(bounds[-4], bounds[-1], 11):
        damaged = disk.survivor(0, "kill")
        damaged.overwrite(LOG, start, bytes(len(original) - start))
        first_changed = next(at for at in range(start, len(original)) if original[at])
        check_cut(damaged, original, bounds, whole_batches(bounds, first_changed))


@pytest.mark.parametrize("garbage", [bytes(1), bytes(60), bytes(5000), b"\xff" * 100, b"\x00" * 8 + b"\x7f" * 200])
def test_garbage_behind_the_last_batch_is_cut(garbage: bytes) -> None:
    disk, bounds = written()
    original = disk.tree()[LOG]
    damaged = disk.survivor(0, "kill")
    damaged.overwrite(LOG, bounds[-1], garbage)
    check_cut(damaged, original, bounds, BATCHES)


# Kafka's checksum leaves out what a broker sets: the base offset (bytes 0 to 7) and the leader epoch (12 to 15).
FLIPPABLE = [8, 9, 10, 11, *range(16, 75)]


@pytest.mark.parametrize("number", [0, 5, BATCHES - 1])
def test_a_flipped_bit_is_cut_at_its_batch(number: int) -> None:
    disk, bounds = written()
    original = disk.tree()[LOG]
    rng = random.Random(number)
    for position in FLIPPABLE:
        at = bounds[number] + position
        damaged = disk.survivor(0, "kill")
        damaged.overwrite(LOG, at, bytes([original[at] ^ (1 << rng.randrange(8))]))
        check_cut(damaged, original, bounds, number)


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot"])
@pytest.mark.parametrize("damage", ["cut", "zeros", "noise", "gone"])
def test_damaged_helpers_are_made_again_from_the_log(suffix: str, damage: str) -> None:
    disk, bounds = written()
    original = disk.tree()[LOG]
    log = reopened(disk := disk.survivor(0, "kill"))
    log.close()
    paths = [path for path in disk.tree() if path.endswith(suffix)]
    assert paths
    for path in paths:
        size = len(disk.tree()[path])
        if damage == "cut":
            disk.cut(path, max(0, size - 3))
        elif damage == "gone":
            disk.unlink(path)
        else:
            disk.overwrite(path, 0, bytes(size) if damage == "zeros" else random.Random(1).randbytes(size + 5))
    disk.make_everything_durable()
    disk.crash()
    check_cut(disk.survivor(0, "kill"), original, bounds, BATCHES)


@pytest.mark.verify
def test_random_damage_never_breaks_the_start() -> None:
    """Random damage to random files of the folder: it opens, and serves a prefix of what was written."""
    disk, bounds = written()
    original = disk.tree()[LOG]
    rng = random.Random(20)
    for _ in range(1000):
        damaged = disk.survivor(0, "kill")
        for path, data in damaged.tree().items():
            if TP.topic in path and "partition.metadata" not in path and data and rng.random() < 0.4:
                damaged.overwrite(path, rng.randrange(len(data)), rng.randbytes(rng.randint(1, 1000)))
        log = reopened(damaged)
        batches = read_everything(log)
        assert log.log_end_offset in range(BATCHES + 1)
        for batch in batches:
            start = bounds[batch.base_offset]
            assert bytes(batch.view)[16:] == original[start + 16 : start + batch.size]
