"""The hand-written decoder against the compiled one: the same message from the same bytes, or an error from both."""

import random
import struct
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protocol.random_messages import random_message

from barnabas.protocol import codec
from barnabas.protocol.apis import API_MESSAGES, ApiKey
from barnabas.protocol.compiler import Decoder, decoder, encoder
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.hot_codecs import produce_request_decoder
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

BAD_BYTES = (ProtocolError, struct.error, IndexError, UnicodeDecodeError)
VERSIONS = API_MESSAGES[ApiKey.PRODUCE].versions.numbers()
NAMES = st.text(max_size=4) | st.sampled_from(["n" * 126, "n" * 127, "n" * 249])
RECORDS = st.none() | st.binary(max_size=5) | st.sampled_from([bytes(126), bytes(127), bytes(20_000)])


def one_by_one(version: int, name: str, topic_id: int, index: int, records: bytes | None) -> ProduceRequest:
    named = {"topic_id": UUID(int=topic_id)} if version >= 13 else {"name": name}
    partition = PartitionProduceData(index=index, records=records)
    return ProduceRequest(acks=-1, timeout_ms=7, topic_data=[TopicProduceData(partition_data=[partition], **named)])


def encoded(message: ProduceRequest, version: int) -> bytes:
    pieces: list[bytes] = []
    encoder(ProduceRequest, version)(message, pieces.append)
    return b"".join(pieces)


def outcome(decode: Decoder, buffer: Any, position: int, end: int) -> Any:
    try:
        return decode(buffer, position, end, 1000)
    except BAD_BYTES:
        return "error"


def check(version: int, data: bytes) -> None:
    general = decoder(ProduceRequest, version)
    hot = produce_request_decoder(version, general)
    buffer = bytearray(b"?" + data + b"the next frame, which is none of our business")
    for end in {1 + len(data), max(1, len(data)), max(1, len(data) - 3), 1 + len(data) // 2}:
        for view in (buffer, memoryview(buffer), bytes(buffer[:end])):
            assert outcome(hot, view, 1, end) == outcome(general, view, 1, end)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(VERSIONS), NAMES, st.integers(0, 2**128 - 1), st.integers(-(2**31), 2**31 - 1), RECORDS)
def test_one_partition(version: int, name: str, topic_id: int, index: int, records: bytes | None) -> None:
    message = one_by_one(version, name, topic_id, index, records)
    data = encoded(message, version)
    assert codec.decode_request(ApiKey.PRODUCE, version, data, 0, len(data)) == message
    check(version, data)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(VERSIONS), st.integers(0, 2**32))
def test_any_request(version: int, seed: int) -> None:
    check(version, encoded(random_message(ProduceRequest, version, random.Random(seed)), version))


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(VERSIONS), NAMES, RECORDS, st.data())
def test_mutated_requests(version: int, name: str, records: bytes | None, data: st.DataObject) -> None:
    body = bytearray(encoded(one_by_one(version, name, 5, 3, records), version))
    for _ in range(data.draw(st.integers(1, 3))):
        # The lengths and counts stand near both ends.
        position = data.draw(st.integers(0, min(40, len(body) - 1)) | st.integers(max(0, len(body) - 5), len(body) - 1))
        body[position] = data.draw(st.integers(0, 255))
    check(version, bytes(body))


@pytest.mark.parametrize("version", VERSIONS)
def test_every_short_end(version: int) -> None:
    data = encoded(one_by_one(version, "topic", 9, 3, b"records"), version)
    for length in range(len(data)):
        with pytest.raises(ProtocolError):
            codec.decode_request(ApiKey.PRODUCE, version, data, 0, length)
        with pytest.raises(ProtocolError):
            codec.decode_request(ApiKey.PRODUCE, version, data[:length], 0, length)
