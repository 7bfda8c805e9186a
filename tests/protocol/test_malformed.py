"""Bytes that nobody should send: a decoder answers with a message or with `ProtocolError`, soon, and nothing else."""

import contextlib
import random
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protocol.random_messages import random_message

from barnabas.protocol import codec
from barnabas.protocol.apis import API_MESSAGES, ApiKey
from barnabas.protocol.compiled_support import MAX_ARRAY_ELEMENTS, uvarint
from barnabas.protocol.compiler import encoder
from barnabas.protocol.coordinator_records import AssignedTopic
from barnabas.protocol.errors import ErrorCode, KafkaError, ProtocolError
from barnabas.protocol.headers import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
)
from barnabas.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from barnabas.protocol.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from barnabas.protocol.produce_entries import MAX_PARTITIONS
from barnabas.protocol.share_group_records import ShareGroupTargetAssignmentMemberValue

VERSIONS = [(key, version) for key, spec in API_MESSAGES.items() for version in spec.versions.numbers()]
SPECIAL_BYTES = (0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF)
MAX_SECONDS = 5.0


def try_decode(key: int, version: int, data: bytes, response: bool) -> None:
    decode = codec.decode_response if response else codec.decode_request
    for buffer in (data, memoryview(bytearray(data))):
        started = time.process_time()
        with contextlib.suppress(ProtocolError):
            decode(key, version, buffer, 0, len(data))
        assert time.process_time() - started < MAX_SECONDS


def sample(key: ApiKey, version: int, seed: object, response: bool) -> bytes:
    cls = API_MESSAGES[key].response if response else API_MESSAGES[key].request
    pieces: list[bytes] = []
    encoder(cls, version)(random_message(cls, version, random.Random(f"{seed}")), pieces.append)
    return b"".join(pieces)


@pytest.mark.parametrize("response", [False, True], ids=["request", "response"])
def test_truncated_messages(response: bool) -> None:
    for key, version in VERSIONS:
        data = sample(key, version, f"{key} {version}", response)[:400]
        decode = codec.decode_response if response else codec.decode_request
        end = random.Random(f"{key} {version}").randrange(len(data) + 1)
        try_decode(key, version, data[:end], response)
        # The same bytes follow in the buffer, as the next frame would: they must not be taken for this message's.
        try:
            decode(key, version, data, 0, end)
        except ProtocolError:
            continue
        decode(key, version, data[:end], 0, end)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(VERSIONS), st.booleans(), st.integers(0, 2**32), st.data())
def test_mutated_messages(version: tuple[ApiKey, int], response: bool, seed: int, data: st.DataObject) -> None:
    key, api_version = version
    body = bytearray(sample(key, api_version, seed, response))
    for _ in range(data.draw(st.integers(1, 6))):
        if body:
            position = data.draw(st.integers(0, len(body) - 1))
            body[position] = data.draw(st.sampled_from(SPECIAL_BYTES) | st.integers(0, 255))
    try_decode(key, api_version, bytes(body), response)


@pytest.mark.verify
@pytest.mark.parametrize("key", API_MESSAGES, ids=lambda key: key.name)
def test_mutated_messages_at_length(key: ApiKey) -> None:
    rng = random.Random(key.name)
    spec = API_MESSAGES[key]
    for _ in range(3000):
        version = rng.randint(spec.versions.first, spec.versions.last)
        response = rng.random() < 0.5
        body = bytearray(sample(key, version, rng.random(), response))
        for _ in range(rng.randint(1, 6)):
            if body:
                body[rng.randrange(len(body))] = rng.choice((*SPECIAL_BYTES, rng.randrange(256)))
        if rng.random() < 0.3:
            del body[rng.randrange(len(body) + 1) :]
        try_decode(key, version, bytes(body), response)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(VERSIONS), st.booleans(), st.binary(max_size=200))
def test_noise(version: tuple[ApiKey, int], response: bool, data: bytes) -> None:
    try_decode(*version, data, response)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80))
def test_noise_as_headers(data: bytes) -> None:
    for decode in (
        lambda: decode_request_header(data, 0, len(data)),
        lambda: decode_response_header(ApiKey.METADATA, 9, data, 0, len(data)),
    ):
        try:
            _, position = decode()
        except ProtocolError:
            continue
        assert position <= len(data)


def test_count_beyond_the_bytes_left() -> None:
    with pytest.raises(ProtocolError, match="topics"):
        codec.decode_request(ApiKey.METADATA, 1, b"\x7f\xff\xff\xff" + bytes(100), 0, 104)


def test_object_budget() -> None:
    names = codec.REQUEST_OBJECT_BUDGET + 1
    data = names.to_bytes(4, "big") + bytes(2 * names)
    with pytest.raises(ProtocolError, match="topics"):
        codec.decode_request(ApiKey.METADATA, 1, data, 0, len(data))
    names = codec.REQUEST_OBJECT_BUDGET
    data = names.to_bytes(4, "big") + bytes(2 * names)
    assert len(codec.decode_request(ApiKey.METADATA, 1, data, 0, len(data)).topics) == names


@pytest.mark.parametrize("key", [ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA])
def test_a_controller_may_tell_of_ten_thousand_partitions_at_once(key: ApiKey) -> None:
    replicas: dict[str, Any] = {"isr": [1, 2, 3], "replicas": [1, 2, 3]}
    if key is ApiKey.LEADER_AND_ISR:
        orders = [LeaderAndIsrPartitionState(partition_index=one, **replicas) for one in range(10_000)]
        request: object = LeaderAndIsrRequest(topic_states=[LeaderAndIsrTopicState(partition_states=orders)])
    else:
        told = [UpdateMetadataPartitionState(partition_index=one, **replicas) for one in range(10_000)]
        request = UpdateMetadataRequest(topic_states=[UpdateMetadataTopicState(partition_states=told)])
    data = codec.encode_request(request, 7)
    (topic,) = codec.decode_request(key, 7, data, 0, len(data)).topic_states
    assert len(topic.partition_states) == 10_000


def test_object_budget_covers_nested_arrays() -> None:
    resource = bytes.fromhex("01 0000 00000002 0000 0000")
    for resources, legal in ((16_000, True), (17_000, False)):
        data = resources.to_bytes(4, "big") + resource * resources
        if legal:
            assert len(codec.decode_request(ApiKey.DESCRIBE_CONFIGS, 0, data, 0, len(data)).resources) == resources
        else:
            with pytest.raises(ProtocolError, match="configuration_keys"):
                codec.decode_request(ApiKey.DESCRIBE_CONFIGS, 0, data, 0, len(data))


def test_a_response_has_a_million_items_in_one_array_at_most() -> None:
    """As in Kafka 4.4; the arrays of a message may have more in total."""
    rows = MAX_ARRAY_ELEMENTS
    for count, legal in ((rows, True), (rows + 1, False)):
        head = bytes(2) + count.to_bytes(4, "big")
        for key, version, row, name in (
            (ApiKey.API_VERSIONS, 0, 6, "api_keys"),
            (ApiKey.SASL_HANDSHAKE, 1, 2, "mechanisms"),
        ):
            data = head + bytes(row * count)
            if legal:
                assert len(getattr(codec.decode_response(key, version, data, 0, len(data)), name)) == count
            else:
                with pytest.raises(ProtocolError, match=f"{count} {name} exceed the maximum of {rows} in one array"):
                    codec.decode_response(key, version, data, 0, len(data))


def test_a_stored_record_has_a_million_numbers_in_one_array_at_most() -> None:
    value = ShareGroupTargetAssignmentMemberValue(topic_partitions=[AssignedTopic(), AssignedTopic()])
    for count, legal in ((MAX_ARRAY_ELEMENTS, True), (MAX_ARRAY_ELEMENTS + 1, False)):
        value.topic_partitions[1].partitions = [7] * count
        data = codec.encode_versioned(value, 0)
        if legal:
            assert codec.decode_versioned(ShareGroupTargetAssignmentMemberValue, data) == value
        else:
            with pytest.raises(ProtocolError, match=f"{count} partitions exceed the maximum"):
                codec.decode_versioned(ShareGroupTargetAssignmentMemberValue, data)


def test_no_request_reaches_the_limit_of_an_array() -> None:
    """The C decoder of Produce has a limit of its own, and every other request a budget for all of its lists."""
    assert max(codec.REQUEST_OBJECT_BUDGET, codec.ORDER_OBJECT_BUDGET, MAX_PARTITIONS) < MAX_ARRAY_ELEMENTS


@pytest.mark.parametrize("where", ["header", "struct without tags", "struct with tags"])
def test_ten_thousand_tagged_fields_are_refused_at_once(where: str) -> None:
    tags = uvarint(10_001) + b"".join(uvarint(tag) + b"\0" for tag in range(100, 10_101))
    if where == "header":
        data = encode_request_header(RequestHeader(ApiKey.METADATA, 12, 1, "c"))[:-1] + tags
    elif where == "struct without tags":
        data = bytes.fromhex("00 01 00") + tags
    else:
        data = bytes.fromhex("ffffffff 00000000 00000000 00000000 00 00000000 ffffffff 01 01 01") + tags
    with pytest.raises(ProtocolError, match="unknown tagged fields exceed the maximum of 64"):
        if where == "header":
            decode_request_header(data, 0, len(data))
        else:
            codec.decode_request(ApiKey.FETCH if "with tags" in where else ApiKey.METADATA, 12, data, 0, len(data))


@pytest.mark.parametrize(
    ("tags", "legal"),
    [
        ("00", True),
        ("01 05 02 abcd", True),
        ("02 05 00 06 00", True),
        ("02 06 00 05 00", False),
        ("02 05 00 05 00", False),
        ("01 05 03 abcd", False),
        ("01 05", False),
        ("ff ff ff ff 7f", False),
        ("01 05 ff ff ff ff 0f", False),
        ("40" + "".join(f"{tag:02x}00" for tag in range(64)), True),
        ("41" + "".join(f"{tag:02x}00" for tag in range(65)), False),
    ],
)
def test_tag_sections(tags: str, legal: bool) -> None:
    data = bytes.fromhex("00 01 00" + tags)
    if legal:
        assert codec.decode_request(ApiKey.METADATA, 12, data, 0, len(data)).topics is None
    else:
        with pytest.raises(ProtocolError):
            codec.decode_request(ApiKey.METADATA, 12, data, 0, len(data))


@pytest.mark.parametrize(
    ("tags", "legal"),
    [
        ("01 00 02 0261", True),  # cluster id "a"
        ("01 00 03 026100", False),  # its size says one byte more
        ("01 00 01 02", False),  # one byte less
        ("02 00 02 0261 32 01 aa", True),  # and an unknown tag after it
        ("02 32 01 aa 00 02 0261", False),
        ("01 00 02 05 61", False),
    ],
)
def test_known_tags(tags: str, legal: bool) -> None:
    data = bytes.fromhex("ffffffff 00000000 00000000 00000000 00 00000000 ffffffff 01 01 01" + tags)
    if legal:
        assert codec.decode_request(ApiKey.FETCH, 12, data, 0, len(data)).cluster_id == "a"
    else:
        with pytest.raises(ProtocolError):
            codec.decode_request(ApiKey.FETCH, 12, data, 0, len(data))


def test_invalid_utf8() -> None:
    with pytest.raises(ProtocolError):
        codec.decode_request(ApiKey.METADATA, 1, bytes.fromhex("00000001 0002 c328"), 0, 8)


@pytest.mark.parametrize("length", ["fffe", "8000", "ffff"])
def test_negative_string_length(length: str) -> None:
    data = bytes.fromhex("00000001" + length)
    with pytest.raises(ProtocolError):
        codec.decode_request(ApiKey.METADATA, 1, data, 0, len(data))


def test_a_string_is_no_longer_in_flexible_versions() -> None:
    """What is 32 768 bytes long would be known by a name that no record of a coordinator can hold."""
    for length in (2**15 - 1, 2**15, 2**20):
        data = codec.encode_request(FindCoordinatorRequest(key="ж" * (length // 2) + "x" * (length % 2)), 3)
        if length < 2**15:
            assert len(codec.decode_request(ApiKey.FIND_COORDINATOR, 3, data, 0, len(data)).key.encode()) == length
        else:
            with pytest.raises(ProtocolError, match=f"length {length} of"):
                codec.decode_request(ApiKey.FIND_COORDINATOR, 3, data, 0, len(data))


@pytest.mark.parametrize("version", [4, 7])
def test_what_is_wrong_with_a_name_can_be_told_however_long_it_is(version: int) -> None:
    error = KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"there is no topic {'🛑' * 8190}")
    row = CreatableTopicResult(name="", error_code=error.code, error_message=error.message, configs=[])
    data = b"".join(codec.encode_response(CreateTopicsResponse(topics=[row]), version))
    told = codec.decode_response(ApiKey.CREATE_TOPICS, version, data, 0, len(data)).topics[0].error_message
    assert (told[:17], told[-2:]) == ("there is no topic", "🛑…")


def test_end_outside_the_buffer() -> None:
    with pytest.raises(ProtocolError):
        codec.decode_request(ApiKey.METADATA, 1, bytes(8), 0, 9)


def test_bytes_after_the_body_are_ignored() -> None:
    data = bytes.fromhex("00000000 ffff")
    assert codec.decode_request(ApiKey.METADATA, 1, data, 0, len(data)).topics == []
