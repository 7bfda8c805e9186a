"""Offset, time and transaction index: against plain lists, and their bytes against Kafka's layout."""

from __future__ import annotations

import errno
import random
from bisect import bisect_right
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.simulation.disk import SimDisk
from barnabas.storage.errors import CorruptIndexError
from barnabas.storage.index_file import BLOCK_BYTES
from barnabas.storage.offset_index import ENTRIES_PER_BLOCK, OffsetIndex, OffsetPosition
from barnabas.storage.time_index import TimeIndex, TimestampOffset
from barnabas.storage.transaction_index import AbortedTxn, TransactionIndex

BASE = 1000


def disk() -> SimDisk:
    found = SimDisk(keep_log=False)
    found.make_dirs("/d")
    return found


def offset_index(fs: SimDisk, size: int = 8 * 5000) -> OffsetIndex:
    return OffsetIndex("/d/x.index", BASE, size, fs)


@given(
    st.lists(st.integers(1, 50), max_size=1200),
    st.lists(st.integers(-5, 60_000), min_size=1, max_size=20),
    st.booleans(),
)
def test_offset_lookup_is_a_floor_search(steps: list[int], targets: list[int], written: bool) -> None:
    index = offset_index(disk())
    entries: list[OffsetPosition] = []
    offset = BASE
    for number, step in enumerate(steps):
        offset += step
        entries.append(OffsetPosition(offset, (number + 1) * 100))
        index.append(*entries[-1])
    if written:
        index.trim_to_valid_size()
        index.close_handle()
    for target in targets:
        slot = bisect_right([entry.offset for entry in entries], BASE + target) - 1
        assert index.lookup(BASE + target) == (entries[slot] if slot >= 0 else OffsetPosition(BASE, 0))
    cut = BASE + targets[0]
    index.truncate_to(cut)
    kept = [entry for entry in entries if entry.offset < cut]
    assert [index.entry(slot) for slot in range(index.entries)] == kept
    assert index.last_offset == (kept[-1].offset if kept else BASE)


def test_offset_lookups_at_random_read_one_block_each(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 20 * ENTRIES_PER_BLOCK + 7
    index = offset_index(disk(), 8 * count)
    entries = [OffsetPosition(BASE + 10 * number, 100 * number) for number in range(1, count + 1)]
    index.append_many(entries)
    index.trim_to_valid_size()
    reads: list[int] = []
    read = OffsetIndex._read

    def counting_read(self: OffsetIndex, length: int, position: int) -> bytes:
        reads.append(length)
        return read(self, length, position)

    monkeypatch.setattr(OffsetIndex, "_read", counting_read)
    targets = list(range(count))
    random.Random(3).shuffle(targets)
    for slot in targets[:500]:
        assert index.lookup(BASE + 10 * slot + 15) == entries[slot]
    assert max(reads) <= BLOCK_BYTES
    reads.clear()
    for slot in targets[500:1000]:
        assert index.lookup(BASE + 10 * slot + 15) == entries[slot]
        assert index.upper_bound(100 * slot, 100) == entries[slot]
    assert len(reads) <= 520  # the first entry of a block is looked for in the block before as well
    assert index.lookup(BASE + 9) == OffsetPosition(BASE, 0)
    assert index.upper_bound(100 * count, 1) is None
    index.truncate_to(BASE + 10)
    assert index.lookup(BASE + 10**6) == OffsetPosition(BASE, 0)


def test_offset_index_bytes_are_kafkas() -> None:
    fs = disk()
    index = offset_index(fs)
    index.append(BASE + 7, 4200)
    index.append(BASE + 9, 8400)
    index.flush()
    assert fs.read_bytes("/d/x.index") == pack(">IIII", 7, 4200, 9, 8400)
    reopened = offset_index(fs)
    reopened.sanity_check()
    assert (reopened.entries, reopened.last_offset, reopened.last_position) == (2, BASE + 9, 8400)


@given(st.lists(st.lists(st.integers(1, 50), max_size=30), max_size=8), st.integers(0, 100))
def test_many_entries_at_once_are_those_of_one_after_the_other(groups: list[list[int]], room: int) -> None:
    one_by_one, at_once = offset_index(disk(), 8 * room), offset_index(disk(), 8 * room)
    offset = BASE
    for steps in groups:
        entries = []
        for step in steps:
            offset += step
            entries.append((offset, 3 * offset))
        at_once.append_many(entries)
        for entry in entries:
            if not one_by_one.is_full:
                one_by_one.append(*entry)
        assert at_once._last_entries(room) == one_by_one._last_entries(room)
        assert (at_once.last_offset, at_once.last_position) == (one_by_one.last_offset, one_by_one.last_position)


def test_offset_index_refuses_disorder_and_overflow() -> None:
    index = offset_index(disk(), size=16)
    index.append(BASE + 5, 10)
    with pytest.raises(CorruptIndexError):
        index.append(BASE + 5, 20)
    index.append(BASE + 6, 20)
    assert index.is_full
    with pytest.raises(CorruptIndexError):
        index.append(BASE + 7, 30)


def test_a_cut_that_the_disk_refuses_leaves_all_entries() -> None:
    fs = disk()
    index = offset_index(fs)
    index.append(BASE + 5, 10)
    index.trim_to_valid_size()
    index.append(BASE + 6, 20)
    fs.fail("truncate", errno.EIO)
    with pytest.raises(OSError):
        index.truncate()
    assert index.lookup(BASE + 6) == index.entry(1) == OffsetPosition(BASE + 6, 20)
    index.truncate()
    assert (index.entries, index.last_offset) == (0, BASE)


@pytest.mark.parametrize("content", [b"123", pack(">IIII", 5, 10, 5, 20), pack(">IIII", 5, 10, 6, 10)])
def test_sanity_check_finds_what_cannot_be(content: bytes) -> None:
    fs = disk()
    fs.write_atomic("/d/x.index", content)
    with pytest.raises(CorruptIndexError):
        offset_index(fs).sanity_check()


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=900), st.integers(-1, 3000))
def test_time_index_keeps_rising_maxima(steps: list[tuple[int, int]], target: int) -> None:
    index = TimeIndex("/d/x.timeindex", BASE, 12 * 5000, disk())
    entries: list[TimestampOffset] = []
    timestamp, offset = 100, BASE
    for more_time, more_offset in steps:
        timestamp += more_time
        offset += more_offset
        added = index.maybe_append(timestamp, offset)
        assert added == (not entries or timestamp > entries[-1].timestamp)
        if added:
            entries.append(TimestampOffset(timestamp, offset))
    floor = [entry for entry in entries if entry.timestamp <= target]
    assert index.lookup(target) == (floor[-1] if floor else TimestampOffset(-1, BASE))
    index.truncate_to(BASE + target)
    assert [index.entry(slot) for slot in range(index.entries)] == [e for e in entries if e.offset < BASE + target]


def test_time_index_keeps_a_slot_for_the_final_maximum() -> None:
    index = TimeIndex("/d/x.timeindex", BASE, 24, disk())
    assert index.maybe_append(5, BASE)
    assert index.is_full
    with pytest.raises(CorruptIndexError):
        index.maybe_append(6, BASE + 1)
    assert index.maybe_append(6, BASE + 1, use_reserved_slot=True)
    index.flush()
    assert index.last_entry == (6, BASE + 1)


def test_transaction_index_collects_what_overlaps() -> None:
    fs = disk()
    index = TransactionIndex("/d/x.txnindex", 0, fs)
    assert index.unsynced_file() is None
    first = AbortedTxn(1, 0, 10, 11)
    second = AbortedTxn(2, 5, 20, 13)
    third = AbortedTxn(3, 13, 30, 31)
    for aborted in (first, second, third):
        index.append(aborted)
    index.write()
    assert fs.read_bytes("/d/x.txnindex")[:34] == pack(">hqqqq", 0, 1, 0, 10, 11)
    reopened = TransactionIndex("/d/x.txnindex", 0, fs)
    assert reopened.collect_aborted(0, 5) == ([first], True)
    assert reopened.collect_aborted(12, 100) == ([second, third], False)
    reopened.truncate_to(20)
    assert TransactionIndex("/d/x.txnindex", 0, fs).entries == [first]
    with pytest.raises(CorruptIndexError):
        reopened.append(AbortedTxn(4, 1, 10, 11))


def test_entries_that_a_full_disk_took_half_and_that_were_then_cut_do_not_come_back() -> None:
    fs = disk()
    index = offset_index(fs)
    index.append(BASE + 1, 100)
    index.trim_to_valid_size()
    for number in range(2, 6):
        index.append(BASE + number, 100 * number)
    fs.capacity = fs.used + 3 * 8
    with pytest.raises(OSError, match="No space"):
        index.trim_to_valid_size()
    index.truncate_to(BASE + 2)
    index.append(BASE + 40, 140)
    fs.capacity = None
    index.trim_to_valid_size()
    reopened = offset_index(fs)
    assert (reopened.entries, reopened.last_offset, reopened.last_position) == (2, BASE + 40, 140)


def test_aborted_transactions_that_a_full_disk_took_half_and_that_were_then_cut_do_not_come_back() -> None:
    fs = disk()
    index = TransactionIndex("/d/x.txnindex", 0, fs)
    kept = AbortedTxn(1, 0, 10, 11)
    index.append(kept)
    index.write()
    for number in range(2, 6):
        index.append(AbortedTxn(number, 0, 10 * number, 11))
    fs.capacity = fs.used + 3 * 34
    with pytest.raises(OSError, match="No space"):
        index.write()
    index.truncate_to(11)
    fs.capacity = None
    index.write()
    assert TransactionIndex("/d/x.txnindex", 0, fs).entries == [kept]
