"""FetchRequest by hand: one topic, one partition, no forgotten partitions."""

from __future__ import annotations

from struct import Struct
from typing import Any

from .compiled_support import as_uuid, new
from .compiler import Decoder
from .messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from .schema import ZERO_UUID

_LONGEST_NAME = 126
"""UTF-8 bytes of a topic name or rack up to which its length is one byte, compact or not."""
_UNKNOWN_HIGH_WATERMARK = 2**63 - 1
_replica_id_at = Struct(">i").unpack_from


def _consumer_request() -> tuple[FetchRequest, FetchTopic, FetchPartition]:
    """Decode a request for one partition of one topic, with the usual defaults of consumers."""
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


def at_offset(partition: FetchPartition, offset: int) -> FetchPartition:
    """Return a copy of the request for a partition with another fetch offset."""
    other = new(FetchPartition)
    other.partition = partition.partition
    other.current_leader_epoch = partition.current_leader_epoch
    other.fetch_offset = offset
    other.last_fetched_epoch = partition.last_fetched_epoch
    other.log_start_offset = partition.log_start_offset
    other.partition_max_bytes = partition.partition_max_bytes
    other.replica_directory_id = partition.replica_directory_id
    other.high_watermark = partition.high_watermark
    return other


def classic_fetch_decoder(version: int, general: Decoder) -> Decoder:
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


def flexible_fetch_decoder(version: int, general: Decoder) -> Decoder:
    by_name, has_replica_id = version < 13, version < 15
    head = Struct(">iiibiiBB").unpack_from  # maximum wait … session epoch, topics, length of name or first of the id
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
