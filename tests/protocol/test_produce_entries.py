"""Produce requests read and answers written as one piece: the same as by the general codecs, or left to them."""

from __future__ import annotations

import random
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol import produce_entries
from barnabas.protocol.apis import API_MESSAGES, ApiKey
from barnabas.protocol.codec import decode_response, encode_request
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.headers import RequestHeader, decode_response_header, encode_request_header
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.native import native
from barnabas.protocol.produce_entries import (
    SINCE_TOPIC_IDS,
    CompactProduceResponse,
    read_generally,
    read_produce,
    write_generally,
)

VERSIONS = list(API_MESSAGES[ApiKey.PRODUCE].versions.numbers())
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(max_size=4) | st.sampled_from(["t", "n" * 126, "n" * 127, "ü" * 64, "n" * 249])
RECORDS = st.none() | st.binary(max_size=5) | st.sampled_from([bytes(126), bytes(127), bytes(20_000)])
TOPICS = st.lists(
    st.tuples(NAMES, st.integers(0, 2**128 - 1), st.lists(st.tuples(INT32, RECORDS), max_size=4)), max_size=4
)
compiled = pytest.mark.skipif(native is None, reason="nothing is compiled here")


def request_frame(version: int, client_id: str | None, transactional_id: str | None, acks: int, topics: list) -> bytes:
    by_id = version >= SINCE_TOPIC_IDS
    request = ProduceRequest(
        transactional_id=transactional_id if version >= 3 else None,
        acks=acks,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name="" if by_id else name,
                topic_id=UUID(int=number if by_id else 0),
                partition_data=[PartitionProduceData(index=index, records=records) for index, records in partitions],
            )
            for name, number, partitions in topics
        ],
    )
    header = RequestHeader(ApiKey.PRODUCE, version, -7, client_id)
    return encode_request_header(header) + encode_request(request, version)


def outcome(read: object, version: int, data: bytes | bytearray, end: int) -> object:
    buffer = memoryview(bytearray(b"?" + data + b"the next one"))
    try:
        header, request = read(version, buffer, 1, end)  # type: ignore[operator]
    except ProtocolError:
        return "refused"
    return header, request.transactional_id, request.acks, request.timeout_ms, request.keys, request.entries


@compiled
@settings(max_examples=300)
@given(
    version=st.sampled_from(VERSIONS),
    client_id=st.none() | st.text(max_size=3),
    transactional_id=st.none() | st.text(max_size=3),
    acks=st.sampled_from([-1, 0, 1, 7]),
    topics=TOPICS,
)
def test_a_request_read_as_one_piece_is_what_the_general_decoder_reads(
    version: int, client_id: str | None, transactional_id: str | None, acks: int, topics: list
) -> None:
    assert native is not None
    data = request_frame(version, client_id, transactional_id, acks, topics)
    read = outcome(read_produce, version, data, 1 + len(data))
    assert read == outcome(read_generally, version, data, 1 + len(data))
    assert native.read_produce(memoryview(bytearray(data)), 0, len(data)) is not None, "and it was read so"
    for end in (1 + len(data) - 1, 1 + len(data) // 2, 9, 3, 1):
        assert outcome(read_produce, version, data, end) == outcome(read_generally, version, data, end)


@compiled
@pytest.mark.parametrize("version", VERSIONS)
def test_a_damaged_request_is_read_as_the_general_decoder_reads_it_or_refused(version: int) -> None:
    rng = random.Random(version)
    topics = [("one", 1, [(0, b"abc"), (1, None)]), ("two", 2, [(3, bytes(200))])]
    sound = request_frame(version, "client", None, 1, topics)
    for _ in range(3000):
        data = bytearray(sound)
        for _ in range(rng.choice([1, 1, 2, 5])):
            # Key and version are what the request was recognized by.
            data[rng.randrange(4, min(len(data), 60))] = rng.choice([0, 1, 2, 127, 128, 255, rng.randrange(256)])
        end = 1 + len(data)
        assert outcome(read_produce, version, data, end) == outcome(read_generally, version, data, end)


@compiled
def test_what_is_not_usual_is_left_to_the_general_decoder() -> None:
    assert native is not None
    frame = request_frame(9, "client", None, 1, [("t", 0, [(0, b"x")])])
    tagged = frame[:-1] + b"\1\5\1z"
    assert native.read_produce(memoryview(tagged), 0, len(tagged)) is None
    header, request = read_produce(9, memoryview(tagged), 0, len(tagged))
    assert (header.client_id, request.keys, request.entries) == ("client", [("t", 0)], [("t", 0, b"x")])
    other = encode_request_header(RequestHeader(ApiKey.METADATA, 1, 1, "c"))
    assert native.read_produce(memoryview(other), 0, len(other)) is None
    for start, end in ((-1, 5), (5, 4), (0, len(frame) + 1)):
        assert native.read_produce(memoryview(frame), start, end) is None


def test_records_lie_where_they_came_in() -> None:
    buffer = memoryview(bytearray(request_frame(7, "c", None, 1, [("t", 0, [(0, b"abc")])])))
    _, request = read_produce(7, buffer, 0, len(buffer))
    request.entries[0][2][0] = ord("X")
    assert b"Xbc" in bytes(buffer)


@settings(max_examples=300)
@given(
    version=st.sampled_from(VERSIONS),
    topics=st.lists(st.tuples(NAMES, st.integers(0, 5), st.lists(st.tuples(INT32, INT64), max_size=3)), max_size=4),
    throttle=st.integers(0, 2**31 - 1),
    times=st.tuples(INT64, INT64),
)
def test_an_answer_written_as_one_piece_is_what_the_general_encoder_writes(
    version: int, topics: list, throttle: int, times: tuple[int, int]
) -> None:
    keys, results = [], []
    for name, number, partitions in topics:
        for index, offset in partitions:
            keys.append((UUID(int=number).bytes if version >= SINCE_TOPIC_IDS else name, index))
            results.append((offset, offset, 5, *times))
    answer = CompactProduceResponse(keys, results)
    answer.throttle_time_ms = throttle
    frame = answer.frame(version, -3)
    assert frame == write_generally(answer, version, -3)
    correlation_id, position = decode_response_header(ApiKey.PRODUCE, version, frame, 4, len(frame))
    response = decode_response(ApiKey.PRODUCE, version, frame, position, len(frame))
    assert correlation_id == -3
    assert [p.base_offset for t in response.responses for p in t.partition_responses] == [r[0] for r in results]


@compiled
def test_what_is_no_success_is_left_to_the_general_encoder() -> None:
    assert native is not None
    good = (1, 1, 5, -1, 0)
    assert native.write_produced(7, 1, [("t", 0)], [(1, 2)], 0) is None
    assert native.write_produced(7, 1, [("t", 0)], [ValueError("no")], 0) is None  # type: ignore[list-item]
    assert native.write_produced(13, 1, [("t", 0)], [good], 0) is None
    assert native.write_produced(7, 1, [(b"t" * 16, 0)], [good], 0) is None
    with pytest.raises(TypeError):
        native.write_produced(7, 1, [("t", 0)], [], 0)


@compiled
def test_types_with_code_of_their_own_are_left_to_the_general_encoder() -> None:
    """A comparison or a conversion in Python could free the lists while compiled code reads them."""
    assert native is not None
    good = (1, 1, 5, -1, 0)

    class Clearing(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            keys.clear()
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    class Number:
        def __index__(self) -> int:
            keys.clear()
            return 1

    keys: list[tuple[str | bytes, int]] = [(Clearing("t"), 0), (Clearing("t"), 1), ("u", 0)]
    assert native.write_produced(7, 1, keys, [good] * 3, 0) is None
    for result in ((Number(), 1, 5, -1, 0), (1, 1, 5, Number(), 0), (1, 1, 5, -1, Number())):
        keys = [("t", 0)]
        assert native.write_produced(7, 1, keys, [result], 0) is None  # type: ignore[list-item]
    assert len(keys) == 1


@pytest.mark.parametrize("version", [7, 13])
def test_the_same_by_topics_and_back(version: int) -> None:
    topics = [("one", 1, [(0, b"abc"), (1, None)]), ("two", 2, [(3, b"x")])]
    frame = memoryview(request_frame(version, "c", None, 1, topics))
    _, request = read_produce(version, frame, 0, len(frame))
    keys, entries = request.keys, request.entries
    by_topic = request.topic_data
    assert [len(topic.partition_data) for topic in by_topic] == [2, 1]
    assert [topic.name for topic in by_topic] == (["one", "two"] if version < SINCE_TOPIC_IDS else ["", ""])
    request.topic_data = by_topic
    assert (request.keys, request.entries) == (keys, entries)
    request.topic_data = by_topic[1:]
    assert (request.keys, request.entries) == (keys[2:], [(*keys[2], b"x")])


def test_without_compiled_code_it_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = request_frame(13, "c", None, -1, [("", 5, [(0, b"abc")])])
    answer = CompactProduceResponse([(UUID(int=5).bytes, 0)], [(9, 9, 0, -1, 0)])
    expected = outcome(read_produce, 13, frame, 1 + len(frame)), answer.frame(13, 1)
    monkeypatch.setattr(produce_entries, "_read", None)
    monkeypatch.setattr(produce_entries, "_write", None)
    assert (outcome(read_produce, 13, frame, 1 + len(frame)), answer.frame(13, 1)) == expected
