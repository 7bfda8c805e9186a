"""The offset maps: what a map is, what Kafka's are beyond it, and both roads to the same bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import in_one_test
from tests.foreign_tools import skip_or_fail
from tests.storage.cleaning.key_columns import add_key

from barnabas.protocol.native import native
from barnabas.protocol.record_columns import RecordColumns
from barnabas.storage.cleaning.clean_job import HASHES
from barnabas.storage.cleaning.errors import OffsetMapFullError
from barnabas.storage.cleaning.offset_map import (
    NOT_FOUND,
    ExactOffsetMap,
    SkimpyOffsetMap,
    memory_for,
    new_offset_map,
)

ROADS = [False, True] if native is not None else [False]
ALL = [*HASHES, "exact"]


@pytest.fixture(scope="module")
def speedups() -> None:
    if native is None:
        skip_or_fail("no compiled speedups: install with a C compiler")


def columns_of(keys: list[tuple[int, bytes | None]]) -> tuple[bytes, RecordColumns]:
    """A buffer with these keys somewhere in it, and the columns that say where."""
    records, buffer = RecordColumns(), b"?"
    for offset, key in keys:
        add_key(records, offset, len(buffer), -1 if key is None else len(key))
        buffer += (key or b"") + b"!"
    return buffer, records


def filled(offset_map: SkimpyOffsetMap, count: int) -> SkimpyOffsetMap:
    for number in range(count):
        offset_map.put(b"%d" % number, number)
    return offset_map


@pytest.mark.parametrize("hash_name", ALL)
def test_the_last_put_counts(hash_name: str) -> None:
    offset_map = new_offset_map(100_000, hash_name)
    assert offset_map.get(b"a") == NOT_FOUND
    for offset, key in enumerate([b"a", b"b", b"", b"a", b"x" * 1000]):
        offset_map.put(key, offset)
        assert offset_map.latest_offset == offset
    assert [offset_map.get(key) for key in (b"a", b"b", b"", b"x" * 1000, b"c")] == [3, 1, 2, 4, NOT_FOUND]
    assert offset_map.size == 4
    assert offset_map.utilization == 4 / offset_map.slots
    offset_map.update_latest_offset(77)
    assert offset_map.latest_offset == 77
    offset_map.clear()
    assert (offset_map.size, offset_map.latest_offset, offset_map.lookups, offset_map.get(b"a")) == (0, -1, 0, -1)


def test_sizes() -> None:
    assert SkimpyOffsetMap(24_000).slots == 1000
    assert SkimpyOffsetMap(24_000, "SHA-256").slots == 600
    assert memory_for(1000, "MD5") == 24_000
    assert memory_for(600, "SHA-256") == 24_000
    assert memory_for(1, "exact") is None
    for wrong in (lambda: SkimpyOffsetMap(47), lambda: SkimpyOffsetMap(1000, "MD4"), lambda: memory_for(1, "CRC")):
        with pytest.raises(ValueError, match=r"."):
            wrong()


@pytest.mark.parametrize("hash_name", ALL)
def test_a_full_map_refuses_and_a_probe_of_it_ends(hash_name: str) -> None:
    offset_map = new_offset_map(2000, hash_name)
    filled(offset_map, offset_map.slots)
    assert offset_map.utilization == 1.0
    assert offset_map.get(b"none") == NOT_FOUND
    assert [offset_map.get(b"%d" % number) for number in range(offset_map.slots)] == list(range(offset_map.slots))
    for key in (b"none", b"0"):
        with pytest.raises(OffsetMapFullError):
            offset_map.put(key, 1)
    for use_native in ROADS:
        full = filled(new_offset_map(2000, hash_name, use_native=use_native), offset_map.slots)
        buffer, records = columns_of([(5, b"none"), (6, b"1"), (7, None)])
        assert full.put_many(buffer, records) == 0
        assert list(full.get_many(buffer, records)) == [NOT_FOUND, 1, NOT_FOUND]


KAFKA_SLOTS = [
    (7, "00112233445566778899aabbccddeeff", [4, 0, 3, 6, 2, 5, 1, 4, 4, 1, 5, 2, 6, 5, 4, 3, 2, 1, 0, 6]),
    (7, "ffeeddccbbaa99887766554433221100", [5, 1, 4, 0, 3, 6, 2, 5, 3, 0, 4, 1, 5, 6, 0, 1, 2, 3, 4, 5]),
    (7, "0000000000000000000000007ffffffe", [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 3, 0, 1, 0, 1, 0, 6, 5, 4]),
    (7, "000000000000000000000000fffffffd", [0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 1, 0, 3, 2, 1, 0, 1, 2, 3, 4]),
    (7, "00000000000000000000000080000000", [0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 1, 4, 0, 1, 0, 6, 5, 4, 3, 2]),
    (7, "80000000ffffffff7fffffff80000001", [0, 3, 1, 0, 1, 3, 2, 5, 1, 2, 1, 4, 1, 0, 6, 5, 4, 3, 2, 1]),
    (101, "00112233445566778899aabbccddeeff", [50, 41, 32, 23, 14, 5, 97, 88, 90, 99, 7, 16, 25, 24, 23, 22, 21, 20]),
    (101, "ffeeddccbbaa99887766554433221100", [51, 42, 33, 24, 15, 6, 98, 89, 89, 98, 6, 15, 24, 25, 26, 27, 28, 29]),
    (101, "0000000000000000000000007ffffffe", [0, 0, 0, 0, 0, 0, 0, 0, 0, 26, 43, 52, 32, 33, 0, 33, 32, 31, 30, 29]),
    (101, "000000000000000000000000fffffffd", [0, 0, 0, 0, 0, 0, 0, 0, 0, 53, 87, 4, 3, 2, 1, 0, 1, 2, 3, 4]),
    (101, "00000000000000000000000080000000", [0, 0, 0, 0, 0, 0, 0, 0, 0, 27, 44, 53, 0, 33, 32, 31, 30, 29, 28, 27]),
    (101, "80000000ffffffff7fffffff80000001", [0, 53, 87, 4, 1, 28, 45, 54, 33, 27, 44, 53, 33, 32, 31, 30, 29, 28]),
]
"""Number of slots, hash, and the slots of attempts 0, 1 and so on, as `positionOf` of Kafka 4.4.0's class
org.apache.kafka.storage.internals.log.SkimpyOffsetMap returned them, called by reflection in a Java program.
"""
KAFKA_LAYOUT = [2, 11, 1, 6, 10, 12, 13, 4, 3, 7, 9, 5, 8]
"""The offsets in the 13 slots of that class's memory after the keys "0" to "12" were put at offsets 1 to 13."""


@in_one_test("use_native", ROADS)
@in_one_test(("slots", "digest", "tried"), KAFKA_SLOTS)
def test_the_slots_tried_are_those_of_kafka(slots: int, digest: str, tried: list[int], use_native: bool) -> None:
    """With all slots taken that come before in Kafka's order, a key gets the next one."""
    for attempt, slot in enumerate(tried):
        offset_map = SkimpyOffsetMap(slots * 24, use_native=use_native)
        offset_map._digest = lambda key: bytes.fromhex(digest)  # type: ignore[method-assign]
        for taken in {*tried[:attempt]} - {slot}:
            offset_map._memory[24 * taken : 24 * taken + 24] = b"\xee" * 24
        if slot in tried[:attempt]:
            continue
        offset_map.put(b"key", 5)
        assert offset_map._memory[24 * slot : 24 * slot + 24] == bytes.fromhex(digest) + (5).to_bytes(8, "big")


@pytest.mark.parametrize("use_native", ROADS)
def test_a_full_map_is_laid_out_as_kafkas(use_native: bool) -> None:
    offset_map = SkimpyOffsetMap(13 * 24, use_native=use_native)
    buffer, records = columns_of([(number + 1, b"%d" % number) for number in range(13)])
    assert offset_map.put_many(buffer, records) == 13
    laid_out = [int.from_bytes(offset_map._memory[at + 16 : at + 24], "big") for at in range(0, 13 * 24, 24)]
    assert laid_out == KAFKA_LAYOUT
    assert offset_map.probes > offset_map.lookups == 13
    assert list(offset_map.get_many(buffer, records)) == list(range(1, 14))


def test_an_exact_map_is_full_when_its_keys_fill_it() -> None:
    offset_map = ExactOffsetMap(6400)
    assert offset_map.slots == 100
    offset_map.put(b"x" * 3000, 1)
    with pytest.raises(OffsetMapFullError):
        offset_map.put(b"y" * 3000, 2)
    offset_map.put(b"z", 3)
    assert [offset_map.get(key) for key in (b"x" * 3000, b"y" * 3000, b"z")] == [1, NOT_FOUND, 3]
    for use_native in ROADS:
        other = ExactOffsetMap(6400, use_native=use_native)
        buffer, records = columns_of([(1, b"x" * 3000), (2, b"y" * 3000), (3, b"z")])
        assert other.put_many(buffer, records) == 1
        assert (other.size, other.latest_offset) == (1, 1)


@pytest.mark.parametrize("use_native", ROADS)
def test_keys_of_one_hash_are_one_key_unless_they_are_compared(use_native: bool) -> None:
    def with_planted_hash(offset_map: SkimpyOffsetMap, id_size: int) -> int:
        """How many keys there are once `two` is put, and then again when its slot points to the key `one`."""
        offset_map.put(b"two", 2)
        slot = next(at for at in range(0, len(offset_map._memory), 24) if any(offset_map._memory[at : at + 24]))
        if id_size == 16:
            return offset_map.get(b"two")
        start = int.from_bytes(offset_map._memory[slot + 8 : slot + 16], "big")
        offset_map._memory[start + 4 : start + 7] = b"one"
        buffer, records = columns_of([(9, b"two")])
        assert list(offset_map.get_many(buffer, records)) == [NOT_FOUND]
        assert offset_map.put_many(buffer, records) == 1
        assert list(offset_map.get_many(buffer, records)) == [9]
        return offset_map.size

    assert with_planted_hash(SkimpyOffsetMap(24 * 10, use_native=use_native), 16) == 2
    assert with_planted_hash(ExactOffsetMap(64 * 10, use_native=use_native), 8) == 2


Model = dict[bytes, int]
_KEYS = st.one_of(st.none(), st.integers(0, 40).map(lambda n: b"%d" % n), st.binary(max_size=140))


@settings(max_examples=150, deadline=None)
@given(
    keys=st.lists(_KEYS, max_size=120),
    hash_name=st.sampled_from(["MD5", "exact", "SHA-1", "SHA-512"]),
    memory=st.integers(300, 6000),
    from_offset=st.integers(0, 30),
    max_size=st.none() | st.integers(0, 60),
)
def test_many_keys_at_once_are_one_key_after_the_other(
    keys: list[bytes | None], hash_name: str, memory: int, from_offset: int, max_size: int | None
) -> None:
    buffer, records = columns_of([(3 * index, key) for index, key in enumerate(keys)])
    maps = [new_offset_map(memory, hash_name, use_native=use_native) for use_native in (False, *ROADS)]
    stops = [one.put_many(buffer, records, from_offset=from_offset, max_size=max_size) for one in maps]
    model: Model = {
        key: 3 * index for index, key in enumerate(keys[: stops[0]]) if key is not None and 3 * index >= from_offset
    }
    for one in maps:
        assert list(one.get_many(buffer, records)) == [
            NOT_FOUND if key is None else model.get(key, NOT_FOUND) for key in keys
        ]
        assert one.size == len(model)
        assert one.latest_offset == max(model.values(), default=NOT_FOUND)
    assert len({(stop, bytes(one._memory), tuple(one._state)) for stop, one in zip(stops, maps, strict=True)}) == 1


@pytest.mark.usefixtures("speedups")
@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(st.sampled_from([0, 1, 3, 54, 55, 56, 57, 63, 64, 65, 119, 120, 128, 300]), max_size=70))
def test_md5_of_many_strings_of_any_size(sizes: list[int]) -> None:
    keys = [bytes([index]) * size + b"%d" % index for index, size in enumerate(sizes)]
    offset_map = SkimpyOffsetMap(24 * 200)
    buffer, records = columns_of(list(enumerate(keys)))
    offset_map.put_many(buffer, records)
    taken = [bytes(offset_map._memory[at : at + 16]) for at in range(0, 24 * 200, 24)]
    assert {hashlib.md5(key).digest() for key in keys} == {digest for digest in taken if any(digest)}


@pytest.mark.usefixtures("speedups")
def test_compiled_code_refuses_what_does_not_fit_together() -> None:
    assert native is not None
    buffer, records = columns_of([(1, b"a"), (2, b"b")])
    good: dict[str, Any] = {
        "memory": bytearray(240),
        "layout": (10, 16, False),
        "rows": (records.block, records.capacity, 0, 2),
        "digests": None,
    }

    def call(**changed: Any) -> Callable[[], int]:
        offset_map = SkimpyOffsetMap(240)
        given = good | changed
        return lambda: native.put_many(  # type: ignore[union-attr]
            given["memory"], offset_map._state, given["layout"], buffer, given["rows"], given["digests"], 0, 10
        )

    assert call()() == 2
    wrong: list[dict[str, Any]] = [
        {"layout": (11, 16, False)},
        {"layout": (-1, 16, False)},
        {"layout": (10, 20, False)},
        {"layout": (10, 2, False)},
        {"rows": (records.block, 10_000, 0, 2)},
        {"rows": (records.block, records.capacity, 0, 10_000)},
        {"rows": (records.block, records.capacity, 2, 1)},
        {"digests": b"short"},
    ]
    for changed in wrong:
        with pytest.raises(ValueError, match=r"no such|larger than"):
            call(**changed)()
    records.key_starts[1] = 1_000_000
    with pytest.raises(ValueError, match="outside"):
        call()()
    records.key_starts[1] = -5
    with pytest.raises(ValueError, match="outside"):
        call()()
