"""Equal fetch requests: what is compared of them, and the frames of a response for several of them."""

from __future__ import annotations

import random
import struct
from typing import Any
from uuid import UUID

import pytest
from tests.cases import in_one_test
from tests.frames import request_body

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.codec import decode_request, decode_response, encode_response
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.headers import decode_request_header, decode_response_header, encode_response_header
from barnabas.protocol.joint_fetch import (
    FIRST_VERSION,
    JOINED_BYTES,
    LAST_VERSION,
    MAX_REQUEST_BYTES,
    EqualFetch,
    RecordsResponse,
    RepeatedFetch,
    SharedFetchResponse,
    read_equal_fetch,
)
from barnabas.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    NodeEndpoint,
    PartitionData,
    ReplicaState,
)

VERSIONS = range(FIRST_VERSION, LAST_VERSION + 1)
TOPIC_ID = UUID(int=7)


def request(version: int, offset: int = 5, **options: Any) -> FetchRequest:
    partition = FetchPartition(partition=1, fetch_offset=offset, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic="t" if version < 13 else "", topic_id=TOPIC_ID, partitions=[partition])
    return FetchRequest(max_wait_ms=500, min_bytes=1, topics=[topic], **options)


def frame(version: int, message: FetchRequest, *, correlation_id: int = 3, client_id: str | None = "c") -> bytes:
    return bytes(request_body(ApiKey.FETCH, version, message, correlation_id=correlation_id, client_id=client_id))


def read(data: bytes, before: bytes = b"") -> EqualFetch | None:
    buffer = memoryview(bytearray(before + data + b"\0" * 20))
    return read_equal_fetch(buffer, len(before), len(before) + len(data))


def ids(session_id: int, epoch: int) -> dict[str, int]:
    return {"session_id": session_id, "session_epoch": epoch}


@in_one_test("version", VERSIONS)
def test_requests_with_other_ids_are_equal(version: int) -> None:
    first = read(frame(version, request(version, **ids(7, 1))))
    assert first is not None
    assert (first.correlation_id, first.session_id, first.session_epoch) == (3, 7, 1)
    for client_id in (None, "", "c" * 40, "müller"):
        for session_id, epoch in ((1, 1), (2**31 - 1, 2**31 - 1)):
            other = frame(version, request(version, **ids(session_id, epoch)), correlation_id=-9, client_id=client_id)
            found = read(other, b"before")
            assert found == EqualFetch(first.key, -9, session_id, epoch)


@in_one_test("version", VERSIONS)
def test_requests_that_differ_otherwise_have_other_keys(version: int) -> None:
    made = [
        request(version),
        request(version, 6),
        request(version, isolation_level=1),
        request(version, max_bytes=9),
        FetchRequest(max_wait_ms=500, min_bytes=1),
    ]
    made.append(request(version))
    made[-1].max_wait_ms += 1
    made.append(request(version))
    made[-1].min_bytes += 1
    if version < 15:
        made.append(request(version, replica_id=2))
    else:
        made.append(request(version, replica_state=ReplicaState(replica_id=2, replica_epoch=1)))
    if version >= 11:
        made.append(request(version, rack_id="r"))
    if version >= 9:
        made.append(request(version))
        made[-1].topics[0].partitions[0].current_leader_epoch = 4
    found = [read(frame(version, one)) for one in made]
    assert all(found)
    assert len({one.key for one in found if one is not None}) == len(made)


def test_versions_have_other_keys() -> None:
    found = [read(frame(version, request(version))) for version in VERSIONS]
    assert len({one.key for one in found if one is not None}) == len(VERSIONS)


@in_one_test("version", VERSIONS)
@in_one_test(
    ("session_id", "epoch", "is_compared"),
    [(0, -1, True), (7, 1, True), (0, 0, False), (7, 0, False), (7, -1, False), (7, -2, False), (0, 1, False)],
)
def test_requests_that_open_or_close_a_session_are_not_compared(
    version: int, session_id: int, epoch: int, is_compared: bool
) -> None:
    found = read(frame(version, request(version, **ids(session_id, epoch))))
    assert (found is not None) is is_compared


@in_one_test("version", VERSIONS)
def test_hostile_requests_are_not_read_beyond_their_end(version: int) -> None:
    good = frame(version, request(version, **ids(7, 1)))
    for end in range(len(good)):
        found = read(good[:end])
        assert found is None or found.session_id == 7, "everything before the key is there"
    for length in (-2, -(2**15), len(good), 2**15 - 1):
        assert read(good[:8] + struct.pack(">h", length) + good[10:]) is None
    assert read(good[:10] + b"\xff" + good[11:]) is None, "the client id is not UTF-8"
    assert read(good + b"\0" * MAX_REQUEST_BYTES) is None
    if version >= 12:
        assert read(good[:11] + b"\1\0\0" + good[12:]) is None, "tagged fields of the header"
    rng = random.Random(version)
    for _ in range(300):
        changed = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        read(bytes(changed))


def responses(version: int) -> list[FetchResponse]:
    made = [FetchResponse()]
    for records in (b"", b"r" * 300, memoryview(b"r" * 10_000)):
        data = PartitionData(partition_index=1, high_watermark=9, last_stable_offset=8, records=records)
        data.aborted_transactions = [AbortedTransaction(producer_id=4, first_offset=2)]
        if version >= 12:
            data.current_leader.leader_id = 3
        topic = FetchableTopicResponse(topic="t" if version < 13 else "", topic_id=TOPIC_ID, partitions=[data])
        made.append(FetchResponse(responses=[topic]))
    for size in (JOINED_BYTES // 2, JOINED_BYTES):
        data = PartitionData(partition_index=1, high_watermark=9, records=b"r" * size)
        topic = FetchableTopicResponse(topic="t" if version < 13 else "", topic_id=TOPIC_ID, partitions=[data])
        made.append(FetchResponse(responses=[topic]))
    if version >= 16:
        made[-1].node_endpoints = [NodeEndpoint(node_id=3, host="h", port=4)]
    return made


@in_one_test("version", VERSIONS)
def test_a_frame_is_that_of_the_general_encoder(version: int) -> None:
    for response in responses(version):
        shared = SharedFetchResponse(response, version)
        for correlation_id, session_id in ((1, 0), (-5, 2**31 - 1)):
            parts, size = shared.frame(correlation_id, session_id)
            made = b"".join(parts)
            response.session_id = session_id
            expected = b"".join(
                (encode_response_header(ApiKey.FETCH, version, correlation_id), *encode_response(response, version))
            )
            assert made == struct.pack(">i", len(expected)) + expected
            assert size == len(made)
            found, position = decode_response_header(ApiKey.FETCH, version, made, 4, size)
            assert found == correlation_id
            assert decode_response(ApiKey.FETCH, version, made, position, size).session_id == session_id


NAMES = ("t", "n" * 126, "n" * 127, "n" * 249)


def named(version: int, name: str, offset: int, **options: Any) -> FetchRequest:
    made = request(version, offset, **options)
    if version < 13:
        made.topics[0].topic = name
    return made


def repeated(data: bytes, message: FetchRequest) -> RepeatedFetch:
    return RepeatedFetch(memoryview(bytearray(b"before" + data)), 6, 6 + len(data), message)


def read_repeated(one: RepeatedFetch, data: bytes) -> tuple[int, int, int] | None:
    return one.read(memoryview(bytearray(data + b"\0" * 20)), 0, len(data))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_repeated_request_has_the_values_of_the_codec(version: int) -> None:
    for name in NAMES:
        for client_id in (None, "", "müller"):
            message = named(version, name, 5, **ids(7, 1))
            kept = repeated(frame(version, message, client_id=client_id), message)
            for correlation_id, epoch, offset in ((3, 1, 5), (-9, 2**31 - 1, 2**63 - 1), (2**31 - 1, -1, -(2**63))):
                again = named(version, name, offset, **ids(7, epoch))
                data = frame(version, again, correlation_id=correlation_id, client_id=client_id)
                assert read_repeated(kept, data) == (correlation_id, epoch, offset)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_changed_request_is_no_repetition_unless_the_codec_agrees(version: int) -> None:
    def values(data: bytes) -> tuple[int, int, int, FetchRequest] | None:
        """The values of the codec, and the rest of the request."""
        try:
            header, position = decode_request_header(data, 0, len(data))
            found = decode_request(header.api_key, header.api_version, data, position, len(data))
        except ProtocolError:
            return None
        if not isinstance(found, FetchRequest) or len(found.topics) != 1 or len(found.topics[0].partitions) != 1:
            return None
        (partition,) = found.topics[0].partitions
        result = header.correlation_id, found.session_epoch, partition.fetch_offset
        found.session_epoch, partition.fetch_offset = 1, 5
        return *result, found

    message = request(version, **ids(7, 1))
    good = frame(version, message)
    decoded = values(good)
    assert decoded is not None
    kept = repeated(good, message)
    accepted, rng = 0, random.Random(version)
    for _ in range(2000):
        changed = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        found = read_repeated(kept, bytes(changed))
        if found is not None:
            assert values(bytes(changed)) == (*found, decoded[3])
            accepted += 1
    assert 50 < accepted < 1900
    for data in (good[:-1], good + b"\0", b"", b"before"):
        assert read_repeated(kept, data) is None


def test_a_request_in_another_encoding_is_not_kept() -> None:
    message = request(12, **ids(7, 1))
    good = frame(12, message)
    for other in (good + b"\0", good[:-1] + b"\1\x70\0", good + b"\0" * MAX_REQUEST_BYTES):
        with pytest.raises(ValueError, match="encoding"):
            repeated(other, message)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_response_with_records_is_that_of_the_general_encoder(version: int) -> None:
    for name in NAMES:
        for aborted in (None, list[AbortedTransaction]()):
            topic = FetchableTopicResponse(topic=name if version < 13 else "", topic_id=TOPIC_ID)
            is_committed = aborted is not None
            made = RecordsResponse(version, TOPIC_ID if version >= 13 else name, 3, is_read_committed=is_committed)
            for size in (1, 126, 127, 16_382, 16_383, 60_000):
                data = PartitionData(partition_index=3, high_watermark=2**62, last_stable_offset=8, log_start_offset=1)
                data.aborted_transactions, data.records = aborted, b"r" * size
                topic.partitions = [data]
                response = FetchResponse(session_id=2**31 - 1, responses=[topic])
                expected = encode_response_header(ApiKey.FETCH, version, -5)
                expected += b"".join(encode_response(response, version))
                offsets = data.high_watermark, data.last_stable_offset, data.log_start_offset
                found = made.frame(-5, response.session_id, offsets, data.records)
                assert found == struct.pack(">i", len(expected)) + expected
