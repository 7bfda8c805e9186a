"""The walk over the records of a batch, and the plain batch taken in one step: compiled or not, it is the same."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import in_one_test
from tests.foreign_tools import skip_or_fail
from tests.hostile.damaged_batches import DAMAGES, Damage

from barnabas.protocol.batch_header import ATTRIBUTES_POSITION, HEADER_SIZE, BatchHeader, write_crc
from barnabas.protocol.compression import Compression
from barnabas.protocol.errors import ErrorCode, ProtocolError
from barnabas.protocol.native import native
from barnabas.protocol.record_batch import ControlType, RecordBatch, control_batch
from barnabas.protocol.record_batch_builder import RecordBatchBuilder
from barnabas.protocol.record_codec import encode_record
from barnabas.protocol.record_scan import HIGHEST, LOWEST, RecordRules, RecordScan, scan_records, walk_records
from barnabas.protocol.usual_batch import validate_and_stamp_py

compiled = pytest.mark.usefixtures("speedups")
ANY: RecordRules = (LOWEST, HIGHEST, False, False)
KEYED: RecordRules = (LOWEST, HIGHEST, True, False)
MARKING: RecordRules = (LOWEST, HIGHEST, False, True)
NOW = 1_700_000_000_000
STAMPS = [0, 1, -1, 63, 64, 8191, 8192, -8192, 2**40, 2**63 - 1, -(2**63)]


@pytest.fixture(scope="module")
def speedups() -> None:
    if native is None:
        skip_or_fail("no compiled speedups: install with a C compiler")


def walked(data: bytes, count: int, base: int, rules: RecordRules, most: int) -> RecordScan | None:
    try:
        return walk_records(data, count, base, rules, most)
    except ProtocolError:
        return None


def damage(rng: random.Random, data: bytearray, first: int, times: int) -> None:
    for _ in range(times):
        at = rng.randrange(first, len(data))
        data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, data[at] ^ 1 << rng.randrange(8)))


def records(rng: random.Random, count: int) -> bytearray:
    """Records of all sizes of varints, some with the timestamp of the one before."""
    stamps, data = rng.sample(STAMPS, 3), bytearray()
    for index in range(count):
        key, value = rng.choice((None, b"k", bytes(200))), rng.choice((None, bytes(rng.choice((0, 50, 130, 9000)))))
        headers = rng.choice(([], [], [("h", None)], [("", b"v"), ("n" * 80, bytes(90))]))
        data += encode_record(index, rng.choice(stamps), key, value, headers)
    return data


RULES = st.sampled_from(
    [ANY, KEYED, MARKING, (NOW - 100, NOW + 100, False, True), (NOW, 2**70, True, False), (-(2**70), -5, True, False)]
)
BASES = st.sampled_from([NOW, 0, -1, -2, HIGHEST, LOWEST])


@compiled
@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 200),
    damages=st.integers(0, 3),
    base=BASES,
    rules=RULES,
    most=st.sampled_from([0, 1, 1000]),
)
def test_both_walks_find_the_same(
    seed: int, count: int, damages: int, base: int, rules: RecordRules, most: int
) -> None:
    rng = random.Random(seed)
    data = records(rng, count)
    damage(rng, data, 0, damages)
    expected = walked(bytes(data), count, base, rules, most)
    assert native is not None
    found = native.scan_records(bytes(data), count, base, rules, most)
    assert (None if found is None else RecordScan(*found)) == expected
    if expected is None:
        with pytest.raises(ProtocolError):
            scan_records(bytes(data), count, base, rules, most)
    else:
        assert damages or len(expected.faults) <= most


@compiled
@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60), st.integers(-1, 5) | st.just(2**31 - 1))
def test_both_walks_say_the_same_of_any_bytes(data: bytes, count: int) -> None:
    assert native is not None
    found = native.scan_records(data, count, 0, KEYED, 9)
    assert (None if found is None else RecordScan(*found)) == walked(data, count, 0, KEYED, 9)


def test_what_a_walk_finds() -> None:
    data = b"".join(
        encode_record(index, stamp, key, b"v")
        for index, (stamp, key) in enumerate(
            [(0, b"k"), (50, None), (-1, b""), (100, None), (101, b"k"), (-1 - NOW, b"k")]
        )
    )
    assert scan_records(data, 6, NOW, ANY, 9) == (NOW + 101, [])
    assert scan_records(data, 6, NOW, KEYED, 9) == (NOW + 101, [(1, None), (3, None)])
    assert scan_records(data, 6, NOW, KEYED, 1) == (NOW + 101, [(1, None)])
    assert scan_records(data, 6, NOW, (NOW, NOW + 100, False, False), 9) == (NOW + 100, [(2, -1), (4, 101)])
    keyed_and_early = (NOW, NOW + 99, True, False)
    assert scan_records(data, 6, NOW, keyed_and_early, 9) == (NOW + 50, [(1, None), (2, -1), (3, None), (4, 101)])
    assert scan_records(data[:9], 1, -1, KEYED, 9) == (-1, [])
    assert scan_records(data[:9], 1, -7, ANY, 9) == (-1, [])


def test_a_timestamp_beyond_64_bits_is_never_within_limits() -> None:
    for base, delta in ((HIGHEST, 1), (LOWEST, -1), (HIGHEST, HIGHEST), (LOWEST, LOWEST)):
        data = encode_record(0, delta, b"k", b"v")
        assert scan_records(data, 1, base, ANY, 9) == (-1, [(0, delta)])
        assert scan_records(data, 1, base, (-(2**70), 2**70, False, False), 9) == (-1, [(0, delta)])


@pytest.mark.parametrize("wrong", [0, 1, 63, 64, 8191, 8192, 8200])
def test_an_offset_delta_left_out_is_found_wherever_it_is(wrong: int) -> None:
    deltas = [index + (index >= wrong) for index in range(8300)]
    data = b"".join(encode_record(delta, 7, None, bytes(20)) for delta in deltas)
    with pytest.raises(ProtocolError, match=f"record {wrong} "):
        scan_records(data, len(deltas), 0, ANY, 9)


@compiled
def test_offset_deltas_are_counted_beyond_what_three_bytes_hold() -> None:
    assert native is not None
    count = (1 << 20) + 2
    data = bytearray().join(encode_record(index, 0, None, None) for index in range(count))
    assert native.scan_records(data, count, NOW, ANY, 9) == (NOW, [])
    assert native.scan_records(data[:-4] + b"\x00" + data[-3:], count, NOW, ANY, 9) is None


@in_one_test("name", DAMAGES)
def test_both_walks_know_each_damage(name: str) -> None:
    wrong = DAMAGES[name]
    found = walked(wrong.records, wrong.count, NOW, ANY, 9)
    is_in_header = wrong.last_delta is not None or wrong.error is ErrorCode.INVALID_TIMESTAMP
    assert (found is None) == (wrong.error is ErrorCode.INVALID_RECORD and not is_in_header) or is_in_header
    if native is not None:
        compiled_found = native.scan_records(wrong.records, wrong.count, NOW, ANY, 9)
        assert (None if compiled_found is None else RecordScan(*compiled_found)) == found


def taken_twice(
    batch: bytes | bytearray, rules: RecordRules, max_size: int = 1 << 20, plain: bytes | None = None
) -> tuple[int, int, int] | None:
    """What both forms of the step say, which have to leave the same bytes behind."""
    here, there = (memoryview(bytearray(batch)) for _ in range(2))
    found = validate_and_stamp_py(here, plain, (1 << 40, 7), max_size, rules)
    if native is not None:
        assert native.validate_and_stamp(there, plain, (1 << 40, 7), max_size, rules) == found
        assert here == there
    if found is None:
        assert here == batch
    else:
        header = BatchHeader.read(here)
        assert (header.base_offset, header.partition_leader_epoch) == (1 << 40, 7)
        assert here[16:] == batch[16:]
        assert found == (header.record_count, header.max_timestamp, header.producer_id)
    return found


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 100),
    damages=st.integers(0, 2),
    rules=RULES,
    step=st.sampled_from([0, 1, -1]),
)
def test_both_ways_to_take_a_batch_are_the_same(
    seed: int, count: int, damages: int, rules: RecordRules, step: int
) -> None:
    rng = random.Random(seed)
    producer = (
        {"producer_id": 5, "producer_epoch": 0, "base_sequence": rng.choice((0, -1))} if rng.random() < 0.5 else {}
    )
    builder = RecordBatchBuilder(is_transactional=rng.random() < 0.3, is_control=rng.random() < 0.3, **producer)
    for index in range(count):
        builder.append(rng.choice((b"k", b"k", None)), bytes(rng.choice((0, 9, 200))), (), NOW + step * index)
    batch = bytearray(builder.build())
    damage(rng, batch, rng.choice((0, HEADER_SIZE)), damages)
    plain = None
    if rng.random() < 0.3:
        plain = bytes(batch[HEADER_SIZE:])
        batch[ATTRIBUTES_POSITION + 1] |= rng.choice((0, 3, 4))
    if rng.random() < 0.9:
        write_crc(memoryview(batch))
    taken_twice(bytes(batch), rules, rng.choice((len(batch), len(batch) - 1, 1 << 20)), plain)


def test_what_is_plain() -> None:
    builder = RecordBatchBuilder()
    builder.append(b"k", b"v", (), NOW)
    batch = builder.build()
    assert taken_twice(batch, KEYED) == (1, NOW, -1)
    assert taken_twice(batch, (NOW, NOW, True, False), len(batch)) == (1, NOW, -1)
    assert taken_twice(batch, KEYED, len(batch) - 1) is None
    assert taken_twice(batch, (NOW + 1, HIGHEST, False, False)) is None
    for other in (batch + b"\0", batch[:-1], batch[:HEADER_SIZE], batch[:20], b"", batch + batch):
        assert taken_twice(other, ANY) is None
    flipped = bytearray(batch)
    flipped[-2] ^= 1
    assert taken_twice(flipped, ANY) is None
    if native is not None:
        assert native.validate_and_stamp(memoryview(batch), None, (0, 0), 1 << 20, ANY) is None, (
            "it cannot be written to"
        )


def test_a_marker_is_taken_from_who_may_end_transactions() -> None:
    batch = control_batch(ControlType.COMMIT, producer_id=5, producer_epoch=1, coordinator_epoch=3, timestamp=NOW)
    assert taken_twice(batch, MARKING) == (1, NOW, 5)
    assert taken_twice(batch, ANY) is None
    nobodys = RecordBatchBuilder(is_control=True)
    nobodys.append(b"k", b"v", (), NOW)
    assert taken_twice(nobodys.build(), MARKING) is None, "it ends nothing"


def test_a_compressed_batch_is_taken_by_what_it_holds() -> None:
    builder = RecordBatchBuilder(codec=Compression.LZ4)
    for index in range(50):
        builder.append(b"k", b"v" * 20, (), NOW + index)
    batch = builder.build()
    plain = RecordBatch(memoryview(batch)).plain_records()
    assert taken_twice(batch, ANY, plain=plain) == (50, NOW + 49, -1)
    assert taken_twice(batch, ANY) is None, "it has to be opened"
    assert taken_twice(batch, ANY, plain=plain[:-1]) is None
    assert taken_twice(batch, ANY, plain=plain + b"\0") is None
    assert taken_twice(batch, ANY, plain=b"") is None
    assert taken_twice(batch, (NOW, NOW + 48, False, False), plain=plain) is None


@in_one_test("name", DAMAGES)
def test_a_damaged_batch_is_not_plain(name: str) -> None:
    wrong = DAMAGES[name]
    is_sound = wrong.error is ErrorCode.NONE and wrong.max_timestamp is None
    assert (taken_twice(wrong.batch(), ANY) is not None) == is_sound
    assert taken_twice(wrong.batch(1), ANY) is None


@compiled
def test_compiled_functions_refuse_what_they_were_not_made_for() -> None:
    assert native is not None
    data = memoryview(bytearray(Damage(b"").batch()))
    at = (0, 0)
    for wrong in (
        (),
        (data,),
        (data, None, at, 9, (0, 0)),
        (data, None, at, 9, (0, 0, False)),
        (data, None, at, 9, 5),
        (data, None, 0, 9, ANY),
        (data, None, (0,), 9, ANY),
        (data, None, ("", 0), 9, ANY),
        (5, None, at, 9, ANY),
        (data, 5, at, 9, ANY),
    ):
        with pytest.raises(TypeError):
            native.validate_and_stamp(*wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        native.scan_records(b"", 1, 0, (0, 0), 9)  # type: ignore[arg-type]
