"""Fetch by hand: the request for one partition of one topic, and the answer with that partition's records."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from struct import Struct
from typing import Any

from .compiled_support import as_uuid, new, structure, uvarint
from .compiler import Decoder, Encoder
from .messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)
from .schema import ZERO_UUID

_LONGEST_NAME = 126
"""UTF-8 bytes of a topic name or rack up to which its length is one byte, compact or not."""
_UNKNOWN_HIGH_WATERMARK = 2**63 - 1
_replica_id_at = Struct(">i").unpack_from


def fetch_request_decoder(version: int, general: Decoder) -> Decoder:
    """A decoder of FetchRequest in that version; `general` is the compiled one."""
    if version < 11:
        return general
    return _classic_decoder(general) if version == 11 else _flexible_decoder(version, general)


def _consumer_request() -> tuple[FetchRequest, FetchTopic, FetchPartition]:
    """A request for one partition of one topic, with the defaults of everything that no consumer sends."""
    partition = new(FetchPartition)
    partition.replica_directory_id = ZERO_UUID
    partition.high_watermark = _UNKNOWN_HIGH_WATERMARK
    topic = new(FetchTopic)
    topic.partitions = [partition]
    request = new(FetchRequest)
    request.cluster_id = None
    request.replica_state = state = new(ReplicaState)
    state.replica_id = state.replica_epoch = -1
    request.topics = [topic]
    request.forgotten_topics_data = []
    return request, topic, partition


def _classic_decoder(general: Decoder) -> Decoder:
    head = Struct(">iiiibiiih").unpack_from  # replica id … session epoch, topics, length of name
    rest = Struct(">iiiqqiih").unpack_from  # partitions, the partition, forgotten topics, length of rack

    def decode(buf: Any, p: int, end: int, budget: int) -> tuple[Any, int]:
        if end - p >= 69:
            request, topic, partition = _consumer_request()
            (
                request.replica_id,
                request.max_wait_ms,
                request.min_bytes,
                request.max_bytes,
                request.isolation_level,
                request.session_id,
                request.session_epoch,
                topics,
                length,
            ) = head(buf, p)
            q = p + 31 + length
            if topics == 1 and length >= 0 and q + 38 <= end:
                (
                    partitions,
                    partition.partition,
                    partition.current_leader_epoch,
                    partition.fetch_offset,
                    partition.log_start_offset,
                    partition.partition_max_bytes,
                    forgotten,
                    rack_length,
                ) = rest(buf, q)
                r = q + 38 + rack_length
                if partitions == 1 and forgotten == 0 and rack_length >= 0 and r <= end:
                    partition.last_fetched_epoch = -1
                    topic.topic = str(buf[p + 31 : q], "utf-8")
                    topic.topic_id = ZERO_UUID
                    request.rack_id = str(buf[q + 38 : r], "utf-8") if rack_length else ""
                    return request, r
        return general(buf, p, end, budget)

    return decode


def _flexible_decoder(version: int, general: Decoder) -> Decoder:
    by_name, has_replica_id = version < 13, version < 15
    head = Struct(">iiibiiBB").unpack_from  # maximal wait … session epoch, topics, length of name or first of the id
    rest = Struct(">BiiqiqiHBB").unpack_from  # classic, with counts and lengths one higher; H: two sections of tags
    lead = 4 if has_replica_id else 0

    def decode(buf: Any, p: int, end: int, budget: int) -> tuple[Any, int]:
        start = p + lead
        if end - start >= 61:
            request, topic, partition = _consumer_request()
            (
                request.max_wait_ms,
                request.min_bytes,
                request.max_bytes,
                request.isolation_level,
                request.session_id,
                request.session_epoch,
                topics,
                length,
            ) = head(buf, start)
            start += 22
            q = start + length if by_name else start + 16
            if topics == 2 and (not by_name or 0 < length <= _LONGEST_NAME) and q + 38 <= end:
                (
                    partitions,
                    partition.partition,
                    partition.current_leader_epoch,
                    partition.fetch_offset,
                    partition.last_fetched_epoch,
                    partition.log_start_offset,
                    partition.partition_max_bytes,
                    tags,
                    forgotten,
                    rack_length,
                ) = rest(buf, q)
                r = q + 36 + rack_length
                if (
                    partitions == 2
                    and not tags
                    and forgotten == 1
                    and 0 < rack_length <= 127
                    and r < end
                    and not buf[r]
                ):
                    request.replica_id = _replica_id_at(buf, p)[0] if has_replica_id else -1
                    topic.topic = str(buf[start + 1 : q], "utf-8") if by_name else ""
                    topic.topic_id = ZERO_UUID if by_name else as_uuid(bytes(buf[start:q]))
                    request.rack_id = str(buf[q + 37 : r], "utf-8") if rack_length > 1 else ""
                    return request, r + 1
        return general(buf, p, end, budget)

    return decode


def fetch_response_encoder(version: int, general: Encoder) -> Encoder:
    """An encoder of FetchResponse in that version; `general` is the compiled one."""
    if version < 7:
        return general
    return _classic_encoder(version, general) if version < 12 else _flexible_encoder(version, general)


def _only_records(response: FetchResponse) -> FetchableTopicResponse | None:
    """The one topic of an answer that brings the records of one partition and nothing else."""
    topics = response.responses
    if len(topics) == 1 and not response.node_endpoints and len(topics[0].partitions) == 1:
        data = topics[0].partitions[0]
        diverging, leader, snapshot = data.diverging_epoch, data.current_leader, data.snapshot_id
        if (
            data.records is not None
            and data.aborted_transactions is None
            and data.preferred_read_replica == -1
            and diverging.end_offset == diverging.epoch == leader.leader_id == leader.leader_epoch == -1
            and snapshot.end_offset == snapshot.epoch == -1
        ):
            return topics[0]
    return None


def _classic_encoder(version: int, general: Encoder) -> Encoder:
    # -1: no aborted transactions; -1 twice from 11 on: no preferred replica either. Then the length of the records.
    codes = "ii" if version < 11 else "qi"

    @cache
    def packer(length: int) -> Callable[..., bytes]:
        return structure(f"ihiih{length}siihqqq{codes}").pack

    def encode(response: Any, w: Callable[[Any], None]) -> None:
        topic = _only_records(response)
        if topic is not None:
            name = topic.topic.encode()
            length = len(name)
            if length <= _LONGEST_NAME:
                data: Any = topic.partitions[0]
                w(
                    packer(length)(
                        response.throttle_time_ms,
                        response.error_code,
                        response.session_id,
                        1,
                        length,
                        name,
                        1,
                        data.partition_index,
                        data.error_code,
                        data.high_watermark,
                        data.last_stable_offset,
                        data.log_start_offset,
                        -1,
                        len(data.records),
                    )
                )
                w(data.records)
                return
        general(response, w)

    return encode


def _flexible_encoder(version: int, general: Encoder) -> Encoder:
    by_name = version < 13

    @cache
    def packer(length: int) -> Callable[..., bytes]:
        # Throttle time, error, session, topics, how the topic is called, partitions, the partition up to its records.
        return structure(f"ihiB{length}sBihqqqBi").pack

    def encode(response: Any, w: Callable[[Any], None]) -> None:
        topic = _only_records(response)
        if topic is not None:
            if by_name:
                name = topic.topic.encode()
                called = bytes((len(name) + 1,)) + name if len(name) <= _LONGEST_NAME else b""
            else:
                called = topic.topic_id.bytes
            if called:
                data: Any = topic.partitions[0]
                front = packer(len(called))(
                    response.throttle_time_ms,
                    response.error_code,
                    response.session_id,
                    2,
                    called,
                    2,
                    data.partition_index,
                    data.error_code,
                    data.high_watermark,
                    data.last_stable_offset,
                    data.log_start_offset,
                    0,
                    -1,
                )
                w(front + uvarint(len(data.records) + 1))
                w(data.records)
                w(b"\0\0\0")  # no tagged fields of the partition, the topic, the message
                return
        general(response, w)

    return encode
