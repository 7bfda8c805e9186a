"""Batches as columns: what the columns say, where a scan stops, and both roads to the same columns."""

from __future__ import annotations

import gc
import random
import struct
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.foreign_tools import skip_or_fail

from barnabas.protocol.batch_header import write_crc
from barnabas.protocol.batch_run import BatchRun, Stop
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.legacy_records import encode_message
from barnabas.protocol.native import native
from barnabas.protocol.record import Record
from barnabas.protocol.record_batch import HEADER_SIZE, RecordBatch, RecordBatchBuilder
from barnabas.protocol.record_batch_builder import batch_of_pairs_here
from barnabas.protocol.record_codec import (
    NO_HEADERS,
    RecordRun,
    decode_records_here,
    encode_headers,
    encode_record,
    encode_records_here,
)
from barnabas.protocol.varint import decode_varint, encode_varint

ROADS = [False, True] if native is not None else [False]
compiled = pytest.mark.usefixtures("speedups")


@pytest.fixture(scope="module")
def speedups() -> None:
    if native is None:
        skip_or_fail("no compiled speedups: install with a C compiler")


def built(rng: random.Random, base_offset: int, count: int) -> bytes:
    builder = RecordBatchBuilder(
        base_offset=base_offset, log_append_time=rng.choice((None, None, 12345)), is_transactional=rng.random() < 0.1
    )
    offset = base_offset
    for _ in range(count):
        key, value = (rng.choice((None, rng.randbytes(rng.choice((0, 5, 70, 9000))))) for _ in range(2))
        headers = [("h" * rng.randrange(3), rng.choice((None, b"x")))] * rng.choice((0, 0, 2))
        builder.append(key, value, headers, rng.choice((0, 1000, -5, 2**50)), offset)
        offset += rng.choice((1, 1, 200))
    return builder.build()


def columns(run: BatchRun) -> list[list[int]]:
    records = run.records
    return [list(column[: records.count]) for column in records._columns()]


@pytest.mark.parametrize("use_native", ROADS)
def test_columns_say_what_decoding_says(use_native: bool) -> None:
    rng = random.Random(1)
    batches = [built(rng, 1000 * n, rng.choice((0, 1, 3, 100))) for n in range(20)]
    data = b"".join(batches)
    run = BatchRun(use_native=use_native)
    run.start(data)
    assert run.scan(0, special=0) == (len(data), Stop.END)
    assert run.count == len(batches)
    records, row = run.records, 0
    for index, batch in enumerate(batches):
        position, size = run.batch(index)
        assert data[position : position + size] == batch
        assert run.first_row(index) == row
        for record in RecordBatch(memoryview(batch)).records():
            assert (records.offsets[row], records.timestamps[row]) == (record.offset, record.timestamp)
            assert records.key(data, row) == record.key
            value_start, value_size = records.value_starts[row], records.value_sizes[row]
            value = data[value_start : value_start + value_size] if value_size >= 0 else None
            assert value == record.value
            assert data[records.header_starts[row] : records.ends[row]] == encode_headers(record.headers)
            size, start = decode_varint(data, records.starts[row])
            assert start + size == records.ends[row]
            row += 1
    assert row == records.count == run.first_row(len(batches))


@compiled
def test_the_compiled_checksum_is_the_libraries() -> None:
    value = random.Random(3).randbytes(3000)
    for size in (*range(300), *range(300, 3000, 37)):
        builder = RecordBatchBuilder()
        builder.append(b"k", value[:size])
        batch = builder.build()
        run = BatchRun(use_native=True)
        run.start(batch)
        assert run.scan(0) == (len(batch), Stop.END), size
        run.start(batch[:-2] + bytes([batch[-2] ^ 1]) + batch[-1:])
        assert run.scan(0) == (0, Stop.CORRUPT), size


@pytest.mark.parametrize("use_native", ROADS)
def test_where_a_scan_stops(use_native: bool) -> None:
    plain = RecordBatchBuilder()
    plain.append(b"k", b"v")
    good = plain.build()
    special = RecordBatchBuilder(is_transactional=True)
    special.append(b"k", b"v")
    run = BatchRun(use_native=use_native)

    def stop(data: bytes, *, check_crc: bool = True) -> tuple[int, Stop]:
        run.start(data)
        return run.scan(0, check_crc=check_crc)

    at = len(good)
    assert stop(b"") == (0, Stop.END)
    assert stop(good + good[:-1]) == (at, Stop.END)
    assert stop(good + good[:11]) == (at, Stop.END)
    assert stop(good + special.build()) == (at, Stop.SPECIAL)
    assert stop(good + encode_message(0, 0, b"k", b"v", magic=1)) == (at, Stop.SPECIAL)
    wrong_crc = good[:-1] + bytes([good[-1] ^ 1])
    assert stop(good + wrong_crc) == (at, Stop.CORRUPT)
    assert stop(good + wrong_crc, check_crc=False) == (2 * at, Stop.END)  # a header count, which nobody looks into
    wrong_value = bytearray(good)
    wrong_value[-2] ^= 1
    assert stop(good + wrong_value) == (at, Stop.CORRUPT)
    assert stop(good + wrong_value, check_crc=False) == (2 * at, Stop.END)
    for size in (-1, 0, 4, 48):
        assert stop(good + struct.pack(">qi", 0, size) + b"\0\0\0\0\2" + bytes(60)) == (at, Stop.CORRUPT)
    assert (run.count, run.records.count) == (1, 1)


def decoded(data: bytes, count: int, append_time: int | None) -> tuple[list[Record], int] | None:
    try:
        return decode_records_here(data, 0, count, base_offset=7, base_timestamp=-3, append_time=append_time)
    except ProtocolError:
        return None


@compiled
@settings(max_examples=400, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(0, 60),
    damages=st.integers(0, 3),
    append_time=st.none() | st.integers(-(2**63), 2**63 - 1),
)
def test_both_decoders_make_the_same_records(seed: int, count: int, damages: int, append_time: int | None) -> None:
    rng = random.Random(seed)
    data = bytearray()
    for index in range(count):
        headers = [
            (rng.choice(("", "k", "ключ")), rng.choice((None, b"", b"value"))) for _ in range(rng.choice((0, 0, 3)))
        ]
        key, value = (rng.choice((None, b"", b"some", bytes(200))) for _ in range(2))
        stamp = rng.choice((0, 1, -1, 64, 8192, 2**40, 2**63 - 1, -(2**63)))
        data += encode_record(rng.choice((index, 2**31 - 1)), stamp, key, value, headers)
    for _ in range(damages if data else 0):
        at = rng.randrange(len(data))
        data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, data[at] ^ 1 << rng.randrange(8)))
    del data[len(data) - rng.choice((0, 0, 0, 1)) :]
    expected = decoded(bytes(data), count, append_time)
    assert native is not None
    found = native.decode_records(bytes(data), 0, count, 7, -3, append_time, Record)
    if found is None and expected is not None:
        assert any(abs(record.timestamp) >= 2**63 for record in expected[0]), "beyond 64 bits the plain one is asked"
    else:
        assert found == expected
        assert found is None or all(type(record) is Record for record in found[0])


@pytest.mark.parametrize("zero", [b"\0", b"\x80\0", b"\x80\x80\x80\x80\0"])
@compiled
def test_no_headers_are_no_list_however_long_their_count_is(zero: bytes) -> None:
    body = encode_record(0, 0, b"k", b"v")[1:-1] + zero
    data = encode_varint(len(body)) + body
    assert native is not None
    found = native.decode_records(data, 0, 1, 7, -3, None, Record)
    assert found == decoded(data, 1, None) == ([Record(7, -3, b"k", b"v", ())], len(data))


@st.composite
def runs(draw: st.DrawFn) -> RecordRun:
    part = st.one_of(st.none(), st.binary(max_size=130), st.just(bytes(9000)))
    values = draw(st.lists(part, max_size=30))
    keys = draw(st.one_of(st.none(), st.lists(part, min_size=len(values), max_size=len(values))))
    headers = draw(st.sampled_from([(), (("ключ", b"value"), ("", None))]))
    return RecordRun(keys, values, encode_headers(headers), draw(st.integers(0, 2**62)))


@compiled
@given(runs(), st.integers(0, 32), st.integers(0, 2**20), st.integers(-(2**62), 2**62), st.integers(-1, 20_000))
def test_both_encoders_make_the_same_of_a_run(
    run: RecordRun, first: int, offset_delta: int, timestamp_delta: int, room: int
) -> None:
    assert native is not None
    arguments = (run.keys, run.values, run.headers, (first, offset_delta, timestamp_delta), room)
    data, count = native.encode_records(*arguments)
    assert (data, count) == encode_records_here(*arguments)
    assert room < 0 or len(data) <= room
    if run.headers == NO_HEADERS:
        keys = run.keys or [None] * len(run.values)
        one_by_one = [
            encode_record(offset_delta + i, timestamp_delta, keys[first + i], run.values[first + i])
            for i in range(count)
        ]
        assert data == b"".join(one_by_one)


@compiled
def test_a_run_is_bytes_and_none_and_nothing_else() -> None:
    assert native is not None
    wrong: tuple[tuple[Any, Any], ...] = (([b"k"], []), (None, ["text"]), ([1], [b"v"]))
    for keys, values in wrong:
        with pytest.raises((TypeError, ValueError)):
            native.encode_records(keys, values, NO_HEADERS, (0, 0, 0), -1)


pairs = st.lists(st.tuples(*[st.one_of(st.none(), st.binary(max_size=130), st.just(bytes(9000)))] * 2), max_size=150)


@compiled
@given(pairs, st.integers(-1, 2**62), st.sampled_from([0, 16, 48]), st.integers(-1, 2**62), st.integers(-1, 2**15 - 1))
def test_both_make_the_same_batch_of_pairs(
    some: list[tuple[bytes | None, bytes | None]], timestamp: int, attributes: int, producer_id: int, epoch: int
) -> None:
    assert native is not None
    arguments = (some, timestamp, attributes, producer_id, epoch)
    if some:
        assert native.batch_of_pairs(*arguments) == batch_of_pairs_here(*arguments)
    for make in (native.batch_of_pairs, batch_of_pairs_here):
        if not some:
            with pytest.raises(ValueError, match="records"):
                make(*arguments)


@compiled
def test_a_batch_of_pairs_is_bytes_and_none_and_numbers_that_fit() -> None:
    assert native is not None
    for some in ([(b"k",)], [[b"k", b"v"]], [("k", b"v")], ((b"k", b"v"),)):
        with pytest.raises(TypeError):
            native.batch_of_pairs(some, 0, 0, 0, 0)  # type: ignore[arg-type]
    for numbers in ((2**64, 0, 0, 0), (0, 2**15, 0, 0), (0, 0, 2**63, 0), (0, 0, 0, 2**15)):
        with pytest.raises((ValueError, OverflowError)):
            native.batch_of_pairs([(b"k", b"v")], *numbers)


@compiled
def test_records_made_by_compiled_code_are_freed() -> None:
    data = b"".join(encode_record(index, 0, b"key", bytes(1000), [("h", b"v")]) for index in range(100))
    assert native is not None
    for cut in (0, 1):
        for _ in range(20):
            native.decode_records(data[: len(data) - cut], 0, 100, 0, 0, None, Record)
        gc.collect()
        before = sys.getallocatedblocks()
        for _ in range(200):
            native.decode_records(data[: len(data) - cut], 0, 100, 0, 0, None, Record)
        gc.collect()
        assert sys.getallocatedblocks() - before < 100


@compiled
@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32), damages=st.integers(0, 4), check_crc=st.booleans())
def test_both_roads_find_the_same_in_damaged_batches(seed: int, damages: int, check_crc: bool) -> None:
    rng = random.Random(seed)
    data = bytearray()
    for number in range(rng.randrange(1, 4)):
        batch = bytearray(built(rng, 1000 * number, rng.choice((0, 1, 3, 100))))
        for _ in range(damages):
            at = rng.randrange(0 if rng.random() < 0.2 else HEADER_SIZE - 4, len(batch))
            batch[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, batch[at] ^ 1 << rng.randrange(8)))
        write_crc(memoryview(batch))
        data += batch
    whole = bytes(data[: len(data) - rng.choice((0, 0, 1))])
    found = []
    for use_native in (False, True):
        run = BatchRun(use_native=use_native)
        run.start(whole)
        found.append((run.scan(0, check_crc=check_crc), run.count, columns(run)))
    assert found[0] == found[1]
