"""ZooKeeper's records: bytes as its own jute writes them, and whatever else comes is an error of its own kind."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.protocol import serialization
from kazoo.security import OPEN_ACL_UNSAFE

from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.zookeeper.frames import FrameStream, frame
from barnabas.protocol.zookeeper.jute import decode, encode
from barnabas.protocol.zookeeper.multi import READ_PARTS, WRITE_PARTS, decode_parts
from barnabas.protocol.zookeeper.records import (
    Acl,
    ConnectRequest,
    CreateRequest,
    GetDataResponse,
    Id,
    NodeStat,
    SetWatches2Request,
    SetWatchesRequest,
)

WORLD = [Acl(31, Id("world", "anyone"))]
KINDS = (ConnectRequest, CreateRequest, GetDataResponse, SetWatchesRequest, SetWatches2Request)


def test_a_creation_is_written_as_zookeeper_writes_it() -> None:
    expected = "00000002 2f61 00000001 78 00000001 0000001f 00000005 776f726c64 00000006 616e796f6e65 00000001"
    assert encode(CreateRequest("/a", b"x", WORLD, 1)) == bytes.fromhex(expected)
    assert serialization.Create("/a", b"x", OPEN_ACL_UNSAFE, 1).serialize() == bytes.fromhex(expected)


def test_null_is_not_nothing() -> None:
    stat = NodeStat(*range(11))
    for data, written in ((None, b"\xff\xff\xff\xff"), (b"", b"\0\0\0\0")):
        response = GetDataResponse(data, stat)
        assert encode(response)[:4] == written
        assert decode(GetDataResponse, encode(response)) == response


@given(
    st.text(alphabet=st.characters(exclude_categories=["Cs"])),
    st.none() | st.binary(),
    st.integers(-(2**31), 2**31 - 1),
)
def test_what_is_written_is_read_back(path: str, data: bytes | None, flags: int) -> None:
    request = CreateRequest(path, data, [*WORLD, Acl(flags, Id(path, path))], flags)
    assert decode(CreateRequest, encode(request)) == request


@given(st.sampled_from(KINDS), st.binary(max_size=100))
def test_any_bytes_are_a_record_or_a_protocol_error(kind: type[tuple[object, ...]], data: bytes) -> None:
    try:
        decode(kind, data)
    except ProtocolError:
        return


@given(st.sampled_from([READ_PARTS, WRITE_PARTS]), st.binary(max_size=100))
def test_any_bytes_are_a_multi_or_a_protocol_error(kinds: dict[int, type[tuple[object, ...]]], data: bytes) -> None:
    try:
        decode_parts(data, 0, kinds)
    except ProtocolError:
        return


@given(st.lists(st.binary(max_size=20), max_size=6), st.integers(1, 7))
def test_frames_come_out_whole_however_they_came_in(frames: list[bytes], step: int) -> None:
    stream, seen = FrameStream(), []
    data = b"".join(map(frame, frames))
    for at in range(0, len(data), step):
        stream.feed(data[at : at + step])
        while (one := stream.next()) is not None:
            seen.append(one)
    assert seen == frames
    assert stream.pending == 0


@pytest.mark.parametrize("length", [b"\xff\xff\xff\xff", b"\x00\x10\x00\x00", b"\x7f\xff\xff\xff"])
def test_illegal_lengths_are_refused(length: bytes) -> None:
    stream = FrameStream()
    stream.feed(length)
    with pytest.raises(ProtocolError):
        stream.next()


def test_a_word_of_four_letters_is_one_at_the_beginning_only() -> None:
    stream = FrameStream()
    assert stream.four_letter_word() is None
    stream.feed(b"ruo")
    assert stream.four_letter_word() is None
    stream.feed(b"k\n")
    assert stream.four_letter_word() == "ruok"
    later = FrameStream()
    later.feed(frame(b"x"))
    assert later.next() == b"x"
    later.feed(b"ruok")
    assert later.four_letter_word() is None
