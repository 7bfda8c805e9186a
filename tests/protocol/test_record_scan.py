"""The walk over the records of a batch, with all its shortcuts, against one that reads a varint at a time."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.record_codec import RecordScan, encode_record, scan_records


def varint(data: bytes, position: int) -> tuple[int, int]:
    """The zigzag number at `position`, and where it ends. Raises IndexError if there is none of up to 64 bits."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        shift += 7
        if value >> 64 or shift > 70:
            raise IndexError
        if byte < 128:
            return (value >> 1) ^ -(value & 1), position


def plain_scan(data: bytes, count: int) -> RecordScan | str:
    """What `scan_records` has to find, or "error"."""
    position, stamps, keyless = 0, [], []
    for index in range(count):
        try:
            size, start = varint(data, position)
            stamp, at = varint(data, start + 1)
            delta, at = varint(data, at)
            key_size, _ = varint(data, at)
        except IndexError:
            return "error"
        if delta != index or size < 6 or start + size > len(data):
            return "error"
        stamps.append(stamp)
        if key_size < 0:
            keyless.append(index)
        position = start + size
    return RecordScan(min(stamps), max(stamps), keyless) if position == len(data) else "error"


def without_keyless(found: RecordScan | str) -> RecordScan | str:
    return found if isinstance(found, str) else found._replace(keyless=[])


def scan(data: bytes, count: int) -> RecordScan | str:
    try:
        return scan_records(data, count)
    except ProtocolError:
        return "error"


def records(rng: random.Random, count: int, sizes: list[int], stamps: list[int], run: int) -> bytes:
    """Records with values of these sizes, and timestamp deltas that change about every `run` records."""
    made, stamp, size = [], rng.choice(stamps), rng.choice(sizes)
    for index in range(count):
        if rng.random() * run < 1:
            stamp, size = rng.choice(stamps), rng.choice(sizes)
        made.append(encode_record(index, stamp, rng.choice((None, b"k")), bytes(size)))
    return b"".join(made)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 300) | st.sampled_from([8191, 8192, 8193]),
    sizes=st.lists(st.sampled_from([0, 1, 40, 55, 56, 57, 100, 1000, 8180, 8190, 9000]), min_size=1, max_size=3),
    stamps=st.lists(st.sampled_from([0, 1, -1, 63, 64, 100, 8191, 8192, -8192, 2**40]), min_size=1, max_size=3),
    run=st.sampled_from([1, 5, 100, 10_000]),
)
def test_scan(seed: int, count: int, sizes: list[int], stamps: list[int], run: int) -> None:
    if count > 300:
        sizes = [size for size in sizes if size < 2000] or [100]
    rng = random.Random(seed)
    data = records(rng, count, sizes, stamps, run)
    expected = plain_scan(data, count)
    assert scan_records(data, count, max_keyless=count) == expected
    assert scan(data, count) == without_keyless(expected)
    assert scan(data, count + 1) == scan(data, count - 1 or 2) == "error"
    damaged = bytearray(data)
    damaged[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    assert scan(bytes(damaged), count) == without_keyless(plain_scan(bytes(damaged), count))
    cut = data[: rng.randrange(len(data))]
    assert scan(cut, count) == "error"


@pytest.mark.parametrize("wrong", [64, 100, 8191, 8192, 8200])
@pytest.mark.parametrize("size", [20, 100])
def test_an_offset_delta_left_out_is_found_wherever_it_is(wrong: int, size: int) -> None:
    deltas = [index + (index >= wrong) for index in range(8300)]
    data = b"".join(encode_record(delta, 7, None, bytes(size)) for delta in deltas)
    with pytest.raises(ProtocolError, match=f"record {wrong} "):
        scan_records(data, len(deltas))
