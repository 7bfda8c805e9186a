"""Equal fetch requests: what is compared of them, and the frames of a response for several of them."""

from __future__ import annotations

import random
import struct
from typing import Any
from uuid import UUID

import pytest
from tests.frames import request_body

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.codec import decode_response, encode_response
from barnabas.protocol.headers import decode_response_header, encode_response_header
from barnabas.protocol.joint_fetch import (
    FIRST_VERSION,
    LAST_VERSION,
    MAX_REQUEST_BYTES,
    EqualFetch,
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


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_with_other_ids_are_equal(version: int) -> None:
    first = read(frame(version, request(version, **ids(7, 1))))
    assert first is not None
    assert (first.correlation_id, first.session_id, first.session_epoch) == (3, 7, 1)
    for client_id in (None, "", "c" * 40, "müller"):
        for session_id, epoch in ((1, 1), (2**31 - 1, 2**31 - 1)):
            other = frame(version, request(version, **ids(session_id, epoch)), correlation_id=-9, client_id=client_id)
            found = read(other, b"before")
            assert found == EqualFetch(first.key, -9, session_id, epoch)


@pytest.mark.parametrize("version", VERSIONS)
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


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("session_id", "epoch", "is_compared"),
    [(0, -1, True), (7, 1, True), (0, 0, False), (7, 0, False), (7, -1, False), (7, -2, False), (0, 1, False)],
)
def test_requests_that_open_or_close_a_session_are_not_compared(
    version: int, session_id: int, epoch: int, is_compared: bool
) -> None:
    found = read(frame(version, request(version, **ids(session_id, epoch))))
    assert (found is not None) is is_compared


@pytest.mark.parametrize("version", VERSIONS)
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
    if version >= 16:
        made[-1].node_endpoints = [NodeEndpoint(node_id=3, host="h", port=4)]
    return made


@pytest.mark.parametrize("version", VERSIONS)
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
