"""The hand-written codecs against the compiled ones: the same messages and bytes, or an error from both."""

import random
import struct
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protocol.random_messages import random_message

from barnabas.protocol import codec
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.compiler import Decoder, decoder, encoder
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.hot_codecs import HOT_DECODERS, hot_decoder
from barnabas.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from barnabas.protocol.schema import versions_of

BAD_BYTES = (ProtocolError, struct.error, IndexError, UnicodeDecodeError)
KEYS: dict[type, ApiKey] = {FetchRequest: ApiKey.FETCH}
REQUESTS = [(cls, version) for cls in HOT_DECODERS for version in versions_of(cls).numbers()]
NAMES = st.text(max_size=4) | st.sampled_from(["n" * 126, "n" * 127, "n" * 249, "ü" * 63, "ü" * 64])
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


def called(version: int, name: str, topic_id: int) -> dict[str, Any]:
    """How a topic is named in that version."""
    return {"topic_id": UUID(int=topic_id)} if version >= 13 else {"topic": name}


def small_fetch(version: int, name: str, topic_id: int, index: int, rack: str) -> FetchRequest:
    """A request for one partition with something in every field that a consumer fills."""
    given: dict[str, Any] = {"current_leader_epoch": 4, "last_fetched_epoch": 3, "log_start_offset": 2}
    since = {"current_leader_epoch": 9, "last_fetched_epoch": 12, "log_start_offset": 5}
    partition = FetchPartition(
        partition=index,
        fetch_offset=2**40 + 1,
        partition_max_bytes=77,
        **{field: value for field, value in given.items() if version >= since[field]},
    )
    topic = FetchTopic(partitions=[partition], **called(version, name, topic_id))
    lately: dict[str, Any] = {"isolation_level": 1, "session_id": 9, "session_epoch": 5, "rack_id": rack}
    added = {"isolation_level": 4, "session_id": 7, "session_epoch": 7, "rack_id": 11}
    return FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        topics=[topic],
        **{field: value for field, value in lately.items() if version >= added[field]},
    )


def compiled(message: Any, version: int) -> bytes:
    pieces: list[bytes] = []
    encoder(cast(Any, type(message)), version)(message, pieces.append)
    return b"".join(pieces)


def outcome(decode: Decoder, buffer: Any, position: int, end: int) -> Any:
    try:
        return decode(buffer, position, end, 1000)
    except BAD_BYTES:
        return "error"


def check(cls: Any, version: int, data: bytes) -> None:
    general = decoder(cls, version)
    hot = hot_decoder(cls, version, general)
    buffer = bytearray(b"?" + data + b"the next frame, which is none of our business")
    for end in {1 + len(data), max(1, len(data)), max(1, len(data) - 3), 1 + len(data) // 2}:
        for view in (buffer, memoryview(buffer), bytes(buffer[:end])):
            assert outcome(hot, view, 1, end) == outcome(general, view, 1, end)


@settings(max_examples=250, deadline=None)
@given(st.sampled_from(REQUESTS), NAMES, st.integers(0, 2**128 - 1), INT32, NAMES)
def test_requests_of_one_partition(which: tuple[type, int], name: str, topic_id: int, index: int, rack: str) -> None:
    cls, version = which
    message = small_fetch(version, name, topic_id, index, rack)
    data = compiled(message, version)
    assert codec.decode_request(KEYS[cls], version, data, 0, len(data)) == message
    check(cls, version, data)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(REQUESTS), st.integers(0, 2**32))
def test_any_request(which: tuple[type, int], seed: int) -> None:
    cls, version = which
    check(cls, version, compiled(random_message(cls, version, random.Random(seed)), version))


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(REQUESTS), NAMES, st.data())
def test_mutated_requests(which: tuple[type, int], name: str, data: st.DataObject) -> None:
    cls, version = which
    body = bytearray(compiled(small_fetch(version, name, 5, 3, data.draw(NAMES)), version))
    for _ in range(data.draw(st.integers(1, 3))):
        # The lengths and counts stand near both ends.
        position = data.draw(st.integers(0, min(90, len(body) - 1)) | st.integers(max(0, len(body) - 5), len(body) - 1))
        body[position] = data.draw(st.integers(0, 255))
    check(cls, version, bytes(body))


@pytest.mark.parametrize(("cls", "version"), REQUESTS)
def test_every_short_end(cls: type, version: int) -> None:
    data = compiled(small_fetch(version, "topic", 5, 3, "rack"), version)
    for length in range(len(data)):
        with pytest.raises(ProtocolError):
            codec.decode_request(KEYS[cls], version, data, 0, length)
        with pytest.raises(ProtocolError):
            codec.decode_request(KEYS[cls], version, data[:length], 0, length)


def test_the_usual_fetch_requests_need_no_compiled_decoder() -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("left to the compiled decoder")

    for version in range(11, 19):
        for rack in ("", "rack"):
            message = small_fetch(version, "topic", 9, 1, rack)
            data = compiled(message, version)
            assert hot_decoder(FetchRequest, version, refuse)(data, 0, len(data), 10) == (message, len(data))


@pytest.mark.parametrize("cls", HOT_DECODERS)
def test_every_version_is_known_once_and_no_later_one_is_guessed_at(cls: type) -> None:
    known = [version for versions in HOT_DECODERS[cls] for version in versions]
    assert known == list(versions_of(cls).numbers())
    with pytest.raises(ProtocolError, match="is not supported by its hand-written decoders"):
        hot_decoder(cls, known[-1] + 1, decoder(cls, known[-1]))


def test_fetched_records_are_handed_on_as_they_are() -> None:
    records = memoryview(bytes(10_000))
    for version in versions_of(FetchResponse).numbers():
        topic = FetchableTopicResponse(partitions=[PartitionData(records=records)], **called(version, "t", 1))
        assert any(part is records for part in codec.encode_response(FetchResponse(responses=[topic]), version))
