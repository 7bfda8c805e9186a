"""DescribeTopicPartitions (key 75): topics and partitions, page by page (KIP-966).

Versions 0, flexible from 0.
"""

from __future__ import annotations

from uuid import UUID

from ..schema import boolean, int16, int32, message, string, uuid, wire


@message
class TopicRequest:
    name: str = wire(string, "0+")


@message
class Cursor:
    topic_name: str = wire(string, "0+")
    partition_index: int = wire(int32, "0+")


@message(versions="0", flexible="0+")
class DescribeTopicPartitionsRequest:
    topics: list[TopicRequest] = wire([TopicRequest], "0+")
    response_partition_limit: int = wire(int32, "0+", default=2000)
    cursor: Cursor | None = wire(Cursor, "0+", null="0+", default=None)


@message
class DescribeTopicPartitionsResponsePartition:
    error_code: int = wire(int16, "0+")
    partition_index: int = wire(int32, "0+")
    leader_id: int = wire(int32, "0+")
    leader_epoch: int = wire(int32, "0+", default=-1, ignorable=True)
    replica_nodes: list[int] = wire([int32], "0+")
    isr_nodes: list[int] = wire([int32], "0+")
    eligible_leader_replicas: list[int] | None = wire([int32], "0+", null="0+", default=None)
    last_known_elr: list[int] | None = wire([int32], "0+", null="0+", default=None)
    offline_replicas: list[int] = wire([int32], "0+", ignorable=True)


@message
class DescribeTopicPartitionsResponseTopic:
    error_code: int = wire(int16, "0+")
    name: str | None = wire(string, "0+", null="0+")
    topic_id: UUID = wire(uuid, "0+", ignorable=True)
    is_internal: bool = wire(boolean, "0+", ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = wire([DescribeTopicPartitionsResponsePartition], "0+")
    topic_authorized_operations: int = wire(int32, "0+", default=-2_147_483_648)


@message(versions="0", flexible="0+")
class DescribeTopicPartitionsResponse:
    throttle_time_ms: int = wire(int32, "0+", ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = wire([DescribeTopicPartitionsResponseTopic], "0+")
    next_cursor: Cursor | None = wire(Cursor, "0+", null="0+", default=None)
