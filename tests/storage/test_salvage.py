"""What is found in a `.log` file with damage of every kind: each sound batch around it, and a word about the rest."""

import random
import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.compression import Compression
from barnabas.protocol.legacy_records import build_message_set
from barnabas.protocol.record import Record
from barnabas.protocol.record_batch import BATCH_HEADER, HEADER_SIZE, RecordBatchBuilder, iter_batches
from barnabas.simulation.disk import SimDisk
from barnabas.storage.dump import DumpEntry, dump_file, verify_indexes
from barnabas.storage.salvage import Damage, FoundBatch, find_batches

NOW_MS = 1_700_000_000_000
PATH = "/logs/t-0/00000000000000000000.log"


def batch(base_offset: int, *, count: int = 3, codec: int = 0, size: int = 20) -> bytes:
    builder = RecordBatchBuilder(base_offset=base_offset, codec=codec)
    for index in range(count):
        value = random.Random(base_offset + index).randbytes(size)
        builder.append(b"key %d" % index, value, [("name", None)], NOW_MS + index)
    return builder.build()


def old(base_offset: int, magic: int, codec: int) -> bytes:
    records = [Record(base_offset + index, NOW_MS if magic else -1, b"k", b"v") for index in range(3)]
    return build_message_set(records, magic=magic, codec=codec)


def dumped(data: bytes) -> list[DumpEntry]:
    disk = SimDisk()
    disk.make_dirs("/logs/t-0")
    disk.write_atomic(PATH, data)
    return list(dump_file(disk, PATH, deep_iteration=True, print_data=True))


def kinds(data: bytes | bytearray) -> list[str]:
    return [entry.kind for entry in dumped(bytes(data))]


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_every_format_says_what_the_quick_reader_says(magic: int, codec: Compression) -> None:
    data = b"".join(batch(n, codec=codec) if magic == 2 else old(n, magic, codec) for n in range(0, 30, 3))
    found = list(find_batches(data))
    for one, other in zip(found, iter_batches(data), strict=True):
        assert isinstance(one, FoundBatch) and one.crc_matches
        for name in ("position", "size", "magic", "base_offset", "last_offset", "max_timestamp", "timestamp_type"):
            assert getattr(one, name) == getattr(other, name), name
        seen = [record._replace(headers=list(record.headers)) for record in other.records()]
        assert [record._replace(headers=list(record.headers)) for record in one.records()] == seen


def test_a_batch_with_a_wrong_checksum_is_shown_between_others() -> None:
    wrong = bytearray(batch(3))
    wrong[HEADER_SIZE + 9] ^= 1
    first, second, third = find_batches(batch(0) + wrong + batch(6))
    assert isinstance(second, FoundBatch) and not second.crc_matches
    assert [one.position for one in (first, second, third)] == [0, len(wrong), 2 * len(wrong)]
    assert kinds(bytes(wrong)) == ["batch", "record", "record", "record"]


@pytest.mark.parametrize("length", [-12, -100, 0, 13, 48, 50, 10_000, 2**31 - 1])
def test_a_length_that_is_wrong_hides_no_other_batch(length: int) -> None:
    wrong = bytearray(batch(3))
    BATCH_HEADER.patch(wrong, length=length)
    first, damage, last = find_batches(batch(0) + wrong + batch(6))
    assert isinstance(first, FoundBatch) and isinstance(last, FoundBatch) and isinstance(damage, Damage)
    assert (damage.position, damage.end, last.base_offset) == (len(wrong), 2 * len(wrong), 6)
    (problem,) = [entry for entry in dumped(batch(0) + wrong + batch(6)) if entry.kind == "problem"]
    assert f"Found {len(wrong)} invalid bytes at position {len(wrong)}, followed by further batches" in str(problem)
    assert "its header reads baseOffset: 3 lastOffset: 5" in str(problem)


def test_records_of_a_torn_tail_are_shown_as_far_as_they_go() -> None:
    whole, torn = batch(0), batch(3, count=10)
    per_record = (len(torn) - HEADER_SIZE) // 10
    for kept in range(HEADER_SIZE, len(torn)):
        entries = dumped(whole + torn[:kept])
        assert [entry.kind for entry in entries[:5]] == ["batch", "record", "record", "record", "problem"]
        assert f"a batch of {len(torn)} bytes is cut off after {kept}" in str(entries[4])
        shown = [entry.columns["offset"] for entry in entries[5:-1]]
        assert shown == list(range(3, 3 + (kept - HEADER_SIZE) // per_record))
        assert f"no more than {len(shown)} records can be read" in str(entries[-1])


def test_a_torn_header_and_zeros_are_damage_of_their_own() -> None:
    (problem,) = dumped(batch(0)[:16])
    assert str(problem) == (
        "Found 16 invalid bytes at position 0, the end of the file: 16 bytes are too few for a batch"
    )
    *_, zeros = dumped(batch(0) + bytes(5000))
    assert str(zeros) == "Found 5000 zeros at the end of the file: not written, or lost in a crash"
    assert dumped(b"") == []


def test_a_compressed_batch_that_cannot_be_opened_stops_nothing() -> None:
    for codec in (Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD):
        wrong = bytearray(batch(3, codec=codec))
        wrong[HEADER_SIZE:] = b"\xff" * (len(wrong) - HEADER_SIZE)
        assert kinds(wrong + batch(6)) == ["batch", "problem", "batch", "record", "record", "record"]
    for magic in (0, 1):
        wrapper = bytearray(old(0, magic, Compression.GZIP))
        wrapper[-20:] = bytes(20)
        assert kinds(wrapper + batch(6)) == ["batch", "problem", "batch", "record", "record", "record"]


def test_an_index_is_held_against_the_sound_part_of_a_damaged_log() -> None:
    disk = SimDisk()
    disk.make_dirs("/logs/t-0")
    wrong = bytearray(batch(3))
    BATCH_HEADER.patch(wrong, length=-1)
    disk.write_atomic(PATH, batch(0) + wrong + batch(6))
    (problem,) = verify_indexes(disk, PATH)
    assert f"invalid bytes at position {len(wrong)}" in str(problem)


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_any_damage_leaves_the_other_batches_readable(seed: int) -> None:
    rng = random.Random(seed)
    parts = []
    for number in range(rng.randrange(2, 9)):
        codec = rng.choice((0, 0, Compression.GZIP, Compression.LZ4))
        magic = rng.choice((2, 2, 2, 0, 1))
        parts.append(batch(9 * number, codec=codec) if magic == 2 else old(9 * number, magic, codec))
    data = bytearray(b"".join(parts))
    at, length = rng.randrange(len(data)), rng.choice((1, 1, 4, 100, 300))
    data[at : at + length] = rng.choice((bytes(length), b"\xff" * length, rng.randbytes(length)))
    if rng.random() < 0.3:
        del data[rng.randrange(at, len(data)) :]
    found = list(find_batches(bytes(data)))
    ends = [one.end if isinstance(one, Damage) else one.position + one.size for one in found]
    assert [one.position for one in found] == [0, *ends[:-1]] and (ends or [0])[-1] == len(data)
    assert not any(isinstance(one, Damage) and isinstance(other, Damage) for one, other in pairwise(found))
    sound = {one.position for one in found if isinstance(one, FoundBatch) and one.crc_matches}
    position = 0
    for part in parts:
        end = position + len(part)
        # Messages outside wrappers count one by one.
        if end <= len(data) and (end <= at or position >= at + length) and position not in sound:
            raise AssertionError(f"the sound batch at {position} is not found")
        position = end
    dumped(bytes(data))


def test_damage_that_looks_like_batches_does_not_take_for_ever() -> None:
    """Each of many thousand places has a header of a batch that goes on to the end."""
    count = 5_000
    fronts = (BATCH_HEADER.struct.pack(0, 23 * (count - at) - 40, 0, 2, *[0] * 9)[:23] for at in range(count - 3))
    data = b"".join(fronts)
    started = time.process_time()
    (damage,) = find_batches(data)
    assert isinstance(damage, Damage) and damage.end == len(data)
    assert time.process_time() - started < 10
