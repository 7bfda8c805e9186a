"""DescribeQuorum (key 55): the leader, voters and observers of `__cluster_metadata` (KIP-595).

Versions 0-2, flexible from 0.
   1  times of the replicas (KIP-836)
   2  directory ids, endpoints of the voters, error messages (KIP-853)
"""

from __future__ import annotations

from uuid import UUID

from ..schema import int16, int32, int64, message, string, uint16, uuid, wire


@message
class PartitionData:
    partition_index: int = wire(int32, "0+")


@message
class TopicData:
    topic_name: str = wire(string, "0+")
    partitions: list[PartitionData] = wire([PartitionData], "0+")


@message(versions="0-2", flexible="0+")
class DescribeQuorumRequest:
    topics: list[TopicData] = wire([TopicData], "0+")


@message
class ReplicaState:
    replica_id: int = wire(int32, "0+")
    replica_directory_id: UUID = wire(uuid, "2+")
    log_end_offset: int = wire(int64, "0+")
    last_fetch_timestamp: int = wire(int64, "1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = wire(int64, "1+", default=-1, ignorable=True)


@message
class ResponsePartitionData:
    partition_index: int = wire(int32, "0+")
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "2+", null="2+", ignorable=True)
    leader_id: int = wire(int32, "0+")
    leader_epoch: int = wire(int32, "0+")
    high_watermark: int = wire(int64, "0+")
    current_voters: list[ReplicaState] = wire([ReplicaState], "0+")
    observers: list[ReplicaState] = wire([ReplicaState], "0+")


@message
class ResponseTopicData:
    topic_name: str = wire(string, "0+")
    partitions: list[ResponsePartitionData] = wire([ResponsePartitionData], "0+")


@message
class Listener:
    name: str = wire(string, "2+")
    host: str = wire(string, "2+")
    port: int = wire(uint16, "2+")


@message
class Node:
    node_id: int = wire(int32, "2+")
    listeners: list[Listener] = wire([Listener], "2+")


@message(versions="0-2", flexible="0+")
class DescribeQuorumResponse:
    error_code: int = wire(int16, "0+")
    error_message: str | None = wire(string, "2+", null="2+", ignorable=True)
    topics: list[ResponseTopicData] = wire([ResponseTopicData], "0+")
    nodes: list[Node] = wire([Node], "2+")
