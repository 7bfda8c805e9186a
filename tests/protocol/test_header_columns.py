"""The columns of headers: they say what decoding says, compiled or not, and damaged headers are refused alike."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import in_one_test
from tests.foreign_tools import skip_or_fail

from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.header_columns import HeaderColumns, header_columns, header_columns_here
from barnabas.protocol.native import native
from barnabas.protocol.record import Headers
from barnabas.protocol.record_codec import decode_records_here, encode_headers, encode_record, locate_record
from barnabas.protocol.record_columns import RecordColumns
from barnabas.protocol.varint import encode_varint

ROADS = [False, True] if native is not None else [False]
compiled = pytest.mark.usefixtures("speedups")
HEADERS: list[Headers] = [
    (),
    [("h", None)],
    [("", b""), ("ключ", b"v")],
    [("n" * 80, bytes(90))] * 3,
    [("k", b"v")] * 70,
]


@pytest.fixture(scope="module")
def speedups() -> None:
    if native is None:
        skip_or_fail("no compiled speedups: install with a C compiler")


def columns_of(*headers: bytes) -> tuple[bytes, RecordColumns]:
    """Records that end with these bytes, one behind the other, as far as headers need them."""
    data, records = bytearray(), RecordColumns(len(headers))
    for row, ending in enumerate(headers):
        data += b"front"
        records.header_starts[row] = len(data)
        data += ending
        records.ends[row] = len(data)
    records.count = len(headers)
    return bytes(data), records


def as_lists(found: HeaderColumns) -> list[list[int]]:
    return [column.tolist() for column in found]


def found_or_none(data: bytes, records: RecordColumns, *, use_native: bool) -> list[list[int]] | None:
    try:
        return as_lists(header_columns(data, records, use_native=use_native))
    except ProtocolError:
        return None


@pytest.mark.parametrize("use_native", ROADS)
def test_columns_say_what_decoding_says(use_native: bool) -> None:
    rng = random.Random(1)
    data = b"".join(encode_record(index, 0, b"k", b"v", rng.choice(HEADERS)) for index in range(300))
    records, at = RecordColumns(300), 0
    for row in range(300):
        record = locate_record(data, at, len(data))
        records.header_starts[row], records.ends[row] = record.headers_start, record.end
        at = record.end
    records.count = 300
    counts, *columns = header_columns(data, records, use_native=use_native)
    rows = zip(*columns, strict=True)
    for count, decoded in zip(
        counts, decode_records_here(data, 0, 300, base_offset=0, base_timestamp=0, append_time=None)[0], strict=True
    ):
        headers = []
        for _ in range(count):
            key, key_size, value, value_size = next(rows)
            headers.append(
                (data[key : key + key_size].decode(), None if value_size < 0 else data[value : value + value_size])
            )
        assert headers == list(decoded.headers)
    assert next(rows, None) is None


@pytest.mark.parametrize("use_native", ROADS)
def test_records_without_headers_and_no_records_at_all(use_native: bool) -> None:
    assert as_lists(header_columns(*columns_of(b"\0", b"\0"), use_native=use_native)) == [[0, 0], [], [], [], []]
    assert as_lists(header_columns(*columns_of(), use_native=use_native)) == [[], [], [], [], []]


WRONG = {
    "no bytes": b"",
    "-1 headers": encode_varint(-1),
    "a header that is not there": b"\x02",
    "2^31-1 headers": encode_varint(2**31 - 1) + bytes(20),
    "a header without a value": b"\x02\x02h",
    "a key of -1": b"\x02\x01\x02x",
    "a key longer than its record": b"\x02\x64h\x02x",
    "a key as long as its record": b"\x02\x06h\x02x",
    "a value longer than its record": b"\x02\x02h\x64x",
    "a value of 2^31-1": b"\x02\x02h" + encode_varint(2**31 - 1) + b"x",
    "a byte behind them": b"\x02\x02h\x02x\0",
    "a byte behind none": b"\0\0",
    "one more than counted": b"\x02\x02h\x02x\x02h\x02x",
    "an endless count": b"\xff" * 12,
    "an endless key size": b"\x02" + b"\xff" * 12,
    "a count in six bytes": b"\x82\x80\x80\x80\x80\0\x02h\x02x",
    "a value size in six bytes": b"\x02\x02h\x82\x80\x80\x80\x80\0x",
    "a count of 33 bits": b"\x82\x80\x80\x80\x10\x02h\x02x",
}


@in_one_test("use_native", ROADS)
@in_one_test("name", WRONG)
def test_headers_that_are_none_are_refused_wherever_they_are(name: str, use_native: bool) -> None:
    sound = encode_headers([("k", b"v")])
    for headers in ([WRONG[name]], [WRONG[name], sound], [sound, WRONG[name]], [sound, WRONG[name], sound]):
        with pytest.raises(ProtocolError):
            header_columns(*columns_of(*headers), use_native=use_native)


@pytest.mark.parametrize("use_native", ROADS)
def test_what_is_unusual_and_no_damage(use_native: bool) -> None:
    for headers in (b"\x82\x80\x80\x80\0\x02h\x02x", b"\x02\x02h\x03", b"\x02\0\0", b"\x02\x82\0h\x01"):
        assert len(header_columns(*columns_of(headers), use_native=use_native).key_sizes) == 1
    assert header_columns(*columns_of(b"\x02\x02h\x03"), use_native=use_native).value_sizes.tolist() == [-1]


@compiled
@settings(max_examples=400, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 30), damages=st.integers(0, 3), moved=st.integers(0, 2))
def test_both_roads_find_the_same_in_damaged_headers(seed: int, count: int, damages: int, moved: int) -> None:
    rng = random.Random(seed)
    data, records = columns_of(*(encode_headers(rng.choice(HEADERS)) for _ in range(count)))
    broken = bytearray(data)
    for _ in range(damages):
        at = rng.randrange(len(broken))
        broken[at] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, broken[at] ^ 1 << rng.randrange(8)))
    for _ in range(moved):
        row = rng.randrange(count)
        records.ends[row] = rng.randrange(records.header_starts[row], len(data) + 1)
    expected = found_or_none(bytes(broken), records, use_native=False)
    assert found_or_none(bytes(broken), records, use_native=True) == expected
    assert damages or moved or expected is not None


@compiled
@settings(max_examples=400, deadline=None)
@given(st.lists(st.binary(max_size=20), max_size=4))
def test_both_roads_say_the_same_of_any_bytes(headers: list[bytes]) -> None:
    data, records = columns_of(*headers)
    assert found_or_none(data, records, use_native=True) == found_or_none(data, records, use_native=False)


@compiled
def test_compiled_code_reads_nothing_outside_its_buffer() -> None:
    assert native is not None
    data, records = columns_of(b"\x02\x02h\x02x", b"\0")
    rows = (records.block, records.capacity, 0, 2)
    assert native.header_columns(data, rows) is not None
    for wrong in ((-1, 2), (0, 3), (2, 1)):
        with pytest.raises(ValueError, match="no such rows"):
            native.header_columns(data, (records.block, records.capacity, *wrong))
    with pytest.raises(ValueError, match="larger than their memory"):
        native.header_columns(data, (records.block, 3, 0, 2))
    with pytest.raises(ValueError, match="outside their buffer"):
        native.header_columns(data[:-1], rows)
    for start, end in ((-1, 5), (6, 5), (5, -1)):
        records.header_starts[0], records.ends[0] = start, end
        with pytest.raises(ValueError, match="outside their buffer"):
            native.header_columns(data, rows)


@compiled
def test_rows_in_the_middle_are_told_alone() -> None:
    assert native is not None
    data, records = columns_of(*(encode_headers(headers) for headers in HEADERS))
    whole = header_columns_here(data, records)
    found = native.header_columns(data, (records.block, records.capacity, 1, 3))
    assert found is not None
    assert [memoryview(column).cast("i").tolist() for column in found] == [
        whole.counts[1:3].tolist(), *(column[:3].tolist() for column in whole[1:])
    ]  # fmt: skip
