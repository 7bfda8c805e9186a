"""Frames out of a stream that is cut anywhere."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.receive_buffer import BELIEVED_BYTES, FrameMemory, ReceiveBuffer


def feed(receive: ReceiveBuffer, data: bytes, most: int) -> list[bytes]:
    frames: list[memoryview] = []
    position = 0
    while position < len(data):
        view = receive.buffer()
        assert len(view) > 0
        piece = data[position : position + min(most, len(view))]
        view[: len(piece)] = piece
        frames += receive.received(len(piece))
        position += len(piece)
    return [bytes(frame) for frame in frames]


def stream(frames: list[bytes]) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


@given(st.lists(st.binary(max_size=300), max_size=20), st.integers(1, 1000))
@settings(deadline=None)
def test_frames_come_out_as_they_went_in(frames: list[bytes], most: int) -> None:
    assert feed(ReceiveBuffer(1000), stream(frames), most) == frames


@pytest.mark.parametrize("most", [1000, 65536, 1 << 20])
def test_large_frames_between_small_ones(most: int) -> None:
    frames = [b"a", b"b" * 200_000, b"", b"c" * 65_536, b"d" * 65_532, b"e"]
    assert feed(ReceiveBuffer(1 << 20), stream(frames), most) == frames


def test_frames_keep_their_bytes_when_more_arrive() -> None:
    receive = ReceiveBuffer(1000)
    view = receive.buffer()
    data = stream([b"first", b"second"])
    view[: len(data)] = data
    first, second = receive.received(len(data))
    feed(receive, stream([b"x" * 500]), 7)
    assert (bytes(first), bytes(second)) == (b"first", b"second")


@pytest.mark.parametrize("length", [-1, 1001, 0x7FFFFFFF])
def test_an_illegal_length_is_refused(length: int) -> None:
    with pytest.raises(ProtocolError):
        feed(ReceiveBuffer(1000), length.to_bytes(4, "big", signed=True), 4)


def test_memory_follows_the_bytes_that_came() -> None:
    receive = ReceiveBuffer(1 << 30)
    feed(receive, (1 << 30).to_bytes(4, "big"), 4)
    received = 0
    while received < 4 * BELIEVED_BYTES:
        view = receive.buffer()
        assert 0 < len(view) <= max(BELIEVED_BYTES, received)
        received += len(view)
        assert list(receive.received(len(view))) == []


@pytest.mark.parametrize("is_held", [False, True])
def test_a_frame_that_outgrows_its_buffer_keeps_its_bytes(is_held: bool) -> None:
    """The reader's last view may be alive when the buffer has to grow."""
    body = bytes(range(256)) * (BELIEVED_BYTES // 256 * 2 + 17)
    data, held, frames = memoryview(stream([body])), list[Any](), list[Any]()
    receive = ReceiveBuffer(1 << 30, room_behind=64)
    while data:
        view = receive.buffer()
        piece = data[: min(len(view), 1 << 20)]
        view[: len(piece)] = piece
        if is_held:
            held.append(view)
        del view
        frames += receive.received(len(piece))
        data = data[len(piece) :]
    assert frames == [body]


@pytest.mark.parametrize("size", [3, 100_000])
def test_there_is_room_behind_a_frame(size: int) -> None:
    receive = ReceiveBuffer(1 << 20, room_behind=64)
    data, frames = stream([b"x" * size]), list[Any]()
    while data:
        view = receive.buffer()
        count = min(len(view), len(data))
        view[:count] = data[:count]
        frames += receive.received(count)
        data = data[count:]
    (frame,) = frames
    assert frame == b"x" * size
    assert len(frame.obj) == size + 64  # type: ignore[arg-type]


def receive_one(receive: ReceiveBuffer, body: bytes) -> memoryview:
    """Feed one large frame and return it as it is."""
    data = memoryview(stream([body]))
    frames: list[memoryview] = []
    while data:
        view = receive.buffer()
        count = min(len(view), len(data))
        view[:count] = data[:count]
        frames += receive.received(count)
        data = data[count:]
    (frame,) = frames
    return frame


def test_memory_of_large_frames_is_used_again_when_no_view_is_left() -> None:
    receive = ReceiveBuffer(1 << 30, room_behind=64, memory=FrameMemory(2))
    first = receive_one(receive, b"a" * 300_000)
    second = receive_one(receive, b"b" * 300_000)
    memory = first.obj
    assert memory is not second.obj
    third = receive_one(receive, b"c" * 200_000)
    assert third.obj not in (first.obj, second.obj), "both are in use"
    assert bytes(first) == b"a" * 300_000 and bytes(second) == b"b" * 300_000 and bytes(third) == b"c" * 200_000
    inner = second[7:9]
    second.release()
    fourth = receive_one(receive, b"d" * 100_000)
    assert bytes(inner) == b"bb" and bytes(fourth) == b"d" * 100_000, "a view of a view counts"
    for frame in (first, third, fourth, inner):
        frame.release()
    lasting = [receive_one(receive, bytes([i]) * (150_000 + i)) for i in range(2)]
    known = {id(frame.obj) for frame in lasting}
    del lasting
    for i in range(20):
        frame = receive_one(receive, bytes([i]) * (100_000 + i))
        assert bytes(frame) == bytes([i]) * (100_000 + i)
        assert id(frame.obj) in known, "no new memory"
        del frame


def test_a_smaller_frame_in_used_memory_ends_where_it_ends() -> None:
    """The bytes of the next frame must not be received behind it."""
    receive = ReceiveBuffer(1 << 20, room_behind=8, memory=FrameMemory(1))
    receive_one(receive, b"x" * 500_000).release()
    frames = [b"y" * 100_000, b"z", b"w" * 90_000]
    assert feed(receive, stream(frames), 1 << 20) == frames


@given(st.lists(st.integers(0, 300_000), max_size=8), st.integers(1000, 400_000), st.integers(0, 3))
@settings(deadline=None, max_examples=50)
def test_frames_that_are_held_for_a_while_keep_their_bytes(sizes: list[int], most: int, held_for: int) -> None:
    receive = ReceiveBuffer(1 << 30, room_behind=64, memory=FrameMemory(2))
    bodies = [bytes([i + 1]) * size for i, size in enumerate(sizes)]
    data, held, position = stream(bodies), list[tuple[memoryview, bytes]](), 0
    expected = iter(bodies)
    while position < len(data):
        view = receive.buffer()
        piece = data[position : position + min(most, len(view))]
        view[: len(piece)] = piece
        del view
        for frame in receive.received(len(piece)):
            held.append((frame, next(expected)))
            del frame
        position += len(piece)
        assert all(frame == body for frame, body in held)
        held = held[len(held) - held_for :] if held_for else []
    assert next(expected, None) is None


def test_connections_share_memory_of_frames() -> None:
    memory = FrameMemory(2)
    receivers = [ReceiveBuffer(1 << 30, memory=memory) for _ in range(3)]
    known = set()
    for i in range(30):
        frame = receive_one(receivers[i % 3], bytes([i]) * 100_000)
        assert bytes(frame) == bytes([i]) * 100_000
        known.add(id(frame.obj))
        del frame
    assert len(known) <= 2
