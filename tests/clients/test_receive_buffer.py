"""Frames out of a stream that is cut anywhere."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.clients.receive_buffer import ReceiveBuffer
from barnabas.protocol.errors import ProtocolError


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
