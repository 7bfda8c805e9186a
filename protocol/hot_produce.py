"""Produce by hand: the request of one topic and one partition, and the answer that all went well."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from struct import Struct
from typing import Any

from .compiled_support import as_uuid, long_uvarint, new, structure
from .compiler import Decoder, Encoder
from .messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from .schema import ZERO_UUID

_LONGEST_NAME = 126
"""UTF-8 bytes of a topic name up to which its length is one byte, compact or not."""
_NO_TAGS = (0, 0, 0)
_three_tag_counts = Struct(">BBB").unpack_from


def produce_request_decoder(version: int, general: Decoder) -> Decoder:
    """A decoder of ProduceRequest in that version; `general` is the compiled one."""
    if version < 3:
        return general
    if version < 9:
        return _classic_produce_decoder(general)
    return _named_produce_decoder(general) if version < 13 else _identified_produce_decoder(general)


def _topic(name: str, topic_id: Any, index: int, records: Any) -> TopicProduceData:
    partition = new(PartitionProduceData)
    partition.index = index
    partition.records = records
    topic = new(TopicProduceData)
    topic.name = name
    topic.topic_id = topic_id
    topic.partition_data = [partition]
    return topic


def _request(acks: int, timeout_ms: int, topic: TopicProduceData) -> ProduceRequest:
    request = new(ProduceRequest)
    request.transactional_id = None
    request.acks = acks
    request.timeout_ms = timeout_ms
    request.topic_data = [topic]
    return request


def _classic_produce_decoder(general: Decoder) -> Decoder:
    head = Struct(">hhiih").unpack_from  # transactional id (-1), acks, timeout, topics, length of name
    rest = Struct(">iii").unpack_from  # partitions, index, length of records

    def decode(buf: Any, p: int, end: int, budget: int) -> tuple[Any, int]:
        if end - p >= 26:
            no_id, acks, timeout_ms, topics, length = head(buf, p)
            q = p + 14 + length
            if no_id == -1 and topics == 1 and length >= 0 and q + 12 <= end:
                partitions, index, size = rest(buf, q)
                r = q + 12 + size
                if partitions == 1 and size >= 0 and r <= end:
                    name = str(buf[p + 14 : q], "utf-8")
                    records = memoryview(buf)[q + 12 : r]
                    return _request(acks, timeout_ms, _topic(name, ZERO_UUID, index, records)), r
        return general(buf, p, end, budget)

    return decode


def _named_produce_decoder(general: Decoder) -> Decoder:
    head = Struct(">BhiBB").unpack_from  # transactional id (0), acks, timeout, topics + 1, length of name + 1
    rest = Struct(">BiB").unpack_from  # partitions + 1, index, length of records + 1

    def decode(buf: Any, p: int, end: int, budget: int) -> tuple[Any, int]:
        if end - p >= 18:
            no_id, acks, timeout_ms, topics, length = head(buf, p)
            q = p + 8 + length
            if no_id == 0 and topics == 2 and 0 < length < 128 and q + 9 <= end:
                partitions, index, size = rest(buf, q)
                start = q + 6
                if size > 127:
                    size, start = long_uvarint(buf, start, size)
                r = start + size - 1
                if partitions == 2 and size > 0 and r + 3 <= end and _three_tag_counts(buf, r) == _NO_TAGS:
                    name = str(buf[p + 9 : q], "utf-8")
                    records = memoryview(buf)[start:r]
                    return _request(acks, timeout_ms, _topic(name, ZERO_UUID, index, records)), r + 3
        return general(buf, p, end, budget)

    return decode


def _identified_produce_decoder(general: Decoder) -> Decoder:
    head = Struct(">BhiB16sBiB").unpack_from  # the named layout with the topic id for the name, as one piece

    def decode(buf: Any, p: int, end: int, budget: int) -> tuple[Any, int]:
        if end - p >= 33:
            no_id, acks, timeout_ms, topics, topic_id, partitions, index, size = head(buf, p)
            if no_id == 0 and topics == 2 and partitions == 2:
                start = p + 30
                if size > 127:
                    size, start = long_uvarint(buf, start, size)
                r = start + size - 1
                if size > 0 and r + 3 <= end and _three_tag_counts(buf, r) == _NO_TAGS:
                    records = memoryview(buf)[start:r]
                    return _request(acks, timeout_ms, _topic("", as_uuid(topic_id), index, records)), r + 3
        return general(buf, p, end, budget)

    return decode


def produce_response_encoder(version: int, general: Encoder) -> Encoder:
    """An encoder of ProduceResponse in that version; `general` is the compiled one."""
    if version < 5:
        return general
    if version < 9:
        return _classic_response_encoder(version, general)
    return _flexible_response_encoder(version, general)


def _only_success(response: ProduceResponse) -> TopicProduceResponse | None:
    """The one topic of an answer that reports one success and nothing else."""
    topics = response.responses
    if len(topics) == 1 and not response.node_endpoints and len(topics[0].partition_responses) == 1:
        answer = topics[0].partition_responses[0]
        leader = answer.current_leader
        if (
            answer.error_code == 0
            and answer.error_message is None
            and not answer.record_errors
            and leader.leader_epoch == leader.leader_id == -1
        ):
            return topics[0]
    return None


def _classic_response_encoder(version: int, general: Encoder) -> Encoder:
    # From 8 on: no record errors, no error message.
    constant = b"\0\0\0\0\xff\xff" if version == 8 else b""

    @cache
    def packer(length: int) -> Callable[..., bytes]:
        return structure(f"ih{length}siihqqq{len(constant)}si").pack

    def encode(response: Any, w: Callable[[Any], None]) -> None:
        topic = _only_success(response)
        if topic is not None:
            name = topic.name.encode()
            length = len(name)
            if length <= _LONGEST_NAME:
                answer = topic.partition_responses[0]
                w(
                    packer(length)(
                        1,
                        length,
                        name,
                        1,
                        answer.index,
                        0,
                        answer.base_offset,
                        answer.log_append_time_ms,
                        answer.log_start_offset,
                        constant,
                        response.throttle_time_ms,
                    )
                )
                return
        general(response, w)

    return encode


def _flexible_response_encoder(version: int, general: Encoder) -> Encoder:
    by_name = version < 13

    @cache
    def packer(length: int) -> Callable[..., bytes]:
        # Topics, how the topic is called, partitions, the partition, no record errors, message and tagged fields.
        return structure(f"B{length}sBihqqqB3xix").pack

    def encode(response: Any, w: Callable[[Any], None]) -> None:
        topic = _only_success(response)
        if topic is not None:
            if by_name:
                name = topic.name.encode()
                called = bytes((len(name) + 1,)) + name if len(name) <= _LONGEST_NAME else b""
            else:
                called = topic.topic_id.bytes
            if called:
                answer = topic.partition_responses[0]
                w(
                    packer(len(called))(
                        2,
                        called,
                        2,
                        answer.index,
                        0,
                        answer.base_offset,
                        answer.log_append_time_ms,
                        answer.log_start_offset,
                        1,
                        response.throttle_time_ms,
                    )
                )
                return
        general(response, w)

    return encode
