"""Compiled codecs against the independent `construct` description, over every message and version."""

import random
from typing import Any, cast
from uuid import UUID, uuid4

import pytest
from tests.cases import in_one_test
from tests.protocol.message_constructs import construct_for, to_plain
from tests.protocol.random_messages import every_version, random_message

from barnabas.protocol import codec
from barnabas.protocol.apis import API_MESSAGES, ApiKey
from barnabas.protocol.compiler import decoder, encoder
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from barnabas.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

DEFAULT_EXAMPLES = 2
VERIFY_EXAMPLES = 30


def encoded(cls: type, message: object, version: int) -> bytes:
    pieces: list[bytes] = []
    encoder(cls, version)(message, pieces.append)
    return b"".join(pieces)


def check(name: str, cls: type, version: int, seed: int) -> None:
    message = random_message(cls, version, random.Random(f"{name} {seed}"))
    data = encoded(cls, message, version)
    described = construct_for(cls, version)
    assert described.build(to_plain(message, version)) == data, (name, seed)
    buffer = bytearray(b"before" + data + b"after")
    for view in (buffer, memoryview(buffer), bytes(buffer)):
        decoded, position = decoder(cls, version)(view, 6, 6 + len(data), 200_000)
        assert position == 6 + len(data), (name, seed)
        assert decoded == message, (name, seed)
    assert to_plain(decoded, version) == described.parse(data), (name, seed)


@in_one_test(("name", "cls", "version"), every_version())
def test_codecs_agree_with_construct(name: str, cls: type, version: int) -> None:
    for seed in range(DEFAULT_EXAMPLES):
        check(name, cls, version, seed)


@in_one_test("key", API_MESSAGES)
def test_a_long_response_has_the_bytes_of_any_other(key: ApiKey) -> None:
    cls = API_MESSAGES[key].response
    for version in range(API_MESSAGES[key].versions[0], API_MESSAGES[key].versions[1] + 1):
        message = random_message(cls, version, random.Random(f"{key} {version}"))
        assert b"".join(codec.encode_long_response(message, version)) == encoded(cls, message, version)
    with pytest.raises(ProtocolError, match="cannot carry its values"):
        codec.encode_long_response(MetadataResponse(brokers=None), 1)  # type: ignore[arg-type]


@pytest.mark.verify
@in_one_test(("name", "cls", "version"), every_version())
def test_codecs_agree_with_construct_at_length(name: str, cls: type, version: int) -> None:
    for seed in range(DEFAULT_EXAMPLES, VERIFY_EXAMPLES):
        check(name, cls, version, seed)


def test_request_and_response_share_versions() -> None:
    for spec in API_MESSAGES.values():
        request, response = cast(Any, spec.request), cast(Any, spec.response)
        assert request.__versions__ == response.__versions__
        assert request.__flexible__ == response.__flexible__


def test_golden_metadata_request_v9() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="abc")], include_topic_authorized_operations=True)
    data = codec.encode_request(request, 9)
    assert data == bytes.fromhex("02 04616263 00 01 00 01 00")
    assert codec.decode_request(ApiKey.METADATA, 9, data, 0, len(data)) == request


def test_golden_produce_request_v3() -> None:
    records = b"\x01\x02\x03"
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=2, records=records)])],
    )
    data = codec.encode_request(request, 3)
    assert data == bytes.fromhex("ffff ffff 000003e8 00000001 0001 74 00000001 00000002 00000003 010203")


def test_nullable_struct() -> None:
    with_cursor = DescribeTopicPartitionsRequest(cursor=Cursor(topic_name="t", partition_index=1))
    assert codec.encode_request(with_cursor, 0) == bytes.fromhex("01 000007d0 01 0274 00000001 00 00")
    assert codec.encode_request(DescribeTopicPartitionsRequest(), 0) == bytes.fromhex("01 000007d0 ff 00")


def test_records_are_views_of_the_input() -> None:
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=2, records=b"payload")])
    buffer = bytearray(codec.encode_request(ProduceRequest(topic_data=[topic]), 9))
    decoded = codec.decode_request(ApiKey.PRODUCE, 9, buffer, 0, len(buffer))
    view = decoded.topic_data[0].partition_data[0].records
    assert isinstance(view, memoryview)
    assert view == b"payload"
    view[0:3] = b"PAY"
    assert buffer.count(b"PAYload") == 1


def test_large_records_leave_uncopied() -> None:
    big, small = memoryview(bytearray(100_000)), b"small"
    partitions = [PartitionData(partition_index=0, records=big), PartitionData(partition_index=1, records=small)]
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])
    for version in range(13):
        buffers = codec.encode_response(response, version)
        assert any(buffer is big for buffer in buffers)
        assert len(buffers) == 3
        joined = b"".join(buffers)
        again = codec.decode_response(ApiKey.FETCH, version, joined, 0, len(joined))
        assert [bytes(p.records) for p in again.responses[0].partitions] == [bytes(big), small]


def test_value_that_the_version_cannot_carry() -> None:
    with pytest.raises(ProtocolError, match="include_cluster_authorized_operations"):
        codec.encode_request(MetadataRequest(include_cluster_authorized_operations=True), 7)
    with pytest.raises(ProtocolError, match="allow_auto_topic_creation"):
        codec.encode_request(MetadataRequest(allow_auto_topic_creation=False), 3)


def test_ignorable_value_is_dropped() -> None:
    request = FetchRequest(rack_id="a", session_epoch=4, max_bytes=1)
    data = codec.encode_request(request, 0)
    assert codec.decode_request(ApiKey.FETCH, 0, data, 0, len(data)) == FetchRequest()


def test_null_where_it_is_not_allowed() -> None:
    with pytest.raises(ProtocolError):
        codec.encode_request(MetadataRequest(topics=None), 0)
    with pytest.raises(ProtocolError):
        codec.encode_response(MetadataResponse(brokers=None), 1)  # type: ignore[arg-type]
    with pytest.raises(ProtocolError, match="topics must not be null"):
        codec.decode_request(ApiKey.METADATA, 0, b"\xff\xff\xff\xff", 0, 4)


@pytest.mark.parametrize("version", [-1, 14, 32767])
def test_unknown_version(version: int) -> None:
    with pytest.raises(ProtocolError):
        codec.decode_request(ApiKey.METADATA, version, b"", 0, 0)
    with pytest.raises(ProtocolError):
        codec.encode_request(MetadataRequest(), version)


def test_unknown_key() -> None:
    with pytest.raises(ProtocolError):
        codec.decode_request(9999, 0, b"", 0, 0)


def test_values_out_of_range() -> None:
    with pytest.raises(ProtocolError):
        codec.encode_request(FetchRequest(max_wait_ms=2**31), 4)
    with pytest.raises(ProtocolError):
        codec.encode_request(ProduceRequest(transactional_id="x" * 40_000), 3)
    with pytest.raises(ProtocolError):
        codec.encode_request(ProduceRequest(transactional_id="\ud800"), 9)


def test_uuid_equals_its_own_kind() -> None:
    topic_id = uuid4()
    request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic_id, name=None)])
    data = codec.encode_request(request, 12)
    decoded = codec.decode_request(ApiKey.METADATA, 12, data, 0, len(data)).topics[0].topic_id
    assert decoded == topic_id
    assert hash(decoded) == hash(topic_id)
    assert str(decoded) == str(topic_id)
    assert isinstance(decoded, UUID)
