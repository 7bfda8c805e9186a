"""ProduceRequest by hand: one topic, one partition."""

from __future__ import annotations

from struct import Struct
from typing import Any

from .compiled_support import as_uuid, long_uvarint, new
from .compiler import Decoder
from .messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from .schema import ZERO_UUID

_NO_TAGS = (0, 0, 0)
_three_tag_counts = Struct(">BBB").unpack_from


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


def classic_produce_decoder(version: int, general: Decoder) -> Decoder:
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


def named_produce_decoder(version: int, general: Decoder) -> Decoder:
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


def identified_produce_decoder(version: int, general: Decoder) -> Decoder:
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
