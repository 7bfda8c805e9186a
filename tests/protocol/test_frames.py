"""Frames come out of a stream the same however its bytes were cut, and illegal lengths end it."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.frames import framed

from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.frames import LENGTH_SIZE, BufferPool, FrameReader

MAX = 5000


def reader(pool_size: int = 2048) -> FrameReader:
    return FrameReader(BufferPool(pool_size, 2), max_size=MAX, max_other_size=MAX // 2)


def feed(frames: FrameReader, stream: bytes, cuts: list[int]) -> list[bytes]:
    """Push the stream through in pieces of the sizes `cuts`, collecting frames as a connection does."""
    found, position, turn = [], 0, 0
    while position < len(stream):
        room = frames.buffer()
        assert len(room) > 0
        count = min(cuts[turn % len(cuts)], len(room), len(stream) - position)
        turn += 1
        room[:count] = stream[position : position + count]
        position += count
        frames.pending += count
        while (bounds := frames.next_frame()) is not None:
            found.append(bytes(frames.data[bounds[0] : bounds[1]]))
        frames.settle()
    return found


@given(
    bodies=st.lists(st.integers(0, MAX - 2).map(lambda n: b"\0\0" + bytes([n % 251]) * n), max_size=12),
    cuts=st.lists(st.integers(1, 3000) | st.integers(4000, 20_000), min_size=1, max_size=8),
    pool_size=st.sampled_from([2048, 4100, 5010, 9000, 40_000]),
)
def test_frames_do_not_depend_on_how_the_stream_is_cut(bodies: list[bytes], cuts: list[int], pool_size: int) -> None:
    stream = b"".join(framed(body) for body in bodies)
    frames = reader(pool_size)
    assert feed(frames, stream, cuts) == bodies
    assert frames.pending == 0


def test_streams_that_share_a_buffer_do_not_mix() -> None:
    pool = BufferPool(1024, 2)
    first = FrameReader(pool, max_size=MAX, max_other_size=MAX)
    second = FrameReader(pool, max_size=MAX, max_other_size=MAX)
    whole = struct.pack(">i", 6) + b"abcdef"
    assert feed(first, whole[:7], [100]) == []
    assert feed(second, whole.upper(), [100]) == [b"ABCDEF"]
    assert feed(first, whole[7:], [100]) == [b"abcdef"]


@pytest.mark.parametrize("length", [-1, -(2**31), MAX + 1, 2**31 - 1])
def test_an_illegal_length_is_refused(length: int) -> None:
    with pytest.raises(ProtocolError):
        feed(reader(), struct.pack(">i", length) + b"\0\0", [100])


def test_only_produce_may_be_large() -> None:
    announced = struct.pack(">i", MAX // 2 + 1)
    assert feed(reader(), announced + b"\0\0", [100]) == []
    with pytest.raises(ProtocolError):
        feed(reader(), announced + b"\0\1", [100])


def test_memory_follows_the_bytes_that_came_not_the_length_announced() -> None:
    frames = FrameReader(BufferPool(2048, 2), max_size=1 << 30, max_other_size=1 << 30)
    feed(frames, struct.pack(">i", 1 << 30) + bytes(3000), [700])
    assert len(frames.data) <= 4 * 3000


def announce(pool: BufferPool) -> FrameReader:
    """A reader that has received 5006 of 9004 bytes, in one piece."""
    frames = FrameReader(pool, max_size=1 << 20, max_other_size=1 << 20)
    assert feed(frames, struct.pack(">i", 9000) + b"\0\0" + bytes(5000), [9000]) == []
    return frames


def test_a_closed_reader_gives_its_buffer_back() -> None:
    pool = BufferPool(32_768, 2)
    frames = announce(pool)
    pooled = frames.data.obj
    frames.close()
    assert pool.take() is pooled


def test_a_large_frame_stays_where_it_began_to_arrive() -> None:
    pool = BufferPool(32_768, 2)
    shared = pool.shared_view.obj
    frames = announce(pool)
    assert frames.data.obj is shared
    assert pool.shared_view.obj is not shared
    assert len(frames.buffer()) == 9004 - 5006, "only the rest of the frame is to be read behind it"
    assert feed(frames, bytes(3998), [9000]) == [bytes(9000)]
    assert pool.take() is shared


def test_a_large_frame_that_does_not_fit_where_it_began_is_moved_once() -> None:
    pool = BufferPool(32_768, 2)
    frames = FrameReader(pool, max_size=1 << 20, max_other_size=1 << 20)
    small = struct.pack(">i", 2000) + bytes(2000)
    large = struct.pack(">i", 31_000) + bytes(31_000)
    assert feed(frames, small + large[:5000], [9000]) == [bytes(2000)]
    moved = frames.data.obj
    assert pool.shared_view.obj is not moved
    assert feed(frames, large[5000:], [7000]) == [bytes(31_000)]
    assert pool.take() is moved


def test_two_streams_of_large_frames_do_not_mix() -> None:
    pool = BufferPool(32_768, 2)
    readers = [FrameReader(pool, max_size=1 << 20, max_other_size=1 << 20) for _ in range(3)]
    streams = [3 * (struct.pack(">i", 20_000) + bytes([number]) * 20_000) for number in range(3)]
    found: list[list[bytes]] = [[], [], []]
    for start in range(0, len(streams[0]), 5000):
        for number, frames in enumerate(readers):
            found[number] += feed(frames, streams[number][start : start + 5000], [8000])
    assert found == [3 * [bytes([number]) * 20_000] for number in range(3)]


def test_a_frame_larger_than_a_receive_buffer_gets_memory_of_its_own_size_once() -> None:
    sizes: list[int] = []

    def allocate(size: int) -> bytearray:
        sizes.append(size)
        return bytearray(size)

    pool = BufferPool(32_768, 2, allocate)
    frames = FrameReader(pool, max_size=1 << 20, max_other_size=1 << 20)
    small, large = bytes(10), bytes(range(256)) * 1000
    stream = b"".join(framed(body) for body in (small, large, small, large))
    assert feed(frames, stream, [9000, 1, 20_000]) == [small, large, small, large]
    assert sizes == [LENGTH_SIZE + len(large)] * 2
    assert frames.private is None and frames.pending == 0


def test_a_frame_for_which_there_is_no_memory_is_an_error_that_names_its_size() -> None:
    def allocate(size: int) -> bytearray:
        raise MemoryError(f"cannot allocate memory for a request of {size} bytes")

    frames = FrameReader(BufferPool(32_768, 2, allocate), max_size=1 << 20, max_other_size=1 << 20)
    with pytest.raises(MemoryError, match="100004 bytes"):
        feed(frames, struct.pack(">i", 100_000) + bytes(9000), [9000])
