"""Request and response headers in all their versions, and version negotiation."""

import pytest
from tests.protocol import message_constructs

from barnabas.protocol.apis import API_MESSAGES, ApiKey
from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError
from barnabas.protocol.headers import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
    request_header_version,
    response_front,
    response_header_version,
)
from barnabas.protocol.negotiation import negotiate
from barnabas.protocol.schema import Versions
from barnabas.protocol.topic_partition import TopicPartition

EVERY_VERSION = [(key, version) for key, spec in API_MESSAGES.items() for version in spec.versions.numbers()]


@pytest.mark.parametrize("client_id", ["client-1", "", None, "ü" * 200])
def test_request_headers_agree_with_construct(client_id: str | None) -> None:
    for key, version in EVERY_VERSION:
        header = RequestHeader(key, version, 77, client_id)
        header_version = request_header_version(key, version)
        described = message_constructs.request_header(header_version)
        data = encode_request_header(header)
        assert data == described.build(header._asdict())
        buffer = bytearray(b"??" + data + b"body")
        decoded, position = decode_request_header(buffer, 2, len(buffer))
        assert decoded == (header if header_version else RequestHeader(key, version, 77, None))
        assert buffer[position:] == b"body"


def test_response_headers_agree_with_construct() -> None:
    for key, version in EVERY_VERSION:
        data = encode_response_header(key, version, -5)
        assert data == message_constructs.response_header(response_header_version(key, version)).build(
            {"correlation_id": -5}
        )
        assert decode_response_header(key, version, b"?" + data + b"body", 1, 1 + len(data)) == (-5, 1 + len(data))


def test_an_answer_begins_with_its_size_and_header() -> None:
    for key, version in EVERY_VERSION:
        write, size = response_front(key, version)
        assert write(300, -5) == (300).to_bytes(4, "big") + encode_response_header(key, version, -5)
        assert len(write(300, -5)) == size


def test_unknown_tags_are_skipped() -> None:
    data = encode_request_header(RequestHeader(ApiKey.METADATA, 9, 1, "c"))[:-1] + bytes.fromhex("01 07 02 aabb")
    assert decode_request_header(data, 0, len(data)) == (RequestHeader(ApiKey.METADATA, 9, 1, "c"), len(data))
    data = encode_response_header(ApiKey.METADATA, 9, 1)[:-1] + bytes.fromhex("01 07 02 aabb")
    assert decode_response_header(ApiKey.METADATA, 9, data, 0, len(data)) == (1, len(data))


def test_api_versions_of_the_future_needs_eight_bytes_only() -> None:
    data = bytes.fromhex("0012 7fff 00000009") + b"\x99\x99 whatever the future brings"
    assert decode_request_header(data, 0, len(data))[0] == RequestHeader(ApiKey.API_VERSIONS, 32767, 9, None)


def test_api_versions_answers_with_the_plain_header() -> None:
    assert [response_header_version(ApiKey.API_VERSIONS, version) for version in range(5)] == [0] * 5


def test_unknown_key_has_a_readable_header() -> None:
    data = bytes.fromhex("7000 0001 00000009 0001 61")
    assert decode_request_header(data, 0, len(data)) == (RequestHeader(0x7000, 1, 9, "a"), len(data))


@pytest.mark.parametrize(
    "data",
    [
        "",
        "0003 0001 000000",
        "0003 0001 00000001",
        "0003 0001 00000001 00",
        "0003 0001 00000001 0002 61",
        "0003 0001 00000001 fffe",
        "0003 0001 00000001 0001 ff",
        "0003 0009 00000001 0001 61",
        "0003 0009 00000001 0001 61 01 00 05",
    ],
)
def test_malformed_request_headers(data: str) -> None:
    header = bytes.fromhex(data)
    for padding in (b"", bytes(50)):
        with pytest.raises(ProtocolError):
            decode_request_header(header + padding, 0, len(header))


@pytest.mark.parametrize("data", ["", "000000", "00000001", "00000001 01 00 05"])
def test_malformed_response_headers(data: str) -> None:
    header = bytes.fromhex(data)
    for padding in (b"", bytes(50)):
        with pytest.raises(ProtocolError):
            decode_response_header(ApiKey.METADATA, 9, header + padding, 0, len(header))


@pytest.mark.parametrize(
    ("ours", "theirs", "version"),
    [((0, 5), (3, 9), 5), ((3, 9), (0, 5), 5), ((0, 2), (3, 9), None), ((4, 4), (4, 4), 4), ((5, 9), (0, 4), None)],
)
def test_negotiation(ours: tuple[int, int], theirs: tuple[int, int], version: int | None) -> None:
    assert negotiate(Versions(*ours), Versions(*theirs)) == version


def test_topic_partition_prints_as_its_folder() -> None:
    assert str(TopicPartition("a-b", 12)) == "a-b-12"
    assert TopicPartition("a", 1) == ("a", 1)


def test_kafka_error_names_its_code() -> None:
    error = KafkaError(ErrorCode.INVALID_REQUEST, "two of them")
    assert str(error) == "INVALID_REQUEST: two of them"
    assert str(KafkaError(ErrorCode.NOT_CONTROLLER)) == "NOT_CONTROLLER"
    assert not error.code.retriable
    assert ErrorCode.NOT_CONTROLLER.retriable
